"""The balance `c = B̃θ²` that training conserves, as floats and as exact rationals."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from lawful.errors import LawfulError
from lawful.network import Dag, Mlp
from lawful.types import Floats

Number = int | float | Fraction | str


def divergence(dag: Dag, edge_values: ArrayLike) -> Floats:
    """`B̃x`: what enters each hidden node less what leaves it, in the order of `dag.hidden`."""
    values = np.asarray(edge_values, dtype=np.float64)
    count = len(dag.names)
    return np.asarray((np.bincount(dag.heads, values, count) - np.bincount(dag.tails, values, count))[dag.hidden])


def balance(network: Mlp | Dag) -> Floats:
    """`c = B̃θ²`: squares of the incoming less squares of the outgoing weights of each hidden node (P0 Definition 1).

    >>> from lawful.network import Dag
    >>> balance(Dag(("x", "h", "y"), [0, 1, 2], [0, 1], [1, 2], [3.0, 2.0]))
    array([5.])
    """
    dag = network.to_dag()
    return divergence(dag, dag.theta**2)


def flow_residual(dag: Dag, gradient: ArrayLike) -> Floats:
    """`B̃(θ ⊙ g)` for the gradient g of a loss at θ: zero, because θ ⊙ g is a network flow (P0 Proposition 1)."""
    return divergence(dag, dag.theta * np.asarray(gradient, dtype=np.float64))


@dataclass(frozen=True)
class Balance:
    """A balance as exact rationals: `c_v = units_v / denominator`, in the order of `dag.hidden`.

    Every finite float is a rational, so nothing is rounded from here on: sums over sets of neurons are exact. Where
    the numbers themselves carry round-off, `slack / denominator` bounds its total `Σ_v |error of c_v|`.
    """

    units: tuple[int, ...]
    denominator: int = 1
    slack: int = 0

    @classmethod
    def of(cls, network: Mlp | Dag, *, exact: bool = False, tolerance: float | None = None) -> Balance:
        """The balance of a network's weights: rounded once in float64, or `exact` with the weights taken as rationals.

        The default tolerance bounds the round-off of the float sums: `eps Σ_v deg(v) Σ_{e at v} θ_e²`.

        >>> from lawful.network import Architecture
        >>> Balance.of(Architecture.parse("2-2-1").to_dag().with_theta([1, 2, 3, 4, 5, 6])).units
        (-20, -11)
        """
        dag = network.to_dag()
        if exact:
            squares, denominator = _squares(dag.theta)
            total = [0] * len(dag.names)
            for square, tail, head in zip(squares, dag.tails.tolist(), dag.heads.tolist(), strict=True):
                total[head] += square
                total[tail] -= square
            return cls(tuple(total[node] for node in dag.hidden.tolist()), denominator, _slack(tolerance, denominator))
        with np.errstate(over="ignore", invalid="ignore"):
            values = balance(dag)
            if not np.isfinite(values).all():
                raise LawfulError("the squares of the weights overflow: rescale the network, or ask for the exact mode")
        found = cls.given(dag, values, tolerance=tolerance or 0.0)
        if tolerance is None:  # upwards: it has to cover the round-off
            return replace(found, slack=math.ceil(Fraction(round_off(dag)) * found.denominator))
        return found

    @classmethod
    def given(
        cls, dag: Dag, values: Mapping[str, Number] | Sequence[Number] | Floats, *, tolerance: float | None = None
    ) -> Balance:
        """A prescribed balance, by node name or in the order of `dag.hidden`; numbers, fractions, or text like "1/3".

        The default tolerance is 0 if all numbers are whole or fractions, else half a unit in the last place of each.
        """
        numbers = _in_order(dag, values)
        if isinstance(numbers, np.ndarray):
            units, denominator = _integers(numbers)
            assumed = float(np.spacing(np.abs(numbers)).sum() / 2)
        else:
            exact = [_fraction(dag, node, number) for node, number in enumerate(numbers)]
            denominator = math.lcm(*(number.denominator for number in exact))
            units = [number.numerator * (denominator // number.denominator) for number in exact]
            assumed = sum(math.ulp(number) / 2 for number in numbers if isinstance(number, float) and number % 1)
        return cls(tuple(units), denominator, _slack(assumed if tolerance is None else tolerance, denominator))

    @cached_property
    def values(self) -> Floats:
        """The balance as floats."""
        return np.array([unit / self.denominator for unit in self.units], dtype=np.float64)

    @property
    def fractions(self) -> list[Fraction]:
        """The balance as fractions."""
        return [Fraction(unit, self.denominator) for unit in self.units]

    @property
    def tolerance(self) -> Fraction:
        """How far, in total, the true balance may be from this one."""
        return Fraction(self.slack, self.denominator)


def round_off(dag: Dag) -> float:
    """A bound on `Σ_v |computed c_v − c_v|` for a balance summed in float64, whatever the order of summation."""
    squares = dag.theta**2
    count = len(dag.names)
    through = np.bincount(dag.heads, squares, count) + np.bincount(dag.tails, squares, count)
    degree = dag.in_degree + dag.out_degree
    return float(np.finfo(np.float64).eps * (degree * through)[dag.hidden].sum())


def _slack(tolerance: float | None, denominator: int) -> int:
    if tolerance is None:
        return 0
    if not (math.isfinite(tolerance) and tolerance >= 0):
        raise LawfulError(f"a tolerance is a number that is not negative, not {tolerance}")
    return math.floor(Fraction(tolerance) * denominator)


def _in_order(dag: Dag, values: Any) -> Any:
    if not isinstance(values, Mapping):
        if len(values) != len(dag.hidden):
            raise LawfulError(f"a balance has one number per hidden node, {len(dag.hidden)} here, not {len(values)}")
        numbers = np.asarray(values) if isinstance(values, np.ndarray) else list(values)
        if isinstance(numbers, np.ndarray) and not np.isfinite(numbers).all():
            raise LawfulError(f"balance of {dag.names[dag.hidden[np.argmin(np.isfinite(numbers))]]} is not finite")
        return numbers
    names = [dag.names[node] for node in dag.hidden]
    unknown = sorted(set(values) - set(names))
    missing = [name for name in names if name not in values]
    for wrong, words in ((unknown, "names nodes that are not hidden nodes of this network"), (missing, "lacks nodes")):
        if wrong:
            raise LawfulError(f"the balance {words}: {', '.join(map(str, wrong[:5]))}{', ...' * (len(wrong) > 5)}")
    return [values[name] for name in names]


def _fraction(dag: Dag, node: int, number: Any) -> Fraction:
    try:
        if isinstance(number, bool):
            raise TypeError
        return Fraction(number)
    except (ValueError, TypeError, OverflowError, ZeroDivisionError):
        name = dag.names[dag.hidden[node]]
        raise LawfulError(f"balance of {name} is {str(number)[:40]!r}, not a finite number") from None


def _integers(values: Floats) -> tuple[list[int], int]:
    """Floats as integers over one power of two.

    >>> _integers(np.array([0.5, 3.0, 0.0]))
    ([1, 6, 0], 2)
    """
    mantissa, exponent = np.frexp(values)
    whole = np.ldexp(mantissa, 53).astype(np.int64)
    nonzero = whole != 0
    trailing = np.zeros(len(values), dtype=np.int64)
    trailing[nonzero] = np.log2((whole & -whole)[nonzero].astype(np.float64)).astype(np.int64)
    exponent = np.where(nonzero, exponent - 53 + trailing, 0).astype(np.int64)
    lowest = min(int(exponent.min(initial=0)), 0)
    shift = (exponent - lowest).tolist()
    return [odd << up for odd, up in zip((whole >> trailing).tolist(), shift, strict=True)], 1 << -lowest


def _squares(theta: Floats) -> tuple[list[int], int]:
    units, denominator = _integers(theta)
    return [unit * unit for unit in units], denominator * denominator
