"""Laws beyond polynomials: `Σ c log|p| + h`, with p a weight or a sum or difference of two, and h a polynomial.

Such a function is conserved iff `⟨Σ c ∇p/p + ∇h, ∇f⟩ = 0` for every field: linear equations in the coefficients c and
those of h, one for each random field at a random point modulo a prime (P1 Remark 3.5). Its exponential is a product of
powers of the p and of e^h, so rational and exponential laws are of this form too: `(p + q) e^{−s}` is
`log|p + q| − s`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike

from lawful.conservation.fields.gradient import Gradients
from lawful.conservation.known.law import Law, Monomial
from lawful.conservation.known.polynomial import SECOND_PRIME, monomial_speeds, monomials
from lawful.conservation.wording import ModuleWording, Wording, polynomial_words
from lawful.errors import LawfulError, Unsupported
from lawful.exact import PRIME, Dual, nullspace, rank, rational, residues
from lawful.network import Architecture, Dag, Mlp
from lawful.types import Floats, Indices, Residues

MOST_COLUMNS = 3000
SPARE = 8
LabelledForm = tuple[int, int, int]  # θ_i + sign θ_j, and θ_i alone if the sign is 0
Samples = Callable[[int, int, int], tuple[Residues, Residues]]


@dataclass(frozen=True)
class LogarithmicLaw:
    """`Σ c log|p| + h`: `logarithms` maps (i, j, sign) to the factor of `log|θ_i + sign θ_j|`, `terms` are those of h.

    >>> law = LogarithmicLaw({(0, 1, 1): Fraction(1)}, {(2,): Fraction(-1)})
    >>> round(law.value([1.0, 2.0, 0.5]), 4), law.gradient([1.0, 1.0, 0.5]).tolist()
    (0.5986, [0.5, 0.5, -1.0])
    """

    logarithms: dict[LabelledForm, Fraction]
    terms: dict[Monomial, Fraction]

    def value(self, theta: ArrayLike) -> float:
        """The conserved number at θ."""
        weights = np.asarray(theta, dtype=np.float64)
        forms = ((weights[i] + sign * weights[j], factor) for (i, j, sign), factor in self.logarithms.items())
        return sum(float(factor) * float(np.log(abs(form))) for form, factor in forms) + self._rest.value(weights)

    def gradient(self, theta: ArrayLike) -> Floats:
        """The gradient at θ."""
        weights = np.asarray(theta, dtype=np.float64)
        total = self._rest.gradient(weights)
        for (i, j, sign), factor in self.logarithms.items():
            slope = float(factor) / (weights[i] + sign * weights[j])
            total[i] += slope
            total[j] += sign * slope
        return total

    @property
    def _rest(self) -> Law:
        return Law("polynomial", (), self.terms)

    def words(self, wording: Wording | ModuleWording) -> str:
        """In the names of a network."""
        parts = []
        for (i, j, sign), factor in self.logarithms.items():
            second = "" if not sign else f" {'+' if sign > 0 else '−'} {wording.weight(j)}"
            size = "" if abs(factor) == 1 else f"{abs(factor)}·"
            parts.append(f"{'+' if factor > 0 else '−'} {size}log|{wording.weight(i)}{second}|")
        rest = polynomial_words(self._rest, wording.weight, 12)
        parts += [rest if rest.startswith("−") else f"+ {rest}"] if rest else []
        return " ".join(parts).removeprefix("+ ")


@dataclass(frozen=True, eq=False)
class LogarithmicLaws:
    """The laws of this form up to a degree of h that the polynomial ones of that degree do not generate.

    `independent` counts all laws of this form, `polynomial` those without logarithms. A module has no `dag`, but
    `places`: the names and shapes of its parameters.
    """

    dag: Dag | None
    degree: int
    laws: tuple[LogarithmicLaw, ...]
    polynomial: int
    independent: int
    places: tuple[tuple[str, tuple[int, ...]], ...] = ()

    def __len__(self) -> int:
        return len(self.laws)


def logarithmic_laws(
    network: str | Architecture | Mlp | Dag, degree: int = 1, *, loss: str = "full", seed: int = 0
) -> LogarithmicLaws:
    """All laws `Σ c log|p| + h` at the φ level that are independent of the polynomial ones of that degree.

    >>> from lawful.network import Role
    >>> roles = [Role.INPUT, Role.HIDDEN, Role.OUTPUT]
    >>> bridge = Dag(("x", "h", "y"), roles, [0, 1, 0], [1, 2, 2], slopes=[0.0, 1.0, 0.0])
    >>> found = logarithmic_laws(bridge, 2)
    >>> [law.words(Wording(bridge)) for law in found.laws], found.polynomial, found.independent
    (['log|x→h + h→y| − x→y'], 1, 2)
    """
    source = Architecture.parse(network) if isinstance(network, str) else network
    dag = source.to_dag()

    def samples(prime: int, seed: int, count: int) -> tuple[Residues, Residues]:
        rows = np.arange(count)
        points = residues(seed, (5,), rows, dag.parameters, prime).T.copy()
        family = Gradients(dag, prime, seed, loss)
        return points, family.field(Dual.constant(points, prime), family.draw((6,), rows)).real

    return LogarithmicLaws(dag, degree, *search(samples, dag.parameters, degree, seed))


def search(samples: Samples, size: int, degree: int, seed: int) -> tuple[tuple[LogarithmicLaw, ...], int, int]:
    """The laws with logarithms, and how many are independent without and with them.

    `samples` gives for a prime and a seed some random points (a column each) and a random field at each.
    """
    if degree < 1:
        raise LawfulError(f"the degree of a law is at least 1, not {degree}")
    if size**2 > MOST_COLUMNS:
        raise Unsupported(f"logarithms are looked for in at most {int(MOST_COLUMNS**0.5)} weights, not {size}")
    table = monomials(size, degree)
    forms = [(i, i, 0) for i in range(size)]
    forms += [(i, j, sign) for i in range(size) for j in range(i + 1, size) for sign in (1, -1)]
    if len(forms) + len(table) > MOST_COLUMNS:
        raise Unsupported(f"{len(forms) + len(table):,} functions are more than {MOST_COLUMNS:,}: lower the degree")
    points, fields = samples(PRIME, seed, len(forms) + len(table) + SPARE)
    basis = nullspace(_equations(points, fields, forms, table, PRIME), PRIME)
    at = residues(seed, (9,), [0], size, PRIME).T
    slopes = np.array([(row % PRIME).tolist() for row in _combine_gradients(basis, at, forms, table)]).reshape(-1, size)
    plain = [number for number, line in enumerate(basis) if not line[: len(forms)].any()]
    candidates, rows = [], slopes[plain]
    polynomial = rank(rows, PRIME) if plain else 0
    so_far = polynomial
    for number in sorted(set(range(len(basis))) - set(plain), key=lambda n: int((basis[n] != 0).sum())):
        longer = np.concatenate([rows, slopes[[number]]])
        if rank(longer, PRIME) > so_far:
            rows, so_far = longer, so_far + 1
            candidates.append(_law(basis[number], forms, table))
    again = samples(SECOND_PRIME, seed + 1, SPARE)
    laws = tuple(law for law in candidates if _holds(law, *again, SECOND_PRIME))
    if len(laws) < len(candidates):
        raise Unsupported(
            f"{len(candidates) - len(laws)} candidates are no laws over the rationals: try another --seed"
        )
    return laws, polynomial, so_far


def _equations(points: Residues, fields: Residues, forms: list[LabelledForm], table: Indices, prime: int) -> Residues:
    """How fast each function changes along each field: a row for each sample, a column for each function."""
    first, second, sign = np.array(forms).reshape(-1, 3).T
    value = (points[first] + sign[:, None] * points[second]) % prime
    speed = (fields[first] + sign[:, None] * fields[second]) % prime
    logs = speed * _inverse(value, prime) % prime
    return np.concatenate([logs, monomial_speeds(table, points, fields, prime)]).T


def _inverse(values: Residues, prime: int) -> Residues:
    """`x^(p−2)`; 0 where x is 0, which a random point meets with the chance of a wrong digit."""
    inverse, power = np.ones_like(values), values
    for digit in reversed(f"{prime - 2:b}"):
        inverse = inverse * power % prime if digit == "1" else inverse
        power = power * power % prime
    return inverse


def _combine_gradients(lines: Residues, at: Residues, forms: list[LabelledForm], table: Indices) -> Residues:
    """The gradients of combinations at a point: how fast they change along each axis."""
    axes = np.eye(len(at), dtype=np.int64)
    slopes = _equations(np.repeat(at, len(at), axis=1), axes, forms, table, PRIME)
    total = np.zeros((len(lines), len(at)), dtype=np.int64)
    for column in range(slopes.shape[1]):
        total = (total + lines[:, column, None] * slopes[None, :, column]) % PRIME
    return total


def _law(line: Residues, forms: list[LabelledForm], table: Indices) -> LogarithmicLaw:
    factors = [rational(int(value), PRIME) for value in line]
    if any(factor is None for factor in factors):
        raise Unsupported("a law has coefficients too large for one prime: lower the degree")
    exact = [factor or Fraction(0) for factor in factors]
    listed = [tuple(int(edge) for edge in row if edge >= 0) for row in table]
    return LogarithmicLaw(
        {form: factor for form, factor in zip(forms, exact, strict=False) if factor},
        {edges: factor for edges, factor in zip(listed, exact[len(forms) :], strict=True) if factor},
    )


def _holds(law: LogarithmicLaw, points: Residues, fields: Residues, prime: int) -> bool:
    """At random fields and points modulo another prime."""
    total = np.zeros(points.shape[1], dtype=np.int64)
    for (i, j, sign), factor in law.logarithms.items():
        speed = (fields[i] + sign * fields[j]) * _inverse((points[i] + sign * points[j]) % prime, prime) % prime
        total = (total + factor.numerator * pow(factor.denominator, -1, prime) % prime * speed) % prime
    slopes = Law("polynomial", (), law.terms).gradient_modulo(points, prime)
    for slope, field in zip(slopes, fields, strict=True):
        total = (total + slope * field) % prime
    return not total.any()
