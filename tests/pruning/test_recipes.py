"""The recipes on docs/singular.md, run as they stand: they end in exact zeros, and pruning removes neurons."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import torch

PAGE = Path(__file__).parents[2] / "docs" / "singular.md"


def test_the_page_runs_as_it_is_written() -> None:
    """All blocks one after the other, as a reader would paste them."""
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S)
    names: dict[str, Any] = {}
    for block in blocks:
        exec(block, names)  # noqa: S102 (our own page)
    small, pruned = names["small"], names["pruned"]
    assert small.bound == 0.0
    assert small.neurons_after < small.neurons_before
    assert pruned.channels_after < pruned.channels_before
    x, y = names["x"][1400:], names["y"][1400:]
    with torch.no_grad():
        for module, given in ((names["model"], x), (pruned.module, x.reshape(-1, 1, 8, 8))):
            assert float((module(given).argmax(1) == y).double().mean()) > 0.8


def test_the_page_says_how_many_neurons_are_left() -> None:
    assert "26 of 72 neurons are left here" in PAGE.read_text(encoding="utf-8")
