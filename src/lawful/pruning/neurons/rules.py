"""The rules of lossless pruning: which neurons are redundant, why, and which weights absorb them.

Weights that change are exact fractions. Rules look at nonzero weights only and never trust a rounded number: ranges
are certified, proportional rows are proportional as rational numbers, and a sum counts as zero if it is zero. The
network after a change has its folded weights rounded once, with the exact error of each.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from lawful.network import Dag, Role, useful_dag
from lawful.network.topology import reachable
from lawful.pruning.neurons.bounds import Box, PruningRegion, ranges
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
        [name for name, kept in zip(names, keep, strict=True) if kept], np.array(roles)[keep],
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
