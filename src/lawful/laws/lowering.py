"""A PyTorch module as a program: its traced ATen graph, operation by operation; what is not listed is refused."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from lawful.errors import LawfulError, Unsupported
from lawful.laws.composite import composite
from lawful.laws.lowering_choices import TracedCondition
from lawful.laws.lowering_order import OrderRules
from lawful.laws.lowering_rules import Tokens, TracedArray
from lawful.laws.probe import Probe, first_line
from lawful.laws.program import Program, Writer
from lawful.network.modules.lowering import core_decompositions

MOST_ENTRIES = 5_000_000
COPIES = {  # the output's entries are entries of the inputs: run on their numbers to learn which
    "view", "_unsafe_view", "reshape", "permute", "transpose", "t", "expand", "clone", "unsqueeze", "squeeze", "slice",
    "select", "alias", "detach", "_to_copy", "contiguous", "flatten", "unfold", "index_select", "flip", "roll",
    "repeat",
    "split_with_sizes", "split", "unbind", "chunk", "cat", "stack", "constant_pad_nd", "index", "gather", "embedding",
    "lift_fresh_copy", "diagonal", "as_strided", "tile", "narrow", "slice_scatter", "select_scatter",
}  # fmt: skip

NORMS = [  # that PyTorch keeps whole where it breaks calls down
    torch.ops.aten.native_layer_norm,
    torch.ops.aten.native_group_norm,
    torch.ops.aten.native_batch_norm,
    torch.ops.aten._native_batch_norm_legit_no_training,
]

INTERPOLATIONS = {
    "upsample_linear1d", "upsample_bilinear2d", "upsample_bicubic2d", "upsample_trilinear3d",
    "_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa",
}  # fmt: skip


def lower(case: Probe, batch: torch.Tensor) -> Program:
    """The program that computes the module's output from its parameters and an input of the batch's size."""
    names = list(case.names)

    def function(parts: list[torch.Tensor], inputs: torch.Tensor, *numbers: torch.Tensor) -> Any:
        return case.output(dict(zip(names, parts, strict=True)), inputs, numbers[0] if numbers else None)

    draws = case.draws(len(batch))
    numbers = (torch.zeros(sum(draw.count for draw in draws), dtype=torch.float64),) if draws else ()
    with composite():
        program = _lowered(function, case.shapes, (batch, *numbers), case.vocabulary)
    return replace(program, draws=tuple((draw.kind, draw.count) for draw in draws))


def lower_function(
    function: Callable[[list[torch.Tensor]], torch.Tensor], shapes: Sequence[torch.Size], most: int
) -> Program:
    """The program of a function of tensors of these shapes, whatever else it uses being constant, if all its arrays
    together have at most so many entries.

    >>> program = lower_function(lambda parts: parts[0] @ parts[1].tanh(), [torch.Size([2, 3]), torch.Size([3])], 99)
    >>> program.parameters, program.inputs, program.outputs
    (9, 0, 2)
    """
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        return _lowered(function, shapes, (), None, most)


def _lowered(
    function: Callable[..., Any],
    shapes: Sequence[torch.Size],
    inputs: tuple[torch.Tensor, ...],
    vocabulary: int | None,
    most: int | None = None,
) -> Program:
    parts = [torch.zeros(shape, dtype=torch.float64) for shape in shapes]
    try:
        traced: Any = function
        for _ in range(2):  # recurrent layers bring operations in place along, which the second time replaces
            if traced is function or _in_place(traced):
                free = torch.func.functionalize(traced)
                traced = make_fx(free, _decompositions(), tracing_mode="fake", _allow_non_fake_inputs=True)(
                    parts, *inputs
                )
    except Exception as error:
        raise Unsupported(f"the module's operations cannot be listed: {first_line(error)}") from None
    try:
        return _Lowering(shapes, inputs, vocabulary).run(traced, most)
    except LawfulError:
        raise
    except Exception as error:  # an operation called in a way that its rule does not know
        raise Unsupported(f"no proof covers an operation of the module: {first_line(error)}") from None


@cache
def _decompositions() -> dict[Any, Any]:
    every = dict(core_decompositions()) | torch._decomp.get_decompositions(NORMS)
    return {operation: rule for operation, rule in every.items() if not _has_rule(operation)}


def _in_place(traced: torch.fx.GraphModule) -> bool:
    calls = (getattr(node.target, "__name__", "") for node in traced.graph.nodes if node.op == "call_function")
    return any(name.split(".")[0].endswith("_") for name in calls)


def _has_rule(operation: Any) -> bool:
    return hasattr(OrderRules, f"do_{operation.__name__.split('.')[0]}")


class _Lowering(OrderRules):
    """Parameters of these shapes, then at most one input (numbers, or ids of so many tokens), then random numbers."""

    def __init__(self, shapes: Sequence[torch.Size], inputs: tuple[torch.Tensor, ...], vocabulary: int | None) -> None:
        count = sum(batch.numel() * (vocabulary or 1 if place == 0 else 1) for place, batch in enumerate(inputs))
        super().__init__(Writer(sum(shape.numel() for shape in shapes), count))
        self.shapes, self.inputs, self.vocabulary = shapes, inputs, vocabulary
        self.tokens = 1

    def run(self, traced: torch.fx.GraphModule, most: int | None) -> Program:
        """Follow the graph, as long as there are no more than so many entries."""
        values: dict[torch.fx.Node, Any] = {}
        leaves = self._leaves()
        output = None
        for node in traced.graph.nodes:
            if node.op == "placeholder":
                values[node] = next(leaves)
            elif node.op == "get_attr":
                values[node] = getattr(traced, str(node.target)).detach()
            elif node.op == "output":
                found = torch.fx.node.map_arg(node.args[0], values.__getitem__)
                output = found[0] if isinstance(found, (list, tuple)) else found
            else:
                arguments = torch.fx.node.map_arg(node.args, values.__getitem__)
                options = torch.fx.node.map_arg(node.kwargs, values.__getitem__)
                values[node] = self.call(node.target, arguments, dict(options))
            entries = [step.length for step in self.write.steps]
            if entries[-1] > MOST_ENTRIES or (most is not None and sum(entries) > most):
                raise Unsupported("the module's arrays are too large for a proof")
        if not isinstance(output, TracedArray):
            raise Unsupported("the module's output does not depend on its parameters")
        return self.write.finish(self.placed(output, output.shape))

    def _leaves(self) -> Any:
        start = 0
        for shape in self.shapes:
            indices = np.arange(start, start + shape.numel())
            start += shape.numel()
            yield TracedArray(self.write.take((0,), indices), tuple(shape))
        start = 0
        for place, batch in enumerate(self.inputs):
            whole = tuple(batch.shape)
            tokens = self.vocabulary is not None and place == 0
            count = batch.numel() * (self.vocabulary or 1 if tokens else 1)
            indices = np.arange(start, start + count)
            start += count
            if tokens:
                self.tokens = self.write.take((1,), indices)
            yield Tokens(whole) if tokens else TracedArray(self.write.take((1,), indices), whole)

    def call(self, target: Any, arguments: Any, options: dict[str, Any]) -> Any:
        """One operation: on constants alone it is computed now, else written down."""
        name = getattr(target, "__name__", str(target)).split(".")[0]
        if name == "getitem":
            return arguments[0][arguments[1]]
        if len(arguments) and arguments[0] is None:
            return None  # of places that a maximum did not compute
        parts = _flat((arguments, options))
        if any(isinstance(part, Tokens) for part in parts):
            return self.looked_up(name, arguments)
        if not any(isinstance(part, (TracedArray, TracedCondition)) for part in parts):
            return target(*arguments, **options)
        if name in ("_to_copy", "detach", "alias", "clone") and isinstance(arguments[0], TracedCondition):
            return self.as_number(arguments[0]) if name == "_to_copy" else arguments[0]
        if name in COPIES:
            return self.copied(target, arguments, options)
        if name in INTERPOLATIONS:
            return self.linear(target, *arguments)
        rule: Callable[..., Any] | None = getattr(self, f"do_{name}", None)
        if rule is None:
            raise Unsupported(f"no proof covers the operation {target}")
        options.pop("dtype", None)
        return rule(*arguments, **options)

    def looked_up(self, name: str, arguments: Any) -> Any:
        """Rows of a table by token: unit vectors times the table."""
        if name in ("view", "reshape", "_to_copy", "clone", "alias", "detach") and isinstance(arguments[0], Tokens):
            shape = arguments[1] if name in ("view", "reshape") else arguments[0].shape
            return Tokens(tuple(torch.empty(arguments[0].shape).reshape(shape).shape))
        table = arguments[0]
        token = arguments[1] if name == "embedding" else arguments[1][0] if name == "index" else None
        if not isinstance(token, Tokens) or not isinstance(table, TracedArray) or table.shape[0] != self.vocabulary:
            raise Unsupported(f"no proof covers {name} of token ids")
        width = math.prod(table.shape[1:])
        sizes = (1, math.prod(token.shape), table.shape[0], width)
        return TracedArray(
            self.write.matmul(self.tokens, self.placed(table, table.shape), sizes), (*token.shape, *table.shape[1:])
        )

    # Copies

    def copied(self, target: Any, arguments: Any, options: dict[str, Any]) -> Any:
        """Run the operation on the numbers of the entries: what comes out says where everything went."""
        sources: list[int] = []
        start = 1  # 0 stands for a padded zero
        dead = False

        def numbered(part: Any) -> Any:
            nonlocal start, dead
            if isinstance(part, TracedArray):
                sources.append(part.number)
                dead |= part.dead is not None
                count = math.prod(part.shape)
                start += count
                return torch.arange(start - count, start, dtype=torch.float64).reshape(part.shape)
            if isinstance(part, torch.Tensor) and part.is_floating_point():
                sources.append(self.write.constant(part.detach().double().numpy()))
                start += part.numel()
                return torch.arange(start - part.numel(), start, dtype=torch.float64).reshape(part.shape)
            if isinstance(part, (list, tuple)):
                return type(part)(numbered(inner) for inner in part)
            return part

        options.pop("dtype", None)
        if "pad" in str(target) and (len(arguments) > 2 and arguments[2] != 0):
            raise Unsupported("no proof covers padding by other numbers than 0")
        changed = numbered(arguments)
        found = changed[0] if "_to_copy" in str(target) else target(*changed, **options)
        masks = self._dead(target, arguments, options) if dead else None
        if isinstance(found, torch.Tensor):
            return TracedArray(self._taken(sources, found), tuple(found.shape), masks)
        if masks is not None:
            raise Unsupported("no proof covers a masked array that is split")
        return [TracedArray(self._taken(sources, part), tuple(part.shape)) for part in found]

    def _taken(self, sources: list[int], found: torch.Tensor) -> int:
        return self.write.take(tuple(sources), found.reshape(-1).numpy().astype(np.intp) - 1)

    def _dead(self, target: Any, arguments: Any, options: dict[str, Any]) -> torch.Tensor:
        def mask(part: Any) -> Any:
            if isinstance(part, TracedArray):
                blank = torch.zeros(part.shape, dtype=torch.float64)
                return blank if part.dead is None else part.dead.double()
            return type(part)(mask(inner) for inner in part) if isinstance(part, (list, tuple)) else part

        found = mask(arguments)[0] if "_to_copy" in str(target) else target(*mask(arguments), **options)
        return torch.as_tensor(found) > 0


def _flat(value: Any) -> list[Any]:
    if isinstance(value, (list, tuple)):
        return [part for inner in value for part in _flat(inner)]
    return [part for inner in value.values() for part in _flat(inner)] if isinstance(value, dict) else [value]
