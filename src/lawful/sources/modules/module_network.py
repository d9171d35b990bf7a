"""A PyTorch module that is more than a graph of scalar weights, with the names that every network has."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from numpy.typing import ArrayLike

from lawful.errors import LawfulError, Unsupported
from lawful.network.reading import Reading
from lawful.types import Floats

if TYPE_CHECKING:
    import torch
    from torch import nn

ANY_MODULE = "show, laws, symmetries, components, rebalance, canonical, prune, audit, same, diff, align, flow with data"


@dataclass(frozen=True, eq=False, repr=False)
class ModuleNetwork:
    """A module as a network: it computes and has parameters, but `obstacle` prevents a graph of scalar weights.

    >>> from torch import nn
    >>> bent = nn.Sequential(nn.Linear(2, 3), nn.Tanh())
    >>> smooth = ModuleNetwork(bent, "tanh is not piecewise linear", Reading("module"))
    >>> smooth.parameters, smooth.evaluate([[0.0, 1.0]]).shape
    (9, (1, 3))
    """

    module: nn.Module
    obstacle: str
    reading: Reading
    input_shape: tuple[int, ...] | None = None

    def __repr__(self) -> str:
        return f"{type(self.module).__name__}({self.parameters:,} parameters)"

    def _parameters(self) -> Iterator[torch.nn.Parameter]:
        return iter(self.module.parameters())

    @property
    def parameters(self) -> int:
        """Number of parameters; one that is used twice counts once."""
        return sum(part.numel() for part in self._parameters())

    @property
    def theta(self) -> Floats:
        """All parameters as one vector, in the module's order."""
        parts = [part.detach().cpu().double().numpy().ravel() for part in self._parameters()]
        return np.concatenate(parts) if parts else np.zeros(0)

    def with_theta(self, theta: ArrayLike) -> ModuleNetwork:
        """A copy with other parameters, in float64."""
        import torch

        values = torch.as_tensor(np.asarray(theta, dtype=np.float64))
        if values.shape != (self.parameters,):
            raise LawfulError(f"{self} has {self.parameters} parameters, not {values.numel()}")
        twin = copy.deepcopy(self.module).double()
        torch.nn.utils.vector_to_parameters(values, twin.parameters())
        return ModuleNetwork(twin, self.obstacle, self.reading, self.input_shape)

    def evaluate(self, inputs: Any) -> Any:
        """Outputs for a batch, in eval mode and float64."""
        import torch

        twin = copy.deepcopy(self.module).double().eval()
        batch = inputs if isinstance(inputs, torch.Tensor) else torch.as_tensor(np.asarray(inputs))
        with torch.no_grad():
            outputs = twin(batch.double() if batch.is_floating_point() else batch)
        return outputs if isinstance(inputs, torch.Tensor) else outputs.numpy()

    def to_dag(self) -> NoReturn:
        """There is no graph of scalar weights: say why, and what works."""
        raise Unsupported(
            f"{type(self.module).__name__} is no graph of scalar weights: {self.obstacle}. "
            f"For any module there are: {ANY_MODULE}"
        )
