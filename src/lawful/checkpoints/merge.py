"""The mean of two checkpoints after alignment, and the loss on the way from one to the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch

from lawful.checkpoints.align.lazy_tensors import (
    MadeTensors,
)
from lawful.checkpoints.architecture import CheckpointArchitecture
from lawful.checkpoints.opening import CheckpointPair
from lawful.checkpoints.placement import Aligned, align_pair, bring_into_place, written_names
from lawful.checkpoints.rewrite.folds import State
from lawful.errors import LawfulError
from lawful.result import Shown
from lawful.types import Floats

POINTS = 11  # of a line from A to B: every tenth

Loss = Callable[[list[torch.Tensor]], float]


@dataclass(frozen=True, eq=False)
class Merged(Shown):
    """`(1 − weight)·A + weight·B` with B aligned to A; `line` is the loss on the way, if a loss was given."""

    weights: Mapping[str, torch.Tensor]
    weight: float
    aligned: Aligned
    line: LossLine | None


@dataclass(frozen=True, eq=False)
class LossLine:
    """The loss at equal steps from A to B, as B is and aligned."""

    steps: Floats
    before: Floats
    after: Floats

    @property
    def barriers(self) -> tuple[float, float]:
        """How far the loss rises above the straight line between its ends, before and after alignment."""
        return barrier(self.steps, self.before), barrier(self.steps, self.after)


def barrier(steps: Floats, losses: Floats) -> float:
    """The largest excess over the line between the ends (Frankle et al. 2020; Ainsworth et al. 2023).

    >>> barrier(np.array([0.0, 0.5, 1.0]), np.array([1.0, 3.0, 2.0]))
    1.5
    """
    return float(np.max(losses - ((1 - steps) * losses[0] + steps * losses[-1])))


def merge_pair(
    pair: CheckpointPair, weight: float = 0.5, *, inputs: list[torch.Tensor] | None = None, loss: Loss | None = None
) -> Merged:
    """Align B to A and take the mean; with inputs and a loss of the outputs, the loss along the line too.

    >>> from torch import nn
    >>> from lawful.checkpoints.opening import open_checkpoints
    >>> one = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    >>> state = one.state_dict()
    >>> turned = {"0.weight": state["0.weight"].flip(0), "0.bias": state["0.bias"].flip(0),
    ...           "2.weight": state["2.weight"].flip(1), "2.bias": state["2.bias"]}
    >>> mean = merge_pair(open_checkpoints(one, turned, input=(3,)))
    >>> torch.allclose(mean.weights["0.weight"], one[0].weight)
    True
    """
    if not np.isfinite(weight) or not 0.0 <= weight <= 1.0:
        raise LawfulError(f"the weight of B is between 0 and 1, not {weight}")
    aligned = align_pair(pair)
    architecture, one, two = pair.architecture, pair.first.state, pair.second.state
    near = bring_into_place(pair, aligned.comparison)
    middle = between(one, near, weight)
    names = {key: name for name, key in written_names(pair).items()}
    mean = MadeTensors(names, lambda key: {key: middle[names[key]].to(two[names[key]].dtype)})
    weights = mean if architecture.large else dict(mean)
    line = None
    if inputs is not None and loss is not None:
        steps = np.linspace(0.0, 1.0, POINTS)
        ways = [np.array([_loss(architecture, one, end, t, inputs, loss) for t in steps]) for end in (two, near)]
        line = LossLine(steps, *ways)
    return Merged(weights, weight, aligned, line)


def between(one: Mapping[str, torch.Tensor], two: Mapping[str, torch.Tensor], weight: float) -> MadeTensors:
    """Entry by entry, made when asked for; what is not floating point is A's."""

    def make(name: str) -> State:
        tensor = one[name]
        if not tensor.is_floating_point():
            return {name: tensor}
        return {name: torch.lerp(tensor.double(), two[name].double(), weight)}

    return MadeTensors(one, make)


def _loss(
    architecture: CheckpointArchitecture,
    one: State,
    end: Mapping[str, torch.Tensor],
    at: float,
    inputs: list[torch.Tensor],
    loss: Loss,
) -> float:
    return loss(architecture.outputs(between(one, end, float(at)), inputs))
