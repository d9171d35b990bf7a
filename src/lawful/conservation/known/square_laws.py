"""Laws `Σ a_u ‖u‖²` over rows and columns u of a module's weights, found by linear algebra at several random points."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import torch

from lawful.conservation.fields.module_gradient import brackets
from lawful.conservation.known.law import Law
from lawful.conservation.programs.module_function import Probe
from lawful.network.dynamics import GradientFlow
from lawful.types import Floats, Indices

POINTS = 3
SMALL = 1e-9
DENOMINATOR = 12


def square_laws(case: Probe, seed: int, spread: float) -> list[Law]:
    """All laws of the form `Σ a_u ‖u‖²` with small rational coefficients, u running over rows and columns of weights.

    Conserved at every point: the coefficients must serve random fields at several random points. That covers every
    rescaling that a graph can have, whatever it looks like, such as the rotary embedding's one for each frequency.
    """
    units = list(_units(case))
    equations = []
    for number in range(POINTS):
        theta = case.theta(seed + 100 + number, spread)
        rows = brackets(case, GradientFlow(), theta, 0, len(units) // 2 + 8, seed + 100 + number)
        products = rows * theta.numpy()
        equations.append(np.array([products[:, unit].sum(axis=1) for unit in units]).T)
    system = np.concatenate(equations)
    sizes = np.linalg.norm(system, axis=1, keepdims=True)
    _, values, vectors = np.linalg.svd(system / np.maximum(sizes, 1e-300), full_matrices=True)
    rank = int((values > SMALL * values[0]).sum()) if len(values) and values[0] else 0
    found = []
    for line in _row_echelon_form(vectors[rank:]):
        factors = [Fraction(float(value)).limit_denominator(DENOMINATOR) for value in line]
        if np.abs(np.array([float(factor) for factor in factors]) - line).max(initial=0.0) > 1e-6:
            continue
        terms: dict[tuple[int, ...], Fraction] = {}
        for unit, factor in zip(units, factors, strict=True):
            for edge in unit.tolist() if factor else ():
                terms[edge, edge] = terms.get((edge, edge), Fraction(0)) + factor
        terms = {edges: factor for edges, factor in terms.items() if factor}
        if terms:
            found.append(Law("neuron", (), terms))
    return found


def _units(case: Probe) -> Iterator[Indices]:
    """The positions of the entries of every row and every column of every parameter."""
    start = 0
    for shape in case.shapes:
        table = torch.arange(start, start + shape.numel()).reshape(shape)
        start += shape.numel()
        if not shape:
            yield table.reshape(1).numpy()
        for axis in range(min(len(shape), 2)):
            yield from table.movedim(axis, 0).reshape(shape[axis], -1).numpy()


def _row_echelon_form(rows: Floats) -> Floats:
    """The reduced row echelon form, with the largest pivots first."""
    table = rows.copy()
    done = 0
    for column in range(table.shape[1]):
        if done == len(table):
            break
        pivot = done + int(np.abs(table[done:, column]).argmax())
        if abs(table[pivot, column]) < 1e-7:
            continue
        table[[done, pivot]] = table[[pivot, done]]
        table[done] /= table[done, column]
        others = np.arange(len(table)) != done
        table[others] -= np.outer(table[others, column], table[done])
        done += 1
    return np.asarray(table[:done])
