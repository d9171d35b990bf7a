"""What locked edges mean for the function: output weights whose sign training can never change."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from lawful.invariant_set.locks.components import Components, Lock
from lawful.invariant_set.module_graph import EntryGraph
from lawful.network import Dag, Role
from lawful.types import Floats


@dataclass(frozen=True)
class LockedNeuron:
    """A hidden neuron whose vote on an output keeps its sign for ever."""

    lock: Lock
    neuron: int
    factor: float | None  # smallest factor on this neuron alone that frees it; None if other neurons are involved


@dataclass(frozen=True)
class OutputMeaning:
    """One output: its locked neurons, and the side of its bias on which it is confined, if it is."""

    output: int
    locked: tuple[LockedNeuron, ...]
    confined: Literal["above", "below"] | None


def locked_outputs(found: Components) -> tuple[OutputMeaning, ...]:
    """For every output with locked weights: which neurons, their signs, and what would free each.

    A neuron that is an out-bottleneck by itself has squares a coming in and b > a going out. Multiplying its incoming
    weights by `α = (b/a)^¼` and dividing the outgoing one keeps the function and makes them equal: the smallest change
    that frees it. An output fed only by locked ReLU neurons of one sign never crosses its bias, whatever the data.

    >>> from lawful.invariant_set.locks.components import components
    >>> from lawful.network import Architecture
    >>> dag = Architecture.parse("1-2-1").to_dag().with_theta([1.0, 1.0, -4.0, -9.0])
    >>> meaning = locked_outputs(components(dag))[0]
    >>> meaning.confined, [neuron.factor for neuron in meaning.locked]
    ('below', [2.0, 3.0])
    """
    dag = found.dag
    if isinstance(dag, EntryGraph):  # an entry of a module has no output of its own
        return ()
    coming = None if dag.weights is None else _norms(dag)
    locks = {lock.edge: lock for lock in found.locked if dag.roles[dag.heads[lock.edge]] == Role.OUTPUT}
    answers = []
    for output in dag.outputs.tolist():
        entering = np.flatnonzero((dag.heads == output) & (dag.roles[dag.tails] != Role.CONSTANT)).tolist()
        locked = tuple(
            LockedNeuron(locks[edge], int(dag.tails[edge]), _factor(found, locks[edge], coming))
            for edge in entering
            if edge in locks
        )
        signs = {neuron.lock.sign for neuron in locked}
        one_sided = len(locked) == len(entering) and all(dag.slopes[dag.tails[edge]] == 0 for edge in entering)
        if locked:
            confined: Literal["above", "below"] | None = None
            if one_sided and signs in ({1}, {-1}):
                confined = "above" if signs == {1} else "below"
            answers.append(OutputMeaning(output, locked, confined))
    return tuple(answers)


def _norms(dag: Dag) -> Floats:
    """`√(Σ θ²)` of the weights that enter each node, at any scale."""
    largest = np.zeros(len(dag.names))
    np.maximum.at(largest, dag.heads, np.abs(dag.theta))
    parts = dag.theta / np.where(largest == 0, 1.0, largest)[dag.heads]
    return np.asarray(largest * np.sqrt(np.bincount(dag.heads, parts**2, len(dag.names))))


def _factor(found: Components, lock: Lock, coming: Floats | None) -> float | None:
    if coming is None or lock.side != "out" or len(found.stable_set(lock)) > 1 or not coming[lock.bottleneck]:
        return None
    return math.sqrt(abs(float(found.dag.theta[lock.edge])) / float(coming[lock.bottleneck]))
