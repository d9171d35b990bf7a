"""Lineage sentences against networks that are trained here, so that their truth is known.

Strangers include the hardest ones: students of one teacher, which end at the same weights from any start.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import numpy as np
from falsification import Trial
from scipy.optimize import linear_sum_assignment

from lawful import Mlp
from lawful.api.checkpoints.diff import diff
from lawful.checkpoints.relations.block_matching import trace_layers
from lawful.checkpoints.relations.verdict import Lineage
from lawful.fibers.verdict import Equal
from lawful.sentences import checkpoints as sentences

UNITS = 16


def train(network: Mlp, x: np.ndarray, y: np.ndarray, steps: int, rate: float = 0.02) -> Mlp:
    """Adam on the mean squared error of one hidden layer, by hand."""
    parts = [np.array(each) for each in (network.weights[0], network.biases[0], network.weights[1])]
    means, squares = [np.zeros_like(p) for p in parts], [np.zeros_like(p) for p in parts]
    for step in range(1, steps + 1):
        into, bias, out = parts
        hidden = x @ into.T + bias
        active = np.maximum(hidden, 0.0)
        error = (active @ out.T - y) * (2 / len(x))
        back = (error @ out) * (hidden > 0)
        for k, gradient in enumerate((back.T @ x, back.sum(0), error.T @ active)):
            means[k] = 0.9 * means[k] + 0.1 * gradient
            squares[k] = 0.99 * squares[k] + 0.01 * gradient**2
            size = rate * (1.0 if step < 0.7 * steps else 0.1)
            parts[k] = parts[k] - size * means[k] / (1 - 0.9**step) / (np.sqrt(squares[k] / (1 - 0.99**step)) + 1e-9)
    return Mlp([parts[0], parts[2]], [parts[1], None])


def start(seed: int, units: int = UNITS, inputs: int = 6) -> Mlp:
    rng = np.random.default_rng(seed)
    into, out = rng.normal(size=(units, inputs)) / inputs**0.5, rng.normal(size=(2, units)) / units**0.5
    return Mlp([into, out], [np.zeros(units), None])


def permuted(network: Mlp, seed: int) -> Mlp:
    """The same function: units in another order, rescaled."""
    rng = np.random.default_rng(seed)
    order, scale = rng.permutation(UNITS), np.exp(rng.normal(size=UNITS))
    into, out = network.weights[0][order] * scale[:, None], network.weights[1][:, order] / scale
    return Mlp([into, out], [network.biases[0][order] * scale, None])


def copies() -> Iterator[Trial]:
    """Rescaled by powers of two it is exact; one weight that is off in its last digits makes another function."""
    network = start(3)
    order, scale = np.random.default_rng(4).permutation(UNITS), np.exp2(np.arange(UNITS) % 5 - 2.0)
    weights = [network.weights[0][order] * scale[:, None], network.weights[1][:, order] / scale]
    for nudge in (0.0, 1e-13, 1e-2):
        moved = weights[0].copy()
        moved[0, 0] *= 1 + nudge
        found = diff(network, Mlp([moved, weights[1]], [network.biases[0][order] * scale, None]))
        yield Trial(f"exactly, off by {nudge}", found.reason == sentences.copy("exactly", 0.0), nudge == 0.0)
        near = isinstance(found.verdict, Equal) and found.verdict.within.kind == "weights"
        said = near and found.reason == sentences.copy("weights", found.verdict.within.value)
        yield Trial(f"nearly, off by {nudge}", said, near and nudge <= 2 * found.verdict.within.value)


@cache
def pairs() -> tuple[tuple[str, Mlp, Mlp, Lineage], ...]:
    """What B is, both networks, and what was found."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 6))
    tasks = {"a curve": np.stack([np.sin(2 * x[:, 0]) * x[:, 1], np.cos(x[:, 2] + x[:, 3])], 1),
             "a teacher": start(99).evaluate(x)}  # fmt: skip
    found = []
    for y in tasks.values():
        trained = [train(start(seed), x, y, 600) for seed in range(3)]
        found += [("apart", one, two) for k, one in enumerate(trained) for two in trained[:k]]
        for seed, parent in enumerate(trained[:1]):
            child = train(parent, x[:200], y[:200] + 0.05, 40, 0.002)
            found.append(("child", parent, child))
            found.append(("child, permuted", parent, permuted(child, seed)))
            head = Mlp([parent.weights[0], start(50 + seed).weights[1]], parent.biases)
            found.append(("new head", parent, head))
        # Put into the order of the other: places agree, and nothing else has to.
        aligned = _ordered(trained[1], _matching(trained[0], trained[1]))
        found.append(("apart, aligned", trained[0], aligned))
        by_size = [_ordered(each, np.argsort(np.linalg.norm(each.weights[0], axis=1))) for each in trained[:2]]
        found.append(("apart, sorted", *by_size))
    found += [("apart", start(seed), start(seed + 1)) for seed in range(200, 208)]
    narrow = [train(start(seed, 4), x, tasks["a curve"], 300) for seed in range(2)]
    found.append(("apart", *narrow))
    return tuple((kind, one, two, trace_layers(one, two)) for kind, one, two in found)


def _matching(one: Mlp, two: Mlp) -> np.ndarray:
    """For each unit of one the unit of two whose incoming weights point where its own do."""
    rows = [each.weights[0] / np.linalg.norm(each.weights[0], axis=1, keepdims=True) for each in (one, two)]
    return linear_sum_assignment(-rows[0] @ rows[1].T)[1]


def _ordered(network: Mlp, order: np.ndarray) -> Mlp:
    return Mlp([network.weights[0][order], network.weights[1][:, order]], [network.biases[0][order], None])


def _trials(found: str, true: tuple[str, ...]) -> Iterator[Trial]:
    for number, (kind, _, _, lineage) in enumerate(pairs()):
        yield Trial(f"pair {number}: {kind}; {lineage.reason}", lineage.found == found, kind in true)


def places() -> Iterator[Trial]:
    """Children, but for a start that was trained away; brute force: every unit's own place is its nearest row."""
    for seed in range(4):
        network = start(seed)
        rng = np.random.default_rng(seed)
        far = Mlp([w + 0.75 * rng.normal(size=w.shape) * w.std() for w in network.weights], [np.zeros(UNITS), None])
        for about, other in (("far from its start", far), ("another", start(seed + 30))):
            lineage = trace_layers(network, other)
            cosines = network.weights[0] @ other.weights[0].T
            near = (cosines.argmax(1) == np.arange(UNITS)).mean()
            yield Trial(f"{about}, {near:.0%} nearest", lineage.found == "places", bool(near > 0.5))


def alike() -> Iterator[Trial]:
    """Whether some order of units brings the directions of incoming weights near, found by assignment alone."""
    for number, (kind, one, two, lineage) in enumerate(pairs()):
        rows = [each.weights[0] / np.linalg.norm(each.weights[0], axis=1, keepdims=True) for each in (one, two)]
        away = np.linalg.norm(rows[0] - rows[1][_matching(one, two)]) / np.linalg.norm(rows[0])
        yield Trial(f"pair {number}: {kind}, {away:.2f} apart", lineage.found == "alike", bool(away < 0.4))


FALSIFIERS = {
    "lineage.copy": copies,
    "lineage.related": lambda: _trials("related", ("child", "new head")),
    "lineage.shared": lambda: _trials("shared", ("new head",)),
    "lineage.places": places,
    "lineage.alike": alike,
    "lineage.no_relation": lambda: _trials("none", ("apart", "apart, aligned", "apart, sorted", "child, permuted")),
}
