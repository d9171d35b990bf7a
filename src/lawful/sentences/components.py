"""What is said of the invariant set of balances: its components, and how close to zero a locked weight can come."""

from __future__ import annotations

from fractions import Fraction
from math import isqrt

from lawful.outward import at_least, at_most
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


@sentence("components.connected_entries", claims="the set of all entries with these balances is connected")
def connected_entries(balances: int) -> str:
    """Of the entries of a module, if it has no other laws."""
    return f"connected: no weight is locked by its {balances:,} balance{'s' * (balances != 1)}"


@sentence("components.no_lock", claims="every weight can be zero at the balances of these weights")
def no_lock() -> str:
    """The heading of a page or figure; other laws than balances may confine training as well."""
    return "The balances lock no weight"


@sentence("components.signs_kept", claims="so many weights into this output are never zero while balances are kept")
def signs_kept(output: str, neurons: int) -> str:
    """What locks mean for one output."""
    many = "1 neuron" if neurons == 1 else f"{neurons} neurons"
    return f"output {output}: training can never change the sign of {many} here"


@sentence("components.one_side", claims="with any weights of these balances and signs the output stays on that side")
def one_side(output: str, side: str) -> str:
    """An output that only ReLU neurons with locked weights of one sign feed."""
    other = {"above": "below", "below": "above"}[side]
    return f"so {output} never goes {other} its bias (0 if it has none), whatever the data"


@sentence("components.freed", claims="after this rescaling, which keeps the function, the weights can be zero")
def freed(factor: float) -> str:
    """The largest factor that a locked neuron of the output needs."""
    return f"inputs times up to {at_most(factor)}, output divided by it, frees them without change"


@sentence("components.never_below", claims="the size of a locked weight never falls below its barrier")
def never_below() -> str:
    """The caption of a figure whose bars are the barriers."""
    return "Locked weights: training can never bring one below its bar."


@sentence("components.barrier", claims="the size of a locked weight is never less than this")
def barrier(minimum: Fraction) -> str:
    """The root of the least square that the balances allow, rounded downwards."""
    scale = 1 << (2 * BITS)
    root = Fraction(isqrt(minimum.numerator * scale // minimum.denominator), 1 << BITS)
    return at_least(root, 6)
