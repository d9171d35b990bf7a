"""Architectures as text: `"3-4-2 relu bias"` is a program."""

from __future__ import annotations

from lawful.network import Architecture
from lawful.program.frontends.layers import read_layers
from lawful.program.program import Program


def read_text(text: str, batch: int = 1, seed: int = 0) -> Program:
    """The program of an architecture, with weights drawn from a seed.

    >>> sorted(read_text("3-4-2 relu bias").parameters)
    ['0.bias', '0.weight', '1.bias', '1.weight']
    """
    return read_layers(Architecture.parse(text).initialise(seed=seed), batch)
