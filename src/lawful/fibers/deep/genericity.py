"""Is a parameter generic, as far as that can be decided in polynomial time? (P4 Definition 8.)"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lawful.fibers.deep.identification import rank_of
from lawful.fibers.layers import Stack
from lawful.fibers.shallow.normal_form import group_rows

MOST_ENTRIES = 20_000  # of a matrix whose rank is found in rationals


@dataclass(frozen=True)
class Genericity:
    """`holds` is None where nothing was decided; `tested` says how."""

    holds: bool | None
    reason: str
    tested: str


def genericity(stack: Stack) -> Genericity:
    """Zeros, pairs of neurons and ranks of single layers, all decided exactly; masked products are left open.

    >>> from lawful.network import Mlp
    >>> genericity(Stack.of(Mlp([[[1.0, 0.0], [1.0, 2.0]], [[3.0, 1.0]]]))).reason
    'the weight from input 1 to neuron 0 of layer 1 is zero'
    >>> genericity(Stack.of(Mlp([[[1.0, 1.0], [2.0, 2.0]], [[1.0, 1.0]]], [[1.0, 2.0], None]))).reason
    'neurons 0, 1 of layer 1 share a hyperplane'
    """
    for layer, weight in enumerate(stack.weights, 1):
        if (weight == 0).any():
            neuron, source = (int(k) for k in np.argwhere(weight == 0)[0])
            below = f"input {source}" if layer == 1 else f"neuron {source} of layer {layer - 1}"
            return Genericity(False, f"the weight from {below} to neuron {neuron} of layer {layer} is zero", "exactly")
    for layer in range(stack.hidden):
        for group in group_rows(stack.row(layer), 0.0):
            if len(group) > 1:
                names = ", ".join(str(j) for j, _ in group)
                return Genericity(False, f"neurons {names} of layer {layer + 1} share a hyperplane", "exactly")
        weight = stack.weights[layer]
        if weight.size > MOST_ENTRIES:
            return Genericity(None, f"the rank of layer {layer + 1} is too large a question", "zeros and pairs")
        if rank_of(Stack((weight,), (stack.biases[layer],), ()).rational().weights[0]) < min(weight.shape):
            return Genericity(False, f"the weights of layer {layer + 1} have less than the largest rank", "exactly")
    return Genericity(True, "no zero, no two neurons alike, full rank of every layer", "exactly")
