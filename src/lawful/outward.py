"""Bounds as text, rounded outward: what is true of the number stays true of its digits.

Rounding to nearest turns a proved bound into a false sentence: a maximum of 0.20324 is not "at most 0.203". Whatever is
stated as a bound is written by one of these two functions, by makers and by the verifier alike.
"""

from __future__ import annotations

import math
from decimal import MAX_EMAX, MIN_EMIN, ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction


def at_most(value: Fraction | float, digits: int = 4) -> str:
    """An upper bound in few digits, rounded upwards.

    >>> at_most(Fraction(1, 3)), at_most(0.2032366, 3), at_most(Fraction(1, 2)), at_most(0.0)
    ('0.3334', '0.204', '0.5', '0')
    """
    return _decimal(value, digits, ROUND_CEILING)


def at_least(value: Fraction | float, digits: int = 4) -> str:
    """A lower bound in few digits, rounded downwards.

    >>> at_least(Fraction(1, 3)), at_least(0.02153328, 3), at_least(-0.10001, 3), at_least(float("inf"))
    ('0.3333', '0.0215', '-0.101', 'inf')
    """
    return _decimal(value, digits, ROUND_FLOOR)


def _decimal(value: Fraction | float, digits: int, rounding: str) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)  # 'inf' and 'nan' say themselves that nothing is bounded
    exact = Fraction(value)
    context = Context(prec=digits, rounding=rounding, Emin=MIN_EMIN, Emax=MAX_EMAX)
    found = context.divide(Decimal(exact.numerator), Decimal(exact.denominator))
    return f"{found.normalize(context):g}".lower()
