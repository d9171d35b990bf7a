"""What stands between a model and its training loop: wrappers, mixed precision, compilation, nested inputs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import torch
from torch import nn
from torch.amp.autocast_mode import autocast
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

from lawful.symmetry.check import tensors_in


def unwrap(model: nn.Module) -> nn.Module:
    """The model itself: what `DistributedDataParallel`, `DataParallel` and `torch.compile` wrap.

    >>> net = nn.Linear(2, 1)
    >>> unwrap(nn.DataParallel(net)) is net
    True
    """
    while True:
        if isinstance(model, (nn.DataParallel, nn.parallel.DistributedDataParallel)):
            model = model.module
        elif isinstance(inner := model._modules.get("_orig_mod"), nn.Module):  # torch.compile's OptimizedModule
            model = inner
        else:
            return model


def sharded_parameters(model: nn.Module) -> list[str]:
    """Parameters of which this process holds a part alone (FSDP and tensor parallelism)."""
    return [
        name
        for name, value in model.named_parameters()
        if hasattr(value, "placements") or type(value).__name__ == "FlatParameter"
    ]


@contextmanager
def exact_arithmetic() -> Iterator[None]:
    """Run modules as they are written: no autocast, the user's or the module's own, and nothing compiled.

    A module may enter autocast inside its forward pass, as those that `accelerate` prepares do. One opaque call would
    be all that is seen of its graph, and bfloat16 of its gradients; laws are those of the function that is rounded.
    """
    enter, leave = autocast.__enter__, autocast.__exit__
    kinds = [kind for kind in ("cpu", "cuda", "mps", "xpu") if torch.amp.is_autocast_available(kind)]
    before = {kind: torch.is_autocast_enabled(kind) for kind in kinds}
    for kind in kinds:
        torch.set_autocast_enabled(kind, False)
    # Whatever enters autocast calls these two, also in a function that it decorates.
    autocast.__enter__ = lambda self: self  # type: ignore[method-assign]
    autocast.__exit__ = lambda self, *_: None  # type: ignore[method-assign]
    try:
        with torch.compiler.set_stance("force_eager"):
            yield
    finally:
        autocast.__enter__, autocast.__exit__ = enter, leave  # type: ignore[method-assign]
        for kind, enabled in before.items():
            torch.set_autocast_enabled(kind, enabled)


class FlatCall(nn.Module):
    """A module as it was called, taking and giving tensors alone: what else it was given stays as it was.

    >>> class Named(nn.Module):
    ...     def forward(self, batch, scale):
    ...         return {"found": batch["x"] * scale, "size": 3}
    >>> call = FlatCall(Named(), [{"x": torch.ones(2)}, 2], {})
    >>> [tensor.tolist() for tensor in call.tensors], call(*call.tensors)
    ([[1.0, 1.0]], (tensor([2., 2.]),))
    """

    def __init__(self, module: nn.Module, inputs: Sequence[Any], keywords: Mapping[str, Any]) -> None:
        super().__init__()
        self.module = module
        self._leaves, self._spec = tree_flatten((tuple(inputs), dict(keywords)))
        self._places = [place for place, leaf in enumerate(self._leaves) if isinstance(leaf, torch.Tensor)]
        self.tensors = [self._leaves[place] for place in self._places]
        for place in self._places:
            self._leaves[place] = None

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Call the module with these tensors in the places of the first ones."""
        leaves = list(self._leaves)
        for place, tensor in zip(self._places, tensors, strict=True):
            leaves[place] = tensor
        inputs, keywords = tree_unflatten(leaves, self._spec)
        return tuple(output_tensors(self.module(*inputs, **keywords)))


def output_tensors(result: Any) -> list[torch.Tensor]:
    """All floating tensors in what a module returned, dataclasses included."""
    if is_dataclass(result) and not isinstance(result, type) and not hasattr(result, "to_tuple"):
        return [tensor for field in fields(result) for tensor in output_tensors(getattr(result, field.name))]
    return tensors_in(result)


def is_plain_call(inputs: Sequence[Any], keywords: Mapping[str, Any], output: Any) -> bool:
    """Whether a module was called with tensors in the first places, and returned tensors in known containers."""
    named = [leaf for leaf in tree_leaves(dict(keywords)) if leaf is not None]
    plain = (torch.Tensor, int, float, bool, str)
    return (
        all(isinstance(value, torch.Tensor) for value in inputs)
        and all(isinstance(leaf, plain) for leaf in named)
        and all(leaf is None or isinstance(leaf, plain) for leaf in tree_leaves(output))
    )


def batch_of(inputs: Sequence[Any], keywords: Mapping[str, Any]) -> int:
    """How many samples a module was called with: the length of the first tensor that has one, or 0."""
    leaves = tree_leaves((tuple(inputs), dict(keywords)))
    return next((len(leaf) for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.ndim > 0), 0)


# What a training loop does to a model: which parts it calls, with what, and at which rates it steps them.
#
# Often it does not call the model itself (`self.net(x)`), and laws that tie parameters of different rates are none.


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
    def is_compiled(self) -> bool:
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
        self._groups: dict[int, list[tuple[list[str], Rate]]] = {}  # of each optimiser, what they hold and their rates
        self._hook = register_optimizer_step_pre_hook(self._look)

    def _look(self, optimizer: torch.optim.Optimizer, _: Any, __: Any) -> None:
        """This runs ahead of every step: once the groups are known, only their rates are read again."""
        if torch.compiler.is_compiling():
            return
        groups = [group for group in optimizer.param_groups if "lr" in group]
        known = self._groups.get(id(optimizer), [])
        if len(known) != len(groups):
            members = [[self._names[id(value)] for value in group["params"] if id(value) in self._names]
                       for group in groups]  # fmt: skip
        else:
            members = [names for names, _ in known]
        if any(members):
            self._before()
            rates = [(float(group["lr"]), float(group.get("initial_lr", group["lr"]))) for group in groups]
            self._groups[id(optimizer)] = list(zip(members, rates, strict=True))

    @property
    def pattern(self) -> tuple[int, ...]:
        """Which groups, of all optimisers, move at one rate: a schedule that moves all alike leaves it as it is."""
        rates = [rate for groups in self._groups.values() for _, rate in groups]
        return tuple(map(rates.index, rates))

    def differ(self, names: Collection[str]) -> bool:
        """Whether these parameters are known to move at different rates; one that no optimiser has does not move."""
        rates = {name: rate for groups in self._groups.values() for members, rate in groups for name in members}
        return bool(rates) and len({rates.get(name) for name in names}) > 1

    def close(self) -> None:
        """Stop looking."""
        self._hook.remove()
