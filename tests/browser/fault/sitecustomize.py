"""The planted fault: cell 1 stops taking new weights after its first publish, and says nothing of it.

Python imports this module at its start where the folder is on PYTHONPATH; in every other process it does nothing.
"""

import sys

_WORDS = sys.orig_argv

if "services.rollout.cell" in _WORDS and _WORDS[_WORDS.index("--cell") + 1] == "1":
    from services.rollout.cell.roles import CellRoles

    _take = CellRoles._take_newest

    async def _stuck(self: CellRoles, load: bool = False) -> None:
        if not self._loaded_version:
            await _take(self, load)

    CellRoles._take_newest = _stuck
