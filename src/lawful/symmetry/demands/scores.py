"""Heads of attention: which coordinates of queries, keys and values belong together.

Scores are products of two moving values, summed over coordinates. Each entry of the scores knows its head: the row of
labels that its query has and the row that its key has. Whatever moves scores moves these numbers of heads with them,
until a product with values ends the attention.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from lawful.symmetry.demands.gauges import AttentionLabels, Gauges
from lawful.symmetry.demands.labels import compact, on, varying
from lawful.types import Residues

# With 64 coordinates a head, 51 MB of labels for each of queries, keys and values.
MOST_ROWS = 100_000  # positions and heads of one product


@dataclass(frozen=True, eq=False)
class Scores:
    """The heads that scores belong to.

    `heads` numbers them, entry by entry; `rows` are the labels of each head's coordinates in the two factors, `own`
    number the positions along the axes that each factor alone has. `soft` scores have passed a softmax, along an axis
    of the factor `key`. `apart`: something treats heads differently. `tables` are the parameters that are added.
    """

    heads: torch.Tensor
    rows: tuple[Residues, Residues]
    own: tuple[torch.Tensor, torch.Tensor]
    key: int = 1
    soft: bool = False
    apart: bool = False
    tables: tuple[str, ...] = ()

    def move(self, move: Callable[[torch.Tensor], torch.Tensor]) -> Scores:
        """Scores whose entries are elsewhere."""
        labels = (compact(move(self.own[0])), compact(move(self.own[1])))
        return replace(self, heads=compact(move(self.heads)), own=labels)

    def beside(self, shape: Sequence[int], tables: Sequence[str] = ()) -> Scores:
        """Scores next to a value of a shape: it tells heads apart if it changes with them."""
        lead = self.heads.dim() - len(shape)
        apart = any(d >= lead and shape[d - lead] > 1 for d in varying(self.heads))
        return replace(self, apart=self.apart or apart, tables=tuple(dict.fromkeys((*self.tables, *tables))))

    def soften(self, axis: int) -> Scores | None:
        """Scores after a softmax along an axis, which one factor alone must have."""
        owners = [number for number in (0, 1) if axis in varying(self.own[number])]
        if len(owners) > 1 or axis in varying(self.heads):
            return None
        return replace(self, key=owners[0] if owners else self.key, soft=True)


def read_scores(
    fields: Sequence[torch.Tensor], line: Sequence[int], own: tuple[Sequence[int], Sequence[int]]
) -> Scores | None:
    """The heads of a product of two values with one field each, laid out in the axes of the product; `line` is summed.

    `own` are the axes that each factor alone has.
    """
    shape = tuple(size for d, size in enumerate(fields[0].shape) if d not in line)
    heads = sorted({d for field in fields for d in varying(field)} - set(line))
    count = int(np.prod([shape[d] for d in heads], dtype=int))
    if not line or count > MOST_ROWS:
        return None
    rows = [_rows(field, heads, line) for field in fields]
    number, first = _number_rows(np.concatenate(rows, 1))
    places = tuple(
        on(axes, shape, torch.arange(int(np.prod([shape[d] for d in axes], dtype=int))))
        for axes in ([d for d in dimensions if d not in heads] for dimensions in own)
    )
    return Scores(on(heads, shape, torch.as_tensor(number)), (rows[0][first], rows[1][first]), (places[0], places[1]))


def end_attention(
    gauges: Gauges, scores: Scores, heads: torch.Tensor, value: torch.Tensor, line: Sequence[int]
) -> bool:
    """Note the heads of an attention at its product with values, whose labels are `value`; False if they do not fit.

    Both are laid out in the axes of the product; the coordinates of values are `line`. Heads change places as wholes,
    if all of them can.
    """
    places = sorted({*varying(heads), *varying(value)} - set(line))
    count = int(np.prod([value.shape[d] for d in places], dtype=int))
    if count > MOST_ROWS:
        return False
    number, first = np.unique(_rows(heads, places, ())[:, 0], return_index=True)
    values = _rows(value, places, line)[first]
    query, key = scores.rows[1 - scores.key][number], scores.rows[scores.key][number]
    tables = query, key, values
    first_of_head = np.sort(_number_rows(np.concatenate(tables, 1))[1])
    gauges.attentions.append(
        AttentionLabels(query[first_of_head], key[first_of_head], values[first_of_head], scores.tables)
    )
    total = len(number)
    if total == 1:
        return True
    together = all(len(np.unique(table, axis=0)) > 1 for table in tables) and not scores.apart
    sides = [(table.reshape(-1), np.repeat(np.arange(total), table.shape[1])) for table in tables]
    if together:
        gauges.heads.append((total, sides))
    else:
        gauges.told_apart += [side for table, side in zip(tables, sides, strict=True)
                              if len(np.unique(table, axis=0)) > 1]  # fmt: skip
    return True


def _rows(field: torch.Tensor, places: Sequence[int], line: Sequence[int]) -> Residues:
    """The labels along a line, a row for each place."""
    order = [*places, *line]
    for d in reversed(range(field.dim())):
        if d not in order:
            field = field.select(d, 0)
    dimensions = sorted(order)
    count = int(np.prod([field.shape[dimensions.index(d)] for d in places], dtype=int))
    return np.asarray(field.permute([dimensions.index(d) for d in order]).reshape(count, -1).numpy()).copy()


def _number_rows(table: Residues) -> tuple[Residues, Residues]:
    """A number for each row, equal for equal rows, in the order in which they come; and where each comes first."""
    _, first, inverse = np.unique(table, axis=0, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return rank[inverse.reshape(-1)], first[order]
