"""Flows other than plain gradient flow, as families of fields: metrics, heavy-ball momentum, weight decay.

P1's theory holds for any family of displacements (P1 Conclusion): only the fields change.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import flint
import numpy as np
from numpy.typing import ArrayLike

from lawful.conservation.fields.gradient import Derived
from lawful.conservation.known.law import Law, LawFamily
from lawful.conservation.known.rank_one_subnetworks import Part
from lawful.errors import LawfulError
from lawful.exact import PRIME, Dual, nullspace, rank, rational, residues, to_residues
from lawful.network import Dag
from lawful.network.dynamics import GradientFlow, HeavyBall, Metric
from lawful.types import Indices, Residues

Matrix = dict[tuple[int, int], Fraction]


Flow = GradientFlow | HeavyBall | Metric
ACCEPTED = "GradientFlow(decay), HeavyBall(friction) with a constant friction, or a Metric of constant blocks"


def check_flow(flow: object) -> Flow:
    """The flow, if its laws can be counted; otherwise an error that names the flows that can.

    >>> check_flow(HeavyBall(lambda t: 3 / t))
    Traceback (most recent call last):
    lawful.errors.LawfulError: laws of momentum are not counted; accepted: GradientFlow(decay), HeavyBall(friction) ...
    """
    match flow:
        case GradientFlow() | Metric():
            return flow
        case HeavyBall(friction=float() | int()):
            return flow
    raise LawfulError(f"laws of {flow} are not counted; accepted: {ACCEPTED}")


@dataclass(frozen=True, eq=False)
class MetricFields(Derived):
    """`M ∇f` for the gradients of a network."""

    metric: Metric

    def __post_init__(self) -> None:
        self.metric.check(self.gradients.size)

    def field(self, state: Dual, sample: Residues) -> Dual:
        """Gradients times the metric."""
        plain = self.gradients.field(state, sample)
        if self.metric.diagonal is not None:
            return plain.scale(to_residues(self.metric.diagonal, self.prime)[:, None])
        parts = plain.parts.copy()
        for where, matrix in self.metric.blocks:
            entries, inner = to_residues(matrix, self.prime), plain.parts[:, where]
            total = np.zeros_like(inner)
            for column in range(len(where)):
                total = (total + entries[None, :, column, None] * inner[:, None, column]) % self.prime
            parts[:, where] = total
        return Dual(parts, self.prime)


@dataclass(frozen=True, eq=False)
class Drifting(Derived):
    """Fields with a drift, which every sample takes a random number of times."""

    def draw(self, labels: tuple[int, ...], rows: Indices) -> Residues:
        """The random numbers of the gradients, then one for the drift."""
        drift = residues(self.seed, (*labels, 2), rows, 1, self.prime)
        return np.concatenate([self.gradients.draw(labels, rows), drift.T])

    @staticmethod
    def clock(state: Dual, drift: Residues) -> Residues:
        """How fast time runs along each field."""
        rates = np.zeros((len(state.parts), 1, len(drift)), dtype=np.int64)
        rates[0] = drift
        return rates


@dataclass(frozen=True, eq=False)
class Momentum(Drifting):
    """Drift plus control in phase space: `a (v, −γv, 1) + (0, ∇f, 0)` with a random number a per sample."""

    flow: HeavyBall

    @property
    def size(self) -> int:
        """Weights, velocities and, unless autonomous, time."""
        return 2 * self.gradients.size + (not self.flow.autonomous)

    def field(self, state: Dual, sample: Residues) -> Dual:
        """The fields at (θ, v, t)."""
        size, drift = self.gradients.size, sample[-1]
        force = self.gradients.field(Dual(state.parts[:, :size], self.prime), sample[:-1])
        velocity = state.parts[:, size : 2 * size] * drift % self.prime
        friction = int(to_residues([self.flow.constant_friction], self.prime)[0])
        parts = [velocity, (force.parts - friction * velocity) % self.prime]
        if not self.flow.autonomous:
            parts.append(self.clock(state, drift))
        return Dual(np.concatenate(parts, axis=1), self.prime)


def laws_of_momentum(laws: LawFamily, flow: HeavyBall) -> LawFamily:
    """What a heavy ball keeps, in the variables (θ, v): rotations, impulses and resting places.

    A rotation of two linear neurons a, b is an isometry that keeps the function, so by Noether's theorem
    `e^{γt} Σ_e (θ_ae v_be − θ_be v_ae)`, over all weights of the two neurons, is conserved. Where no force acts along a
    (a linear law `⟨a, θ⟩` of gradient flow), `e^{γt}⟨a, v⟩` is, and so is where the ball comes to rest, `⟨a, γθ + v⟩`
    (without friction: `⟨a, θ⟩ − t⟨a, v⟩`).
    """
    size, friction = laws.parameters, Fraction(flow.constant_friction)
    kept_laws: list[Law] = []
    for law in laws:
        if law.kind == "pair":
            terms: dict[tuple[int, ...], Fraction] = {}
            for first, second in law.terms:
                terms[first, size + second], terms[second, size + first] = Fraction(1), Fraction(-1)
            kept_laws.append(Law("rotation", law.nodes, terms))
        elif law.exponent is None and all(len(edges) == 1 for edges in law.terms):
            speed: dict[tuple[int, ...], Fraction] = {(size + e,): factor for (e,), factor in law.terms.items()}
            place: dict[tuple[int, ...], Fraction] = {
                (e,): factor * (friction or 1) for (e,), factor in law.terms.items()
            }
            kept_laws.append(Law("impulse", law.nodes, speed, (law,)))
            kept_laws.append(Law("rest", law.nodes, place | (speed if friction else {}), (law,)))
    return LawFamily(tuple(kept_laws), 2 * size)


def independent_of_momentum(laws: LawFamily, flow: HeavyBall, point: Residues, prime: int) -> int:
    """How many laws these are: `e^{γt}Q` with time, `Q` without friction, else ratios `Q_i/Q_0`, and resting places."""
    state = point[: laws.parameters]
    friction = int(to_residues([flow.constant_friction], prime)[0])
    damped = LawFamily(tuple(law for law in laws if law.kind != "rest"), laws.parameters)
    rest = LawFamily(tuple(law for law in laws if law.kind == "rest"), laws.parameters)
    slopes, values = damped.gradients_modulo(state, prime), damped.values_modulo(state, prime)[:, None]
    places = rest.gradients_modulo(state, prime)
    if not flow.autonomous:
        damping = _with_time(slopes, friction * values % prime)
        return rank(np.concatenate([damping, _arrivals(rest, places, point, friction, prime)]), prime)
    if friction:
        ratios = (slopes[1:] * values[:1] - values[1:] * slopes[:1]) % prime
        return rank(np.concatenate([ratios, places]), prime)
    where, speeds = rest.values_modulo(state, prime)[:, None], _speeds(rest)
    moving, pushed = speeds.values_modulo(state, prime)[:, None], speeds.gradients_modulo(state, prime)
    meeting = places[:1] * moving[1:] + where[:1] * pushed[1:] - places[1:] * moving[:1] - where[1:] * pushed[:1]
    return rank(np.concatenate([slopes, meeting % prime]), prime)


def _speeds(rest: LawFamily) -> LawFamily:
    """The impulse ⟨a, v⟩ for each resting place along a."""
    size = rest.parameters // 2
    impulses: list[dict[tuple[int, ...], Fraction]] = [
        {(size + e,): factor for (e,), factor in law.factors[0].terms.items()} for law in rest
    ]
    return LawFamily(tuple(Law("impulse", (), terms) for terms in impulses), rest.parameters)


def _with_time(slopes: Residues, last: Residues) -> Residues:
    return np.concatenate([slopes, last], axis=1)


def _arrivals(rest: LawFamily, places: Residues, point: Residues, friction: int, prime: int) -> Residues:
    """Gradients of the resting places by (θ, v, t)."""
    if friction or not len(rest):
        return _with_time(places, np.zeros((len(rest), 1), dtype=np.int64))
    state, time = point[: rest.parameters], int(point[rest.parameters])
    speeds = _speeds(rest)
    drift = speeds.gradients_modulo(state, prime) * time % prime
    return _with_time((places - drift) % prime, -speeds.values_modulo(state, prime)[:, None] % prime)


def under_metric(laws: LawFamily, metric: Metric, prime: int = PRIME) -> LawFamily:
    """The laws that survive a metric: `½ θᵀ M⁻¹ G θ` for the symmetries G, or sums of them, with M⁻¹G symmetric.

    A law of degree 2 is `½ θᵀ G θ` with a symmetric G that maps θ to a direction along which the function is constant.
    A linear law `⟨a, θ⟩` always survives, as `⟨M⁻¹a, θ⟩`.
    """
    inverse = _inverse_rows(metric, laws.parameters)
    linear = [
        Law(law.kind, law.nodes, _linear(law, inverse), factors=(law,) if law.kind == "still" else ())
        for law in laws
        if law.exponent is None and all(len(edges) == 1 for edges in law.terms)
    ]
    quadratic = [law for law in laws if all(len(edges) == 2 for edges in law.terms)]  # a detour may not survive
    products = [_product(law, inverse) for law in quadratic]
    skews = [_skew(product) for product in products]
    invariant = [
        Law(law.kind, law.nodes, _terms(product))
        for law, product, skew in zip(quadratic, products, skews, strict=True)
        if not skew
    ]
    return LawFamily((*invariant, *linear, *_sums(quadratic, products, skews, prime)), laws.parameters)


def _sums(laws: list[Law], products: list[Matrix], skews: list[Matrix], prime: int) -> list[Law]:
    """Combinations of symmetries, each broken by the metric, that the metric leaves whole."""
    broken = [number for number, skew in enumerate(skews) if skew]
    places = sorted({place for number in broken for place in skews[number]})
    if not broken:
        return []
    table = np.array([[_residue(skews[n].get(place, Fraction(0)), prime) for n in broken] for place in places])
    combinations = []
    for weights in nullspace(table, prime):
        total: Matrix = {}
        parts: list[Law] = []
        for number, weight in zip(broken, weights.tolist(), strict=True):
            factor = rational(weight, prime)
            if factor is None:
                break
            if factor:
                law = laws[number]
                parts.append(Law(law.kind, law.nodes, {edges: factor * value for edges, value in law.terms.items()}))
            for place, value in products[number].items():
                total[place] = total.get(place, Fraction(0)) + factor * value
        else:
            if all(total.get(place[::-1], 0) == value for place, value in total.items()):
                combinations.append(Law("combination", (), _terms(total), tuple(parts)))
    return combinations


def _skew(product: Matrix) -> Matrix:
    """The entries above the diagonal of the antisymmetric part."""
    places = {(min(place), max(place)) for place in product}
    parts = {(row, column): product.get((row, column), 0) - product.get((column, row), 0) for row, column in places}
    return {place: Fraction(value) for place, value in parts.items() if value}


def _residue(value: Fraction, prime: int) -> int:
    return value.numerator * pow(value.denominator, -1, prime) % prime


def _terms(product: Matrix) -> dict[tuple[int, ...], Fraction]:
    return {
        (row, column): value if row < column else value / 2
        for (row, column), value in product.items()
        if row <= column and value
    }


def _product(law: Law, inverse: dict[int, dict[int, Fraction]]) -> Matrix:
    """`M⁻¹ G` for a law `½ θᵀ G θ`."""
    product: Matrix = {}
    for (first, second), factor in law.terms.items():
        for row, column in ((first, second), (second, first)):
            for other, weight in inverse[row].items():
                product[other, column] = product.get((other, column), Fraction(0)) + weight * factor
    return product


def _linear(law: Law, inverse: dict[int, dict[int, Fraction]]) -> dict[tuple[int, ...], Fraction]:
    """`M⁻¹ a` for a law `⟨a, θ⟩`."""
    row: dict[tuple[int, ...], Fraction] = {}
    for (edge,), factor in law.terms.items():
        for other, weight in inverse[edge].items():
            row[other,] = row.get((other,), Fraction(0)) + weight * factor
    return {edges: value for edges, value in row.items() if value}


def _inverse_rows(metric: Metric, size: int) -> dict[int, dict[int, Fraction]]:
    if metric.diagonal is not None:
        return {edge: {edge: 1 / Fraction(float(value))} for edge, value in enumerate(metric.diagonal)}
    rows = {edge: {edge: Fraction(1)} for edge in range(size)}
    for where, matrix in metric.blocks:
        for row, line in zip(where.tolist(), _inverse(matrix), strict=True):
            rows[row] = dict(zip(where.tolist(), line, strict=True))
    return rows


def _inverse(matrix: ArrayLike) -> list[list[Fraction]]:
    """The exact inverse of a small matrix of floats."""
    exact = flint.fmpq_mat(
        [[flint.fmpq(*float(value).as_integer_ratio()) for value in row] for row in np.asarray(matrix)]
    )
    return [[Fraction(int(value.p), int(value.q)) for value in row] for row in exact.inv().tolist()]


@dataclass(frozen=True, eq=False)
class DecayFields(Drifting):
    """Drift plus control: `a (−λθ, 1) + (∇f, 0)` with a random number a per sample."""

    flow: GradientFlow

    @property
    def size(self) -> int:
        """Weights and time."""
        return self.gradients.size + 1

    def field(self, state: Dual, sample: Residues) -> Dual:
        """The fields at (θ, t)."""
        drift = sample[-1]
        theta = state.parts[:, :-1]
        force = self.gradients.field(Dual(theta, self.prime), sample[:-1])
        rate = int(to_residues([self.flow.decay], self.prime)[0])
        moved = (force.parts - rate * (theta * drift % self.prime)) % self.prime
        return Dual(np.concatenate([moved, self.clock(state, drift)], axis=1), self.prime)


def homogeneous(laws: LawFamily) -> LawFamily:
    """The laws that decay at a rate of their own.

    >>> from lawful.conservation.known.graph_laws import known_laws
    >>> from lawful.network import Architecture
    >>> laws = known_laws(Architecture.parse("3-2-2 relu bias").to_dag())
    >>> [law.degree for law in homogeneous(laws)]
    [2, 2]
    """
    return LawFamily(tuple(law for law in laws if law.degree is not None), laws.parameters)


def even(dag: Dag, part: Part) -> bool:
    """Whether all paths through a part have the same length: then what it passes on is homogeneous in its weights."""
    lengths: dict[int, set[int]] = {node: {0} for node, _ in part.signals}
    inside = set(part.inner)
    for node in [*(node for node in np.concatenate(dag.layers).tolist() if node in inside), part.sink]:
        into = [int(dag.tails[edge]) for edge in part.edges if dag.heads[edge] == node]
        lengths[node] = {length + 1 for tail in into for length in lengths.get(tail, ())}
    return len(lengths[part.sink]) <= 1
