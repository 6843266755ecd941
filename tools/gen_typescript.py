"""Regenerates the TypeScript example's contract from proto/. `--check` compares instead and exits 1 on a difference.

python tools/gen_typescript.py [--check]      after `npm install` in examples/typescript, which brings the generator
"""

import sys
import tempfile
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent.parent
EXAMPLE = ROOT / "examples" / "typescript"
PLUGIN = EXAMPLE / "node_modules" / ".bin" / "protoc-gen-ts_proto"
CONTRACT = "gyre/api/rollout/v1/environments.proto"
OPTIONS = "esModuleInterop=true,outputServices=grpc-js,oneof=unions-value,importSuffix=.js,forceLong=bigint,env=node,outputJsonMethods=false"


def generate(out: Path) -> Path:
    """The generated file below `out`."""
    arguments = [
        "protoc", f"-I{ROOT / 'proto'}", f"--plugin=protoc-gen-ts_proto={PLUGIN}", f"--ts_proto_out={out}",
        f"--ts_proto_opt={OPTIONS}", str(ROOT / "proto" / CONTRACT),
    ]  # fmt: skip
    if protoc.main(arguments) != 0:
        raise SystemExit("protoc failed; see above (npm install in examples/typescript brings its plugin)")
    return (out / CONTRACT).with_suffix(".ts")


def main() -> int:
    target = (EXAMPLE / "src" / "api" / CONTRACT).with_suffix(".ts")
    with tempfile.TemporaryDirectory() as temporary:
        text = generate(Path(temporary)).read_text()
    if "--check" in sys.argv[1:]:
        if target.exists() and target.read_text() == text:
            return 0
        print(f"{target.relative_to(ROOT)} is not what proto/ generates; run python tools/gen_typescript.py")
        return 1
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
