"""An answer's long list a page at a time, for whoever cannot take it whole: a message holds 16 MiB.

A cursor is what names the page's last row, so that rows which come in meanwhile move nothing. Everything else of the answer is in every page.
"""

import json
from collections.abc import Sequence
from typing import Any

from gyre.errors import InvalidInput

LIMIT, LIMIT_MAX = 1_000, 10_000


def paged(answer: dict[str, Any], rows: str, key: Sequence[str], after: str, limit: int) -> dict[str, Any]:
    """`answer` with `limit` (0: LIMIT) of the list `rows` behind the cursor `after`, and `next`, the next page's, empty after the last; whole, and
    without it, where neither is given. `key`: columns that name a row. Raises InvalidInput."""
    if not after and not limit:
        return answer
    if not 0 <= limit <= LIMIT_MAX:
        raise InvalidInput(f"limit {limit}: from 1 to {LIMIT_MAX}")
    found, most = answer[rows], limit or LIMIT
    names = [json.dumps([row[name] for name in key]) for row in found]
    if after and after not in names:
        raise InvalidInput(f"after {after[:100]!r}: no cursor of this list; `next` of the page before is one")
    begin = names.index(after) + 1 if after else 0
    is_last = begin + most >= len(found)
    return {**answer, rows: found[begin : begin + most], "next": "" if is_last else names[begin + most - 1]}
