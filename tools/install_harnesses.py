"""`python tools/install_harnesses.py FOLDER`: the harnesses of `make test-harness`, as their makers publish them, at versions that were seen to work.

Where FOLDER has them already nothing is done. Prints the folders with their programs as PATH would have them.
"""

import json
import shutil
import subprocess
import sys
import venv
from pathlib import Path

NPM = {
    "@anthropic-ai/claude-code": "2.1.197",
    "@openai/codex": "0.171.0",
    "@qwen-code/qwen-code": "0.15.10",
    "opencode-ai": "1.18.33",
}
PIP = {"mini-swe-agent": "2.4.6"}
NODE_MAJOR_MIN = 20
"""Of the four, Claude Code and Qwen Code ask for the newest: 20."""
INSTALL_S = 900


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    folder = Path(sys.argv[1]).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    check_node()
    if missing := [f"{name}@{version}" for name, version in NPM.items() if installed_npm(folder, name) != version]:
        run(
            "npm",
            "install",
            "--prefix",
            str(folder),
            "--no-audit",
            "--no-fund",
            "--loglevel=error",
            "--save-exact",
            *missing,
        )
    python = folder / "python" / "bin" / "python"
    if not python.exists():
        venv.create(folder / "python", with_pip=True)
    if missing := [f"{name}=={version}" for name, version in PIP.items() if installed_pip(python, name) != version]:
        # Compiled when it is first imported: most of it never is, and all of it takes longer than the download.
        run(str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile", *missing)
    print(f"{folder / 'node_modules' / '.bin'}:{python.parent}")


def check_node() -> None:
    if shutil.which("node") is None or shutil.which("npm") is None:
        sys.exit(
            f"node and npm are needed (node {NODE_MAJOR_MIN} or newer): four of the five harnesses are npm packages"
        )
    said = subprocess.run(["node", "--version"], capture_output=True, text=True, check=True).stdout.strip()
    if int(said.removeprefix("v").split(".")[0]) < NODE_MAJOR_MIN:
        sys.exit(f"node is {said}; the harnesses need {NODE_MAJOR_MIN} or newer")


def installed_npm(folder: Path, name: str) -> str:
    file = folder / "node_modules" / name / "package.json"
    return json.loads(file.read_text())["version"] if file.exists() else ""


def installed_pip(python: Path, name: str) -> str:
    code = f"import importlib.metadata as m; print(m.version({name!r}))"
    return subprocess.run([python, "-c", code], capture_output=True, text=True).stdout.strip()


def run(*command: str) -> None:
    """Its output goes where ours for people goes."""
    print(" ".join(command), file=sys.stderr)
    try:
        subprocess.run(command, check=True, stdout=sys.stderr, timeout=INSTALL_S)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        sys.exit(f"the harnesses could not be installed: {error}")


if __name__ == "__main__":
    main()
