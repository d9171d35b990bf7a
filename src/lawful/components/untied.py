"""Whether a network's graph is a graph of *its own* weights: each edge one trainable number, used once.

The balance of a neuron is conserved because scaling it moves its weights and nothing else. A convolution's kernel at
many places, a layer called twice, the 1 of a skip, a frozen layer or a folded normalisation are not such edges: read as
if they were, they give locks that training walks through.
"""

from __future__ import annotations

from lawful.errors import Unsupported
from lawful.network import Dag, Mlp


def own_weights(network: Mlp | Dag) -> Dag:
    """The graph, refused if what it was read from says that its edges are not parameters one by one.

    >>> from torch import nn
    >>> from lawful.network.modules.convert import from_module
    >>> own_weights(from_module(nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))))
    Dag(inputs=2, hidden=3, outputs=1, edges=13, biases)
    >>> own_weights(from_module(nn.Sequential(nn.Conv1d(1, 1, 1), nn.ReLU(), nn.Flatten(), nn.Linear(2, 1)), (1, 2)))
    Traceback (most recent call last):
    lawful.errors.Unsupported: ... shares, fixes or folds weights: balances of the unrolled graph would be false
    """
    reading = network.reading
    if reading is not None and reading.entangled:
        raise Unsupported(f"{reading.entangled[0]}: balances of the unrolled graph would be false")
    return network.to_dag()
