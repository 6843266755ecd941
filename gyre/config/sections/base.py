"""What all sections have in common: bounds of numbers, and that an unknown field is an error."""

from typing import Annotated

import msgspec
from msgspec import Meta

Positive = Annotated[int, Meta(ge=1)]
NotNegative = Annotated[int, Meta(ge=0)]
Share = Annotated[float, Meta(ge=0.0, le=1.0)]
Price = Annotated[float, Meta(ge=0.0)]
Seconds = Annotated[float, Meta(gt=0.0)]


class Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One table of the configuration file."""
