"""The sum of gradients over the cells that hold one: one gloo group on the loopback interface, rebuilt only when they are others (A1, A8).

A peer that is killed is an error at the others within milliseconds; a peer that never comes, after CONNECT_TIMEOUT_S.
"""

from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from gyre.errors import Unavailable

CONNECT_TIMEOUT_S = 5.0
REDUCE_TIMEOUT_S = 60.0
"""Silence of a peer inside a reduction; a death is noticed at once, this is for a peer that hangs."""
INTERFACE = "lo"
"""Nothing outside this machine can reach the group."""


class Reducer:
    """One cell's end of the group. Blocking: call it from the compute thread."""

    def __init__(self) -> None:
        self._group: dist.ProcessGroupGloo | None = None
        self._key: tuple[str, int, int] | None = None

    def sum(self, flat_P: torch.Tensor, rank: int, world_size: int, store_path: Path) -> torch.Tensor:
        """The sum over all cells of `flat_P`, in place. A new `store_path` means a new group. Raises Unavailable when a peer is gone.

        The core makes the store's folder before a round and removes it when the round has failed: who comes late sees that at once.
        """
        if world_size == 1:
            return flat_P
        if not store_path.parent.is_dir():
            raise Unavailable(f"the round that met at {store_path} is over")
        try:
            group = self._connected(rank, world_size, store_path)
            options = dist.AllreduceOptions()
            options.timeout = timedelta(seconds=REDUCE_TIMEOUT_S)
            group.allreduce([flat_P], options).wait()
        except RuntimeError as error:
            self.close()
            raise Unavailable(f"the reduction over {world_size} cells failed: {error}") from error
        return flat_P

    def _connected(self, rank: int, world_size: int, store_path: Path) -> dist.ProcessGroupGloo:
        key = (str(store_path), rank, world_size)
        if self._group is None or self._key != key:
            self.close()
            options = dist.ProcessGroupGloo._Options()
            options._devices = [dist.ProcessGroupGloo.create_device(interface=INTERFACE)]
            options._timeout = timedelta(seconds=CONNECT_TIMEOUT_S)
            store = dist.FileStore(str(store_path), world_size)
            store.set_timeout(timedelta(seconds=CONNECT_TIMEOUT_S))
            self._group = dist.ProcessGroupGloo(store, rank, world_size, options)
            self._key = key
        return self._group

    def close(self) -> None:
        """Peers that still wait for this cell see an error."""
        self._group = None
        self._key = None
