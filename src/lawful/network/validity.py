"""What makes names, roles and edges a network, and what is said of those that are none."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from lawful.errors import InvalidNetwork
from lawful.network import topology
from lawful.types import Floats, Indices


def check_names(names: Iterable[str]) -> None:
    r"""Refuse names with line breaks (terminal escapes and other directions are spelled out where names are printed).

    >>> check_names(["h1.0", "proved: no\nverified: yes"])
    Traceback (most recent call last):
    lawful.errors.InvalidNetwork: a name holds a line break: 'proved: no\nverified: yes'
    """
    for name in names:
        if "\n" in str(name):  # a damaged file may give bytes
            raise InvalidNetwork(f"a name holds a line break: {str(name)[:80]!r}")


Roles = NDArray[np.int8]


class Role(IntEnum):
    """What a node does. The constant is the virtual input, fixed to 1, whose edges are the biases."""

    INPUT = 0
    HIDDEN = 1
    OUTPUT = 2
    CONSTANT = 3


def check_graph(
    names: Sequence[str], roles: Roles, tails: Indices, heads: Indices, levels: Callable[[], Indices]
) -> None:
    """Raise `InvalidNetwork` unless the arrays are a network; `levels` is asked once the edges have ends."""
    count, edges = len(names), len(tails)
    if roles.shape != (count,):
        raise InvalidNetwork(f"{count} names but {roles.size} roles")
    index = {name: number for number, name in enumerate(names)}
    if len(index) != count:
        twice = next(name for number, name in enumerate(names) if index[name] != number)
        raise InvalidNetwork(f"two nodes are called {twice!r}")
    check_names(names)
    if tails.shape != (edges,) or heads.shape != (edges,):
        raise InvalidNetwork(f"edges have {tails.size} tails and {heads.size} heads")
    if edges and (min(tails.min(), heads.min()) < 0 or max(tails.max(), heads.max()) >= count):
        raise InvalidNetwork("an edge names a node that does not exist")
    if not (roles == Role.INPUT).any() or not (roles == Role.OUTPUT).any():
        raise InvalidNetwork("a network needs at least one input and one output")
    if (roles == Role.CONSTANT).sum() > 1:
        raise InvalidNetwork("a network has at most one constant node")
    _check_edges(names, roles, tails, heads)
    if levels().min() < 0 and (cycle := topology.find_cycle(count, tails, heads)) is not None:
        raise InvalidNetwork("the graph has a cycle: " + " -> ".join(names[v] for v in cycle))
    useless = np.flatnonzero(topology.useless(roles == Role.HIDDEN, tails, heads))
    if len(useless):
        named = ", ".join(names[v] for v in useless[:5]) + (", ..." if len(useless) > 5 else "")
        raise InvalidNetwork(
            f"{len(useless)} hidden nodes are on no path from input to output: {named} (--drop-useless removes them)"
        )


def _check_edges(names: Sequence[str], roles: Roles, tails: Indices, heads: Indices) -> None:
    into = np.isin(roles[heads], (Role.INPUT, Role.CONSTANT))
    out_of = roles[tails] == Role.OUTPUT
    for wrong, words in ((into, "enters an input"), (out_of, "leaves an output")):
        if wrong.any():
            edge = int(np.argmax(wrong))
            raise InvalidNetwork(f"edge {names[tails[edge]]} -> {names[heads[edge]]} {words}")
    ordered = np.sort(tails * len(names) + heads)
    twice = np.flatnonzero(ordered[1:] == ordered[:-1])
    if len(twice):
        first, second = divmod(int(ordered[twice[0]]), len(names))
        raise InvalidNetwork(f"edge {names[first]} -> {names[second]} appears twice")


def check_numbers(names: Sequence[str], tails: Indices, heads: Indices, weights: Floats | None, slopes: Floats) -> None:
    """Raise `InvalidNetwork` unless there is one finite weight for each edge, and every slope is finite."""
    if weights is not None:
        if weights.shape != (len(tails),):
            raise InvalidNetwork(f"{len(tails)} edges but {weights.size} weights")
        bad = ~np.isfinite(weights)
        if bad.any():
            edge = int(np.argmax(bad))
            ends = f"{names[tails[edge]]} -> {names[heads[edge]]}"
            raise InvalidNetwork(f"{bad.sum()} weights are not finite, the first on edge {ends}")
    if not np.isfinite(slopes).all():
        raise InvalidNetwork("an activation slope is not finite")
