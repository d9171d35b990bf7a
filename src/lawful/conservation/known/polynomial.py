"""Polynomial laws of a given degree, exact over the rationals.

`h = Σ a_m θ^m` is conserved iff `⟨∇h, ∇f⟩ = 0` for every field and every θ: linear equations in the coefficients,
one for each random field at a random point (P1 Section 2.4). Changing the sign of an input, an output or a linear
neuron, or of a gated neuron's incoming or outgoing weights alone, is an isometry that maps fields to fields. So the
equations only join monomials that change sign together, and the system falls into small blocks: for degree 2 the
squares (as many as weights) and blocks of about one layer's width.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import combinations_with_replacement
from math import comb

import numpy as np
from numpy.typing import NDArray

from lawful.conservation.closure.lie_closure import Watch
from lawful.conservation.fields.gradient import Gradients
from lawful.conservation.known.graph_laws import known_laws
from lawful.conservation.known.law import Law, Monomial
from lawful.errors import LawfulError, Unsupported
from lawful.exact import PRIME, Dual, batched_nullities, nullspace, rank, rational, residues
from lawful.network import Architecture, Dag, Mlp, Role
from lawful.types import Indices, Residues

SECOND_PRIME = 8_388_587  # identities are checked modulo another prime than the one that found them
MOST_MONOMIALS = 20_000_000
MOST_WORK = 2e11  # sum of the cubes of the blocks' sizes
WORK_PER_SECOND = 8e8
SPARE, CHECKS = 3, 8
SMALL_BLOCK = 48
BATCH = 4_000_000
MOST_PRODUCTS = 2000
ORDER = ("weight", "sum", "neuron", "pair", "product", "polynomial")


@dataclass(frozen=True, eq=False)
class PolynomialLaws:
    """A basis of the polynomial laws up to a degree (constants left out).

    `independent` is the rank of their gradients: products of laws are laws, but not independent ones. Each law was
    checked at `CHECKS` random fields and points modulo a second prime; the chance that a polynomial that is no law
    passes is below `error`. Laws of a known kind are identities by their theorems. A module has no `dag`, but `places`:
    the names and shapes of its parameters.
    """

    dag: Dag | None
    degree: int
    laws: tuple[Law, ...]
    independent: int
    monomials: int
    blocks: int
    largest_block: int
    error: float
    places: tuple[tuple[str, tuple[int, ...]], ...] = ()

    def __len__(self) -> int:
        return len(self.laws)


def polynomial_laws(
    network: str | Architecture | Mlp | Dag,
    degree: int = 2,
    *,
    loss: str = "full",
    prime: int = PRIME,
    seed: int = 0,
    progress: Watch | None = None,
) -> PolynomialLaws:
    """All polynomial laws of degree at most `degree`, at the φ level.

    >>> found = polynomial_laws("2-2-1 linear", 2)
    >>> [law.kind for law in found.laws], found.independent
    (['neuron', 'neuron', 'pair'], 3)
    """
    if degree < 1:
        raise LawfulError(f"the degree of a law is at least 1, not {degree}")
    source = Architecture.parse(network) if isinstance(network, str) else network
    dag = source.to_dag()
    total = comb(dag.parameters + degree, degree) - 1
    if total > MOST_MONOMIALS:
        raise Unsupported(
            f"{total:,} monomials of degree {degree} in {dag.parameters} weights are more than {MOST_MONOMIALS:,}: "
            "lower the degree"
        )
    family = Gradients(dag, prime, seed, loss)
    search = _Search(family, degree, _Known(dag, loss, degree), progress)
    laws, blocks, largest = search.run()
    laws.sort(key=lambda law: (ORDER.index(law.kind), law.nodes))
    checked = [law for law in laws if is_law(law, dag, loss, seed)]
    if len(checked) < len(laws):
        raise Unsupported(f"{len(laws) - len(checked)} candidates are no laws over the rationals: try another --seed")
    point = residues(seed, (7,), [0], dag.parameters, prime)
    gradients = [law.gradient_modulo(point.T, prime)[:, 0] for law in laws]
    independent = rank(np.array(gradients), prime) if laws else 0
    error = ((degree + 2 * int(dag.levels.max())) / SECOND_PRIME) ** CHECKS
    return PolynomialLaws(dag, degree, tuple(laws), independent, total, blocks, largest, error)


def is_law(law: Law, dag: Dag, loss: str = "full", seed: int = 0) -> bool:
    """Whether `⟨∇h, ∇f⟩ = 0` at random points and fields modulo a second prime."""
    points, fields = _samples(Gradients(dag, SECOND_PRIME, seed + 1, loss), CHECKS)
    total = np.zeros(CHECKS, dtype=np.int64)
    for slope, field in zip(law.gradient_modulo(points, SECOND_PRIME), fields, strict=True):
        total = (total + slope * field) % SECOND_PRIME
    return not total.any()


def _samples(family: Gradients, count: int) -> tuple[Residues, Residues]:
    """Random points (a column each) and a random field at each."""
    rows = np.arange(count)
    points = residues(family.seed, (5,), rows, family.size, family.prime).T.copy()
    return points, family.field(Dual.constant(points, family.prime), family.draw((6,), rows)).real


def sign_characters(dag: Dag, loss: str) -> NDArray[np.uint64]:
    """A number per edge; monomials can share a law only if the exclusive-or of their edges' numbers agrees."""
    ids = np.arange(2 * len(dag.names)).reshape(-1, 2)  # the sign of what enters a node, and of what leaves it
    tied = (dag.roles == Role.HIDDEN) & (dag.slopes == 1.0)
    ids[tied, 1] = ids[tied, 0]
    if loss == "cross-entropy":
        ids[dag.outputs, 0] = ids[dag.outputs[0], 0]
    rng = np.random.default_rng(0)
    words = rng.integers(1, 2**63, size=2 * len(dag.names)).astype(np.uint64)
    return np.asarray(words[ids[dag.tails, 1]] ^ words[ids[dag.heads, 0]])


@dataclass(frozen=True, eq=False)
class _Known:
    """Laws that the graph gives away, and their products, by the block of monomials they live in."""

    dag: Dag
    loss: str
    degree: int

    @cached_property
    def laws(self) -> list[Law]:
        """Built when the first block asks."""
        every = known_laws(self.dag, loss=self.loss, every_pair=True)
        laws = [law for law in every if law.exponent is None and all(len(edges) <= self.degree for edges in law.terms)]
        return laws + list(_products(laws, self.degree))


def _products(laws: list[Law], degree: int) -> Iterator[Law]:
    degrees = [max(len(edges) for edges in law.terms) for law in laws]
    least = min(degrees, default=degree)
    yielded = 0
    for count in range(2, degree // least + 1):
        for chosen in combinations_with_replacement(range(len(laws)), count):
            if sum(degrees[number] for number in chosen) <= degree and yielded < MOST_PRODUCTS:
                yielded += 1
                yield _product([laws[number] for number in chosen])


def _product(factors: list[Law]) -> Law:
    terms: dict[Monomial, Fraction] = {(): Fraction(1)}
    for law in factors:
        longer: dict[Monomial, Fraction] = {}
        for left, first in terms.items():
            for right, second in law.terms.items():
                monomial = tuple(sorted(left + right))
                longer[monomial] = longer.get(monomial, Fraction(0)) + first * second
        terms = longer
    return Law("product", (), {monomial: factor for monomial, factor in terms.items() if factor}, tuple(factors))


@dataclass(frozen=True, eq=False)
class _Search:
    family: Gradients
    degree: int
    known: _Known
    progress: Watch | None = None

    def run(self) -> tuple[list[Law], int, int]:
        """The laws, the number of blocks, and the size of the largest."""
        words = sign_characters(self.family.dag, self.family.loss)
        table = monomials(self.family.size, self.degree)
        keys = np.zeros(len(table), dtype=np.uint64)
        for column in table.T:
            present = column >= 0
            keys[present] ^= words[column[present]]
        order = np.argsort(keys, kind="stable")
        starts = np.flatnonzero(np.concatenate([[True], keys[order][1:] != keys[order][:-1]]))
        sizes = np.diff(np.append(starts, len(order)))
        work = float((sizes.astype(np.float64) ** 3).sum())
        if work > MOST_WORK:
            raise Unsupported(
                f"the equations for degree {self.degree} fall into blocks of up to {sizes.max():,} unknowns, about "
                f"{work / WORK_PER_SECOND / 60:,.0f} minutes of elimination, more than "
                f"{MOST_WORK / WORK_PER_SECOND / 60:.0f}: lower the degree"
            )
        points, fields = _samples(self.family, int(sizes.max()) + SPARE)
        laws, done = [], 0.0
        for size in np.unique(sizes):
            for chosen in _chunks(starts[sizes == size], max(1, BATCH // int(size * (size + SPARE)))):
                blocks = table[order[chosen[:, None] + np.arange(size)]]
                matrices = self._equations(blocks, points, fields)
                nullities = self._nullities(matrices)
                for number in np.flatnonzero(nullities):
                    laws += self._block_laws(blocks[number], matrices[number], int(nullities[number]))
                done += float(len(chosen)) * float(size) ** 3
                if self.progress is not None:
                    self.progress(f"laws of degree {self.degree}", int(1000 * done / work), 1000)
        return laws, len(starts), int(sizes.max())

    def _nullities(self, matrices: Residues) -> Indices:
        """Small blocks all at once, large ones one by one."""
        size, prime = matrices.shape[2], self.family.prime
        if size <= SMALL_BLOCK:
            return batched_nullities(matrices, prime)
        return np.array([size - rank(matrix, prime) for matrix in matrices], dtype=np.intp)

    def _equations(self, blocks: Indices, points: Residues, fields: Residues) -> Residues:
        """The equations for the monomials of many blocks of one size: (block, sample, monomial)."""
        samples = blocks.shape[1] + SPARE
        speeds = monomial_speeds(blocks, points[:, :samples], fields[:, :samples], self.family.prime)
        return np.asarray(np.swapaxes(speeds, 1, 2))

    def _block_laws(self, block: Indices, equations: Residues, nullity: int) -> list[Law]:
        """A basis of the block's laws: known ones as far as they reach, then the nullspace's own vectors."""
        prime = self.family.prime
        listed: list[Monomial] = [tuple(int(edge) for edge in line if edge >= 0) for line in block]
        place = {monomial: number for number, monomial in enumerate(listed)}
        basis: list[Law] = []
        chosen = np.zeros((0, len(block)), dtype=np.int64)
        for law in self.known.laws:
            if len(basis) == nullity:
                return basis
            if next(iter(law.terms)) not in place or not all(monomial in place for monomial in law.terms):
                continue
            line = np.zeros((1, len(block)), dtype=np.int64)
            for monomial, factor in law.terms.items():
                line[0, place[monomial]] = int(factor) % prime
            if law.kind != "product" or rank(np.concatenate([chosen, line]), prime) > len(chosen):
                chosen = np.concatenate([chosen, line])
                basis.append(law)
        if len(basis) == nullity:
            return basis
        for line in nullspace(equations, prime):
            if len(basis) < nullity and rank(np.concatenate([chosen, line[None]]), prime) > len(chosen):
                chosen = np.concatenate([chosen, line[None]])
                basis.append(rational_law(line, listed, prime))
        return basis


def rational_law(line: Residues, listed: list[Monomial], prime: int) -> Law:
    """A vector of residues as a polynomial with rational coefficients."""
    terms: dict[Monomial, Fraction] = {}
    for residue, monomial in zip(line.tolist(), listed, strict=True):
        if residue:
            factor = rational(residue, prime)
            if factor is None:
                raise Unsupported("a law has coefficients too large for one prime: lower the degree")
            terms[monomial] = factor
    return Law("polynomial", (), terms)


def monomials(size: int, degree: int) -> Indices:
    """All monomials of degree 1 to `degree`: edge numbers ascending, −1 where a factor is missing."""
    table: Indices = np.arange(size, dtype=np.intp)[:, None]
    parts = [table]
    for _ in range(1, degree):
        room = size - table[:, -1]
        last = np.repeat(table[:, -1], room) + (np.arange(room.sum()) - np.repeat(np.cumsum(room) - room, room))
        table = np.concatenate([np.repeat(table, room, axis=0), last[:, None]], axis=1)
        parts.append(table)
    padded = [np.pad(part, ((0, 0), (0, degree - part.shape[1])), constant_values=-1) for part in parts]
    return np.concatenate(padded)


def monomial_speeds(table: Indices, points: Residues, fields: Residues, prime: int) -> Residues:
    """`⟨∇θ^m, field⟩` for each monomial m of a table (its factors along the last axis) and each sample (a column)."""
    samples = points.shape[1]
    # A missing factor, of number −1, is the 1 at the end, which does not move.
    padded = np.append(points, np.ones((1, samples), dtype=np.int64), axis=0)
    moved = np.append(fields, np.zeros((1, samples), dtype=np.int64), axis=0)
    total = np.zeros((*table.shape[:-1], samples), dtype=np.int64)
    for place in range(table.shape[-1]):
        term = moved[table[..., place]]
        for other in range(table.shape[-1]):
            if other != place:
                term = term * padded[table[..., other]] % prime
        total += term
    return np.asarray(total % prime)


def _chunks(values: Indices, wide: int) -> Iterator[Indices]:
    for start in range(0, len(values), wide):
        yield values[start : start + wide]
