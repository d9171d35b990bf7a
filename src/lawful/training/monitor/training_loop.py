"""What a training loop does to a model: which parts it calls, with what, and at which rates it steps them.

Often it does not call the model itself (`self.net(x)`), and laws that tie parameters of different rates are none.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_pre_hook


@dataclass(frozen=True, eq=False)
class PartCall:
    """A part of a model ran in training; `top` if no other part of the model called it."""

    name: str
    inputs: tuple[Any, ...]
    keywords: dict[str, Any]
    output: Any
    top: bool


class _Compiled:
    """What compiled code leaves behind: attributes that are written and never read there, so that none is guarded."""

    seen = False
    call: tuple[tuple[Any, ...], dict[str, Any]] | None = None


class TopCalls:
    """Hooks on every part of a model; `ran` hears of the first call of each part, and of its first call from outside.

    Inside `torch.compile` hooks are traced once: they read nothing that changes, which would compile again at every
    step, and only the model's own inputs are kept, which the compiled code has anyway.
    """

    def __init__(self, model: nn.Module, ran: Callable[[PartCall], None]) -> None:
        self._ran, self._depth, self._heard = ran, 0, set[tuple[str, bool]]()
        self._compiled = _Compiled()
        self._hooks: list[Any] = []
        self.asleep = False  # while our own runs of copies call the same hooks
        for name, part in model.named_modules():
            self._hooks.append(part.register_forward_pre_hook(self._enter, with_kwargs=True))
            hook = self._leave(name)
            self._hooks.append(part.register_forward_hook(hook, with_kwargs=True, always_call=True))

    def __deepcopy__(self, _: Any) -> TopCalls:
        """Itself: copies of a model share its hooks, and a copy of these would hold the whole monitor."""
        return self

    @property
    def compiled(self) -> bool:
        """Whether a part ran inside `torch.compile`."""
        return self._compiled.seen

    def compiled_call(self) -> PartCall | None:
        """The last call of the whole model inside `torch.compile`, if there was one since the last time asked."""
        call, self._compiled.call = self._compiled.call, None
        return None if call is None else PartCall("", *call, None, True)

    def _enter(self, _: nn.Module, __: Any, ___: Any) -> None:
        if torch.compiler.is_compiling() or self.asleep:
            return
        self._depth += 1

    def _leave(self, name: str) -> Callable[..., None]:
        compiled = self._compiled

        def root(_: nn.Module, inputs: tuple[Any, ...], keywords: dict[str, Any], output: Any) -> None:
            if torch.compiler.is_dynamo_compiling():
                compiled.call = (inputs, keywords)
                compiled.seen = True
                return
            self._after(name, inputs, keywords, output)

        def part(_: nn.Module, inputs: tuple[Any, ...], keywords: dict[str, Any], output: Any) -> None:
            if torch.compiler.is_dynamo_compiling():
                compiled.seen = True
                return
            self._after(name, inputs, keywords, output)

        return part if name else root

    def _after(self, name: str, inputs: tuple[Any, ...], keywords: dict[str, Any], output: Any) -> None:
        if torch.compiler.is_compiling() or self.asleep:
            return
        self._depth = max(self._depth - 1, 0)  # hooks may have been added in the middle of a call
        top = self._depth == 0
        # A backward pass that recomputes activations calls parts on its own; without gradients nothing trains.
        if (name, top) in self._heard or not torch.is_grad_enabled() or torch._C._current_graph_task_id() != -1:
            return
        if output is None:  # it raised, or returns nothing to train on
            return
        self._heard.add((name, top))
        self._ran(PartCall(name, inputs, keywords, output, top))

    def close(self) -> None:
        """Remove the hooks."""
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()


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
