"""`gyre bench`: the benchmarks of the source tree, from wherever one stands."""

import subprocess
import sys


def bench(*words: str, cwd: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gyre.cli.main", "bench", *words]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=240)


def test_a_benchmark_is_found_from_any_folder_under_the_name_one_types(tmp_path):
    done = bench("elastic-plus", "--", "--help", cwd=tmp_path)
    assert done.returncode == 0 and "--workloads" in done.stdout


def test_an_unknown_benchmark_is_a_user_error_that_names_those_there_are(tmp_path):
    done = bench("elastic", cwd=tmp_path)
    assert done.returncode == 2 and "elastic-plus" in done.stderr and "Traceback" not in done.stderr
