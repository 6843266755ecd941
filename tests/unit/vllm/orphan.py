"""A process whose parent ends before it has asked to end with it: `python -m tests.unit.vllm.orphan FOLDER`.

FOLDER/child is the child's process id, FOLDER/lives is there when it lives on."""

import multiprocessing
import os
import sys
import time
from pathlib import Path

from services.rollout.engine.vllm.plugin.gyre_vllm.plugin import die_with_parent


def child(folder: Path) -> None:
    parent = os.getppid()
    (folder / "child").write_text(str(os.getpid()))
    while os.getppid() == parent:
        time.sleep(0.01)
    die_with_parent()
    (folder / "lives").touch()


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    multiprocessing.get_context("spawn").Process(target=child, args=(folder,)).start()
    while not (folder / "child").exists() or not (folder / "child").read_text():
        time.sleep(0.01)
    os._exit(0)
