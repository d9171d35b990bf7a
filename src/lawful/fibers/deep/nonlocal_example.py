"""Identifiable pair by pair, not as a whole: the construction of P4 Section 7 and F.1."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lawful.fibers.deep.identifiability import Identifiability, identifiable
from lawful.fibers.same import same
from lawful.fibers.shallow.normal_form import group_rows
from lawful.fibers.verdict import Verdict
from lawful.network import Mlp


@dataclass(frozen=True, eq=False)
class NotLocalisable:
    """A network, another parameter of the same function, and what each pair of layers says.

    `lower` judges layers 1 to 3, `upper` layers 2 to 4; `moved` is the largest change of a weight, `change` of the
    function on many inputs; `rescaling` says whether order and scale of neurons explain the move; `verdict` is the
    proof of `same` that the function stayed.
    """

    network: Mlp
    other: Mlp
    lower: Identifiability
    upper: Identifiability
    moved: float
    change: float
    rescaling: bool
    verdict: Verdict


def not_localisable(widths: tuple[int, ...] = (5, 4, 3, 3, 2), *, size: float = 0.05, seed: int = 0) -> NotLocalisable:
    """Bound the image of the second layer, so that the third, whose signs are mixed, acts linearly on it.

    `W2 < 0 < b2` makes the second layer's values lie in `[0, b2]`; a large `b3` then keeps the third layer active, and
    `(I + M) W3`, `W4 (I + M)^{-1}` with a small M is the same function.
    """
    rng = np.random.default_rng(seed)
    inputs, first, second, third, outputs = widths
    weights = [
        rng.normal(size=shape) for shape in ((first, inputs), (second, first), (third, second), (outputs, third))
    ]
    weights[1] = -np.abs(weights[1])
    weights[2] = np.where(np.eye(third, second) > 0, -np.abs(weights[2]), weights[2])  # a negative entry in every row
    top = np.abs(rng.normal(size=second)) + 0.5
    most = np.abs(weights[2]) @ top + 1.0
    biases = [rng.normal(size=first), top, most, rng.normal(size=outputs)]
    network = Mlp(weights, biases)
    mix = np.eye(third) + size * rng.normal(size=(third, third)) / third
    moved = [weights[0], weights[1], mix @ weights[2], weights[3] @ np.linalg.inv(mix)]
    other = Mlp(moved, [biases[0], biases[1], mix @ most, biases[3]])
    points = np.concatenate([scale * rng.normal(size=(2000, inputs)) for scale in (1.0, 10.0, 100.0)])
    rows = np.concatenate([np.column_stack([w, b]) for w, b in ((weights[2], most), (moved[2], mix @ most))])
    return NotLocalisable(
        network,
        other,
        identifiable(Mlp(weights[:3], biases[:3])),
        identifiable(Mlp(weights[1:], biases[1:])),
        float(np.abs(network.theta - other.theta).max()),
        float(np.abs(network.evaluate(points) - other.evaluate(points)).max()),
        len(group_rows(rows, 1e-9)) == third,
        same(network, other),
    )
