"""Take out neurons for which others of their layer can stand, one after the other, until every one left is decided."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from lawful.network import Dag, Mlp
from lawful.pruning.neurons.rules import BIAS, Change, EdgeTable, Sums
from lawful.pruning.removable.decide import FAIR, Need, NeuronDecision, Question, StandIn, beyond


@dataclass(frozen=True)
class NamedStandIn:
    """A stand-in by names: factors of other neurons, a constant, the layers of names, and the walk that proves it."""

    factors: dict[str, Fraction]
    constant: Fraction
    layers: tuple[tuple[str, ...], ...]
    decisions: tuple[Any, ...]


@dataclass(frozen=True)
class Decided:
    """What is known of the hidden neurons of one network: which are needed, and why others are undecided."""

    network: Mlp
    layers: tuple[tuple[str, ...], ...]  # names as in the original network
    needed: dict[str, Need]
    undecided: dict[str, str]

    @property
    def complete(self) -> bool:
        """Whether no neuron can go: all of them are shown to be needed."""
        return not self.undecided


def names_by_layer(dag: Dag) -> tuple[tuple[str, ...], ...]:
    """The names of the hidden neurons, layer by layer, in the order of `Mlp.from_dag`."""
    levels = dag.levels[dag.hidden]
    return tuple(
        tuple(dag.names[node] for node in dag.hidden[levels == level]) for level in sorted(set(levels.tolist()))
    )


def take_out(dag: Dag, seconds: float, apply: Callable[[Dag, Change], Dag]) -> tuple[Dag, Decided]:
    """Remove neurons that others can stand for, as `apply` does it, and decide all that are left.

    `apply` gives back the graph as it was if a new weight does not fit into a float: then that neuron is undecided.
    """
    deadline = time.perf_counter() + seconds
    stuck: dict[str, str] = {}
    while True:
        network, layers = Mlp.from_dag(dag), names_by_layer(dag)
        next_step = _first(network, layers, deadline, stuck)
        if not isinstance(next_step, tuple):
            return dag, next_step
        after = apply(dag, _change(dag, layers, *next_step))
        if after is dag:
            stuck[next_step[0]] = "a weight that would take over is larger than floats can be"
        dag = after


def _first(
    network: Mlp, layers: tuple[tuple[str, ...], ...], deadline: float, stuck: dict[str, str]
) -> Decided | tuple[str, int, StandIn]:
    """The first neuron that can go, or what is known of all."""
    names = {(layer, number): name for layer, line in enumerate(layers) for number, name in enumerate(line)}
    if (reason := beyond(network)) is not None:
        return Decided(network, layers, {}, dict.fromkeys(names.values(), reason))
    question = Question(network, deadline)
    needed, undecided = {}, dict(stuck)
    places = [place for place in reversed(names) if names[place] not in stuck]
    for left, (layer, number) in zip(range(len(places), 0, -1), places, strict=True):
        decision = NeuronDecision(layer + 1, number, question.decide(layer, number, FAIR / left))
        if isinstance(decision.evidence, StandIn):
            return names[layer, number], layer, decision.evidence
        if isinstance(decision.evidence, Need):
            needed[names[layer, number]] = decision.evidence
        else:
            undecided[names[layer, number]] = decision.evidence
    return Decided(network, layers, needed, undecided)


def _change(dag: Dag, layers: tuple[tuple[str, ...], ...], name: str, layer: int, found: StandIn) -> Change:
    """The readers' new weights, exactly."""
    edges, sums = EdgeTable(dag), Sums(dag)
    factors = {other: factor for other, factor in zip(layers[layer], found.coefficients, strict=True) if factor}
    for edge in edges.out_of(dag.index[name]):
        head, weight = dag.names[dag.heads[edge]], Fraction(dag.theta[edge])
        for other, factor in factors.items():
            sums.add(other, head, weight * factor)
        if found.constant:
            sums.add(BIAS, head, weight * found.constant)
    return Change("dependent", {name: NamedStandIn(factors, found.constant, layers, found.decisions)}, sums.weights)
