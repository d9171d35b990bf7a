"""The laws that a flow of a PyTorch module is measured by, as functions of its trained parameters in its own order."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

from lawful.errors import LawfulError
from lawful.symmetry.check import LOOSE, LOOSE_FLOOR, space_error
from lawful.symmetry.inputs import examples
from lawful.symmetry.laws.families import MatrixLaws
from lawful.symmetry.laws.row_laws import ScaleLaws
from lawful.symmetry.module_symmetries import read_symmetries
from lawful.training.monitor.gradient_check import slopes_in_training
from lawful.training.monitor.parts import find_joints
from lawful.training.quantities import Quantities
from lawful.types import Floats

MOST = 10_000  # structural laws that are watched
SHOWN = 2  # inputs that the graph is read with


def module_laws(module: nn.Module, x: Any) -> Quantities:
    """The quadratic laws of the module's symmetries; those of hidden channels are named by the layer that writes them.

    Each is held against gradients at the first inputs, and left out where training does not follow the gradient.

    >>> net = nn.Sequential(nn.Linear(2, 1, bias=False), nn.ReLU(), nn.Linear(1, 1, bias=False))
    >>> laws = module_laws(net, np.ones((1, 2)))
    >>> laws.names, laws.values(np.array([3.0, 4.0, 2.0]))
    (('0.0',), array([21.]))
    """
    inputs = torch.as_tensor(x)
    dtype = next((tensor.dtype for tensor in module.parameters()), torch.float32)
    example = inputs[:SHOWN].to(dtype) if inputs.is_floating_point() else inputs[:SHOWN]
    try:
        symmetries, program, _ = read_symmetries(module, examples(module, example), None, "train")
    except LawfulError:
        return Quantities((), lambda theta: np.zeros(0))
    slopes = list(slopes_in_training(module, (inputs,)))
    layers = {id(joint.space): joint.name for joint in find_joints(module, symmetries.spaces, program)}
    names, families = list[str](), list[MatrixLaws | ScaleLaws]()
    for space in symmetries.spaces:
        laws = space.laws
        if not isinstance(laws, MatrixLaws | ScaleLaws) or len(names) + laws.count > MOST:
            continue
        if all(space_error(space, theta, slope, LOOSE_FLOOR)[0] <= LOOSE for theta, slope in slopes):
            families.append(laws)
            names += _name_laws(laws, space.name, layers.get(id(space)), len(laws.values(slopes[0][0])))
    shapes = {name: tensor.shape for name, tensor in module.named_parameters() if tensor.requires_grad}
    ends = np.cumsum([shape.numel() for shape in shapes.values()])

    def values(theta: Floats) -> Floats:
        parts = np.split(theta, ends[:-1])
        named = {name: torch.from_numpy(part.reshape(shape)) for (name, shape), part in zip(shapes.items(), parts,
                                                                                            strict=True)}  # fmt: skip
        return np.concatenate([np.zeros(0), *(family.values(named) for family in families)])

    return Quantities(tuple(names), values)


def _name_laws(laws: MatrixLaws | ScaleLaws, space: str, layer: str | None, count: int) -> list[str]:
    """The balance of channel c of a layer is `layer.c`, a product of two channels `layer.c,d`; others are numbered."""
    if layer is None:
        return [f"{space}:{number}" for number in range(count)]
    if isinstance(laws, ScaleLaws):
        return [f"{layer}.{channel}" for channel in range(count)]
    pairs = zip(*np.triu_indices(laws.size), strict=True)
    return [f"{layer}.{one}" if one == other else f"{layer}.{one},{other}" for one, other in pairs]
