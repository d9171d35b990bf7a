"""How many parameters of one hidden ReLU layer have a function, up to order and positive scale of the neurons.

A function of one hidden layer is `A x + c + Σ_H w_H relu(n_H·x + t_H)` in one way only (P4 Lemma 2). In a network of n
neurons that has it, each of the p hyperplanes has a neuron: one alone, straight or turned, leaves 0 or `w_H n_H` of a
linear map; two that face each other leave `B n_H` with any B; two elsewhere that cancel leave a matrix of rank one; the
others nothing. The sum must be `−A`. So sets D of facing pairs and S of turned neurons belong to a network exactly if
`|D| + 2 r ≤ n − p`, with r the rank of `−A − Σ_S w_H n_H` modulo the span of n_D. If in all of them |D| = n − p, and
n_D are independent, each is one network: a pair with an idle neuron would show as a smaller D.
"""

from __future__ import annotations

from itertools import combinations

from flint import fmpq_mat

from lawful.verify.core.layers import CheckedStack, Row
from lawful.verify.core.numbers import ZERO
from lawful.verify.core.schema import limit_cost, require

MOST_COUNTED = 10_000  # assignments that are looked at one by one


def count_parameters(net: CheckedStack) -> int:
    """All parameters with this function, itself included; rejects where there are infinitely many."""
    require(len(net.layers) == 2 and net.slopes[0] == 0, "roles are those of one hidden ReLU layer")
    rows, heads = net.layers
    planes: dict[tuple[tuple[int, int], ...], int] = {}
    normals: list[Row] = []
    jumps: list[Row] = []
    goal = [[ZERO] * net.inputs for _ in heads]
    sides: set[tuple[int, bool]] = set()
    for j, row in enumerate(rows):
        require(any(row[:-1]), f"neuron {j} is constant")
        pivot = next(entry for entry in row if entry)
        unit = [entry / pivot for entry in row]
        place = planes.setdefault(tuple((int(q.p), int(q.q)) for q in unit), len(planes))
        if place == len(normals):
            normals.append(unit[:-1])
            jumps.append([ZERO] * len(heads))
        require((place, pivot > 0) not in sides, f"neuron {j} is a multiple of another")
        sides.add((place, pivot > 0))
        jumps[place] = [jump + head[j] * abs(pivot) for jump, head in zip(jumps[place], heads, strict=True)]
        if pivot < 0:  # relu(-z) = relu(z) - z
            goal = [
                [g - head[j] * e for g, e in zip(line, row[:-1], strict=True)]
                for line, head in zip(goal, heads, strict=True)
            ]
    require(all(any(jump) for jump in jumps), "neurons cancel: they can be moved together")
    return _count(normals, jumps, goal, len(rows) - len(normals))


def _count(normals: list[Row], jumps: list[Row], goal: list[Row], extra: int) -> int:
    planes = range(len(normals))
    many = sum(2 ** (len(normals) - size) * _choose(len(normals), size) for size in range(extra + 1))
    require(many <= MOST_COUNTED, f"{many} assignments of roles are too many to look at all of them")
    limit_cost(50.0 * many * len(goal) * len(normals[0]) * (len(goal) + extra))
    terms = [[[jump * entry for entry in normals[k]] for jump in jumps[k]] for k in planes]
    count = 0
    for size in range(extra + 1):
        for facing in combinations(planes, size):
            base = [normals[k] for k in facing]
            spanned = int(fmpq_mat(base).rank()) if base else 0
            alone = [k for k in planes if k not in facing]
            for bits in range(1 << len(alone)):
                turned = [k for place, k in enumerate(alone) if bits >> place & 1]
                left = [
                    [entry - sum((terms[k][o][x] for k in turned), ZERO) for x, entry in enumerate(line)]
                    for o, line in enumerate(goal)
                ]
                if size + 2 * (int(fmpq_mat([*base, *left]).rank()) - spanned) > extra:
                    continue
                require(size == extra and spanned == size, "infinitely many parameters have this function")
                count += 1
    return count


def _choose(total: int, size: int) -> int:
    found = 1
    for k in range(size):
        found = found * (total - k) // (k + 1)
    return found
