"""One attempt to falsify a sentence."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Trial:
    """A network (in words), whether the program said the sentence of it, and whether brute force says it is true."""

    about: str
    said: bool
    true: bool
