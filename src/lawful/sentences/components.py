"""What is said of the invariant set of balances: its components, and how close to zero a locked weight can come."""

from __future__ import annotations

from fractions import Fraction
from math import isqrt

from lawful.outward import at_least
from lawful.sentences import sentence

BITS = 128  # of a root: far more digits than are printed


@sentence("components.connected", claims="the set of all weights with these balances is connected: no weight is locked")
def connected(bottlenecks: int) -> str:
    """Of a graph of scalar weights."""
    why = "no neuron is a bottleneck" if not bottlenecks else f"all {bottlenecks} bottleneck edges can be zero"
    return f"connected: the balances lock no weight's sign ({why})"


@sentence("components.disconnected", claims="the set of all weights with these balances has 2^k components")
def disconnected(locked: int) -> str:
    """One sign for each locked weight (theory of P0, Theorem 1 being the case of none)."""
    count = f" = {2**locked}" if locked <= 20 else ""
    return f"disconnected: 2^{locked}{count} component{'s' * (locked > 0)}, one sign for each locked weight"


@sentence("components.barrier", claims="the size of a locked weight is never less than this")
def barrier(minimum: Fraction) -> str:
    """The root of the least square that the balances allow, rounded downwards."""
    scale = 1 << (2 * BITS)
    root = Fraction(isqrt(minimum.numerator * scale // minimum.denominator), 1 << BITS)
    return at_least(root, 6)
