"""Can training reach the solution from here?

Not if it would have to flip a weight that the conserved balance keeps away from zero. A network whose output weights
are all negative and locked can never output a positive number; rescaling it, without changing its function, frees it
(P0 Theorem 1 and Corollary 2).
"""

from __future__ import annotations

import numpy as np

from lawful import Mlp
from lawful.invariant_set import components, locked_outputs, unlock


def run() -> int:
    """Show the locks of a badly initialised network, free them, and compare the functions."""
    rng = np.random.default_rng(0)
    network = Mlp([0.3 * rng.normal(size=(8, 2)), -1 - np.abs(rng.normal(size=(1, 8)))])
    found = components(network)
    (meaning,) = locked_outputs(found)
    print(f"{len(found.locked)} of 8 output weights are locked: 2^{found.log2_components} components")
    print(f"whatever the data, training keeps the output {meaning.confined} its bias")
    freed = unlock(network)
    batch = rng.normal(size=(1000, 2))
    change = float(np.abs(freed.dag.evaluate(batch) - network.evaluate(batch)).max())
    print(f"after rescaling: {components(freed.dag).log2_components} locked, outputs changed by {change:.1e}")
    assert not found.connected
    assert components(freed.dag).connected
    assert change < 1e-12
    return len(found.locked)


if __name__ == "__main__":
    run()
