"""Can I move a neuron's hyperplane without changing the network?

Yes, if the next layer hides it: every neuron above gives it a positive weight, all others a negative one, and has a
negative bias (P4 Definition 3). The function shows no trace of such a hyperplane.
"""

from __future__ import annotations

import numpy as np

from lawful.fibers import flip, translate
from lawful.fibers.deep.identifiability import identifiable
from lawful.fibers.random_members import hiding_network
from lawful.fibers.regions.count import polyhedral_complex


def run() -> float:
    """Translate and flip; return the largest change of the output."""
    network = hiding_network(3, 3, 1, 1, neuron=0, seed=1)
    print(f"identifiable: {identifiable(network).identifiable}, because {identifiable(network).reasons[0]}")
    complex = polyhedral_complex(network)
    shown = {facet.neuron for facet in complex.visible()}
    pieces = len(complex.bent_hyperplane((0, 0)))
    print(f"neuron 0 bends {pieces} facets of the complex, the function shows {'some' if (0, 0) in shown else 'none'}")
    points = np.random.default_rng(0).normal(size=(5000, 3)) * 5
    before = network.evaluate(points)
    moved = translate(network, 0, 4.0)
    turned = flip(moved, 0, (1, 2))
    change = max(float(np.abs(other.evaluate(points) - before).max()) for other in (moved, turned))
    print(f"moved by 4 and flipped two others: outputs change by {change:.1e}")
    assert (0, 0) not in shown
    assert change < 1e-10
    return change


if __name__ == "__main__":
    run()
