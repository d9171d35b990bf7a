"""The rules of pruning: which neurons are redundant, why, and which weights absorb them.

Weights that change are exact fractions. Lossless rules look at nonzero weights only and never trust a rounded number:
ranges are certified, proportional rows are proportional as rational numbers, and a sum counts as zero if it is zero.
What is nearly redundant on a box has a stated cost at the outputs instead. The network after a change has its folded
weights rounded once, with the exact error of each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from lawful.network import Dag, Role, useful_dag
from lawful.network.topology import reachable
from lawful.pruning.neurons.bounds import Box, PruningRegion, ranges, sensitivity
from lawful.types import Floats

Weights = dict[tuple[str, str], Fraction]
BIAS = ""  # stands for the constant node, which a network without biases does not have yet


@dataclass(frozen=True)
class Change:
    """Neurons to remove with the evidence for each, and the exact new values of weights that absorb them.

    A carrier stays and is rewritten: it sends its sum, shifted to be positive, to one neuron (name, shift,
    and the factor that it was linear with).
    """

    kind: str
    evidence: Mapping[str, object] = field(default_factory=dict)
    weights: Weights = field(default_factory=dict)
    carriers: Mapping[str, tuple[str, Fraction, Fraction]] = field(default_factory=dict)

    @property
    def removed(self) -> tuple[str, ...]:
        """Names of the neurons to remove."""
        return tuple(self.evidence)


def free_name(dag: Dag) -> str:
    """A name for a new constant node."""
    name = "bias"
    while name in dag.index:
        name += "_"
    return name


class EdgeTable:
    """Nonzero edges by tail and by head, for rules that walk the graph."""

    def __init__(self, dag: Dag) -> None:
        self.dag = dag
        live = np.flatnonzero(dag.theta != 0)
        by_head, by_tail = (
            live[np.argsort(dag.heads[live], kind="stable")],
            live[np.argsort(dag.tails[live], kind="stable")],
        )
        count = np.arange(len(dag.names) + 1)
        self._into, self._into_at = by_head, np.searchsorted(dag.heads[by_head], count)
        self._out, self._out_at = by_tail, np.searchsorted(dag.tails[by_tail], count)

    def into(self, node: int) -> NDArray[np.intp]:
        """Nonzero edges that enter a node."""
        return self._into[self._into_at[node] : self._into_at[node + 1]]

    def out_of(self, node: int) -> NDArray[np.intp]:
        """Nonzero edges that leave a node."""
        return self._out[self._out_at[node] : self._out_at[node + 1]]


class Sums:
    """Exact new weights, starting from what the edges weigh now."""

    def __init__(self, dag: Dag) -> None:
        self.dag = dag
        self.weights: Weights = {}
        self._edges: dict[int, dict[int, int]] = {}

    def add(self, tail: str, head: str, value: Fraction) -> None:
        """Add to the weight of an edge; the edge appears if there is none."""
        ends = (tail, head)
        self.weights[ends] = self.weights.get(ends, self.current(ends)) + value

    def current(self, ends: tuple[str, str]) -> Fraction:
        """The weight of an edge in the network as it is, 0 if it has none."""
        tail = self.dag.constant if ends[0] == BIAS else self.dag.index[ends[0]]
        if tail is None:
            return Fraction(0)
        if tail not in self._edges:
            edges = np.flatnonzero(self.dag.tails == tail)
            self._edges[tail] = {int(self.dag.heads[edge]): int(edge) for edge in edges}
        edge = self._edges[tail].get(self.dag.index[ends[1]])
        return Fraction(0) if edge is None else Fraction(self.dag.theta[edge])


def activate(slope: float, value: Fraction) -> Fraction:
    """`σ(value)`, exactly."""
    return value if value > 0 else Fraction(slope) * value


def silent(dag: Dag, region: PruningRegion, layered: bool) -> Change:
    """Neurons without a path of nonzero weights to an output: nobody hears them."""
    live = dag.theta != 0
    heard = reachable(len(dag.names), dag.heads[live], dag.tails[live], dag.outputs)
    return Change("silent", {dag.names[node]: None for node in dag.hidden if not heard[node]})


def constant(dag: Dag, region: PruningRegion, layered: bool) -> Change:
    """Neurons without a path of nonzero weights from an input: their value is known and goes into the next biases."""
    live = dag.theta != 0
    hears = reachable(len(dag.names), dag.tails[live], dag.heads[live], dag.inputs)
    fixed = dag.hidden[~hears[dag.hidden]]
    if not len(fixed):
        return Change("constant")
    edges, sums = EdgeTable(dag), Sums(dag)
    values = {} if dag.constant is None else {dag.constant: Fraction(1)}
    for node in fixed[np.argsort(dag.levels[fixed], kind="stable")]:
        total = sum((Fraction(dag.theta[e]) * values[int(dag.tails[e])] for e in edges.into(node)), Fraction(0))
        values[int(node)] = activate(float(dag.slopes[node]), total)
    gone = set(map(int, fixed))
    for node in gone:
        for edge in edges.out_of(node) if values[node] else ():
            if int(dag.heads[edge]) not in gone:
                sums.add(BIAS, dag.names[dag.heads[edge]], Fraction(dag.theta[edge]) * values[node])
    return Change("constant", {dag.names[node]: values[int(node)] for node in fixed}, sums.weights)


def dead(dag: Dag, region: PruningRegion, layered: bool) -> Change:
    """ReLU neurons that are never active: their sum is at most 0 on the whole region."""
    _, above = region.sums(dag)
    never = dag.hidden[(above[dag.hidden] <= 0) & (dag.slopes[dag.hidden] == 0)]
    return Change("dead", {dag.names[node]: None for node in never})


def duplicate(dag: Dag, region: PruningRegion, layered: bool) -> Change:
    """Neurons whose incoming weights are a positive multiple of another's (any multiple if both are linear).

    Equal real ratios have equal rounded ratios, so rows are first grouped by their rounded ratios and then compared
    exactly.
    """
    edges, sums = EdgeTable(dag), Sums(dag)
    classes: dict[bytes, list[int]] = {}
    evidence: dict[str, object] = {}
    for node in dag.hidden:
        row = edges.into(node)
        row = row[np.argsort(dag.tails[row], kind="stable")]
        weights, slope = dag.theta[row], dag.slopes[node]
        if not len(row):
            continue
        largest = weights[np.argmax(np.abs(weights))]
        ratios = weights / (largest if slope == 1 else abs(largest))
        key = slope.tobytes() + dag.tails[row].tobytes() + ratios.tobytes()
        for twin in classes.setdefault(key, []):
            factor = exact_ratio(dag, edges, int(node), twin)
            if factor is not None:
                evidence[dag.names[node]] = (dag.names[twin], factor)
                for edge in edges.out_of(node):
                    sums.add(dag.names[twin], dag.names[dag.heads[edge]], factor * Fraction(dag.theta[edge]))
                break
        else:
            classes[key].append(int(node))
    return Change(
        "duplicate", evidence, {ends: value for ends, value in sums.weights.items() if ends[1] not in evidence}
    )


def exact_ratio(dag: Dag, edges: EdgeTable, node: int, twin: int) -> Fraction | None:
    """`s` with row(node) = s row(twin) as rational numbers, if there is one."""
    mine = {int(dag.tails[edge]): Fraction(dag.theta[edge]) for edge in edges.into(node)}
    theirs = {int(dag.tails[edge]): Fraction(dag.theta[edge]) for edge in edges.into(twin)}
    first = next(iter(mine))
    factor = mine[first] / theirs[first]
    return factor if all(value == factor * theirs[tail] for tail, value in mine.items()) else None


def rebuilt(dag: Dag, change: Change) -> tuple[Dag, dict[tuple[str, str], Fraction]]:
    """The network after a change, its new weights rounded to float64, and the exact error of each rounding."""
    names, roles, slopes = list(dag.names), list(dag.roles), list(dag.slopes)
    if BIAS in {tail for tail, _ in change.weights} and dag.constant is None:
        names.append(free_name(dag))
        roles.append(Role.CONSTANT)
        slopes.append(1.0)
    bias = next((name for name, role in zip(names, roles, strict=True) if role == Role.CONSTANT), "")
    number = {name: place for place, name in enumerate(names)}
    weights = {(bias if tail == BIAS else tail, head): value for (tail, head), value in change.weights.items()}
    rounded = {ends: float(value) for ends, value in weights.items()}
    errors = {ends: Fraction(rounded[ends]) - value for ends, value in weights.items() if rounded[ends] != value}
    theta = dag.theta.copy()
    added = dict(rounded)
    touched = {number[tail] for tail, _ in rounded}
    for edge in np.flatnonzero(np.isin(dag.tails, list(touched))):
        ends = dag.edge_name(int(edge))
        if ends in rounded:
            theta[edge] = added.pop(ends)
    keep = np.ones(len(names), dtype=bool)
    keep[[dag.index[name] for name in change.removed]] = False
    tails = np.concatenate([dag.tails, np.array([number[tail] for tail, _ in added], dtype=np.intp)])
    heads = np.concatenate([dag.heads, np.array([number[head] for _, head in added], dtype=np.intp)])
    theta = np.concatenate([theta, np.array(list(added.values()))])
    edges = keep[tails] & keep[heads]
    place = np.cumsum(keep) - 1
    after = useful_dag(
        [name for name, stays in zip(names, keep, strict=True) if stays], np.array(roles)[keep],
        place[tails[edges]], place[heads[edges]], theta[edges], np.array(slopes)[keep],
    )  # fmt: skip
    return after, errors


def rounding_defects(before: Dag, after: Dag, errors: Mapping[tuple[str, str], Fraction], region: Box) -> Floats:
    """Per node of `after`, the error of its sum when every new weight is off by its rounding error."""
    defects = np.zeros(len(after.names))
    if errors:
        low, high = ranges(before, region)
        size = np.maximum(np.abs(low), np.abs(high))
        for (tail, head), error in errors.items():
            if tail in after.index and head in after.index:
                value = size[before.index[tail]] if tail in before.index else 1.0
                defects[after.index[head]] += np.nextafter(float(abs(error)), np.inf) * value
    return defects


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
            change = None if factor is None else _unfold(dag, edges, int(node), other, -factor)
            if change is not None:
                return change
        seen.setdefault(head + ratios.tobytes(), []).append(int(node))
    return Change("opposite")


def _unfold(dag: Dag, edges: EdgeTable, node: int, other: int, factor: Fraction) -> Change | None:
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
        return _join(dag, acts, region)
    return _bypass(dag, acts)


def _bypass(dag: Dag, factors: Mapping[int, Fraction]) -> Change:
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


def _join(dag: Dag, factors: Mapping[int, Fraction], region: PruningRegion) -> Change:
    """Let one rewritten neuron per follower carry what all linear neurons of a layer say; one layer at a time."""
    edges = EdgeTable(dag)
    low, high = ranges(dag, region.box)
    for level in sorted({int(dag.levels[node]) for node in factors}):
        group = [node for node in factors if dag.levels[node] == level]
        followers = sorted({int(dag.heads[edge]) for node in group for edge in edges.out_of(node)})
        if len(group) <= len(followers):
            continue
        change = _carry(dag, edges, {node: factors[node] for node in group}, followers, low, high)
        if change is not None:
            return change
    return Change("joined")


def _carry(
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


@dataclass(frozen=True)
class Option:
    """A neuron that could go at a price: its stand-in is a constant, or `factor` times a partner's value."""

    name: str
    cost: float
    radius: float
    constant: float = 0.0
    partner: str | None = None
    factor: float = 0.0


def replacements(dag: Dag, region: Box) -> list[Option]:
    """For every hidden neuron the cheaper of two stand-ins, a constant or a near twin; cheapest first."""
    low, high = ranges(dag, region)
    strength = sensitivity(dag)
    per_output = np.zeros((len(dag.names), strength.shape[1]))
    np.add.at(per_output, dag.tails, np.abs(dag.theta)[:, None] * strength[dag.heads])
    felt = per_output.max(axis=1)  # how far outputs move per unit of a neuron's value
    options = []
    for node in dag.hidden:
        middle = 0.5 * (low[node] + high[node])
        if np.isfinite(middle):
            radius = float(np.nextafter(max(high[node] - middle, middle - low[node]), np.inf))
            options.append(Option(dag.names[node], radius * felt[node], radius, constant=float(middle)))
    cheapest = {option.name: option for option in options}
    for option in _near_twins(dag, low, high, felt):
        if option.name not in cheapest or option.cost < cheapest[option.name].cost:
            cheapest[option.name] = option
    return sorted(cheapest.values(), key=lambda option: option.cost)


def _near_twins(dag: Dag, low: Floats, high: Floats, felt: Floats) -> list[Option]:
    size = np.maximum(np.abs(low), np.abs(high))
    edges = EdgeTable(dag)
    families: dict[bytes, list[int]] = {}
    for node in dag.hidden:
        row = edges.into(node)
        families.setdefault(dag.slopes[node].tobytes() + np.sort(dag.tails[row]).tobytes(), []).append(int(node))
    options = []
    for family in families.values():
        rows = [edges.into(node)[np.argsort(dag.tails[edges.into(node)])] for node in family]
        matrix = dag.theta[np.array(rows)]
        norms = np.linalg.norm(matrix, axis=1)
        if len(family) < 2 or not norms.all():
            continue
        rays = matrix / norms[:, None]
        closeness = np.tril(rays @ rays.T, -1)  # a partner stands earlier, so no two stand in for each other
        for place in range(1, len(family)):
            twin = int(np.argmax(closeness[place]))
            factor = float(norms[place] / norms[twin])
            lipschitz = max(1.0, abs(float(dag.slopes[family[place]])))
            gap = np.abs(matrix[place] - factor * matrix[twin]) + 4e-16 * np.abs(matrix[place])
            radius = float(lipschitz * (gap @ size[dag.tails[rows[place]]]) * (1 + 1e-7))
            if closeness[place, twin] > 0 and np.isfinite(radius):
                name, partner = dag.names[family[place]], dag.names[family[twin]]
                options.append(Option(name, radius * felt[family[place]], radius, partner=partner, factor=factor))
    return options


def combine(dag: Dag, options: Sequence[Option]) -> tuple[Change, dict[str, float]]:
    """Take every option whose neuron and partner are still there; the defect this adds to each following sum."""
    edges, sums = EdgeTable(dag), Sums(dag)
    evidence: dict[str, object] = {}
    partners: set[str] = set()
    defects: dict[str, float] = {}
    for option in options:
        if option.name in evidence or option.name in partners or option.partner in evidence:
            continue
        if option.partner is not None:
            partners.add(option.partner)
        evidence[option.name] = (
            (option.partner, Fraction(option.factor)) if option.partner else Fraction(option.constant)
        )
        for edge in edges.out_of(dag.index[option.name]):
            head, weight = dag.names[dag.heads[edge]], Fraction(dag.theta[edge])
            defects[head] = defects.get(head, 0.0) + abs(float(weight)) * option.radius * (1 + 1e-9)
            if option.partner is not None:
                sums.add(option.partner, head, Fraction(option.factor) * weight)
            else:  # also a zero: the edge keeps a neuron that hears nothing else in the graph, and so in the bound
                sums.add(BIAS, head, Fraction(option.constant) * weight)
    weights = {ends: value for ends, value in sums.weights.items() if ends[1] not in evidence}
    return Change("near", evidence, weights), defects
