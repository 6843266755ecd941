"""The entry point `vllm.general_plugins`, called in each of vLLM's processes: server, engine core, worker."""

import ctypes
import signal

PR_SET_PDEATHSIG = 1


def register() -> None:
    """Tell vLLM of the weight transfer, and die with the process above: one that outlived it would hold its memory for ever."""
    from vllm.distributed.weight_transfer import WeightTransferEngineFactory

    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if "gyre" not in WeightTransferEngineFactory._registry:
        WeightTransferEngineFactory.register_engine("gyre", "gyre_vllm.transfer", "Transfer")
