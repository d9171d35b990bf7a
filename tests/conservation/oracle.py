"""Laws counted the slow way: every path enumerated, every bracket of two fields written out, ranks by FLINT."""

from __future__ import annotations

from collections import defaultdict
from itertools import combinations

import numpy as np
from flint import nmod_mat

from lawful import Dag
from lawful.network import Role

PRIME = 2**31 - 1


def factorisation(dag: Dag) -> list[list[tuple[int, ...]]]:
    """φ: for each input, output and set of gated neurons the paths between them, as edge numbers (P1 (13))."""
    groups: dict[tuple[int, ...], list[tuple[int, ...]]] = defaultdict(list)

    def walk(node: int, edges: tuple[int, ...], key: tuple[int, ...]) -> None:
        if dag.roles[node] == Role.OUTPUT:
            groups[(*key, node)].append(edges)
            return
        gated = dag.roles[node] == Role.HIDDEN and dag.slopes[node] != 1.0
        for edge in np.flatnonzero(dag.tails == node):
            walk(int(dag.heads[edge]), (*edges, int(edge)), (*key, node) if gated else key)

    for source in (*dag.inputs, *([] if dag.constant is None else [dag.constant])):
        walk(int(source), (), (int(source),))
    return list(groups.values())


def dimensions(dag: Dag, seed: int = 0) -> tuple[int, int]:
    """`dim V` and `dim (V + [V, V])` at a random point."""
    rng = np.random.default_rng(seed)
    theta = [int(value) for value in rng.integers(1, PRIME, size=dag.parameters)]
    gradients, hessians = [], []
    for paths in factorisation(dag):
        gradient = [0] * dag.parameters
        hessian: dict[tuple[int, int], int] = defaultdict(int)
        for path in paths:
            for edge in path:
                gradient[edge] += _product(theta, path, (edge,))
                for other in path:
                    if other != edge:
                        hessian[edge, other] += _product(theta, path, (edge, other))
        gradients.append(gradient)
        hessians.append(hessian)
    brackets = []
    for first, second in combinations(range(len(gradients)), 2):
        line = [0] * dag.parameters
        for hessian, vector, sign in (
            (hessians[first], gradients[second], 1),
            (hessians[second], gradients[first], -1),
        ):
            for (row, column), value in hessian.items():
                line[row] += sign * value * vector[column]
        brackets.append(line)
    return _rank(gradients), _rank(gradients + brackets)


def _product(theta: list[int], path: tuple[int, ...], without: tuple[int, ...]) -> int:
    total = 1
    for edge in path:
        if edge not in without:
            total = total * theta[edge] % PRIME
    return total


def _rank(rows: list[list[int]]) -> int:
    entries = [value % PRIME for row in rows for value in row]
    return int(nmod_mat(len(rows), len(rows[0]), entries, PRIME).rank())
