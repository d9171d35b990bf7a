"""The laws that a module's graph gives away (`lawful.symmetry`), as polynomials in its parameters laid end to end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction

import numpy as np
import torch

from lawful.conservation.known.law import Law, Monomial
from lawful.conservation.programs.module_function import Probe
from lawful.errors import Unsupported
from lawful.symmetry import Symmetries, symmetries
from lawful.symmetry.laws.families import Axis, MatrixLaws, MeanLaw, SpaceLaws
from lawful.symmetry.laws.row_laws import ColumnLaws, ScaleLaws, SumLaws
from lawful.types import Floats, Indices

ONE = Fraction(1)
Terms = dict[Monomial, Fraction]


def structural_laws(case: Probe) -> Iterator[Law]:
    """Laws read from the graph, as polynomials."""
    return polynomials(read_symmetries(case))


def read_symmetries(case: Probe, *, check: bool | None = False) -> Symmetries:
    """The symmetries of the module in the mode of the probe; `check` as `symmetries` takes it."""
    shape = (2, *case.input_shape)
    example = torch.zeros(shape, dtype=torch.int64) if case.vocabulary else torch.zeros(shape, dtype=torch.float64)
    found = symmetries(case.module, example, mode="train" if case.mode == "train" else "eval", check=check)
    if found.mode != case.mode:
        raise Unsupported(f"the graph of the module cannot be read in {case.mode} mode")
    return found


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
        case MeanLaw():
            yield _mean(family, positions)
        case ScaleLaws() | SumLaws():
            yield from _rows(family, positions)
        case ColumnLaws():
            yield from _columns(family, positions)


def _at(axis: Axis, positions: Mapping[str, torch.Tensor], picked: Indices) -> Indices:
    """The positions of the entries of some rows."""
    return np.asarray(axis.rows(positions[axis.parameter], picked).long().numpy())


def _centres(axis: Axis, positions: Mapping[str, torch.Tensor], picked: Indices) -> Floats:
    """What is added to the entries of some rows before they are squared."""
    entries = positions[axis.parameter]
    return np.asarray(axis.centred(torch.zeros_like(entries), picked).numpy())


def _matrix(family: MatrixLaws, positions: Mapping[str, torch.Tensor]) -> Iterator[Law]:
    tables = [
        (member.sign, _at(member.axis, positions, member.places), _centres(member.axis, positions, member.places))
        for member in family.members
    ]
    for i in range(family.size):
        for j in range(i, family.size):
            terms: Terms = {}
            for sign, table, centres in tables:
                parts = (part.ravel().tolist() for part in (table[:, i], table[:, j], centres[:, i], centres[:, j]))
                for a, b, before, after in zip(*parts, strict=True):
                    _product(terms, (a, before), (b, after), Fraction(sign))
            yield Law("neuron" if i == j else "pair", (), terms)


def _mean(family: MeanLaw, positions: Mapping[str, torch.Tensor]) -> Law:
    terms: Terms = {}
    for member in family.members:
        table = _at(member.axis, positions, member.places)
        centres = _centres(member.axis, positions, member.places)
        for copy in range(len(table)):
            for column in range(table.shape[2]):
                entries = list(zip(table[copy, :, column].tolist(), centres[copy, :, column].tolist(), strict=True))
                for one in entries:
                    for other in entries:
                        _product(terms, one, other, Fraction(member.sign))
    return Law("sum", (), terms)


def _product(terms: Terms, one: tuple[int, float], other: tuple[int, float], factor: Fraction) -> None:
    """`(a + c)(b + d)` without its constant."""
    (a, c), (b, d) = one, other
    _add_term(terms, (min(a, b), max(a, b)), factor)
    if d:
        _add_term(terms, (a,), factor * Fraction(d))
    if c:
        _add_term(terms, (b,), factor * Fraction(c))


def _rows(family: ScaleLaws | SumLaws, positions: Mapping[str, torch.Tensor]) -> Iterator[Law]:
    rows = [
        list(zip(row, centres, strict=True))
        for axis, picked in zip(family.axes, family.picked, strict=True)
        for row, centres in zip(
            _at(axis, positions, picked).tolist(), _centres(axis, positions, picked).tolist(), strict=True
        )
    ]
    squares = isinstance(family, ScaleLaws)
    for number in range(family.weights.shape[0]):
        line = family.weights[[number]].tocoo()
        terms: Terms = {}
        for row, weight in zip(line.coords[1].tolist(), line.data.tolist(), strict=True):
            for edge, centre in rows[row]:
                if squares:
                    _product(terms, (edge, centre), (edge, centre), Fraction(weight))
                else:
                    _add_term(terms, (edge,), Fraction(weight))
        yield Law("neuron" if squares else "sum", (), terms)


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
                _add_term(terms, (rows[row][column],), weight)
                if family.contrast:
                    _add_term(terms, (rows[row][0],), -weight)
            yield Law("sum", (), terms)


def _add_term(terms: Terms, monomial: Monomial, factor: Fraction) -> None:
    total = terms.get(monomial, Fraction(0)) + factor
    if total:
        terms[monomial] = total
    else:
        terms.pop(monomial, None)
