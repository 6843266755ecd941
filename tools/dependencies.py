"""Prints what pyproject.toml needs at least, one requirement a word: for an environment in which our packages are imported and not installed."""

import tomllib
from pathlib import Path

project = tomllib.loads((Path(__file__).resolve().parent.parent / "pyproject.toml").read_text())["project"]
print(" ".join(requirement.replace(" ", "") for requirement in project["dependencies"]))
