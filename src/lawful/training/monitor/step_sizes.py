"""How fast the optimiser moves each parameter: laws that tie parameters of different learning rates are none."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_pre_hook

Rate = tuple[float, float]  # of now, and the one that a schedule started from


class StepSizes:
    """Sees the optimisers of PyTorch that step a model's parameters; `before` is called ahead of each such step.

    Gradient descent with a rate for each group follows `θ' = −M∇L` with a diagonal M. A law `⟨θ, Xθ⟩` of the plain flow
    survives if M is the same number wherever X is not zero.
    """

    def __init__(self, model: nn.Module, before: Callable[[], None]) -> None:
        self._names = {id(value): name for name, value in model.named_parameters()}
        self._before = before
        self.rates: dict[str, Rate] = {}
        self._hook = register_optimizer_step_pre_hook(self._look)

    def _look(self, optimizer: torch.optim.Optimizer, _: Any, __: Any) -> None:
        if torch.compiler.is_compiling():
            return
        stepped = {
            self._names[id(value)]: (float(group["lr"]), float(group.get("initial_lr", group["lr"])))
            for group in optimizer.param_groups
            for value in group["params"]
            if id(value) in self._names and "lr" in group
        }
        if stepped:
            self._before()
            self.rates |= stepped

    def differ(self, names: Collection[str]) -> bool:
        """Whether these parameters are known to move at different rates; one that no optimiser has does not move."""
        return bool(self.rates) and len({self.rates.get(name) for name in names}) > 1

    def close(self) -> None:
        """Stop looking."""
        self._hook.remove()
