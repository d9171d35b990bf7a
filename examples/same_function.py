"""Are these two checkpoints the same function?

Permuting and rescaling neurons, moving a hidden hyperplane, flipping the others: none of it changes what a network
computes. `same` sees through all of it and proves its answer (P4 Section 6).
"""

from __future__ import annotations

from lawful.fibers import Different, Equal
from lawful.fibers.random_members import disguise, hiding_network
from lawful.fibers.same import same


def run() -> float:
    """Compare a network with a disguised copy, then with a copy that was changed a little; return the gap found."""
    network = hiding_network(16, 16, 1, 3, seed=0)
    copy = disguise(network, seed=1)
    answer = same(network, copy)
    assert isinstance(answer, Equal)
    steps = ", ".join(type(step).__name__.lower() for step in answer.witness.first)
    print(f"equal in {1000 * answer.seconds:.0f} ms: after {steps}")
    moved = float(abs(network.theta - copy.theta).max())
    print(f"  the weights agree to {answer.witness.residual:.0e}, though some had moved by {moved:.1f}")

    changed = copy.with_theta(copy.theta + 1e-6)
    answer = same(network, changed)
    assert isinstance(answer, Different)
    assert answer.counterexample is not None
    gap = float(answer.counterexample.gap)
    print(f"changed by 1e-6: different, by {gap:.1e} at an input replayed in exact arithmetic")
    assert gap > 1e-9
    return gap


if __name__ == "__main__":
    run()
