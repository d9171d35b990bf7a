"""What is said of distances and properties on a box: `distance`, `check`, `check --monotone`, `rebalance --box`."""

from __future__ import annotations

import math
from fractions import Fraction

from lawful.outward import at_least, at_most
from lawful.sentences import sentence

DIGITS = 6  # of a bound for people; JSON has every digit
QUESTION = 17  # digits that tell any two float64 apart: the limit that was asked about is repeated as it was given


@sentence("distance.bounded", claims="the largest difference on the box lies between the two numbers")
def difference_lies_between(norm: str, lower: Fraction, upper: float) -> str:
    """The interval that is known, each end rounded outward."""
    high = at_most(upper, DIGITS) if upper < math.inf else "nothing known"
    return f"{at_least(lower, DIGITS)} <= {norm} <= {high}"


@sentence("distance.proved", claims="no input of the box has a larger difference than the limit")
def difference_stays_within(norm: str, limit: Fraction) -> str:
    """The limit asked about holds."""
    return f"PROVED: {norm} <= {at_most(limit, QUESTION)} on the box (float64, rounded outwards)"


@sentence("distance.violated", claims="the input shown has a larger difference than the limit")
def difference_exceeds(norm: str, limit: Fraction) -> str:
    """The limit asked about fails at an input."""
    return f"VIOLATED: {norm} > {at_least(limit, QUESTION)} at the input below (exact rationals)"


@sentence("property.holds", claims="no input of the box leads to outputs that the specification forbids")
def property_holds() -> str:
    """Nothing forbidden is reached."""
    return "HOLDS: no input of the box leads to what the file describes (float64, rounded outwards)"


@sentence("property.violated", claims="the input shown leads to outputs that the specification forbids")
def property_fails() -> str:
    """Something forbidden is reached, at an input that is shown."""
    return "VIOLATED at the input below (exact rationals)"


@sentence("monotone.holds", claims="the outputs named never go the wrong way along the inputs named, on the box")
def is_monotone(outputs: str, directions: str, how: str) -> str:
    """`outputs` is "output 0 is" or "the outputs are"."""
    return f"HOLDS: {outputs} monotone in {directions} on the box ({how})"


@sentence("monotone.violated", claims="the output named goes the wrong way between the two inputs shown")
def is_not_monotone(output: int) -> str:
    """Two inputs that differ in one direction, and an output that moves against it."""
    return f"VIOLATED: output {output} goes the wrong way between these inputs (exact rationals)"


@sentence("rebalance.bounded", claims="no output changes by more than the number on the box")
def outputs_move_at_most(bound: float) -> str:
    """What rebalancing costs in floating point, on a box."""
    return f"no output changes by more than {at_most(bound, 3)} on the box (certified)"
