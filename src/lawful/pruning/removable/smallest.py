"""The fewest hidden neurons of any network of the same depth and activation that is the same function on R^d.

One hidden layer (P4 Lemma 2): the function is `A x + c + Σ_H jump_H relu(H·(x, 1))` with one term for each hyperplane
where it bends, and this form is unique. Whatever the network, each of these hyperplanes has at least one neuron. A
hyperplane with one neuron, on either side, fixes a linear part; a second one there makes that part `u n_Hᵀ` with any u;
a pair on another hyperplane adds `u nᵀ` with any u and n. So the fewest are

    V + min over (flipped F, doubled D) of |D| + 2 rank(A_F modulo the normals of D),   A_F = A + Σ_{H∈F} jump_H n_Hᵀ

for ReLU, V the number of hyperplanes: found by trying all choices while there are few. Deeper networks get bounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import flint

from lawful.fibers.layers import Stack
from lawful.fibers.shallow.normal_form import normal_form
from lawful.network import Mlp
from lawful.pruning.removable.decide import Question

MOST_CHOICES = 3**8  # roles of all hyperplanes tried: 1 s


@dataclass(frozen=True)
class Smallest:
    """At least `lower` and at most `upper` hidden neurons; both are the exact number if they agree."""

    lower: int
    upper: int
    layers: int  # hidden layers

    @property
    def exact(self) -> bool:
        """Whether the number is known."""
        return self.lower == self.upper


def smallest_equivalent(network: Mlp, known: int | None = None) -> Smallest:
    """Bounds on the fewest hidden neurons; `known` are those of a smaller network that is the same function exactly.

    >>> net = Mlp([[[1.0], [-1.0], [2.0]], [[1.0, -1.0, 1.0]]], [[0.0, 0.0, -2.0], None])  # x + relu(2x − 2)
    >>> smallest_equivalent(net)
    Smallest(lower=2, upper=2, layers=1)
    """
    upper = min(sum(network.widths[1:-1]), sum(network.widths[1:-1]) if known is None else known)
    if len(network.weights) == 1:
        return Smallest(0, 0, 0)
    if len(network.weights) == 2 and network.slopes[0] == 0.0:
        lower, enough = _one_layer(network)
        return Smallest(lower, max(lower, min(upper, enough)), 1)
    return Smallest(min(_lower(network), upper), upper, len(network.weights) - 1)


def _one_layer(network: Mlp) -> tuple[int, int]:
    form = normal_form(Stack.of(network, exact=True), tolerance=0.0)
    groups = [group for group in form.groups if any(entry != 0 for entry in group.jump)]
    normals = [list(group.hyperplane[:-1]) for group in groups]
    steps = [
        [[jump * entry for entry in normal] for jump in group.jump]
        for group, normal in zip(groups, normals, strict=True)
    ]
    start = [list(row) for row in form.matrix]
    count = len(groups)
    # the network itself is one choice: a hyperplane is flipped or doubled as its neurons stand
    if 3**count > MOST_CHOICES:
        return count, count + min(_extra(start, []), len(network.weights[0]))
    best: int | None = None
    for roles in sorted(product(range(3), repeat=count), key=lambda chosen: chosen.count(2)):
        doubled = [normals[place] for place, role in enumerate(roles) if role == 2]
        if best is not None and len(doubled) >= best:
            break  # all choices that are left double more
        matrix = start
        for place, role in enumerate(roles):
            if role == 1:
                matrix = [
                    [a + b for a, b in zip(*rows, strict=True)] for rows in zip(matrix, steps[place], strict=True)
                ]
        cost = len(doubled) + _extra(matrix, doubled)
        best = cost if best is None else min(best, cost)
        if best == 0:
            break
    return count + (best or 0), count + (best or 0)


def _extra(matrix: Sequence[Sequence[Any]], normals: list[list[Any]]) -> int:
    """Two neurons for each rank that is left modulo the normals."""
    below = _rank(normals)
    return 2 * (_rank([*matrix, *normals]) - below)


def _rank(rows: Sequence[Sequence[Any]]) -> int:
    return int(flint.fmpq_mat([list(row) for row in rows]).rank()) if rows else 0


def _lower(network: Mlp) -> int:
    """Every hidden layer is at least as wide as the rank of the function's derivative at any input."""
    question = Question(network, 0.0)
    rank = 0
    for point in question.pool:
        sums = question.sums(point)
        rows = [[flint.fmpq(int(i == j)) for j in range(network.widths[0])] for i in range(network.widths[0])]
        if any(total == 0 for layer in sums[:-1] for total in layer):
            continue  # no derivative here
        value = flint.fmpq_mat(rows)
        for layer, weight in enumerate(question.stack.weights):
            value = flint.fmpq_mat([list(row) for row in weight]) * value
            if layer < question.stack.hidden:
                slope = flint.fmpq(*float(question.stack.slopes[layer]).as_integer_ratio())
                table = value.tolist()
                value = flint.fmpq_mat(
                    [
                        row if total > 0 else [slope * entry for entry in row]
                        for row, total in zip(table, sums[layer], strict=True)
                    ]
                )
        rank = max(rank, int(value.rank()))
    return rank * (len(network.weights) - 1)
