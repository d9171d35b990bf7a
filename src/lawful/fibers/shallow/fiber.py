"""All parameters of one hidden layer that give the same function (P4 Section 4.2, C.3, C.4).

The theorem is about generic parameters: what it needs of these is decided in rationals, and refused if it fails.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import combinations
from math import comb, lcm

import numpy as np
from scipy.optimize import linprog

from lawful.errors import Unsupported
from lawful.exact.elimination import rank
from lawful.exact.feasibility import Solution, feasible
from lawful.fibers.deep.identification import PRIME, modulo, nearby_factorisations, rank_of, residues
from lawful.fibers.layers import Array, Stack, floating, rational
from lawful.fibers.regions.domain import Domain
from lawful.fibers.shallow.normal_form import HyperplaneGroup, Kind, difference_form, kinds_text, normal_form
from lawful.network import Mlp
from lawful.types import Floats

# All roles that neurons of one hidden layer may take: hyperplanes shared, cancelling, linear, dead (P4 C.2).


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
                if len(members) < 2:
                    continue
                # What neuron j gives is `outs · |factor|`: that is moved, and its sum kept. Moves of `outs` itself are
                # rounded at the size of the largest of them, and a factor of 1e9 beside it makes that visible.
                sizes = np.abs(factors[factors * sign > 0])
                moves = rng.normal(size=(len(offset), len(members)))
                moves *= float(np.abs(outs[:, members] * sizes).max()) or 1.0
                outs[:, members] += (moves - moves.mean(axis=1, keepdims=True)) / sizes
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


@dataclass(frozen=True)
class Component:
    """The parameters in which the neurons `flipped` look the other way: `F_S` of P4, Proposition 1.

    `dimension` counts modulo permutation and scaling; None means empty, and `reason` says why.
    """

    flipped: tuple[int, ...]
    dimension: int | None
    reason: str


@dataclass(frozen=True, eq=False)
class LayerwiseFiber:
    """The fiber of a generic minimal network with one hidden layer, on R^d or on the orthant.

    Linear neurons must supply `A_F = Σ_linear w_out w_in + Σ_{i ∈ F} w_out,i w_in,i` when the neurons F are flipped:
    `A_F = U V` with `V ≥ 0`. The case (1 to 4) of P4 Theorem 4.2 follows from k linear neurons, n inputs, m outputs.
    """

    stack: Stack
    domain: Domain
    bending: tuple[int, ...]
    linear: tuple[int, ...]

    @property
    def sizes(self) -> tuple[int, int, int]:
        """k linear neurons, n inputs, m outputs."""
        return len(self.linear), self.stack.widths[0], self.stack.widths[-1]

    @property
    def case(self) -> int:
        """Which line of P4 Theorem 4.2 applies."""
        linear, inputs, outputs = self.sizes
        if linear < min(inputs, outputs):
            return 1
        if linear == inputs <= outputs:
            return 2
        if linear == outputs < inputs:
            return 3
        if linear == outputs + 1 <= inputs:
            return 4
        raise Unsupported(f"{linear} linear neurons are more than a minimal network {self.stack.widths} has")

    @property
    def dimension(self) -> int:
        """The dimension of every component that is not empty."""
        linear, inputs, outputs = self.sizes
        return outputs * (outputs + 1) + inputs if self.case == 4 else linear**2

    def compensation(self, flipped: tuple[int, ...]) -> Floats:
        """`A_F`, the linear map that the linear neurons must supply."""
        members = [*self.linear, *flipped]
        return np.asarray(self.stack.weights[1][:, members] @ self.stack.weights[0][members])

    def component(self, flipped: tuple[int, ...]) -> Component:
        """Whether the neurons in `flipped` can look the other way, and with how much freedom.

        Generic compensations have the largest rank that there can be; what the theorem says is refused for others.
        """
        flipped = tuple(sorted(flipped))
        linear, inputs, outputs = self.sizes
        if not self._has_rank(flipped, linear + bool(flipped) if self.case == 1 else min(inputs, outputs)):
            words = f"neurons {', '.join(map(str, flipped))} leave" if flipped else "the linear neurons make"
            raise Unsupported(f"not generic: {words} a linear map of less than the largest rank")
        if self.case == 1 and flipped:
            return Component(flipped, None, "fewer linear neurons than inputs and outputs: no orientation can change")
        if self.case == 3 and not is_pointed(self._exact_compensation(flipped)):
            return Component(flipped, None, "the cone of the compensation's columns contains a line")
        return Component(flipped, self.dimension, f"case {self.case} of the theorem")

    def _exact_compensation(self, flipped: tuple[int, ...]) -> Array:
        members, exact = [*self.linear, *flipped], self.stack.rational()
        return np.asarray(exact.weights[1][:, members] @ exact.weights[0][members])

    def _has_rank(self, flipped: tuple[int, ...], wanted: int) -> bool:
        """Whether `A_F` has at least this rank: modulo a prime, of a few random combinations, or else in rationals."""
        members = [*self.linear, *flipped]
        outer, inner = self._residues
        return wanted == 0 or bool(
            (members and rank(outer[:, members] @ inner[members] % PRIME, PRIME) >= wanted)
            or rank_of(self._exact_compensation(flipped)) >= wanted
        )

    @cached_property
    def _residues(self) -> tuple[Array, Array]:
        """Outgoing weights, and random combinations of the incoming ones, modulo a prime."""
        incoming, outgoing = (residues(weight) for weight in self.stack.weights)
        mix = np.random.default_rng(0).integers(
            0, PRIME, size=(incoming.shape[1], min(incoming.shape[1], len(outgoing)))
        )
        mixed = sum(incoming[:, [k]] * mix[[k]] % PRIME for k in range(len(mix)))
        return outgoing, np.asarray(mixed % PRIME)

    def components(self) -> Iterator[Component]:
        """All 2^p components, fewest flips first, lazily."""
        for count in range(len(self.bending) + 1):
            for flipped in combinations(self.bending, count):
                yield self.component(flipped)

    def sample(self, flipped: tuple[int, ...] = (), seed: int = 0) -> Mlp:
        """A random parameter on one component: flipped neurons, new linear neurons, new order, new scales."""
        component = self.component(flipped)
        if component.dimension is None:
            raise Unsupported(f"this component is empty: {component.reason}")
        rng = np.random.default_rng(seed)
        (hidden, outs), (bias, offset) = self.stack.weights, self.stack.biases
        outer, inner = self._factors(component.flipped, rng)
        hidden, bias, outs = hidden.copy(), bias.copy(), outs.copy()
        for neuron in component.flipped:  # w relu(z) = w relu(−z) + w z
            offset = offset + outs[:, neuron] * bias[neuron]
            hidden[neuron], bias[neuron] = -hidden[neuron], -bias[neuron]
        linear = list(self.linear)
        shift = rng.exponential(size=len(linear))
        offset = offset + outs[:, linear] @ bias[linear] - outer @ shift
        hidden[linear], bias[linear], outs[:, linear] = inner, shift, outer
        scale, order = np.exp(rng.normal(size=len(bias))), rng.permutation(len(bias))
        hidden, bias, outs = hidden * scale[:, None], bias * scale, outs / scale
        return Mlp([hidden[order], outs[:, order]], [bias[order], offset])

    def contains(self, other: Mlp, tolerance: float = 1e-9) -> bool:
        """Whether another parameter gives the same function on the domain."""
        return difference_form(self.stack, Stack.of(other), self.domain, tolerance).residual <= tolerance

    def _factors(self, flipped: tuple[int, ...], rng: np.random.Generator) -> tuple[Floats, Floats]:
        """Random `U`, `V ≥ 0` with `U V = A_F`."""
        linear, inputs, _ = self.sizes
        target = self.compensation(flipped)
        if self.case == 1:
            inner = rng.uniform(0.1, 1.0, size=(linear, linear)) + 2 * np.eye(linear)
            members = list(self.linear)
            return self.stack.weights[1][:, members] @ np.linalg.inv(inner), inner @ self.stack.weights[0][members]
        if self.case == 2:
            inner = rng.uniform(0.0, 1.0, size=(inputs, inputs)) + np.eye(inputs)
            return target @ np.linalg.inv(inner), inner
        if self.case == 3:
            return _pointed_factors(target, rng)
        basis = rng.normal(size=(len(target), len(target)))
        coordinates = np.linalg.solve(basis, target)
        lift = np.maximum(0.0, -coordinates.min(axis=0)) + rng.exponential(size=inputs)
        outer = np.column_stack([basis, -basis.sum(axis=1)])
        return outer, np.concatenate([coordinates + lift, lift[None, :]])


def layerwise_fiber(network: Mlp | Stack, domain: Domain | None = None) -> LayerwiseFiber:
    """The fiber of a network with one hidden layer; refuses parameters that are not minimal, and says why.

    >>> head = Mlp([[[1.0, 2.0, 1.0], [1.0, -3.0, 0.5]], [[1.0, 2.0]]], [[1.0, 0.5], [0.0]])
    >>> fiber = layerwise_fiber(head, Domain.orthant(3))
    >>> fiber.case, fiber.dimension, [component.dimension for component in fiber.components()]
    (3, 1, [1, None])
    """
    stack = network if isinstance(network, Stack) else Stack.of(network)
    domain = Domain.space(stack.widths[0]) if domain is None else domain
    if stack.hidden != 1 or stack.slopes != (0.0,):
        raise Unsupported("this fiber is known for one hidden ReLU layer")
    form = normal_form(stack.rational(), domain, tolerance=0.0)
    if any(kind in (Kind.DEAD, Kind.CANCELLING) for kind in form.kinds) or any(len(g.neurons) > 1 for g in form.groups):
        raise Unsupported(f"not minimal ({kinds_text(form.kinds)}): write its minimal network with `lawful canonical`")
    bending = tuple(number for number, kind in enumerate(form.kinds) if kind is Kind.VISIBLE)
    linear = tuple(number for number, kind in enumerate(form.kinds) if kind is Kind.LINEAR)
    if linear and not (domain.low == 0).all():
        raise Unsupported("linear neurons are treated on the orthant")
    if linear and (stack.weights[0][list(linear)] == 0).any():
        raise Unsupported("not generic: a linear neuron has a weight of zero")
    fiber = LayerwiseFiber(stack.floating(), domain, bending, linear)
    fiber.component(())
    return fiber


def separating_direction(matrix: Floats) -> tuple[float, Floats]:
    """The u in the unit box that maximises `min_k u·a_k` over the nonzero columns, and that minimum."""
    columns = matrix[:, np.abs(matrix).max(axis=0) > 0]
    columns = columns / np.abs(columns).max(axis=0)
    outputs = len(matrix)
    if not columns.shape[1]:
        return 1.0, np.zeros(outputs)
    cost = np.append(np.zeros(outputs), -1.0)
    sides = np.column_stack([-columns.T, np.ones(columns.shape[1])])
    bounds = [(-1.0, 1.0)] * outputs + [(None, 1.0)]
    solution = linprog(cost, A_ub=sides, b_ub=np.zeros(len(sides)), bounds=bounds)
    return float(solution.x[-1]), np.asarray(solution.x[:-1])


def is_pointed(matrix: Array) -> bool:
    """Whether the cone of the columns contains no line, decided in rationals (P4 Theorem 4.2, case 3).

    A line is a sum of columns, with positive factors, that vanishes.

    >>> is_pointed(np.array([[1.0, -1.0, 0.0], [1.0, 1.0, 1.0]])), is_pointed(np.array([[1.0, -1.0]]))
    (True, False)
    """
    exact = matrix if matrix.dtype == object else rational(matrix)
    columns = [column for column in exact.T if any(item != 0 for item in column)]
    if not columns:
        return True
    wholes = [lcm(*(int(item.q) for item in column)) for column in columns]
    cleared = [[int((item * whole).p) for item in column] for column, whole in zip(columns, wholes, strict=True)]
    table = np.array([[*column, 1] for column in cleared], dtype=object).T
    certificate = feasible(table, [*[0] * len(exact), 1])
    if certificate is None:
        raise Unsupported("whether the cone of the compensation's columns contains a line takes too many pivots")
    return not isinstance(certificate, Solution)


def _pointed_factors(target: Floats, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """`U V` with square `U`: rows of `U⁻¹` are directions that see every column from its positive side."""
    _, centre = separating_direction(target)
    seen = target[:, np.abs(target).max(axis=0) > 0]
    for spread in np.geomspace(1.0, 1e-9, 400):
        look = centre + spread * rng.normal(size=(len(target), len(target)))
        if (look @ seen > 0).all() and np.linalg.cond(look) < 1e10:
            return np.linalg.inv(look), np.maximum(look @ target, 0.0)
    raise Unsupported("the cone of the compensation is too nearly flat to sample in floats")
