"""The name of a network that depends on nothing but the network, and its plain form for certificates."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from lawful.network.dag import Dag
from lawful.network.mlp import Mlp
from lawful.network.validity import Role


def digest(network: Mlp | Dag, *, weights: bool = True) -> str:
    """SHA-256 of counts, slopes, edges by head and tail, and weights: the same in every file format.

    Inputs, hidden nodes by level, outputs and the constant are numbered in this order; names and the order of edges do
    not count. Without weights it names the architecture.

    >>> mlp = Mlp([[[1.0, -1.0], [0.0, 2.0]], [[1.0, 1.0]]])
    >>> digest(mlp) == digest(mlp.to_dag()), digest(mlp)[:16]
    (True, 'network:9e0d0e08')
    >>> digest(mlp, weights=False)[:21]
    'architecture:4c594837'
    """
    dag = network.to_dag()
    hidden = dag.hidden[np.argsort(dag.levels[dag.hidden], kind="stable")]
    biased = dag.constant is not None and bool((dag.tails == dag.constant).any())
    nodes = np.concatenate([dag.inputs, hidden, dag.outputs, [dag.constant] if biased else []]).astype(np.int64)
    place = np.zeros(len(dag.names), dtype=np.int64)
    place[nodes] = np.arange(len(nodes))
    tails, heads = place[dag.tails], place[dag.heads]
    order = np.lexsort((tails, heads))
    counts = [len(dag.inputs), len(hidden), len(dag.outputs), int(biased), dag.parameters]
    checksum = hashlib.sha256(b"lawful network 1\n")
    checksum.update(np.array(counts, dtype="<i8").tobytes())
    checksum.update((dag.slopes[hidden] + 0.0).astype("<f8").tobytes())
    checksum.update(np.stack([heads, tails], axis=1)[order].astype("<i8").tobytes())
    if weights and dag.weights is not None:
        checksum.update((dag.weights[order] + 0.0).astype("<f8").tobytes())
        return f"network:{checksum.hexdigest()}"
    return f"architecture:{checksum.hexdigest()}"


def network_record(network: Mlp | Dag, *, weights: bool = True) -> dict[str, Any]:
    """A network in a certificate: roles of its nodes, edges, slopes of hidden nodes, weights or null.

    >>> network_record(Mlp([[[2.0]], [[3.0]]]))
    {'roles': [0, 1, 2], 'edges': [[0, 1], [1, 2]], 'slopes': [0.0], 'weights': [2.0, 3.0]}
    """
    dag = network.to_dag()
    return {
        "roles": dag.roles.tolist(),
        "edges": np.stack([dag.tails, dag.heads], axis=1).tolist(),
        "slopes": dag.slopes[dag.roles == Role.HIDDEN].tolist(),
        "weights": dag.weights.tolist() if weights and dag.weights is not None else None,
    }


def with_layers(network: Mlp | Dag) -> dict[str, Any]:
    """A network in a certificate as layers if it has them: they take less room than edges.

    >>> with_layers(Mlp([[[2.0]], [[3.0]]]))
    {'weights': [[[2.0]], [[3.0]]], 'biases': [None, None], 'slopes': [0.0]}
    """
    if isinstance(network, Dag):
        return network_record(network)
    return {
        "weights": [weight.tolist() for weight in network.weights],
        "biases": [None if bias is None else bias.tolist() for bias in network.biases],
        "slopes": list(network.slopes),
    }
