"""Bring a network to a standard place on its fiber, and two networks side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import linear_sum_assignment

from lawful.fibers.domain import Domain
from lawful.fibers.shallow import group_rows
from lawful.fibers.stack import Array, Stack, floating, rational, row_gaps
from lawful.fibers.symmetry import (
    Collapse,
    Drop,
    Flip,
    Merge,
    Quiet,
    Reorder,
    Rescale,
    SymmetryStep,
    Translate,
    hides,
    is_silent,
    quiet_neurons,
)
from lawful.types import Floats


@dataclass(frozen=True)
class Reduced:
    """A network after steps that keep its function."""

    stack: Stack
    steps: tuple[SymmetryStep, ...] = ()

    def then(self, step: SymmetryStep, tolerance: float) -> Reduced:
        """One more step."""
        return Reduced(step.apply(self.stack, tolerance), (*self.steps, step))


def simplify(network: Reduced, tolerance: float) -> Reduced:
    """Collapse linear layers, drop silent, ignored and constant neurons, merge neurons that are multiples."""
    layer = 1
    while layer <= network.stack.hidden:
        steps = _simplifications(network.stack, layer, tolerance)
        for step in steps:
            network = network.then(step, tolerance)
        layer = layer + 1 if not steps else max(layer - 1, 1)  # what leaves a layer may free the one below
    return network


def quieten(network: Reduced, domain: Domain, tolerance: float) -> Reduced:
    """Drop the neurons that are inactive on a whole box."""
    if not domain.bounded:
        return network
    low, high = tuple(domain.low.tolist()), tuple(domain.high.tolist())
    for layer in range(1, network.stack.hidden + 1):
        for neuron in reversed(quiet_neurons(network.stack, layer, low, high)):
            network = network.then(Quiet(layer, neuron, low, high), tolerance)
    return network


def _simplifications(stack: Stack, layer: int, tolerance: float) -> list[SymmetryStep]:
    """Steps that all apply to one layer, last neuron first so that the numbers of the others stay."""
    if stack.slopes[layer - 1] == 1.0:
        return [Collapse(layer)]
    idle = (stack.weights[layer - 1] == 0).all(axis=1) | (stack.weights[layer] == 0).all(axis=0)
    silent = (stack.row(layer - 1) <= 0).all(axis=1)
    unused = [int(v) for v in np.flatnonzero(idle | silent) if idle[v] or is_silent(stack, layer, int(v))]
    if unused:
        return [Drop(layer, neuron) for neuron in reversed(unused)]
    merges: list[Merge] = []
    for group in group_rows(stack.row(layer - 1), tolerance):
        for positive in (True, False):
            alike = [neuron for neuron, factor in group if (factor > 0) == positive]
            merges += [Merge(layer, alike[0], other) for other in alike[1:]]
    return [*sorted(merges, key=lambda merge: -merge.drop)]


def standardise(network: Reduced, tolerance: float) -> Reduced:
    """Scale every row of weights to `Σ|w| = 1`, put hidden hyperplanes in a standard place, orient flips.

    Two generic bottleneck parameters of one function end at parameters that differ by the order of neurons and by
    linear neurons of the last hidden layer alone (P4 Section 6).
    """
    for layer in range(1, network.stack.hidden + 1):
        network = network.then(_unit_rows(network.stack, layer), tolerance)
        hidden = hidden_neuron(network.stack, layer)
        if hidden is None:
            continue
        single = layer == 1 and len(network.stack.weights[1]) == 1
        if single and (reversed_rows := _reversed_rows(network.stack, hidden)):
            network = network.then(Flip(1, hidden, reversed_rows), tolerance)
            network = network.then(_unit_rows(network.stack, 1), tolerance)
        ratio = network.stack.biases[layer] / network.stack.weights[layer][:, hidden]
        network = network.then(Translate(layer, hidden, max(ratio) + 1), tolerance)
    again = simplify(network, tolerance)  # a flip of special weights can leave a constant neuron
    return network if again is network else standardise(again, tolerance)


def hidden_neuron(stack: Stack, layer: int = 1) -> int | None:
    """The neuron of a layer that the next layer hides, if there is one; with more neurons there is at most one."""
    if layer >= len(stack.weights) - 1 or not len(stack.weights[layer]):
        return None
    for neuron in np.flatnonzero((stack.weights[layer] > 0).all(axis=0)):
        if hides(stack, layer, int(neuron)):
            return int(neuron)
    return None


def _unit_rows(stack: Stack, layer: int) -> Rescale:
    lengths = np.abs(stack.weights[layer - 1]).sum(axis=1)
    return Rescale(layer, tuple(1 / np.where(lengths == 0, lengths + 1, lengths)))


def _reversed_rows(stack: Stack, hidden: int) -> tuple[int, ...]:
    """The neurons other than the hidden one that look against a fixed direction."""
    rows = stack.weights[0]
    probe = np.random.default_rng(rows.shape[1]).uniform(0.5, 1.5, size=rows.shape[1])
    looks: Array = rows @ (rational(probe) if stack.exact else probe)
    return tuple(int(k) for k in range(len(rows)) if k != hidden and looks[k] < 0)


@dataclass(frozen=True)
class Match:
    """`second` reordered to lie beside `first`, up to hidden layer `layers`; the residual of each matched layer."""

    second: Reduced
    layers: int
    residuals: tuple[float, ...]


def match(first: Stack, second: Reduced, tolerance: float) -> Match:
    """Reorder the neurons of `second`, layer by layer from the input, until a layer does not fit."""
    residuals: list[float] = []
    for layer in range(1, min(first.hidden, second.stack.hidden) + 1):
        ours, theirs = first.row(layer - 1), second.stack.row(layer - 1)
        if ours.shape != theirs.shape or first.slopes[layer - 1] != second.stack.slopes[layer - 1]:
            break
        order = nearest_order(floating(ours), floating(theirs))
        moved = second.then(Reorder(layer, order), tolerance)
        residual = row_residual(ours, moved.stack.row(layer - 1))
        residuals.append(residual)
        if residual > tolerance:
            break
        second = moved
    done = len([residual for residual in residuals if residual <= tolerance])
    return Match(second, done, tuple(residuals))


def nearest_order(ours: Floats, theirs: Floats) -> tuple[int, ...]:
    """The order of `theirs` that lies nearest to `ours`: sorted shadows if they decide it, else an assignment."""
    probe = np.random.default_rng(ours.shape[1]).uniform(0.5, 1.5, size=ours.shape[1])
    mine, yours = np.argsort(ours @ probe, kind="stable"), np.argsort(theirs @ probe, kind="stable")
    order = np.empty(len(ours), dtype=np.intp)
    order[mine] = yours
    if len(ours) and row_residual(ours, theirs[order]) > 1e-12:
        squares = (ours**2).sum(axis=1)[:, None] + (theirs**2).sum(axis=1)
        order = linear_sum_assignment(squares - 2 * ours @ theirs.T)[1]
    return tuple(int(k) for k in order)


def row_residual(ours: Array, theirs: Array) -> float:
    """Largest relative difference of two lists of rows `[w | b]`."""
    if ours.dtype == object and (ours == theirs).all():
        return 0.0
    return float(row_gaps(floating(ours), floating(theirs)).max(initial=0.0))


def head(stack: Stack, layer: int) -> Stack:
    """The network above hidden layer `layer`, as a function of that layer's values."""
    return Stack(stack.weights[layer:], stack.biases[layer:], stack.slopes[layer:])


def describe(steps: Sequence[SymmetryStep]) -> str:
    """The chain in words.

    >>> describe([Drop(2, 0), Drop(2, 1), Flip(1, 0, (1, 2))])
    'drop 2, flip 1'
    """
    names = [type(step).__name__.lower() for step in steps]
    return ", ".join(f"{name} {names.count(name)}" for name in dict.fromkeys(names))
