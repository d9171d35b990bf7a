"""The natural unit of every input of a network, so that nothing depends on the units that it came in."""

from __future__ import annotations

import numpy as np

from lawful.fibers.layers import Stack
from lawful.types import Floats


def input_scales(*stacks: Stack) -> Floats:
    """Powers of two: the size of each input at which first-layer neurons bend; without biases there, the first layer
    that has some.

    >>> from lawful.network import Mlp
    >>> input_scales(Stack.of(Mlp([[[1.0, 1e9], [2.0, -1e9]], [[1.0, 1.0]]], [[1.0, -1.0], None])))
    array([1.00000000e+00, 9.31322575e-10])
    """
    rows = np.concatenate([_unit_rows(stack.floating().row(0)) for stack in stacks])
    with np.errstate(divide="ignore"):
        logs = np.log2(np.abs(rows))
    used = np.isfinite(logs)
    logs = np.where(used, logs, 0.0)
    sizes = np.zeros(rows.shape[1])
    for _ in range(4):
        shift = np.where(used, logs + sizes, 0.0).sum(axis=1) / np.maximum(used.sum(axis=1), 1)
        sizes = np.where(used, shift[:, None] - logs, 0.0).sum(axis=0) / np.maximum(used.sum(axis=0), 1)
    scales = np.exp2(np.clip(np.round(sizes[:-1] - (sizes[-1] if used[:, -1].any() else 0.0)), -1000, 1000))
    return scales if used[:, -1].any() else scales * _radius(stacks, scales)


def _radius(stacks: tuple[Stack, ...], scales: Floats) -> float:
    """How far out the first layer with biases bends, if the first layer has none; 1 for homogeneous networks."""
    stack = stacks[0].balanced(scales)
    values = np.random.default_rng(0).normal(size=(16, len(scales)))
    for layer, (weight, bias) in enumerate(zip(stack.weights, stack.biases, strict=True)):
        values = values @ weight.T
        if not bias.size:  # a layer that has lost all its neurons: what follows is constant
            return 1.0
        sizes = float(np.sqrt((values**2).mean())), float(np.sqrt((bias**2).mean()))
        if all(0 < size < np.inf for size in sizes):
            return float(np.exp2(np.round(np.log2(sizes[1] / sizes[0]))))
        if layer < stack.hidden:
            values = np.where(values > 0, values, stack.bends(layer) * values)
    return 1.0


def _unit_rows(rows: Floats) -> Floats:
    sizes = np.abs(rows).max(axis=1, keepdims=True, initial=0.0)
    return np.asarray(rows / np.where(sizes > 0, sizes, 1.0))
