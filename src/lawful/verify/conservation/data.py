"""What a data set leaves alone, in fractions: silent nodes, gates that do not matter, sums that no sample moves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from lawful.verify.core.dag import CONSTANT, HIDDEN, INPUT, CheckedDag
from lawful.verify.core.schema import integer, items, rational, require

Gates = tuple[Fraction | None, ...]


@dataclass(frozen=True, eq=False)
class Samples:
    """The data of a certificate: coordinates by node, and the nodes that each sample leaves mute or unheard.

    A signal is mute if it is 0 at all weights nearby (a coordinate 0, a gate 0, only mute ones before it); a node is
    unheard if its gate is 0 or only unheard ones listen. A gate is `free` where no signal arrives, or where nobody
    would listen even if all such gates were open: other gates there would change nothing.
    """

    signals: tuple[dict[int, Fraction], ...]
    mute: tuple[frozenset[int], ...]
    unheard: tuple[frozenset[int], ...]
    free: tuple[frozenset[int], ...]
    gates: tuple[dict[int, Fraction], ...]
    every: bool = False  # not data, but an open set of inputs for each pattern that can occur

    def rests(self, tail: int, head: int) -> bool:
        """Whether no sample moves a weight: its gradient is a signal times what is heard of it."""
        return all(tail in mute or head in unheard for mute, unheard in zip(self.mute, self.unheard, strict=True))

    def heard_at(self, node: int) -> list[dict[int, Fraction]]:
        """The samples that are heard through a node."""
        require(not self.every, "sums of weights into one neuron rest on data only")
        return [given for given, unheard in zip(self.signals, self.unheard, strict=True) if node not in unheard]


def read_samples(
    dag: CheckedDag, inputs: Sequence[Sequence[float]], patterns: Sequence[tuple[Fraction, ...]]
) -> Samples:
    """The samples, with the gates of the hidden nodes at each."""
    return _samples(dag, inputs, patterns)


def all_inputs(dag: CheckedDag, patterns: Sequence[tuple[Fraction, ...]]) -> Samples:
    """An open set of inputs for each of the patterns, which are all that occur."""
    return replace(_samples(dag, [[1.0] * len(dag.inputs)] * len(patterns), patterns), every=True)


def _samples(dag: CheckedDag, inputs: Sequence[Sequence[float]], patterns: Sequence[tuple[Fraction, ...]]) -> Samples:
    signals, mutes, unheards, frees, gates = [], [], [], [], []
    for given, pattern in zip(inputs, patterns, strict=True):
        gate = dict(zip(dag.hidden, pattern, strict=True))
        signal = {node: Fraction(value) for node, value in zip(dag.inputs, given, strict=True)}
        signal |= {} if dag.constant is None else {dag.constant: Fraction(1)}
        mute = {node for node, value in signal.items() if value == 0}
        no_signal = set()
        for node in dag.order:
            if dag.roles[node] == HIDDEN:
                if all(tail in mute for tail, _ in dag.into[node]):
                    no_signal.add(node)
                if node in no_signal or gate[node] == 0:
                    mute.add(node)
        unheard = _unheard(dag, {node for node, value in gate.items() if value == 0})
        deaf = _unheard(dag, {node for node, value in gate.items() if value == 0 and node not in no_signal})
        nobody = {node for node in dag.hidden if all(head in deaf for head, _ in dag.out_of[node])}
        signals.append(signal)
        mutes.append(frozenset(mute))
        unheards.append(frozenset(unheard))
        frees.append(frozenset(no_signal | nobody))
        gates.append(gate)
    return Samples(tuple(signals), tuple(mutes), tuple(unheards), tuple(frees), tuple(gates))


def _unheard(dag: CheckedDag, closed: set[int]) -> set[int]:
    found: set[int] = set()
    for node in reversed(dag.order):
        if dag.roles[node] == HIDDEN and (node in closed or all(head in found for head, _ in dag.out_of[node])):
            found.add(node)
    return found


def gates_on_data(dag: CheckedDag, samples: Samples, stated: Sequence[float | None]) -> Gates:
    """The stated gates, after showing that the data give those neurons no other where a gate matters."""
    gates: list[Fraction | None] = [Fraction(1)] * len(dag.roles)
    for node, claimed in enumerate(stated):
        if dag.roles[node] != HIDDEN:
            require(claimed in (None, 1.0), f"node {node} has no gate but 1")
            continue
        gates[node] = None if claimed is None else Fraction(claimed)
        for gate, free in zip(samples.gates, samples.free, strict=True):
            agreed = claimed is None or node in free or gate[node] == gates[node]
            require(agreed, f"neuron {node} does not always have its gate on the data")
    return tuple(gates)


def alike_on_data(dag: CheckedDag, samples: Samples) -> tuple[object, ...]:
    """What nodes must share to have the same gate at every sample where it matters."""
    found: list[object] = [None] * len(dag.roles)
    for node in dag.hidden:
        shown = zip(samples.gates, samples.free, strict=True)
        found[node] = (dag.slope[node], tuple(None if node in free else gate[node] for gate, free in shown))
    return tuple(found)


def still_sum(
    samples: Samples, roles: Sequence[int], ends: Sequence[tuple[int, int]], node: int, value: object
) -> dict[int, Fraction]:
    """A sum of weights from inputs into one node, after showing that every sample heard there keeps it."""
    found: dict[int, Fraction] = {}
    for item in items(value, "known"):
        edge, factor = items(item, "known", length=2)
        edge = integer(edge, "known", 0, len(ends) - 1)
        require(edge not in found and ends[edge][1] == node, f"a sum does not name edges into node {node}")
        require(roles[ends[edge][0]] in (INPUT, CONSTANT), "a sum names an edge that comes from a neuron")
        found[edge] = rational(factor, "known")
    for signal in samples.heard_at(node):
        total = sum((factor * signal[ends[edge][0]] for edge, factor in found.items()), Fraction(0))
        require(total == 0, f"a sample moves a sum of weights into node {node}")
    return found


def one_signal(samples: Samples, sink: int, nodes: Sequence[int]) -> dict[int, Fraction]:
    """The coordinates at some inputs of every sample that is heard through a node: they must be multiples of one."""
    rows = [[signal[node] for node in nodes] for signal in samples.heard_at(sink)]
    first = next((row for row in rows if any(row)), [Fraction(0)] * len(nodes))
    pivot = next((place for place, value in enumerate(first) if value), 0)
    for row in rows:
        same = all(row[place] * first[pivot] == row[pivot] * first[place] for place in range(len(nodes)))
        require(same, f"two samples reach node {sink}: the part passes more than one number on")
    return dict(zip(nodes, first, strict=True))
