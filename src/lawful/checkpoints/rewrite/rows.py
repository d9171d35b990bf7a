"""Rows of layers that are joined, cut and picked: where they are among the rows of others."""

from __future__ import annotations

from collections.abc import Sequence

from lawful.checkpoints.rewrite.folds import State
from lawful.checkpoints.rewrite.parametrised_operators import LinearLayer
from lawful.checkpoints.rewrite.tensor_sources import TensorSource


def starts_of(sizes: Sequence[int]) -> list[int]:
    """Where each of several pieces begins when they are joined."""
    return [sum(sizes[:k]) for k in range(len(sizes))]


def joined_places(
    mine: Sequence[LinearLayer], theirs: Sequence[LinearLayer], order: Sequence[int], dealt: int
) -> list[int]:
    """For each row of my layers, joined, the row of theirs: the several ones stand in some order, and their rows may be
    dealt out to so many heads."""
    fusing, splitting = len(mine) < len(theirs), len(mine) > len(theirs)
    several = mine if splitting else theirs
    starts = starts_of([layer.outputs for layer in several])
    pieces = [list(range(starts[k], starts[k] + several[k].outputs)) for k in order]
    places = [row for piece in pieces for row in piece]
    if dealt and (fusing or splitting) and len({len(piece) for piece in pieces}) == 1:
        size = len(pieces[0]) // dealt
        places = [row for head in range(dealt) for piece in pieces for row in piece[head * size : (head + 1) * size]]
    if splitting:  # `places[i]` is where row i of theirs goes
        return sorted(range(len(places)), key=places.__getitem__)
    return places


def among(
    wanted: Sequence[int], parts: list[int], theirs: list[LinearLayer], starts: list[int]
) -> tuple[int, ...] | None:
    """Rows of the parts joined; None if these are all of them in order."""
    shift, before = {}, 0
    for k in parts:
        shift[k] = before - starts[k]
        before += theirs[k].outputs
    found = []
    for row in wanted:
        k = next(k for k in parts if starts[k] <= row < starts[k] + theirs[k].outputs)
        found.append(row + shift[k])
    return None if found == list(range(before)) else tuple(found)


def places_in(source: TensorSource, bias: str, rows: tuple[int, ...], state: State) -> tuple[int, ...] | None:
    """Where the rows of a bias are in what is made of it."""
    start = 0
    for part in source.parts:
        if part == bias:
            break
        start += part if isinstance(part, int) else len(state[part])
    order = list(source.rows) if source.rows is not None else None
    try:
        return tuple(start + row if order is None else order.index(start + row) for row in rows)
    except ValueError:
        return None
