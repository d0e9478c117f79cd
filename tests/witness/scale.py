"""How large a test is: small among all the others, as large as promised when asked: `ATTUNE_FULL=1 make test`."""

from __future__ import annotations

import os

FULL = "ATTUNE_FULL"


def scaled(*, short: int, full: int) -> int:
    """The number for this run."""
    return full if os.environ.get(FULL) == "1" else short
