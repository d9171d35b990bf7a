"""What does training keep constant, and is that all?

Gradient flow moves the weights, but some functions of them never change. `count_laws` says how many there are, names
them, and proves that there are no others (P1). A second program re-checks the proof.
"""

from __future__ import annotations

import numpy as np

from lawful.conservation import count_laws
from lawful.conservation.certificate import certificate
from lawful.network import Architecture, Mlp
from lawful.verify import verify


def run() -> int:
    """Count, prove, verify; then take a thousand small steps and watch a law beside a weight."""
    architecture = Architecture.parse("4-6-3 relu bias")
    count = count_laws(architecture)
    print(f"{architecture} keeps {count.laws} functions of its {count.parameters} weights constant ({count.status}):")
    for line in count.summary():
        print("  ", line)
    verify(certificate(count))
    print("the certificate passes the separate verifier")

    network = architecture.initialise(seed=0)
    assert isinstance(network, Mlp)
    rng = np.random.default_rng(0)
    inputs, targets = rng.normal(size=(50, 4)), rng.normal(size=(50, 3))
    start, before = network.theta, count.known.values(network.theta)
    for _ in range(1000):
        network = network.with_theta(network.theta - 1e-3 * gradient(network, inputs, targets))
    moved = float(np.abs(network.theta - start).max())
    drift = float(np.abs(count.known.values(network.theta) - before).max())
    print(f"after 1000 small steps weights moved by up to {moved:.3f}, laws by {drift:.1e}")
    assert drift < 0.01 * moved
    return count.laws


def gradient(network: Mlp, inputs: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Gradient of the mean squared error of a network with one hidden layer."""
    _, hidden, outputs = network.activations(inputs)
    error = 2 * (outputs - targets) / targets.size
    blame = (error @ network.weights[1]) * (hidden > 0)
    return np.concatenate([(blame.T @ inputs).ravel(), blame.sum(0), (error.T @ hidden).ravel(), error.sum(0)])


if __name__ == "__main__":
    run()
