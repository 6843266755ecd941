"""`python tools/install_harnesses.py FOLDER`: the harnesses of `make test-harness`, as their makers publish them, at versions that were seen to work.

Where FOLDER has them already nothing is done. Prints the folders with their programs as PATH would have them.
"""

import json
import shutil
import subprocess
import sys
import time
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
    python = folder / "python" / "bin" / "python"
    run([command for command in (npm_command(folder), pip_command(python)) if command])
    print(f"{folder / 'node_modules' / '.bin'}:{python.parent}")


def npm_command(folder: Path) -> list[str]:
    """Empty where nothing is missing; as the next."""
    missing = [f"{name}@{version}" for name, version in NPM.items() if installed_npm(folder, name) != version]
    words = ["npm", "install", "--prefix", str(folder), "--no-audit", "--no-fund", "--loglevel=error", "--save-exact"]
    return [*words, *missing] if missing else []


def pip_command(python: Path) -> list[str]:
    if not python.exists():
        venv.create(python.parent.parent, with_pip=True)
    missing = [f"{name}=={version}" for name, version in PIP.items() if installed_pip(python, name) != version]
    # Compiled when it is first imported: most of it never is, and all of it takes longer than the download.
    words = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile"]
    return [*words, *missing] if missing else []


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


def run(commands: list[list[str]]) -> None:
    """All of them beside each other. Their output goes where ours for people goes."""
    deadline_s = time.monotonic() + INSTALL_S
    running = []
    for command in commands:
        print(" ".join(command), file=sys.stderr)
        running.append(subprocess.Popen(command, stdout=sys.stderr))
    try:
        for process in running:
            if status := process.wait(max(0.0, deadline_s - time.monotonic())):
                raise subprocess.CalledProcessError(status, process.args)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        sys.exit(f"the harnesses could not be installed: {error}")
    finally:
        for process in running:
            process.kill()


if __name__ == "__main__":
    main()
