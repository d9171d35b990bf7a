"""A certificate's metric, block by block in fractions: what it does to fields, and which symmetries it spares."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np

from lawful.verify.conservation.case import Block, Case, Residues
from lawful.verify.core.schema import exactly, integers, items, limit_cost, numbers, object_with_keys, require
from lawful.verify.core.schema import matrix as table

Form = dict[tuple[int, int], Fraction]


def blocks_of(flow: Mapping[str, Any], size: int) -> tuple[Block, ...]:
    """The metric as blocks that cover every weight once; a diagonal is made of blocks of size 1."""
    if flow["name"] != "metric":
        return ()
    require(("diagonal" in flow) is not ("blocks" in flow), "a metric is a diagonal or made of blocks")
    stated: list[Block]
    if "diagonal" in flow:
        values = exactly(numbers(flow["diagonal"], "flow.diagonal", length=size))
        stated = [([edge], [[value]]) for edge, value in enumerate(values)]
    else:
        stated = []
        for item in items(flow["blocks"], "flow.blocks", most=size):
            block = object_with_keys(item, "flow.blocks", "weights matrix")
            where = integers(block["weights"], "flow.blocks.weights", 0, size - 1)
            rows = table(block["matrix"], "flow.blocks.matrix", rows=len(where), columns=len(where))
            limit_cost(float(len(where)) ** 3)
            stated.append((where, [exactly(row) for row in rows]))
    named = [edge for where, _ in stated for edge in where]
    require(len(set(named)) == len(named), "the metric names a weight twice")
    for where, lines in stated:
        mirrored = all(lines[i][j] == lines[j][i] for i in range(len(where)) for j in range(i))
        require(mirrored and _positive(lines), "the metric is not symmetric and positive")
    rest = sorted(set(range(size)) - set(named))
    return (*stated, *(([edge], [[Fraction(1)]]) for edge in rest))


def _positive(matrix: list[list[Fraction]]) -> bool:
    """Whether all pivots of a symmetric matrix are positive."""
    rows = [list(row) for row in matrix]
    for place, pivot in enumerate(rows):
        if pivot[place] <= 0:
            return False
        for below in rows[place + 1 :]:
            factor = below[place] / pivot[place]
            if factor:
                below[place:] = [entry - factor * top for entry, top in zip(below[place:], pivot[place:], strict=True)]
    return True


def times_metric(case: Case, force: Residues) -> Residues:
    """`M ∇f` modulo the prime."""
    found = np.zeros_like(force)
    for where, matrix in case.metric:
        for row, line in zip(where, matrix, strict=True):
            for column, value in zip(where, line, strict=True):
                found[row] = (found[row] + case.residue(value) * force[column]) % case.prime
    return found


def check_spared(case: Case, form: Form) -> None:
    """Reject unless `M⁻¹G` is symmetric, which is to say `MG = GM`, exactly."""
    product: Form = {}
    home = {edge: (place, block) for block in case.metric for place, edge in enumerate(block[0])}
    for (middle, column), value in form.items():
        place, (where, matrix) = home[middle]
        for row, line in zip(where, matrix, strict=True):
            product[row, column] = product.get((row, column), Fraction(0)) + line[place] * value
    for (row, column), value in product.items():
        require(product.get((column, row), 0) == value, "the metric breaks the symmetry of a law")


def over_metric(case: Case, gradient: list[int]) -> list[int]:
    """`M⁻¹ v` modulo the prime, by FLINT."""
    from flint import nmod_mat

    found = list(gradient)
    for where, matrix in case.metric:
        if any(gradient[edge] % case.prime for edge in where):
            entries = [case.residue(value) for line in matrix for value in line]
            right = nmod_mat(len(where), 1, [gradient[edge] % case.prime for edge in where], case.prime)
            solution = nmod_mat(len(where), len(where), entries, case.prime).solve(right)
            for place, edge in enumerate(where):
                found[edge] = int(solution[place, 0])
    return found
