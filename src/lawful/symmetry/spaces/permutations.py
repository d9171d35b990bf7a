"""Permutations of hidden units and heads: parts of the graph that nothing tells apart.

Labels that a link ties, and labels that mix in one matrix, belong to one part: a ReLU unit with its row, bias and
column, or an attention head with its block of queries, keys, values and outputs. Two parts that every link meets in
the same way can change places, and n such parts give n! permutations of the parameters' entries.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import scipy.sparse as sparse
from scipy.sparse.csgraph import connected_components

from lawful.symmetry.demands.gauges import PINNED, Gauges
from lawful.symmetry.solver.gauge_solution import GaugeSolution
from lawful.types import Mask, Residues

Parts = list[list[Residues]]  # classes of parts that can change places; a part is its labels in matching order


def log10_permutations(gauges: Gauges, solution: GaugeSolution) -> float:
    """The decimal logarithm of the number of permutations that pass every operation, at least.

    Coordinates of a space on which GL or O acts are not counted: permutations are part of it.
    """
    return sum(math.lgamma(len(parts) + 1) for parts in interchangeable(gauges, solution)) / math.log(10)


def interchangeable(gauges: Gauges, solution: GaugeSolution) -> Parts:
    """All classes of two parts or more that can change places."""
    heads = gauges.count + np.arange(sum(size for size, _ in gauges.heads))
    link, left, right, group, is_named = _rows(gauges, heads)
    count = gauges.count + len(heads)
    mixing = np.bincount(solution.cell)[solution.cell] > 1
    place = np.flatnonzero(mixing)
    first = np.unique(solution.cell[place], return_index=True)[1]
    top = np.zeros(int(solution.cell.max()) + 1, dtype=np.int64)
    top[solution.cell[place[first]]] = place[first]
    tails, ends = np.r_[left, place], np.r_[right, top[solution.cell[place]]]
    graph = sparse.coo_array((np.ones(len(tails), dtype=np.int8), (tails, ends)), shape=(count, count))
    number, part = connected_components(graph, directed=False)
    fixed, with_head, matrix = (np.zeros(number, dtype=bool) for _ in range(3))
    fixed[part[PINNED]] = True
    for pin in gauges.pins:
        if not pin.permutes:
            fixed[part[pin.labels]] = True
    with_head[part[heads]] = True
    matrix[part[: len(mixing)][mixing]] = True
    fixed |= matrix & ~with_head  # whole matrices change places only where something ties them together, as heads do
    axis = np.repeat(np.arange(len(gauges.axes) + 1), [*(size for _, size in gauges.axes), len(heads)])
    return _alike(part, fixed, axis, link, left, right, group, is_named)


def _rows(gauges: Gauges, heads: Residues) -> tuple[Residues, Residues, Residues, Residues, Mask]:
    """Every link, relation and head as rows: which, left label, right label, group, and whether groups have names."""
    parts: list[tuple[Residues, Residues, Residues]] = [(link.left, link.right, link.group) for link in gauges.links]
    for relation in gauges.relations:
        for other in (relation.first, relation.second):
            parts.append((relation.result, other, np.zeros(len(other), dtype=np.int64)))
    start = 0
    for size, fields in gauges.heads:
        for labels, number in fields:
            parts.append((labels, heads[start + number], np.zeros(len(labels), dtype=np.int64)))
        start += size
    unnamed = len(parts)
    parts += [(labels, labels, place) for labels, place in gauges.told_apart]
    names = [np.full(len(left), number) for number, (left, _, _) in enumerate(parts)]
    empty = np.zeros(0, dtype=np.int64)
    link = np.concatenate([empty, *names])
    left, right, group = (np.concatenate([empty, *(part[place] for part in parts)]) for place in range(3))
    return link, left, right, group, np.asarray(link >= unnamed)


def _alike(
    part: Residues,
    fixed: Mask,
    axis: Residues,
    link: Residues,
    left: Residues,
    right: Residues,
    group: Residues,
    is_named: Mask,
) -> Parts:
    """Parts with equal tables of what they meet, each label named by its place in its part."""
    order = np.lexsort([np.arange(len(part)), axis, part])
    starts = np.flatnonzero(np.r_[True, np.diff(part[order]) != 0])
    local = np.empty(len(part), dtype=np.int64)
    local[order] = np.arange(len(part)) - np.repeat(starts, np.diff(np.r_[starts, len(part)]))
    open_rows = ~fixed[part[left]]
    link, left, right, group = (column[open_rows] for column in (link, left, right, group))
    is_named = is_named[open_rows]
    owner = part[left]
    key = np.where(is_named | _is_shared(link, group, owner), group, -1 - _ranks(owner, link, group))
    table = np.stack([link, local[left], local[right], key], axis=1)
    rows = np.lexsort([key, local[right], local[left], link, owner])
    table, owner = table[rows], owner[rows]
    first = np.r_[True, (owner[1:] != owner[:-1]) | (table[1:] != table[:-1]).any(axis=1)][: len(owner)]
    table, owner = table[first], owner[first]
    begin = np.searchsorted(owner, np.arange(len(fixed) + 1))
    ends = np.r_[starts, len(part)]
    result: dict[tuple[bytes, bytes], list[Residues]] = defaultdict(list)
    for class_number in np.flatnonzero(~fixed).tolist():
        labels = order[ends[class_number] : ends[class_number + 1]]
        result[axis[labels].tobytes(), table[begin[class_number] : begin[class_number + 1]].tobytes()].append(labels)
    return [parts for parts in result.values() if len(parts) > 1]


def _is_shared(link: Residues, group: Residues, owner: Residues) -> Mask:
    """Whether a group of a link has rows of several parts."""
    if not len(link):
        return np.zeros(0, dtype=bool)
    key = link * (int(group.max()) + 1) + group
    _, place = np.unique(key, return_inverse=True)
    low, high = np.full(int(place.max()) + 1, int(owner.max()) + 1), np.full(int(place.max()) + 1, -1)
    np.minimum.at(low, place, owner)
    np.maximum.at(high, place, owner)
    return np.asarray(low[place] != high[place])


def _ranks(owner: Residues, link: Residues, group: Residues) -> Residues:
    """The number of a group among those of its part and link."""
    order = np.lexsort([group, link, owner])
    o, n, g = owner[order], link[order], group[order]
    fresh = np.r_[True, (o[1:] != o[:-1]) | (n[1:] != n[:-1])] if len(o) else np.zeros(0, dtype=bool)
    step = np.r_[False, (g[1:] != g[:-1]) & ~fresh[1:]] if len(o) else np.zeros(0, dtype=bool)
    total = np.cumsum(step)
    base = np.maximum.accumulate(np.where(fresh, total, 0)) if len(o) else total
    result = np.empty(len(owner), dtype=np.int64)
    result[order] = total - base
    return result


def shuffle(classes: Sequence[Sequence[Residues]], count: int, rng: np.random.Generator) -> Residues:
    """A random permutation of labels that moves parts among their like: label i becomes label `found[i]`."""
    result = np.arange(count)
    for parts in classes:
        for one, other in zip(parts, rng.permutation(len(parts)).tolist(), strict=True):
            known = one < count
            result[one[known]] = parts[other][known]
    return result
