"""Which neurons are dead or never bend for every input: decided exactly where intervals do not tell."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np

from lawful.fibers.layers import Stack, rational
from lawful.fibers.regions.cell import OutOfTime
from lawful.fibers.regions.comparison_proof import Disagree, prove_by_regions
from lawful.fibers.regions.domain import Domain
from lawful.network import Dag, Mlp
from lawful.network.architecture import Architecture
from lawful.network.assemble import as_mlp
from lawful.pruning.removable.decide import FAIR, Question, beyond
from lawful.pruning.removable.dependent_neurons import names_by_layer
from lawful.sources.summary import Summary

SECONDS = 3.0  # for all neurons together


def settle(summary: Summary, network: Architecture | Mlp | Dag, *, seconds: float = SECONDS) -> Summary:
    """The summary with as many neurons decided as time allows; `undecided` names the others.

    >>> from lawful.sources.summary import summarise
    >>> weights = [[[1.0], [1.0]], [[1.0, -1.0], [1.0, 1.0]], [[1.0, 1.0]]]
    >>> net = Mlp(weights, [[0.0, -1.0], [-1.5, -0.5], [0.0]])  # relu(x) − relu(x − 1) is at most 1
    >>> summary = summarise(net)
    >>> summary.dead, summary.undecided, settle(summary, net).dead, settle(summary, net).undecided
    ((), ('h2.0', 'h2.1'), ('h2.0',), ())
    """
    if isinstance(network, Architecture) or not summary.undecided:
        return summary
    dag = network.to_dag()
    mlp = network if isinstance(network, Mlp) else as_mlp(network)
    if mlp is None or beyond(mlp) is not None:
        return summary
    layers = names_by_layer(dag)
    if tuple(map(len, layers)) != mlp.widths[1:-1]:  # neurons that hear nothing stand elsewhere in the graph
        return summary
    question = Question(mlp, time.perf_counter() + seconds)
    open_ = [
        (layer, number)
        for layer, names in enumerate(layers)
        for number, name in enumerate(names)
        if name in summary.undecided
    ]
    by_kind: dict[str, set[str]] = {"dead": set(summary.dead or ()), "linear": set(summary.linear or ())}
    undecided = []
    for left, (layer, number) in zip(range(len(open_), 0, -1), open_, strict=True):
        name = layers[layer][number]
        kind = kind_of(question, layer, number, FAIR / left)
        if kind is None:
            undecided.append(name)
            continue
        for word, some in by_kind.items():
            (some.add if word == kind else some.discard)(name)
    names = [dag.names[node] for node in dag.hidden]
    dead, linear = (tuple(name for name in names if name in by_kind[kind]) for kind in ("dead", "linear"))
    return replace(summary, dead=dead, linear=linear, undecided=tuple(undecided))


def kind_of(question: Question, layer: int, neuron: int, share: float = 1.0) -> str | None:
    """`dead` (0 for every input), `linear` (acts as one linear map), `bends`, or None if time is up.

    Two inputs on whose sums the activation has different sides show that it bends; a walk through all regions shows
    that one side is never there.
    """
    slope = question.stack.slopes[layer]
    sums = [question.sums(point)[layer][neuron] for point in question.pool]
    seen = {True: any(total > 0 for total in sums), False: any(total < 0 for total in sums)}
    now = time.perf_counter()
    deadline = now + min(share, 1.0) * (question.deadline - now)
    try:
        if slope != 0.0 and not any(seen.values()) and _vanishes(question.stack, layer, neuron, deadline):
            return "dead"
        if slope == 1.0:
            return "linear"
        for active in (True, False):
            if not seen[active] and _is_one_sided(question.stack, layer, neuron, not active, deadline):
                return "dead" if active and slope == 0.0 else "linear"
    except (OutOfTime, RecursionError):
        return None
    return "bends"


def _is_one_sided(stack: Stack, layer: int, neuron: int, active: bool, deadline: float) -> bool:
    """Whether the neuron's value is what its sum gives on one side, for every input."""
    total = _sum_of(stack, layer, neuron)
    one, none = rational(np.ones((1, 1))), rational(np.zeros(1))
    bent = Stack((*total.weights, one), (*total.biases, none), stack.slopes[: layer + 1])
    return _agree(bent, _times(total, 1.0 if active else stack.slopes[layer]), deadline)


def _vanishes(stack: Stack, layer: int, neuron: int, deadline: float) -> bool:
    """Whether the neuron's sum is 0 for every input."""
    total = _sum_of(stack, layer, neuron)
    return _agree(total, _times(total, 0.0), deadline)


def _sum_of(stack: Stack, layer: int, neuron: int) -> Stack:
    """The sum of a neuron as a network of its own."""
    row, bias = stack.weights[layer][neuron : neuron + 1], stack.biases[layer][neuron : neuron + 1]
    return Stack((*stack.weights[:layer], row), (*stack.biases[:layer], bias), stack.slopes[:layer])


def _times(stack: Stack, gain: float) -> Stack:
    """The network with its outputs times a number."""
    factor = rational(np.array([gain]))[0]
    weights, biases = (*stack.weights[:-1], stack.weights[-1] * factor), (*stack.biases[:-1], stack.biases[-1] * factor)
    return Stack(weights, biases, stack.slopes)


def _agree(one: Stack, other: Stack, deadline: float) -> bool:
    """Whether two networks are the same function, by a walk through all regions."""
    try:
        prove_by_regions(one, other, Domain.space(one.widths[0]), deadline)
    except Disagree:  # at an exact point of a region
        return False
    return True
