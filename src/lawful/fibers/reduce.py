"""Bring a network to a standard place on its fiber, and two networks side by side."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import linear_sum_assignment

from lawful.fibers.layers import Array, Stack, floating, rational
from lawful.fibers.regions.domain import Domain
from lawful.fibers.reparametrisations import (
    Collapse,
    Drop,
    Flip,
    Merge,
    Quiet,
    Rescale,
    SymmetryStep,
    Translate,
    hides,
    is_linear,
    is_silent,
    quiet_neurons,
)
from lawful.fibers.row_matching import unit_rows
from lawful.fibers.shallow.normal_form import group_rows


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
        steps = simplifications(network.stack, layer, tolerance)
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


def simplifications(stack: Stack, layer: int, tolerance: float) -> list[SymmetryStep]:
    """Steps that all apply to one layer, last neuron first so that the numbers of the others stay."""
    if is_linear(stack, layer):
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


def orient(first: Stack, second: Reduced) -> Reduced:
    """Flip first-layer neurons of `second` to look as those of `first` do, where a single neuron above hides one."""
    theirs = second.stack
    if first.widths[:3] != theirs.widths[:3] or first.hidden < 2 or first.widths[2] != 1:
        return second
    mine, yours = hidden_neuron(first), hidden_neuron(theirs)
    if mine is None or yours is None:
        return second
    others = [k for k in range(first.widths[1]) if k != yours]
    ours = unit_rows(np.delete(floating(first.row(0)), mine, axis=0))
    rows = unit_rows(floating(theirs.row(0))[others])
    cosines = ours @ rows.T
    if not np.isfinite(cosines).all():
        return second
    pairs = zip(*linear_sum_assignment(-np.abs(cosines)), strict=True)
    turned = tuple(sorted(others[j] for i, j in pairs if cosines[i, j] < 0))
    return second.then(Flip(1, yours, turned), 0.0) if turned else second


def head(stack: Stack, layer: int) -> Stack:
    """The network above hidden layer `layer`, as a function of that layer's values."""
    return Stack(stack.weights[layer:], stack.biases[layer:], stack.slopes[layer:])
