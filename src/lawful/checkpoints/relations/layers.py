"""Networks of layers as tensors with the group that acts on them: nothing has to be traced."""

from __future__ import annotations

import numpy as np
import torch

from lawful.checkpoints.group.spaces import AxisRows, OrbitGroup, UnitSpace
from lawful.checkpoints.relations.verdict import Lineage, trace_lineage
from lawful.network import Mlp


def layer_group(network: Mlp) -> OrbitGroup:
    """Units of each hidden layer may be permuted and scaled (with a sign too, in a linear layer)."""
    shapes: dict[str, tuple[int, ...]] = {}
    for layer, (weight, bias) in enumerate(zip(network.weights, network.biases, strict=True)):
        shapes[f"{layer}.weight"] = weight.shape
        if bias is not None:
            shapes[f"{layer}.bias"] = bias.shape
    spaces = []
    for layer, slope in enumerate(network.slopes):
        places = np.arange(len(network.weights[layer]))[:, None]
        members = [AxisRows(f"{layer}.weight", (0,), places, (1.0,))]
        if f"{layer}.bias" in shapes:
            members.append(AxisRows(f"{layer}.bias", (0,), places, (1.0,)))
        members.append(AxisRows(f"{layer + 1}.weight", (1,), places, (-1.0,)))
        spaces.append(UnitSpace(f"hidden layer {layer + 1}", len(places), tuple(members), 1, True, slope == 1))
    return OrbitGroup(tuple(spaces), (), shapes, 0)


def layer_tensors(network: Mlp) -> dict[str, torch.Tensor]:
    """Weights and biases under the names of the group."""
    found = {}
    for layer, (weight, bias) in enumerate(zip(network.weights, network.biases, strict=True)):
        found[f"{layer}.weight"] = torch.tensor(weight)
        if bias is not None:
            found[f"{layer}.bias"] = torch.tensor(bias)
    return found


def trace_layers(first: Mlp, second: Mlp) -> Lineage:
    """The lineage of two networks with the same layers.

    >>> rng = np.random.default_rng(0)
    >>> one = Mlp([rng.normal(size=(24, 9)), rng.normal(size=(2, 24))])
    >>> near = Mlp([weight + 0.01 * rng.normal(size=weight.shape) for weight in one.weights])
    >>> other = Mlp([rng.normal(size=(24, 9)), rng.normal(size=(2, 24))])
    >>> trace_layers(one, near).found, trace_layers(one, other).found
    ('related', 'none')
    """
    return trace_lineage(layer_group(first), layer_tensors(first), layer_tensors(second))
