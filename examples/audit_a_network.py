"""What should I know about my network before I train it further?

`audit` asks every room at once; here a network gets three faults on purpose, and the audit names them.
"""

from __future__ import annotations

import numpy as np

from lawful import Mlp
from lawful.api.audit import Audit, audit
from lawful.pruning import Pruning


def run() -> Audit:
    """Audit a network with a silent neuron, a duplicate and sign-locked output weights."""
    rng = np.random.default_rng(0)
    first, second = rng.normal(size=(6, 3)), 10.0 * rng.normal(size=(1, 6))
    second[0, 0] = 0.0  # neuron 0 speaks to nobody
    first[2] = 2.0 * first[1]  # neuron 2 says what neuron 1 says
    found = audit(Mlp([first, second]), source="model.pt")
    assert found.laws is not None
    assert found.components is not None
    assert isinstance(found.pruning, Pruning)
    print(f"{found.laws.laws} conserved quantities ({found.laws.status})")
    print(f"{found.components.log2_components} weights can never change sign")
    print(f"{found.pruning.neurons_before - found.pruning.neurons_after} neurons can go, bound {found.pruning.bound}")
    for each in found.recommendations:
        print(f"$ {each.command}")
    assert found.pruning.neurons_after == 4
    return found


if __name__ == "__main__":
    run()
