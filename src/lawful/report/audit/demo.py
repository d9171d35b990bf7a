"""The demo for people: what it saw, and the three lines to remember."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from lawful.types import Floats

if TYPE_CHECKING:
    from lawful.api.demo import Demo

SHADES = " .:-=+*#%@"


def digits_text(images: Floats, read: Sequence[int]) -> str:
    """Images of 8 by 8 pixels beside each other, and under each what the network reads.

    >>> import numpy as np
    >>> print(digits_text(np.ones((2, 64)), [3, 7]).splitlines()[-1])
    reads 3             reads 7
    """
    rows = []
    for line in range(8):
        shown = (image.reshape(8, 8)[line] for image in images)
        rows.append("    ".join("".join(2 * SHADES[int(9 * min(max(v, 0.0), 1.0))] for v in row) for row in shown))
    return "\n".join([*rows, "    ".join(f"{f'reads {digit}':16}" for digit in read).rstrip()])


def closing(story: Demo, statement: str, proof: str, page: str) -> str:
    """What was removed and proved, what was certified and re-checked, where to touch it."""
    pruning = story.pruning
    gone, of = pruning.neurons_before - pruning.neurons_after, pruning.neurons_before
    word = "proved to be the same function" if story.proved else story.verdict.verdict
    return "\n".join(
        [
            f"removed   {gone} of {of} hidden neurons: before and after are {word}",
            f"verified  {statement} (lawful verify {proof})",
            f"touch it  {page}",
        ]
    )
