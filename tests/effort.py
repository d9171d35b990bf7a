"""How much is tried: a part of the seeds and examples every day, all of them with `make full`."""

from __future__ import annotations

import os

FULL = os.environ.get("LAWFUL_TESTS") == "full"


def trials(daily: int, full: int) -> int:
    """How many random cases, or examples of a property, are tried."""
    return full if FULL else daily
