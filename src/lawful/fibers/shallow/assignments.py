"""All roles that neurons of one hidden layer may take: hyperplanes shared, cancelling, linear, dead (P4 C.2)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import comb

import numpy as np

from lawful.errors import Unsupported
from lawful.fibers.deep.factorisations import modulo, nearby_factorisations
from lawful.fibers.deep.identification import rank_of
from lawful.fibers.layers import Array, Stack, floating
from lawful.fibers.regions.domain import Domain
from lawful.fibers.shallow.normal_form import HyperplaneGroup, Kind, normal_form
from lawful.network import Mlp


@dataclass(frozen=True, eq=False)
class AssignedFiber:
    """The set of P4 Definition 22 that holds a parameter, given by the roles of its neurons.

    Neurons share a visible hyperplane, or cancel in groups to an affine map, or are linear, or dead.

    Its dimension here, modulo permutation and scaling, is between `at_least` and `at_most`: they differ only where a
    linear neuron of the orthant has a zero weight, which can grow but not fall. `assignments` counts the ways in which
    neurons can be distributed over these roles.
    """

    stack: Stack
    domain: Domain
    visible: tuple[HyperplaneGroup, ...]
    cancelling: tuple[HyperplaneGroup, ...]
    linear: tuple[int, ...]
    dead: tuple[int, ...]
    at_least: int
    at_most: int

    @property
    def dimension(self) -> int | None:
        """If it is known."""
        return self.at_least if self.at_least == self.at_most else None

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
    roles = visible, cancelling, linear
    edge = tuple(j for j in linear if (domain.low == 0).all() and any(item == 0 for item in stack.weights[0][j]))
    free = len(dead) * (stack.widths[-1] + (stack.widths[0] if (domain.low == 0).all() else 0))
    at_most = _dimension(stack, domain, *roles) + free
    inner = tuple(j for j in linear if j not in edge)
    at_least = _dimension(stack, domain, visible, cancelling, inner) + len(edge) + free if edge else at_most
    return AssignedFiber(stack, domain, visible, cancelling, linear, dead, at_least, at_most)


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
    domain: Domain,
    visible: tuple[HyperplaneGroup, ...],
    cancelling: tuple[HyperplaneGroup, ...],
    linear: tuple[int, ...],
) -> int:
    """Of the set of Definition 22, counted in rationals.

    Output weights move inside a group as long as those of each orientation keep their sum. What neurons of both
    orientations leave is linear, `s n`, and so is a linear neuron: all these add up to a fixed matrix, `U V + E N`, in
    which N is made of visible hyperplanes and cannot move. Every bias in V is free, the output's makes up for it, and
    every row of V may be rescaled.
    """
    inputs, outputs = stack.widths[0], stack.widths[-1]
    total, strengths, normals, fixed = 0, [], [], []
    for group, shows in [*((group, True) for group in visible), *((group, False) for group in cancelling)]:
        turned = [place for place, factor in enumerate(group.factors) if factor < 0]
        both = 0 < len(turned) < len(group.neurons)
        total += (len(group.neurons) - 1 - both) * outputs
        if both and shows:
            fixed.append(group.hyperplane[:-1])
        elif both:
            weights = [stack.weights[1][:, group.neurons[place]] * group.factors[place] for place in turned]
            strengths.append(sum(weights[1:], weights[0]))
            normals.append(group.hyperplane[:-1])
        elif not shows:
            total += inputs  # its neurons cancel on their side alone: the hyperplane is free
    if (domain.low == 0).all():
        strengths += [stack.weights[1][:, neuron] for neuron in linear]
        normals += [stack.weights[0][neuron] for neuron in linear]
    else:
        total += outputs * len(linear)  # on all of space these are constants, whose input weights are zero
    outer = _columns(strengths, outputs)
    inner, still = (_columns(rows, inputs).T for rows in (normals, fixed))
    rank = rank_of(still)
    total += nearby_factorisations(outer, modulo(inner, still)) + rank * len(normals) + outputs * (len(fixed) - rank)
    return total


def _columns(vectors: list[Array], size: int) -> Array:
    return np.array(vectors, dtype=object).reshape(len(vectors), size).T
