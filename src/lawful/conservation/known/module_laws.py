"""The known laws of a module: those that its graph gives away, and sums of squares that its fields show.

Both are kept if they are orthogonal to every sampled field: what is not a law is so with probability zero.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction

import numpy as np
import torch

from lawful.conservation.fields.module_gradient import brackets
from lawful.conservation.known.law import Law, Monomial
from lawful.conservation.programs.module_function import Probe
from lawful.errors import Unsupported
from lawful.network.dynamics import GradientFlow
from lawful.symmetry import Symmetries, symmetries
from lawful.symmetry.laws.families import Axis, ColumnLaws, MatrixLaws, MeanLaw, ScaleLaws, SpaceLaws, SumLaws
from lawful.types import Floats, Indices

ONE = Fraction(1)
TOLERANCE = 1e-9
FILTER = 32  # fields that reject most proposals before all fields are asked
POINTS, SMALL, DENOMINATOR = 3, 1e-9, 12  # of squares: random points, a singular value that is 0, coefficients


class ConservedLaws:
    """The laws found so far, with their gradients as an orthonormal basis: a law that depends on them is not new."""

    def __init__(self, weights: Floats, fields: Floats) -> None:
        self.weights, self.fields = weights, fields
        self.basis = np.zeros((0, len(weights)))
        self.laws: list[Law] = []
        self.words: list[str] = []

    def keep(self, proposals: Iterable[Law]) -> int:
        """Add the proposals that are conserved and new; how many there were."""
        before = len(self.laws)
        for law in proposals:
            gradient = law.gradient(self.weights)
            size = np.linalg.norm(gradient)
            if size == 0 or not self._is_conserved(gradient / size):
                continue
            fresh = gradient / size
            for _ in range(2):  # twice is enough for orthogonality to rounding
                fresh = fresh - self.basis.T @ (self.basis @ fresh)
            rest = np.linalg.norm(fresh)
            if rest > 1e-7:
                self.basis = np.concatenate([self.basis, fresh[None] / rest])
                self.laws.append(law)
        return len(self.laws) - before

    def _is_conserved(self, unit: Floats) -> bool:
        first = np.abs(self.fields[:FILTER] @ unit).max(initial=0.0)
        return bool(first < TOLERANCE and np.abs(self.fields @ unit).max(initial=0.0) < TOLERANCE)


def conserved_laws(theta: Mapping[str, torch.Tensor], fields: Floats, structural: Iterable[Law]) -> ConservedLaws:
    """Structural laws that are orthogonal to all fields at θ, independent of each other, and entries that rest."""
    weights = np.concatenate([value.detach().numpy().ravel() for value in theta.values()])
    laws = ConservedLaws(weights, fields)
    _keep_structural(laws, structural, theta)
    for name, where in _positions(theta).items():
        resting = [int(position) for position in where if np.abs(fields[:, position]).max() < TOLERANCE]
        if count := laws.keep(Law("weight", (), {(position,): ONE}) for position in resting):
            laws.words.append(f"{count} entries of {name} never move")
    return laws


def _keep_structural(known: ConservedLaws, laws: Iterable[Law], theta: Mapping[str, torch.Tensor]) -> None:
    """Keep the laws that were read from the graph, with a line for each set of parameters that they speak of."""
    owner = np.array([name for name, where in _positions(theta).items() for _ in where])
    counts: dict[tuple[str, tuple[str, ...]], int] = {}
    for law in laws:
        if known.keep([law]):
            names = tuple(sorted({str(owner[edge]) for edges in law.terms for edge in edges}))
            words = {"neuron": "squares", "pair": "products", "sum": "sums"}.get(law.kind, "entries")
            if law.kind == "sum" and len(law.terms) == 1:
                words = "entries that never move"
            counts[words, names] = counts.get((words, names), 0) + 1
    known.words += [f"{words} of {', '.join(names)}: {count} laws" for (words, names), count in counts.items()]


def _positions(theta: Mapping[str, torch.Tensor]) -> dict[str, Indices]:
    positions, start = {}, 0
    for name, value in theta.items():
        positions[name] = np.arange(start, start + value.numel())
        start += value.numel()
    return positions


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
    laws = []
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
            laws.append(Law("neuron", (), terms))
    return laws


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


Terms = dict[Monomial, Fraction]


def structural_laws(case: Probe) -> Iterator[Law]:
    """Laws read from the graph, as polynomials."""
    return polynomials(read_symmetries(case))


def read_symmetries(case: Probe, *, check: bool | None = False) -> Symmetries:
    """The symmetries of the module in the mode of the probe; `check` as `symmetries` takes it."""
    shape = (2, *case.input_shape)
    example = torch.zeros(shape, dtype=torch.int64) if case.vocabulary else torch.zeros(shape, dtype=torch.float64)
    group = symmetries(case.module, example, mode="train" if case.mode == "train" else "eval", check=check)
    if group.mode != case.mode:
        raise Unsupported(f"the graph of the module cannot be read in {case.mode} mode")
    return group


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
    return np.asarray(axis.centred_rows(torch.zeros_like(entries), picked).numpy())


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
