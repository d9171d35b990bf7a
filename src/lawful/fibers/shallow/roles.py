"""Every way in which the neurons of one hidden ReLU layer can share out a function (P4 Definition 22), on all of space.

The function is `A x + c + Σ_H w_H relu(n_H·x + t_H)`, uniquely (P4 Lemma 2). Whatever network of one hidden layer has
it, a neuron is alone on a visible hyperplane, straight or turned, or it faces another there, or it is one of a pair
that cancels to a linear map, or it does nothing. What a turned neuron, a facing pair and a cancelling pair leave is
linear, `w_H n_H`, `B n_H` with any B, and any matrix of rank one: together they must make `−A`. With `n − p` neurons
more than the p hyperplanes, the sets D of facing pairs and S of turned neurons that can do it are those with
`|D| + 2 rank(−A − Σ_S w_H n_H modulo the span of n_D) ≤ n − p`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb
from typing import Any

import flint
import numpy as np

from lawful.errors import Unsupported
from lawful.fibers.deep.identification import modulo, rank_of, subsets_with_sum
from lawful.fibers.layers import Array, Stack, rational
from lawful.fibers.shallow.normal_form import HyperplaneGroup, NormalForm, factorise, normal_form

MOST_PLACES = 2_000  # sets of hyperplanes on which pairs may face each other that are all looked at
MOST_TURNS = 5_000  # sets of turned neurons whose remainders are all looked at where cancelling pairs may make them up
MOST_LISTED = 1_000  # assignments that are listed


@dataclass(frozen=True)
class RoleAssignment:
    """Visible hyperplanes where two neurons face each other, those whose only neuron is turned, and pairs that cancel.

    `isolated` if its parameters are one, up to order and scale of the neurons; otherwise there are infinitely many.
    """

    facing: tuple[int, ...]
    turned: tuple[int, ...]
    cancelling: int
    isolated: bool


@dataclass(frozen=True, eq=False)
class RoleAssignments:
    """The assignments that give one function; `complete` if there are no others with as many neurons."""

    form: NormalForm
    width: int
    found: tuple[RoleAssignment, ...]
    complete: bool

    @property
    def count(self) -> int | None:
        """How many parameters have the function, up to order and scale; None if infinitely many, or not known."""
        return len(self.found) if self.complete and all(role.isolated for role in self.found) else None

    def member(self, assignment: RoleAssignment) -> Stack:
        """A parameter with these roles, in rationals; pairs that cancel go through the origin, the idle are dead."""
        planes, (outputs, inputs) = self.form.visible, self.form.matrix.shape
        zero = flint.fmpq(0)
        rows: list[Array] = []
        outs: list[Array] = []
        offset = self.form.offset
        left = -self.form.matrix - _sum([_term(planes[k]) for k in assignment.turned], self.form.matrix)
        shares, left = _share(left, [planes[k].hyperplane[:-1] for k in assignment.facing])
        for number, group in enumerate(planes):
            size = abs(group.factors[0])  # rows as long as the network's own
            row, jump = group.hyperplane * size, group.jump / size
            if number in assignment.facing:
                share = shares[assignment.facing.index(number)] / size
                rows += [row, -row]
                outs += [jump - share, share]
                offset = offset + share * row[-1]
            elif number in assignment.turned:
                rows.append(-row)
                outs.append(jump)
                offset = offset + jump * row[-1]
            else:
                rows.append(row)
                outs.append(jump)
        for out, row in zip(*_rank_one(left), strict=True):
            rows += [np.append(row, zero), np.append(-row, zero)]
            outs += [-out, out]
        while len(rows) < self.width:
            rows.append(np.array([*[zero] * inputs, flint.fmpq(-1)], dtype=object))
            outs.append(np.array([zero] * outputs, dtype=object))
        table = np.array(rows, dtype=object)
        return Stack((table[:, :-1], np.array(outs, dtype=object).T), (table[:, -1], offset), (0.0,))


def role_assignments(network: Stack) -> RoleAssignments:
    """All assignments for the function of a network with one hidden ReLU layer, on all of space.

    Two neurons of two outputs that face each other can move together to another hyperplane:

    >>> from lawful.network import Mlp
    >>> rows, bias = [[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], [0.0, 0.0, -1.0, 0.0]
    >>> facing = Mlp([rows, [[1.0, 2.0, 1.0, 2.0], [3.0, -1.0, 5.0, -1.0]]], [bias, None])
    >>> found = role_assignments(Stack.of(facing))
    >>> [(each.facing, each.turned) for each in found.found], found.count
    ([((0,), ()), ((1,), (2,))], 2)
    """
    stack = network.rational()
    if stack.hidden != 1 or stack.slopes != (0.0,):
        raise Unsupported("roles are those of one hidden ReLU layer")
    form = normal_form(stack, tolerance=0.0)
    extra = stack.widths[1] - len(form.visible)
    assignments: list[RoleAssignment] = []
    complete = _count_places(len(form.visible), extra) <= MOST_PLACES
    for places in _places(len(form.visible), extra) if complete else ():
        turns = _turns(form, places, extra)
        if turns is None:
            complete = False
            continue
        assignments += turns
        if len(assignments) > MOST_LISTED:
            complete = False
            break
    return RoleAssignments(form, stack.widths[1], tuple(assignments), complete)


def _places(planes: int, extra: int) -> Iterator[tuple[int, ...]]:
    for size in range(min(extra, planes) + 1):
        yield from combinations(range(planes), size)


def _count_places(planes: int, extra: int) -> int:
    return sum(comb(planes, size) for size in range(min(extra, planes) + 1))


def _turns(form: NormalForm, facing: tuple[int, ...], extra: int) -> list[RoleAssignment] | None:
    """The sets of turned neurons that go with these facing pairs; None if they are too many to look at."""
    planes = form.visible
    alone = [k for k in range(len(planes)) if k not in facing]
    normals = _rows([planes[k].hyperplane[:-1] for k in facing], form)
    goal = modulo(-form.matrix, normals)
    terms = [np.outer(planes[k].jump, modulo(planes[k].hyperplane[None, :-1], normals)[0]) for k in alone]
    pairs = (extra - len(facing)) // 2
    if pairs and goal.size:
        if 2 ** len(alone) > MOST_TURNS:
            return None
        chosen: Any = (
            tuple(k for k in range(len(alone)) if bits >> k & 1)
            for bits in range(2 ** len(alone))
        )  # fmt: skip
        ranked = [(some, rank_of(goal - _sum([terms[k] for k in some], goal))) for some in chosen]
    else:
        sums = subsets_with_sum([term.ravel() for term in terms], goal.ravel(), MOST_LISTED + 1)
        if sums is None:
            return None
        ranked = [(some, 0) for some in sums]
    independent = rank_of(normals) == len(facing)
    turns = []
    for some, rank in ranked:
        if rank > pairs:
            continue
        turned = tuple(alone[k] for k in some)
        isolated = len(facing) == extra and independent and _all_speak(form, facing, turned)
        turns.append(RoleAssignment(facing, turned, rank, isolated))
    return turns


def _all_speak(form: NormalForm, facing: tuple[int, ...], turned: tuple[int, ...]) -> bool:
    """Whether both neurons of every facing pair have a share of the jump: one without moves freely."""
    planes = form.visible
    left = -form.matrix - _sum([_term(planes[k]) for k in turned], form.matrix)
    shares, _ = _share(left, [planes[k].hyperplane[:-1] for k in facing])
    return all(any(share) and any(planes[k].jump - share) for k, share in zip(facing, shares, strict=True))


def _share(matrix: Array, normals: list[Array]) -> tuple[list[Array], Array]:
    """`matrix = Σ_k B_k ⊗ n_k + rest`: the B, and a rest of the least rank, zero where the normals have pivots."""
    if not normals:
        return [], matrix
    table = np.array(normals, dtype=object)
    echelon, rank = flint.fmpq_mat([list(row) for row in table]).rref()
    basis = np.array(echelon.tolist(), dtype=object).reshape(table.shape)[:rank]
    pivots = [next(k for k, item in enumerate(row) if item != 0) for row in basis]
    inside = matrix[:, pivots] @ basis
    # Σ_k B_k n_k[pivots] = matrix[pivots]: one solution, with zeros for normals that depend on others
    system = flint.fmpq_mat([[*table[:, p], *matrix[:, p]] for p in pivots])
    solved, _ = system.rref()
    shares = [rational(np.zeros(len(matrix))) for _ in normals]
    for row in range(rank):
        lead = next(k for k in range(len(normals)) if solved[row, k] != 0)
        shares[lead] = np.array([solved[row, len(normals) + k] for k in range(len(matrix))], dtype=object)
    return shares, matrix - inside


def _rank_one(matrix: Array) -> tuple[list[Array], Array]:
    """A matrix as a sum of products of a column and a row, as few as there can be."""
    if not any(item != 0 for item in matrix.ravel()):
        return [], matrix[:0]
    left, right = factorise(matrix, np.zeros(matrix.shape), 0.0)
    return list(left.T), right


def _term(group: HyperplaneGroup) -> Array:
    return np.outer(group.jump, group.hyperplane[:-1])


def _sum(terms: Sequence[Array], like: Array) -> Array:
    return sum(terms, like * 0)


def _rows(rows: list[Array], form: NormalForm) -> Array:
    return np.array(rows, dtype=object).reshape(len(rows), form.matrix.shape[1])
