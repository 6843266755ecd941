"""The entry point `vllm.general_plugins`, called in each of vLLM's processes: server, engine core, worker."""

import ctypes
import multiprocessing
import os
import secrets
import signal
from multiprocessing import shared_memory

PR_SET_PDEATHSIG = 1
SHARED = "GYRE_VLLM_SHARED"
"""Variable: how the names of shared memory and semaphores begin."""


def register() -> None:
    """Tell vLLM of the weight transfer, name shared memory so that its owner can be told, and die with the process above: one that
    outlived it would hold its memory for ever."""
    die_with_parent()
    from vllm.distributed.weight_transfer import WeightTransferEngineFactory

    if "gyre" not in WeightTransferEngineFactory._registry:
        WeightTransferEngineFactory.register_engine("gyre", "gyre_vllm.transfer", "Transfer")
    if begin := os.environ.get(SHARED):
        # Python's library has no public setting for either: of shared memory, and of the semaphores that this process makes.
        shared_memory._make_filename = lambda: f"/{begin}-{secrets.token_hex(8)}"
        multiprocessing.current_process()._config["semprefix"] = f"/{begin}"


def die_with_parent() -> None:
    """Also where it is gone already: this process was started long ago, for it has imported all of vLLM since."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    parent = multiprocessing.parent_process()
    if parent is not None and os.getppid() != parent.pid:
        os.kill(os.getpid(), signal.SIGKILL)
