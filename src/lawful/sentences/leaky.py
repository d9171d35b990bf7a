"""What is said of Leaky ResNets and of the blocks of other networks."""

from __future__ import annotations

from lawful.outward import at_least
from lawful.sentences import sentence


@sentence("leaky.narrowest", claims="no other block that was measured has a smaller effective dimension")
def narrowest(block: str, dimension: float, width: int, samples: int) -> str:
    """Of the blocks of any network on data."""
    return f"narrowest after block {block}: dimension {dimension:.2f} of {width}, {samples} samples"


@sentence("leaky.no_rank", claims="the path is further from stationary than a rank needs")
def no_rank(depth: float, stationarity: float, needed: float) -> str:
    """Of the deepest network.

    >>> no_rank(5, 0.0123, 0.01)
    'no bottleneck rank: at depth 5 the path is stationary to 0.012 only, and its rank needs 0.01'
    """
    return (
        f"no bottleneck rank: at depth {depth:g} the path is stationary to {at_least(stationarity, 2)} only, "
        f"and its rank needs {needed:g}"
    )
