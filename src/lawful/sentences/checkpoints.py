"""What is said of two checkpoints: the same function, a rounded copy, another function, one in the other's place."""

from __future__ import annotations

from lawful.outward import at_least, at_most
from lawful.sentences import sentence


@sentence("checkpoints.equal", claims="every number of B is one of A, and both compute the same in exact arithmetic")
def equal_exactly() -> str:
    """The same numbers."""
    return "EQUAL exactly"


@sentence("checkpoints.equal-within", claims="after a symmetry of the module no weight of B is further from that of A")
def equal_within(within: str, epsilon: float) -> str:
    """The same function up to the rounding of float32 or finer."""
    if within == "weight by weight":
        return f"EQUAL weight by weight within {at_most(epsilon)}"
    return f"EQUAL: a copy by weights within {at_most(epsilon)} of each entry's sum (outputs are not bounded)"


@sentence("checkpoints.rounded", claims="no weight is further off than that, and some output is another one")
def rounded(within: str, epsilon: float) -> str:
    """The same weights in fewer bits."""
    if within == "weight by weight":
        return f"ROUNDED COPY, another function: weight by weight within {at_most(epsilon)}"
    return f"ROUNDED COPY, another function: each entry within {at_most(epsilon)} of the sum of its terms"


@sentence("checkpoints.apart", claims="at that input the outputs differ by at least that share of the largest one")
def apart(outputs: tuple[float, float], gap: float) -> str:
    """An input that tells."""
    return (
        f"At a random input, in float64, A gives {outputs[0]:.9g} and B {outputs[1]:.9g}: {at_least(gap)} of the "
        "largest output apart."
    )


@sentence(
    "checkpoints.aligned", claims="what was written computes what B computes, but for the rounding of its numbers"
)
def aligned(out: str) -> str:
    """A file that was written."""
    return f"{out}: B in A's place, the same function as B up to the rounding of its numbers"


@sentence("checkpoints.identical", claims="the indexed file held the same numbers under the same names")
def identical() -> str:
    """A file that held what the given one holds when it was indexed; it may have changed since."""
    return "identical weights when indexed"


@sentence("checkpoints.representative", claims="what was written is the function it was made of, within what is said")
def representative(verdict: str, within: str | None, epsilon: float | None) -> str:
    """Another member of an orbit beside the checkpoint that it was made of."""
    if verdict not in ("equal", "rounded"):
        return f"function: {verdict}"
    how = {"exactly": " exactly", "weight by weight": " weight by weight", "copy by weights": " as a copy by weights"}
    words = {"equal": "equal", "rounded": "a rounded copy,"}[verdict] + how.get(within or "", "")
    return f"function: {words}" + (f" within {at_most(epsilon, 2)}" if epsilon else "")
