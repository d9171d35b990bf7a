"""Rules for neurons that are linear, alone or together with their opposite: direct edges or a few carriers remain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

import numpy as np

from lawful.network import Dag
from lawful.pruning.neurons.bounds import PruningRegion, ranges
from lawful.pruning.neurons.rules import BIAS, Change, EdgeTable, Sums, Weights, exact_ratio
from lawful.types import Floats


def opposite(dag: Dag, region: PruningRegion, layered: bool) -> Change:
    """A neuron on the opposite ray of another: `σ(z) = (1 + slope) z + σ(−z)`, so edges and the other replace it.

    One at a time, and only where that needs no more parameters; if the two cancel up to their linear part, both go.
    """
    edges = EdgeTable(dag)
    seen: dict[bytes, list[int]] = {}
    for node in () if layered else dag.hidden:
        row = edges.into(node)
        row = row[np.argsort(dag.tails[row], kind="stable")]
        if not len(row) or dag.slopes[node] == 1:
            continue
        ratios = dag.theta[row] / np.abs(dag.theta[row]).max()
        head = dag.slopes[node].tobytes() + dag.tails[row].tobytes()
        for other in seen.get(head + (0.0 - ratios).tobytes(), ()):
            factor = exact_ratio(dag, edges, int(node), other)
            change = None if factor is None else _unfolded(dag, edges, int(node), other, -factor)
            if change is not None:
                return change
        seen.setdefault(head + ratios.tobytes(), []).append(int(node))
    return Change("opposite")


def _unfolded(dag: Dag, edges: EdgeTable, node: int, other: int, factor: Fraction) -> Change | None:
    sums, slope = Sums(dag), Fraction(1) + Fraction(dag.slopes[node])
    for out in edges.out_of(node):
        head, weight = dag.names[dag.heads[out]], Fraction(dag.theta[out])
        sums.add(dag.names[other], head, weight * factor)
        for edge in edges.into(node):
            sums.add(dag.names[dag.tails[edge]], head, weight * slope * Fraction(dag.theta[edge]))
    present = set(zip(dag.tails.tolist(), dag.heads.tolist(), strict=True))
    added = sum((dag.index[tail], dag.index[head]) not in present for tail, head in sums.weights)
    freed = int(dag.in_degree[node] + dag.out_degree[node])
    left = {int(dag.heads[edge]) for edge in edges.out_of(other)} | {dag.index[head] for _, head in sums.weights}
    if all(sums.weights.get((dag.names[other], dag.names[head])) == 0 for head in left):
        freed += int(dag.in_degree[other] + dag.out_degree[other])
    if added > freed:
        return None
    return Change("opposite", {dag.names[node]: (dag.names[other], factor)}, sums.weights)


def linear(dag: Dag, region: PruningRegion, layered: bool) -> Change:
    """Neurons that are linear on the region: direct edges replace them where that needs no more parameters.

    A layered network has no direct edges; there several linear neurons of a layer become one per neuron they feed.
    """
    below, above = region.sums(dag)
    slopes = dag.slopes
    acts = {
        int(node): Fraction(1) if slopes[node] == 1 or below[node] >= 0 else Fraction(slopes[node])
        for node in dag.hidden
        if slopes[node] == 1 or below[node] >= 0 or above[node] <= 0
    }
    if layered:
        return _joined(dag, acts, region)
    return _bypassed(dag, acts)


def _bypassed(dag: Dag, factors: Mapping[int, Fraction]) -> Change:
    """Replace linear neurons by products of their weights, one at a time, on an exact copy of the edges near them."""
    near: set[int] = set(factors)
    into: dict[int, dict[int, Fraction]] = {}
    heads = {int(dag.heads[edge]) for edge in np.flatnonzero(np.isin(dag.tails, list(near)))} | near
    for edge in np.flatnonzero(np.isin(dag.heads, list(heads))):
        into.setdefault(int(dag.heads[edge]), {})[int(dag.tails[edge])] = Fraction(dag.theta[edge])
    original = {head: dict(row) for head, row in into.items()}
    evidence: dict[str, object] = {}
    for node in sorted(factors, key=lambda node: -int(dag.levels[node])):
        followers = [head for head, row in into.items() if node in row]
        row = into.get(node, {})
        new = sum(1 for head in followers for tail in row if tail not in into[head])
        if new > len(row) + len(followers):
            continue
        for head in followers:
            weight = into[head].pop(node) * factors[node]
            for tail, value in row.items():
                into[head][tail] = into[head].get(tail, Fraction(0)) + weight * value
        into.pop(node, None)
        evidence[dag.names[node]] = factors[node]
    gone = {dag.index[name] for name in evidence}
    weights = {
        (dag.names[tail], dag.names[head]): value
        for head, row in into.items()
        for tail, value in row.items()
        if tail not in gone and original[head].get(tail) != value
    }
    return Change("linear", evidence, weights)


def _joined(dag: Dag, factors: Mapping[int, Fraction], region: PruningRegion) -> Change:
    """Let one rewritten neuron per follower carry what all linear neurons of a layer say; one layer at a time."""
    edges = EdgeTable(dag)
    low, high = ranges(dag, region.box)
    for level in sorted({int(dag.levels[node]) for node in factors}):
        group = [node for node in factors if dag.levels[node] == level]
        followers = sorted({int(dag.heads[edge]) for node in group for edge in edges.out_of(node)})
        if len(group) <= len(followers):
            continue
        change = _carried(dag, edges, {node: factors[node] for node in group}, followers, low, high)
        if change is not None:
            return change
    return Change("joined")


def _carried(
    dag: Dag, edges: EdgeTable, group: Mapping[int, Fraction], followers: Sequence[int], low: Floats, high: Floats
) -> Change | None:
    carriers = dict(zip(group, followers, strict=False))
    weights: Weights = {}
    sums = Sums(dag)
    evidence: dict[str, tuple[str, Fraction, Fraction]] = {}
    for carrier, follower in carriers.items():
        row: dict[int, Fraction] = {}
        for node, factor in group.items():
            speaks = factor * sums.current((dag.names[node], dag.names[follower]))
            for edge in edges.into(node):
                tail = int(dag.tails[edge])
                row[tail] = row.get(tail, Fraction(0)) + speaks * Fraction(dag.theta[edge])
        shift = Fraction(0) if dag.slopes[carrier] == 1 else _shift(row, low, high)
        if shift is None:
            return None
        old = {int(dag.tails[edge]) for edge in edges.into(carrier)}
        for tail in old | set(row):
            weights[_end(dag, tail), dag.names[carrier]] = row.get(tail, Fraction(0))
        if shift:
            weights[BIAS, dag.names[carrier]] = weights.get((BIAS, dag.names[carrier]), Fraction(0)) + shift
            sums.add(BIAS, dag.names[follower], -shift)
        for edge in edges.out_of(carrier):
            weights[dag.names[carrier], dag.names[dag.heads[edge]]] = Fraction(0)
        weights[dag.names[carrier], dag.names[follower]] = Fraction(1)
        evidence[dag.names[carrier]] = (dag.names[follower], shift, group[carrier])
    removed: dict[str, object] = {dag.names[node]: factor for node, factor in group.items() if node not in carriers}
    return Change("joined", removed, weights | sums.weights, evidence)


def _end(dag: Dag, tail: int) -> str:
    return BIAS if tail == dag.constant else dag.names[tail]


def _shift(row: Mapping[int, Fraction], low: Floats, high: Floats) -> Fraction | None:
    """A number that makes a sum non-negative on the region, with a little to spare; None if there is none."""
    ends = [(value, low[tail] if value > 0 else high[tail]) for tail, value in row.items() if value]
    if not all(np.isfinite(end) for _, end in ends):
        return None
    least = sum((value * Fraction(end) for value, end in ends), Fraction(0))
    return Fraction(0) if least >= 0 else Fraction(float(-least) * (1 + 2**-20) + 2**-1000)
