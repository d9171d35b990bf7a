"""Explicit laws: polynomials in the weights (one kind with an exponential), and the kind and neurons that name them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sparse
from numpy.typing import ArrayLike, NDArray

from lawful.exact import rank
from lawful.types import Floats, Residues

Monomial = tuple[int, ...]  # edge numbers, ascending, with repetition


@dataclass(frozen=True)
class Law:
    """A conserved polynomial `Σ coefficient · θ^monomial`, times `exp(−θ_exponent)` if there is an exponent.

    `kind` is "neuron" (incoming minus outgoing squares of one neuron), "pair" (the same product for two linear neurons
    with the same neighbours), "detour" (a linear neuron beside a direct edge), "sum" (a neuron's outgoing weights,
    conserved under cross-entropy), "weight" (a weight that never moves), "still" (a sum of one neuron's weights from
    the inputs that no sample moves), "rotation" (momentum), "product" (of the laws in `factors`), "combination" (their
    sum, under a metric that spares no single one) or "polynomial". `nodes` are the
    neurons it speaks of (for "weight": the ends of the edge).

    >>> law = Law("neuron", (1,), {(0, 0): Fraction(1), (1, 1): Fraction(-1)})
    >>> law.value([3.0, 2.0]), law.gradient([3.0, 2.0]).tolist()
    (5.0, [6.0, -4.0])
    """

    kind: str
    nodes: tuple[int, ...]
    terms: dict[Monomial, Fraction]
    factors: tuple[Law, ...] = ()
    exponent: int | None = None

    @property
    def degree(self) -> int | None:
        """The degree, if all terms have the same."""
        degrees = {len(edges) for edges in self.terms}
        return degrees.pop() if self.exponent is None and len(degrees) == 1 else None

    def value(self, theta: ArrayLike) -> float:
        """The conserved number at θ."""
        weights = np.asarray(theta, dtype=np.float64)
        value = float(sum(float(factor) * np.prod(weights[list(edges)]) for edges, factor in self.terms.items()))
        return value if self.exponent is None else value * float(np.exp(-weights[self.exponent]))

    def gradient(self, theta: ArrayLike) -> Floats:
        """The gradient at θ, orthogonal to every direction that training can take."""
        weights = np.asarray(theta, dtype=np.float64)
        slope = np.zeros(len(weights))
        for edges, factor in self.terms.items():
            for place, edge in enumerate(edges):
                rest = edges[:place] + edges[place + 1 :]
                slope[edge] += float(factor) * np.prod(weights[list(rest)])
        if self.exponent is not None:
            slope *= np.exp(-weights[self.exponent])
            slope[self.exponent] -= self.value(weights)
        return slope

    def gradient_modulo(self, points: Residues, prime: int) -> Residues:
        """Gradients of a polynomial law at integer points (a column each), modulo a prime."""
        slopes = np.zeros_like(points)
        for edges, factor in self.terms.items():
            residue = factor.numerator * pow(factor.denominator, -1, prime) % prime
            for place, edge in enumerate(edges):
                term = np.full(points.shape[1], residue)
                for other in edges[:place] + edges[place + 1 :]:
                    term = term * points[other] % prime
                slopes[edge] = (slopes[edge] + term) % prime
        return slopes

    def sympy(self, symbols: Sequence[Any]) -> Any:
        """The law as a SymPy expression in the given symbols, one per weight."""
        import sympy

        parts = []
        for edges, factor in self.terms.items():
            monomial = sympy.Rational(factor.numerator, factor.denominator)
            for edge in edges:
                monomial *= symbols[edge]
            parts.append(monomial)
        whole = sympy.Add(*parts)
        return whole if self.exponent is None else whole * sympy.exp(-symbols[self.exponent])


@dataclass(frozen=True)
class LawFamily:
    """Laws of one network together: values, gradients, and how many are independent.

    >>> laws = LawFamily((Law("neuron", (1,), {(0, 0): Fraction(1), (1, 1): Fraction(-1)}),), 2)
    >>> laws.values([3.0, 2.0]).tolist()
    [5.0]
    """

    laws: tuple[Law, ...]
    parameters: int

    def __len__(self) -> int:
        return len(self.laws)

    def __iter__(self) -> Iterator[Law]:
        return iter(self.laws)

    @cached_property
    def _places(self) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.intp]]:
        """Law, edge and partner edge (the number of edges stands for 1) of each term θ_edge θ_partner."""
        lines = [
            (number, edges[0], edges[1] if len(edges) == 2 else self.parameters)
            for number, law in enumerate(self.laws)
            for edges in law.terms
        ]
        table = np.array(lines, dtype=np.intp).reshape(-1, 3)
        return table[:, 0], table[:, 1], table[:, 2]

    @cached_property
    def _factors(self) -> list[Fraction]:
        return [factor for law in self.laws for factor in law.terms.values()]

    @cached_property
    def _exponents(self) -> tuple[list[int], list[int]]:
        """The laws with an exponential factor, and the edges in their exponents."""
        pairs = [(number, law.exponent) for number, law in enumerate(self.laws) if law.exponent is not None]
        return [number for number, _ in pairs], [edge for _, edge in pairs]

    def _residues(self, prime: int) -> Residues:
        factors = [factor.numerator * pow(factor.denominator, -1, prime) % prime for factor in self._factors]
        return np.array(factors, dtype=np.int64)

    def values(self, theta: ArrayLike) -> Floats:
        """All conserved numbers at θ."""
        number, edge, partner = self._places
        weights = np.append(np.asarray(theta, dtype=np.float64), 1.0)
        products = np.array(self._factors, dtype=np.float64) * weights[edge] * weights[partner]
        values = np.asarray(np.bincount(number, weights=products, minlength=len(self)), dtype=np.float64)
        damped, exponents = self._exponents
        values[damped] *= np.exp(-weights[exponents])
        return values

    def values_modulo(self, point: Residues, prime: int) -> Residues:
        """All polynomials at an integer point, modulo a prime."""
        number, edge, partner = self._places
        weights = np.append(point, 1)
        values = np.zeros(len(self), dtype=np.int64)
        np.add.at(values, number, self._residues(prime) * weights[edge] % prime * weights[partner] % prime)
        return values % prime

    def gradients(self, theta: ArrayLike) -> Floats:
        """All gradients at θ, a row each."""
        weights = np.append(np.asarray(theta, dtype=np.float64), 1.0)
        rows = np.asarray(self._gradients(weights, np.array(self._factors, dtype=np.float64)).toarray())
        damped, exponents = self._exponents
        rows[damped] *= np.exp(-weights[exponents])[:, None]
        rows[damped, exponents] -= self.values(theta)[damped]
        return rows

    def gradients_modulo(self, point: Residues, prime: int) -> Residues:
        """All gradients at an integer point, a row each, modulo a prime; exponential factors are divided out."""
        rows = np.asarray(self._gradients(np.append(point, 1), self._residues(prime)).toarray() % prime)
        damped, exponents = self._exponents
        rows[damped, exponents] = (rows[damped, exponents] - self.values_modulo(point, prime)[damped]) % prime
        return rows

    def _gradients(self, weights: NDArray[Any], factors: NDArray[Any]) -> Any:
        number, edge, partner = self._places
        rows, columns = np.concatenate([number, number]), np.concatenate([edge, partner])
        entries = np.concatenate([factors * weights[partner], factors * weights[edge]])
        shape = (len(self), self.parameters + 1)
        return sparse.csr_array((entries, (rows, columns)), shape=shape)[:, : self.parameters]

    def independent(self, point: Residues, prime: int) -> int:
        """Rank of the gradients at an integer point modulo a prime: at least so many laws are independent."""
        return rank(self.gradients_modulo(point, prime), prime) if len(self) else 0
