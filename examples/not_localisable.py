"""If every pair of layers is identifiable, is the whole network?

No (P4 Section 7). Here the second layer has a bounded image, on which the third layer, whose signs are mixed, acts
linearly: layers 1-3 alone and layers 2-4 alone determine their parameters, all four together do not.
"""

from __future__ import annotations

from lawful.fibers.random_members import not_localisable


def run() -> float:
    """Build the network, check both pairs, move along the fiber of the whole; return the change of the output."""
    found = not_localisable(seed=0)
    print(f"layers 1-3 identifiable: {found.lower.identifiable}; layers 2-4 identifiable: {found.upper.identifiable}")
    print(f"weights moved by {found.moved:.2f} (not a rescaling), the function by {found.change:.0e}")
    assert found.lower.identifiable
    assert found.upper.identifiable
    assert not found.rescaling
    assert found.change < 1e-10 < found.moved
    print(f"proved {found.verdict.verdict}: {found.verdict.method}")
    assert found.verdict.verdict == "equal"
    return found.change


if __name__ == "__main__":
    run()
