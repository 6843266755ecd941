"""Regenerates gyre/api from proto/. `--check` compares instead and exits 1 on a difference.

python tools/gen_protos.py [--check]
"""

import filecmp
import shutil
import sys
import tempfile
from pathlib import Path

import grpc_tools
from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "gyre" / "api"


def generate(out: Path) -> None:
    """Write generated modules and stubs below `out`/gyre/api."""
    protos = sorted(str(path) for path in (ROOT / "proto").rglob("*.proto"))
    well_known = Path(grpc_tools.__file__).parent / "_proto"
    arguments = [
        "protoc", f"-I{ROOT / 'proto'}", f"-I{well_known}", f"--python_out={out}", f"--grpc_python_out={out}",
        f"--pyi_out={out}", *protos,
    ]  # fmt: skip
    if protoc.main(arguments) != 0:
        raise SystemExit("protoc failed; see above")
    for folder in [out / "gyre" / "api", *(path for path in (out / "gyre" / "api").rglob("*") if path.is_dir())]:
        (folder / "__init__.py").touch()
    (out / "gyre" / "api" / "__init__.py").write_text(
        '"""Generated from proto/ by tools/gen_protos.py; never edited by hand."""\n'
    )


def differences(left: Path, right: Path) -> list[str]:
    """Relative paths that differ or exist on one side only."""
    found: list[str] = []

    def walk(pair: filecmp.dircmp, prefix: str) -> None:
        names = [*pair.left_only, *pair.right_only, *pair.diff_files]
        found.extend(prefix + name for name in names if name != "__pycache__")
        for name, inner in pair.subdirs.items():
            if name != "__pycache__":
                walk(inner, f"{prefix}{name}/")

    walk(filecmp.dircmp(left, right), "")
    return sorted(found)


def main() -> int:
    with tempfile.TemporaryDirectory() as temporary:
        out = Path(temporary)
        generate(out)
        if "--check" in sys.argv[1:]:
            changed = differences(out / "gyre" / "api", TARGET)
            for name in changed:
                print(f"gyre/api/{name} is not what proto/ generates; run python tools/gen_protos.py")
            return 1 if changed else 0
        shutil.rmtree(TARGET, ignore_errors=True)
        shutil.copytree(out / "gyre" / "api", TARGET)
        return 0


if __name__ == "__main__":
    raise SystemExit(main())
