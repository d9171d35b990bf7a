"""Networks of every kind, for tests that must hold for all of them."""

from __future__ import annotations

import numpy as np

from lawful.network import Architecture, Dag, Mlp, Role, initialise, useful_dag


def sparse_dag(seed: int, *, nodes: int = 40, density: float = 0.2, slopes: object = 0.0) -> Dag:
    """A random graph with skips at all ranges, biases on some nodes, and mixed roles."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(nodes)  # node numbers say nothing about depth
    roles = np.full(nodes, Role.HIDDEN, dtype=np.int8)
    roles[order[:5]], roles[order[-3:]], roles[order[5]] = Role.INPUT, Role.OUTPUT, Role.CONSTANT
    first, second = np.triu_indices(nodes, 1)
    chosen = rng.random(len(first)) < density
    tails, heads = order[first[chosen]], order[second[chosen]]
    fine = ~np.isin(roles[heads], (Role.INPUT, Role.CONSTANT)) & (roles[tails] != Role.OUTPUT)
    tails, heads = tails[fine], heads[fine]
    shuffled = rng.permutation(len(tails))
    names = [f'node {number} ü\t"{"x" * (number % 3)}' for number in range(nodes)]
    each = rng.choice([0.0, 0.1, 1.0], nodes) if slopes == "mixed" else slopes
    return useful_dag(names, roles, tails[shuffled], heads[shuffled], rng.normal(size=len(tails)), each)


def all_networks() -> dict[str, Mlp | Dag]:
    """Perceptrons, leaky, linear, with some biases, with mixed activations, with skips, sparse."""
    words = {
        "relu": "3-4-2 relu",
        "biased": "3-4-4-2 relu bias",
        "leaky": "3-5-4-2 leaky_relu(0.1) bias",
        "linear": "6-5-6 linear",
        "single layer": "4-3 relu bias",
        "one neuron": "1-1-1 relu bias",
        "skip": "3-4-4-2 relu bias skip(1,2)",
        "skips": "2-5-4-3-1 leaky_relu(0.25) skip(0,1) skip(1,3)",
    }
    found: dict[str, Mlp | Dag] = {
        name: Architecture.parse(text).initialise("uniform", seed) for seed, (name, text) in enumerate(words.items())
    }
    rng = np.random.default_rng(5)
    sizes = [(4, 3), (5, 4), (3, 5), (2, 3)]
    weights = [rng.normal(size=shape) for shape in sizes]
    biases = [rng.normal(size=4), None, rng.normal(size=3), None]
    found["mixed"] = Mlp(weights, biases, [0.0, 1.0, 0.3])
    found["sparse"] = sparse_dag(0)
    found["sparse mixed"] = sparse_dag(1, slopes="mixed")
    found["sparse leaky"] = initialise(sparse_dag(2, slopes=-0.5), "he", 3)
    return found
