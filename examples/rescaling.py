"""Can I rescale neurons without changing the network?

Yes: multiply a ReLU neuron's incoming weights by any positive number and divide its outgoing weights by it
(P0 Section 2).
"""

from __future__ import annotations

import numpy as np

from lawful import Architecture


def run() -> float:
    """Rescale every hidden neuron at random; return the largest change of the output."""
    rng = np.random.default_rng(0)
    network = Architecture.parse("4-8-8-3 relu bias").initialise(seed=0).to_dag()
    rescaled = network.rescaled(np.exp(rng.normal(size=len(network.hidden))))
    batch = rng.normal(size=(1000, 4))
    change = float(np.abs(network.evaluate(batch) - rescaled.evaluate(batch)).max())
    weights = float(np.abs(network.theta - rescaled.theta).max())
    print(f"weights moved by up to {weights:.2f}, outputs by at most {change:.1e}")
    assert change < 1e-12
    return change


if __name__ == "__main__":
    run()
