"""All roles that neurons of one hidden layer may take: hyperplanes shared, cancelling, linear, dead (P4 C.2)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import comb
from typing import Any

import flint
import numpy as np

from lawful.errors import Unsupported
from lawful.fibers.domain import Domain
from lawful.fibers.shallow import HyperplaneGroup, Kind, normal_form
from lawful.fibers.stack import Array, Stack, floating, rational
from lawful.network import Mlp


@dataclass(frozen=True, eq=False)
class AssignedFiber:
    """The set of P4 Definition 22 that holds a parameter, given by the roles of its neurons.

    Neurons share a visible hyperplane, or cancel in groups to an affine map, or are linear, or dead.

    `dimension` is that of the set here, modulo permutation and scaling: variables less the exact rank of the
    constraints' derivatives. `assignments` counts the ways in which neurons can be distributed over these roles.
    """

    stack: Stack
    domain: Domain
    visible: tuple[HyperplaneGroup, ...]
    cancelling: tuple[HyperplaneGroup, ...]
    linear: tuple[int, ...]
    dead: tuple[int, ...]
    dimension: int

    @property
    def assignments(self) -> int:
        """How many ways there are to share out as many neurons, up to their order."""
        kinds = len(self.visible) + (2 if (self.domain.low == 0).all() else 0)
        return count_assignments(self.stack.widths[1] - len(self.visible), kinds)

    def sample(self, seed: int = 0) -> Mlp:
        """Another parameter of the same function: weights moved inside groups, free neurons redrawn, groups shifted."""
        rng = np.random.default_rng(seed)
        floats = self.stack.floating()
        hidden, outs = (weight.copy() for weight in floats.weights)
        bias, offset = (part.copy() for part in floats.biases)
        for group in (*self.visible, *self.cancelling):
            factors = floating(np.array(group.factors, dtype=object))
            for sign in (1, -1):
                members = [j for j, factor in zip(group.neurons, factors, strict=True) if factor * sign > 0]
                sizes = np.abs(factors[factors * sign > 0])
                moves = rng.normal(size=(len(offset), len(members))) * (len(members) > 1)
                outs[:, members] += moves - np.outer(moves @ sizes, sizes) / max(float(sizes @ sizes), 1e-300)
        for group in self.cancelling:
            factors = floating(np.array(group.factors, dtype=object))
            members, shift = list(group.neurons), float(rng.normal())
            turned = np.minimum(factors, 0.0)  # relu(−z) = relu(z) − z: what the group leaves is `outs · turned · z`
            offset = offset - outs[:, members] @ turned * shift
            bias[members] += factors * shift
        for neuron in self.dead:
            hidden[neuron] = -rng.exponential(size=hidden.shape[1]) * ((self.domain.low == 0).all())
            bias[neuron], outs[:, neuron] = -rng.exponential(), rng.normal(size=len(offset))
        scale, order = np.exp(rng.normal(size=len(bias))), rng.permutation(len(bias))
        hidden, bias, outs = hidden * scale[:, None], bias * scale, outs / scale
        return Mlp([hidden[order], outs[:, order]], [bias[order], offset])


def assigned_fiber(network: Mlp | Stack, domain: Domain | None = None) -> AssignedFiber:
    """The roles of all neurons of a network with one hidden ReLU layer, minimal or not, decided in rationals.

    >>> pair = Mlp([[[1.0, 2.0], [-1.0, -2.0], [1.0, 0.0]], [[1.0, -1.0, 2.0]]], [[1.0, -1.0, 0.0], None])
    >>> fiber = assigned_fiber(pair)
    >>> len(fiber.visible), len(fiber.cancelling), fiber.dimension, fiber.assignments
    (1, 1, 1, 2)
    """
    stack = (network if isinstance(network, Stack) else Stack.of(network)).rational()
    domain = Domain.space(stack.widths[0]) if domain is None else domain
    if stack.hidden != 1 or stack.slopes != (0.0,):
        raise Unsupported("this fiber is known for one hidden ReLU layer")
    form = normal_form(stack, domain, tolerance=0.0)
    empty = [all(item == 0 for item in group.jump) for group in form.groups]
    visible = tuple(group for group, gone in zip(form.groups, empty, strict=True) if not gone)
    cancelling = tuple(group for group, gone in zip(form.groups, empty, strict=True) if gone)
    linear = tuple(j for j, kind in enumerate(form.kinds) if kind is Kind.LINEAR)
    dead = tuple(j for j, kind in enumerate(form.kinds) if kind is Kind.DEAD)
    if domain.bounded:
        raise Unsupported("roles are counted on all of space and on the orthant")
    loose = (
        stack.widths[0] * len(dead) if (domain.low == 0).all() else 0
    )  # on all of space a dead neuron has no weights
    dimension = _dimension(stack, visible, cancelling, linear) + loose
    return AssignedFiber(stack, domain, visible, cancelling, linear, dead, dimension)


def count_assignments(extra: int, kinds: int) -> int:
    """Ways to give neurons beyond one per visible hyperplane a role: one of so many kinds, or a cancelling group.

    >>> count_assignments(2, 1), count_assignments(2, 3)
    (2, 7)
    """
    total = 0
    for grouped in range(extra + 1):
        left = extra - grouped
        ways = comb(left + kinds - 1, kinds - 1) if kinds else int(left == 0)
        total += _partitions(grouped, 2) * ways
    return total


@cache
def _partitions(total: int, least: int) -> int:
    """Partitions into parts of at least this size."""
    if total == 0:
        return 1
    return sum(_partitions(total - part, part) for part in range(least, total + 1))


def _dimension(
    stack: Stack,
    visible: tuple[HyperplaneGroup, ...],
    cancelling: tuple[HyperplaneGroup, ...],
    linear: tuple[int, ...],
) -> int:
    """Variables less the rank of what Definition 22 asks of them, less a scaling for every hyperplane that may move."""
    rows, outs = stack.row(0), stack.weights[1]
    inputs, outputs = stack.widths[0], stack.widths[-1]
    groups = (*visible, *cancelling)
    width = len(groups) * outputs + outputs * (inputs + 1)
    variables: list[Array] = []

    def equations(jump: tuple[int, Any] | None, affine: Array | None, output: int) -> None:
        """One variable: how it moves a group's jump and one output's affine part."""
        line = rational(np.zeros(width))
        if jump is not None:
            line[jump[0] * outputs + output] = jump[1]
        if affine is not None:
            start = len(groups) * outputs + output * (inputs + 1)
            line[start : start + inputs + 1] = affine
        variables.append(line)

    home: dict[int, tuple[int, Any]] = {}
    for place, group in enumerate(groups):
        home |= {neuron: (place, factor) for neuron, factor in zip(group.neurons, group.factors, strict=True)}
    for neuron in range(len(rows)):
        at = home.get(neuron)
        straight = neuron in linear or (at is not None and at[1] < 0)  # relu(−z) = relu(z) − z
        for output in range(outputs):
            equations(None if at is None else (at[0], abs(at[1])), rows[neuron] if straight else None, output)
    for output in range(outputs):
        equations(None, rational(np.append(np.zeros(inputs), 1.0)), output)
    moving = [outs[:, neuron] for neuron in linear]
    for group in cancelling:
        turned = [outs[:, j] * factor for j, factor in zip(group.neurons, group.factors, strict=True) if factor < 0]
        moving.append(sum(turned, outs[:, 0] * 0))
    for strength in moving:  # a hyperplane that may move changes all outputs at once
        for k in range(inputs + 1):
            line = rational(np.zeros(width))
            for output in range(outputs):
                line[len(groups) * outputs + output * (inputs + 1) + k] = strength[output]
            variables.append(line)
    rank: int = flint.fmpq_mat([list(line) for line in variables]).rank()
    return len(variables) - rank - len(moving)
