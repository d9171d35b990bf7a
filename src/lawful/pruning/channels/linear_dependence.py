"""Linear spaces of too many dimensions: channels that are sums of multiples of others, with nothing bent between.

In front of a linear space stand rows of weights, behind it columns: values of a head and the layer that reads them,
or two layers in a row. If the rows depend linearly on each other, exactly, a basis of them suffices and the columns
take over what the others said; if the columns do, the rows take over. Queries and keys of a head are the same: only
sums of their products are seen, and what is added to all keys is not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from flint import fmpq, fmpq_mat

from lawful.pruning.channels.heads import HeadGrids
from lawful.pruning.channels.program import Heads, Operation
from lawful.pruning.channels.state import ChannelState
from lawful.types import Floats

LARGEST = 3e7  # products of an elimination that is done exactly
GROWTH = 2**8  # of weights that take over: more would only carry rounding
MOST, LONGEST = 5000, 4096  # factors of one space, and bits of one: beyond, sums in fractions take too long
NEARLY = 1e-9  # of the largest singular value: far above the rounding of thousands of rows, so that none is missed
Terms = Mapping[int, Fraction]
Sweep = tuple[str, dict[int, tuple[tuple[int, Fraction], ...]]]  # which side takes over; cells with what they add up to


@dataclass(frozen=True, eq=False)
class _Space:
    """Cells of one linear space, and for each side (who takes over) the vectors of the other side."""

    cells: list[int]
    sides: dict[str, Floats | None]

    def find_dependent(self) -> tuple[str, dict[int, tuple[tuple[int, Fraction], ...]]]:
        """The side on which more can leave, and what does."""
        best: tuple[str, dict[int, tuple[tuple[int, Fraction], ...]]] = ("readers", {})
        for side, rows in self.sides.items():
            terms_by_row = {} if rows is None else dependent_rows(rows)
            if len(terms_by_row) > len(best[1]):
                best = (
                    side,
                    {
                        self.cells[row]: tuple((self.cells[other], factor) for other, factor in terms.items())
                        for row, terms in terms_by_row.items()
                    },
                )
        return best


def dependent_sweeps(state: ChannelState, grids: HeadGrids) -> list[Sweep]:
    """What can leave now, one side at a time."""
    sweeps: list[Sweep] = []
    for spaces, heads in _families(state, grids):
        chosen = [space.find_dependent() for space in spaces]
        if heads is not None:
            chosen = _even(chosen, heads)
        sweeps += [(side, gone) for side, gone in chosen if gone]
    sides = dict.fromkeys(side for side, _ in sweeps)
    return [
        (side, {cell: terms for mine, gone in sweeps if mine == side for cell, terms in gone.items()}) for side in sides
    ]


def _families(state: ChannelState, grids: HeadGrids) -> Iterator[tuple[list[_Space], Heads | None]]:
    """Spaces that must shrink alike: those of one attention (scores, then values); others alone."""
    written = {operation.name: operation for operation in state.program.operations}
    taken: set[int] = set()
    for operation, heads in grids.attends:
        scores, values = grids.score_cells(operation, heads), grids.value_cells(operation, heads)
        taken |= set(map(int, values.ravel())) | set(map(int, scores.ravel()))
        groups = [row for row in range(heads.groups) if any(state.alive[int(cell)] for cell in values[row])]
        layers = [written.get(source) for source in operation.sources]
        if heads.fixed or any(layer is None or layer.kind != "layer" for layer in layers):
            continue
        mine = [_scores(state, grids, operation, heads, group, layers) for group in groups]
        yield [*mine, *(_values(state, [int(cell) for cell in values[row]]) for row in groups)], heads
    for layer in state.layers:
        cells = [int(cell) for cell in state.program.activations[layer.name]]
        if not taken & set(cells):
            yield [_values(state, cells)], None


def _values(state: ChannelState, cells: Sequence[int]) -> _Space:
    """Channels between a layer that writes them and those that read them, with nothing but copies between."""
    left = [cell for cell in cells if state.alive[cell] and cell not in state.pinned]
    if state.used_again & set(left):
        return _Space([], {})
    origins = {cell: _origin(state, cell) for cell in left}
    layers = {origin[0].name: origin[0] for origin in origins.values() if origin is not None}
    shapes = {tuple((layer.name, len(places)) for layer, places in state.readers.get(cell, [])) for cell in left}
    if len(left) < 2 or len(layers) != 1 or None in origins.values() or len(shapes) != 1 or shapes == {()}:
        return _Space([], {})
    layer = next(iter(layers.values()))
    if layer.groups > 1 or any(reader.groups > 1 for reader, _ in state.readers[left[0]]):
        return _Space([], {})
    rows = [origin[1] for origin in origins.values() if origin is not None]
    columns: Floats | None = None
    readers = state.readers[left[0]]
    if not any(state.rounded(reader)[state.alive_at(reader.name)].any() for reader, _ in readers):
        columns = np.stack([_columns(state, cell) for cell in left])
    return _Space(left, {"readers": _rows(state, layer, rows, bias=True), "writers": columns})


def _scores(
    state: ChannelState,
    grids: HeadGrids,
    operation: Operation,
    heads: Heads,
    group: int,
    layers: Sequence[Operation | None],
) -> _Space:
    """Inner channels of queries and keys."""
    query, key = layers[:2]
    keys = state.program.activations[operation.sources[1]][heads.keys[group]].tolist()
    places = [place for place, cell in enumerate(keys) if state.alive[cell]]
    cells = [keys[place] for place in places]
    odd = any(cell in state.pinned or len(grids.scoring[cell]) != 1 for cell in cells)
    if odd or len(cells) < 2 or query is None or key is None:
        return _Space([], {})
    asked = [_rows(state, query, head[places].tolist(), bias=True) for head in heads.queries[group]]
    parts = [part for part in asked if part is not None]
    together = np.concatenate(parts, axis=1) if len(parts) == len(asked) else None
    answered = _rows(state, key, heads.keys[group][places].tolist(), bias=False)
    return _Space(cells, {"queries": together, "keys": answered})


def _origin(state: ChannelState, cell: int) -> tuple[Operation, int] | None:
    """The layer and row that write a cell, if all its readers hear that and nothing bends it on the way."""
    written = {operation.name: operation for operation in state.program.operations}
    origins: set[tuple[str, int]] = set()
    for reader, places in state.readers.get(cell, []):
        for place in places:
            name = reader.sources[0]
            operation = written.get(name)
            while operation is not None and operation.attention is not None:
                heads = operation.attention
                place = int(np.repeat(heads.values, heads.heads, axis=0).ravel()[place])
                name = operation.sources[-1]
                operation = written.get(name)
            if operation is None or operation.kind != "layer":
                return None
            origins.add((name, place))
    if len(origins) != 1:
        return None
    name, row = origins.pop()
    return written[name], row


def _rows(state: ChannelState, layer: Operation, rows: list[int], *, bias: bool) -> Floats | None:
    """Rows of a layer; None if one of them was rounded."""
    if state.rounded(layer)[rows].any():
        return None
    weight = state.weight(layer)[rows].reshape(len(rows), -1)
    return np.concatenate([weight, state.bias(layer)[rows, None]], axis=1) if bias else weight


def _columns(state: ChannelState, cell: int) -> Floats:
    """What all readers make of a cell."""
    parts = [
        state.weight(reader)[state.alive_at(reader.name)][:, places].ravel() for reader, places in state.readers[cell]
    ]
    return np.concatenate(parts)


def _even(
    chosen: list[tuple[str, dict[int, tuple[tuple[int, Fraction], ...]]]], heads: Heads
) -> list[tuple[str, dict[int, tuple[tuple[int, Fraction], ...]]]]:
    """As many of each group as the one that can spare least; scores and values alike where they have one size."""
    half = len(chosen) // 2
    spare = [min(len(gone) for _, gone in part) for part in (chosen[:half], chosen[half:])]
    if heads.keys.shape[1] == heads.values.shape[1]:
        spare = [min(spare)] * 2
    # Any part of what depends may leave without the rest: its terms are about the basis, of which nothing leaves.
    return [(side, dict(list(gone.items())[: spare[number // half]])) for number, (side, gone) in enumerate(chosen)]


def dependent_rows(rows: Floats) -> dict[int, Terms]:
    """Rows that are sums of multiples of others (of a basis), exactly, as rational numbers.

    >>> dependent_rows(np.array([[1.0, 2.0], [2.0, 4.0], [0.0, 0.0], [1.0, 0.0]]))
    {1: {0: Fraction(2, 1)}, 2: {}}
    """
    if not len(rows) or rows.size * min(rows.shape) > LARGEST or not _nearly_singular(rows):
        return {}
    matrix = fmpq_mat(rows.shape[1], len(rows), [_rational(value) for value in rows.T.ravel().tolist()])
    # Its columns are the rows: in reduced form a column without a pivot lists its factors in the columns with one.
    reduced, rank = matrix.rref()
    pivots = [next(c for c in range(len(rows)) if reduced[r, c] != 0) for r in range(rank)]
    dependent: dict[int, Terms] = {}
    for row in sorted(set(range(len(rows))) - set(pivots)):
        factors = {pivot: reduced[at, row] for at, pivot in enumerate(pivots) if reduced[at, row] != 0}
        terms = {pivot: Fraction(int(factor.p), int(factor.q)) for pivot, factor in factors.items()}
        if all(abs(factor) < GROWTH and factor.denominator.bit_length() < LONGEST for factor in terms.values()):
            dependent[row] = terms
    return dependent if sum(map(len, dependent.values())) <= MOST else {}


def _nearly_singular(rows: Floats) -> bool:
    """Whether exact arithmetic is worth its time: rows that are far from dependent are not."""
    size = np.abs(rows).max(axis=1, keepdims=True)
    if not size.all():
        return True
    with np.errstate(all="ignore"):
        values = np.linalg.svd(rows / size, compute_uv=False)
    # No answer rests on this: fractions decide what passes, and what does not keeps its channels. Rounding leaves a
    # dependent row about 1e-16 of the largest value for each row; a NaN passes.
    return len(rows) > rows.shape[1] or not values[-1] > NEARLY * values[0]


def _rational(value: float) -> fmpq:
    top, bottom = value.as_integer_ratio()
    return fmpq(top, bottom)
