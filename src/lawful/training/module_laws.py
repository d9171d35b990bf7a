"""The laws that a flow of a PyTorch module is measured by, as functions of its trained parameters in its own order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from lawful.errors import LawfulError
from lawful.symmetry import symmetries
from lawful.symmetry.check import LOOSE, LOOSE_FLOOR, space_error
from lawful.symmetry.laws.families import SpaceLaws
from lawful.training.monitor.gradient_check import Tensors, slopes_in_training
from lawful.training.monitor.parts import Joint, understand
from lawful.training.quantities import Quantities
from lawful.types import Floats

MOST = 10_000  # structural laws that are watched
SHOWN = 2  # inputs that the graph is read with


def module_laws(module: nn.Module, x: Any) -> Quantities:
    """The balance of every unit of every joint, and the quadratic structural laws of what is in no joint.

    Each is held against gradients at the first inputs, and left out where training does not follow the gradient.

    >>> net = nn.Sequential(nn.Linear(2, 1, bias=False), nn.ReLU(), nn.Linear(1, 1, bias=False))
    >>> laws = module_laws(net, np.ones((1, 2)))
    >>> laws.names, laws.values(np.array([3.0, 4.0, 2.0]))
    (('0.0',), array([21.]))
    """
    parts, inputs = understand(module), torch.as_tensor(x)
    slopes = list(slopes_in_training(module, (inputs,)))
    joints = [joint for joint in parts.joints if all(joint.kept_along(theta, slope) for theta, slope in slopes)]
    found = _balances(module, joints)
    return found + _structural(module, inputs, parts.joints, slopes) if parts.ignored else found


def _balances(module: nn.Module, joints: Sequence[Joint]) -> Quantities:
    places = _places(module)

    def values(theta: Floats) -> Floats:
        squares, found = theta**2, []
        for joint in joints:
            into = squares[places[f"{joint.name}.weight"]].reshape(joint.units, -1).sum(axis=1)
            if joint.below.bias is not None:
                into = into + squares[places[f"{joint.name}.bias"]]
            readers = squares[places[f"{joint.reader}.weight"]].reshape(len(joint.above.weight), -1).sum(axis=0)
            found.append(into - readers.reshape(joint.units, -1).sum(axis=1))
        return np.concatenate(found) if found else np.zeros(0)

    return Quantities(tuple(f"{joint.name}.{unit}" for joint in joints for unit in range(joint.units)), values)


def _structural(
    module: nn.Module, x: torch.Tensor, joints: Sequence[Joint], slopes: Sequence[tuple[Tensors, Tensors]]
) -> Quantities:
    """Laws of the module's linear symmetries (`lawful.symmetries`), but for those of joints."""
    own = next((tensor.dtype for tensor in module.parameters()), torch.float32)
    example = x[:SHOWN].to(own) if x.is_floating_point() else x[:SHOWN]
    try:
        spaces = symmetries(module, example, check=False).spaces
    except LawfulError:
        return _balances(module, ())
    pairs = [{f"{joint.name}.weight", f"{joint.reader}.weight"} for joint in joints]
    names, families = list[str](), list[SpaceLaws]()
    for space in spaces:
        if space.laws is None or space.group == "shifts" or any(pair <= set(space.parameters) for pair in pairs):
            continue
        kept = all(space_error(space, theta, slope, LOOSE_FLOOR)[0] <= LOOSE for theta, slope in slopes)
        count = len(space.laws.values(slopes[0][0])) if kept else 0
        if count and len(names) + count <= MOST:
            families.append(space.laws)
            names += [f"{space.name}:{number}" for number in range(count)]
    places = _places(module)
    shapes = {name: tensor.shape for name, tensor in module.named_parameters()}

    def values(theta: Floats) -> Floats:
        named = {name: torch.from_numpy(theta[place].reshape(shapes[name])) for name, place in places.items()}
        return np.concatenate([np.zeros(0), *(family.values(named) for family in families)])

    return Quantities(tuple(names), values)


def _places(module: nn.Module) -> dict[str, slice]:
    """Where each trained parameter is in the flat vector."""
    trained = {name: value.numel() for name, value in module.named_parameters() if value.requires_grad}
    ends = np.cumsum(list(trained.values()))
    return {name: slice(int(end) - size, int(end)) for (name, size), end in zip(trained.items(), ends, strict=True)}
