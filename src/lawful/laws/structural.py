"""The laws that a module's graph gives away (`lawful.symmetry`), as polynomials in its parameters laid end to end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction

import numpy as np
import torch

from lawful.laws.law import Law, Monomial
from lawful.laws.probe import Probe
from lawful.symmetry import Symmetries, symmetries
from lawful.symmetry.families import Axis, ColumnLaws, MatrixLaws, ScaleLaws, SpaceLaws, SumLaws
from lawful.types import Indices

ONE = Fraction(1)
Terms = dict[Monomial, Fraction]


def structural_laws(case: Probe) -> Iterator[Law]:
    """Laws read from the graph, as polynomials."""
    return polynomials(read_symmetries(case))


def read_symmetries(case: Probe, *, check: bool | None = False) -> Symmetries:
    """The symmetries of the module in the mode of the probe; `check` as `symmetries` takes it."""
    shape = (2, *case.input_shape)
    example = torch.zeros(shape, dtype=torch.int64) if case.vocabulary else torch.zeros(shape, dtype=torch.float64)
    return symmetries(case.module, example, mode="train" if case.mode == "train" else "eval", check=check)


def polynomials(found: Symmetries) -> Iterator[Law]:
    """Every law as a polynomial with rational coefficients; some may depend on others."""
    positions: dict[str, torch.Tensor] = {}
    start = 0
    for name, shape in found.shapes.items():
        count = int(np.prod(shape, dtype=int))
        positions[name] = torch.arange(start, start + count, dtype=torch.float64).reshape(shape)
        start += count
    for family in found.laws.families:
        yield from _family(family, positions)
    for name, _ in found.laws.unused:
        for edge in positions[name].reshape(-1).long().tolist():
            yield Law("weight", (), {(edge,): ONE})


def _family(family: SpaceLaws, positions: Mapping[str, torch.Tensor]) -> Iterator[Law]:
    match family:
        case MatrixLaws():
            yield from _matrix(family, positions)
        case ScaleLaws() | SumLaws():
            yield from _rows(family, positions)
        case ColumnLaws():
            yield from _columns(family, positions)


def _at(axis: Axis, positions: Mapping[str, torch.Tensor], picked: Indices) -> Indices:
    """The positions of the entries of some rows."""
    return np.asarray(axis.rows(positions[axis.parameter], picked).long().numpy())


def _matrix(family: MatrixLaws, positions: Mapping[str, torch.Tensor]) -> Iterator[Law]:
    tables = [(member.sign, _at(member.axis, positions, member.places)) for member in family.members]
    for i in range(family.size):
        for j in range(i, family.size):
            terms: Terms = {}
            for sign, table in tables:
                for a, b in zip(table[:, i].ravel().tolist(), table[:, j].ravel().tolist(), strict=True):
                    _added(terms, (min(a, b), max(a, b)), Fraction(sign))
            yield Law("neuron" if i == j else "pair", (), terms)


def _rows(family: ScaleLaws | SumLaws, positions: Mapping[str, torch.Tensor]) -> Iterator[Law]:
    rows = [
        row
        for axis, picked in zip(family.axes, family.picked, strict=True)
        for row in _at(axis, positions, picked).tolist()
    ]
    power, kind = (2, "neuron") if isinstance(family, ScaleLaws) else (1, "sum")
    for number in range(family.weights.shape[0]):
        line = family.weights[[number]].tocoo()
        terms: Terms = {}
        for row, weight in zip(line.coords[1].tolist(), line.data.tolist(), strict=True):
            for edge in rows[row]:
                _added(terms, (edge,) * power, Fraction(weight))
        yield Law(kind, (), terms)


def _columns(family: ColumnLaws, positions: Mapping[str, torch.Tensor]) -> Iterator[Law]:
    rows = [
        row
        for axis, picked in zip(family.axes, family.picked, strict=True)
        for row in _at(axis, positions, picked).tolist()
    ]
    for number in range(family.weights.shape[0]):
        line = family.weights[[number]].tocoo()
        members = list(zip(line.coords[1].tolist(), map(Fraction, line.data.tolist()), strict=True))
        for column in range(1 if family.contrast else 0, family.columns):
            terms: Terms = {}
            for row, weight in members:
                _added(terms, (rows[row][column],), weight)
                if family.contrast:
                    _added(terms, (rows[row][0],), -weight)
            yield Law("sum", (), terms)


def _added(terms: Terms, monomial: Monomial, factor: Fraction) -> None:
    total = terms.get(monomial, Fraction(0)) + factor
    if total:
        terms[monomial] = total
    else:
        terms.pop(monomial, None)
