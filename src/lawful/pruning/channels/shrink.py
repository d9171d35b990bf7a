"""A module cut to the channels that are left, the sizes that its ONNX nodes state, and that it computes the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from lawful.errors import LawfulError, Unsupported
from lawful.program.domains.evaluate import evaluate
from lawful.program.domains.interpret import interpret
from lawful.program.frontends.onnx import SizeStatement
from lawful.program.frontends.torch_export import read_module as read_program
from lawful.pruning.channels.cut import (
    RemainingEntries,
    count_entries,
    cut_tensors,
    mark_weights,
)
from lawful.pruning.channels.groups import groups_left
from lawful.pruning.channels.program import Heads, Operation
from lawful.pruning.channels.state import ChannelState
from lawful.sources.onnx.module import OnnxModule
from lawful.types import Floats

COMPARED, COMPARED_SINGLE = 1e-9, 1e-2  # relative difference of outputs, in float64 and in the types of a large model


class FixedSizes(Unsupported):
    """A class whose own code fixes what it measures: its smaller copy computes something else, or nothing."""


@torch.no_grad()
def shrink(module: nn.Module, state: ChannelState) -> None:
    """Cut every tensor to the cells that are left, and let the layers know their sizes."""
    for name, array in cut_tensors(state).items():
        if not _same_memory(array, state.arrays.get(name)):  # neither cut nor changed: the module has it already
            _put(module, name, array)
    groups = {
        str(operation.tensors["weight"]): groups_left(operation, state.alive_at(operation.name))
        for operation in state.program.operations if operation.groups > 1
    }  # fmt: skip
    for name, part in module.named_modules():
        if isinstance(part, (nn.Conv1d, nn.Conv2d, nn.Conv3d)):
            if part.groups > 1 and part.groups == part.in_channels == part.out_channels:
                part.groups = len(part.weight)
            part.groups = groups.get(f"{name}.weight" if name else "weight", part.groups)
            part.out_channels, part.in_channels = len(part.weight), part.weight.shape[1] * part.groups
        elif isinstance(part, (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)) and part.groups == 1:
            part.in_channels, part.out_channels = part.weight.shape[:2]
        elif isinstance(part, (nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d)) and part.affine:
            part.num_features = len(part.weight)
        elif isinstance(part, nn.PReLU):
            part.num_parameters = len(part.weight)
        elif isinstance(part, nn.Linear):
            part.out_features, part.in_features = part.weight.shape
        elif isinstance(part, nn.Embedding):
            part.embedding_dim = part.weight.shape[1]
        elif type(part).__name__ == "Conv1D" and hasattr(part, "nf"):  # of transformers: a layer with inputs first
            part.nx, part.nf = dict(part.named_parameters())["weight"].shape
        elif isinstance(part, (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)) and part.running_mean is not None:
            part.num_features = len(part.running_mean)
    for operation in state.program.operations:
        if operation.attention is not None:
            _resize_heads(module, state, operation, operation.attention)


HEADS = ("num_heads", "num_attention_heads", "n_head", "n_heads", "heads", "nhead")
GROUPS = ("num_key_value_heads", "num_kv_heads", "n_kv_heads")
INNER = ("head_dim", "attention_head_size", "head_size", "key_value_proj_dim", "d_head")
WHOLE = ("all_head_size", "split_size", "attn_dim", "inner_dim", "embed_dim", "kv_dim")


def _resize_heads(module: nn.Module, state: ChannelState, operation: Operation, heads: Heads) -> None:
    """Let the module of an attention know its new sizes, under the names that libraries have for them.

    A wrong guess shows: outputs and graph are compared.
    """
    written = {operation.name: operation for operation in state.program.operations}
    layer = written.get(operation.sources[0])
    if layer is None or layer.kind != "layer":
        return
    left = state.alive_at(operation.sources[2])[heads.values]
    groups, inner = int(left.any(axis=1).sum()), int(left.sum(axis=1).max())
    name = str(layer.tensors["weight"]).rpartition(".")[0]
    owner = module.get_submodule(name.rpartition(".")[0])
    before = heads.groups * heads.heads, heads.groups, heads.values.shape[1]
    after = groups * heads.heads, groups, inner
    sizes = [(HEADS, before[0], after[0]), (GROUPS, before[1], after[1]), (INNER, before[2], after[2])]
    sizes += [(WHOLE, before[0] * before[2], after[0] * after[2]), (WHOLE, before[1] * before[2], after[1] * after[2])]
    for names, old, new in sizes:
        for attribute in names:
            if vars(owner).get(attribute) == old and old != new:
                setattr(owner, attribute, new)


def _same_memory(array: Floats, held: Floats | None) -> bool:
    """Whether an array is one that the program holds, whole."""
    return held is not None and array.size == held.size and not held.flags.writeable and np.shares_memory(array, held)


def _put(module: nn.Module, name: str, array: Floats) -> None:
    where, _, last = name.rpartition(".")
    owner = module.get_submodule(where)
    old = getattr(owner, last, None)
    kind = next((parameter.dtype for parameter in module.parameters() if parameter.is_floating_point()), torch.float64)
    tensor = torch.tensor(np.ascontiguousarray(array), dtype=kind if old is None else old.dtype)
    if last in owner._buffers:
        setattr(owner, last, tensor)
    else:
        setattr(owner, last, nn.Parameter(tensor, requires_grad=True if old is None else old.requires_grad))


@torch.no_grad()
def compare_outputs(one: nn.Module, two: nn.Module, examples: Sequence[torch.Tensor]) -> float:
    """The largest difference of outputs; refused if it is more than rounding."""
    worst = 0.0
    double = all(parameter.dtype == torch.float64 for parameter in one.parameters() if parameter.is_floating_point())
    for gap, scale in differences(one, two, examples):
        if not gap <= (COMPARED if double else COMPARED_SINGLE) * scale:
            raise FixedSizes(
                f"{type(one).__name__} computes something else than its graph shows: outputs differ by {gap:.2g}"
            )
        worst = max(worst, gap)
    return worst


@torch.no_grad()
def differences(one: nn.Module, two: nn.Module, examples: Sequence[torch.Tensor]) -> list[tuple[float, float]]:
    """For each output its largest difference, and its largest size.

    A module that casts to a type of its own does not run in float64; then both are evaluated as programs.
    """
    try:
        expected = _outputs(one(*examples))
    except Exception as error:  # the module's own code runs, and may raise anything
        lines = str(error).strip().splitlines() or [type(error).__name__]
        try:
            expected, outputs = (_evaluate(module, examples) for module in (one, two))
        except LawfulError:
            raise Unsupported(f"{type(one).__name__} does not run in float64 ({lines[0][:120]})") from None
        return _gaps(expected, outputs)
    try:
        outputs = _outputs(two(*examples))
    except (LawfulError, RuntimeError, ValueError, IndexError, TypeError) as error:
        lines = str(error).strip().splitlines() or [""]
        raise FixedSizes(
            f"{type(one).__name__} fixes the sizes of its layers in its own code ({lines[0][:120]})"
        ) from None
    return _gaps(expected, outputs)


def _evaluate(module: nn.Module, examples: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    program = read_program(
        module, [tuple(example.shape) if example.is_floating_point() else example for example in examples]
    )
    return [torch.as_tensor(output) for output in evaluate(program, *examples)]


def _gaps(expected: Sequence[torch.Tensor], found: Sequence[torch.Tensor]) -> list[tuple[float, float]]:
    return [
        (
            float((before - after).abs().max()) if before.shape == after.shape else np.inf,
            float(before.abs().max()) or 1.0,
        )
        for before, after in zip(expected, found, strict=True)
    ]


def _outputs(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, (tuple, list)) else ()
    return [tensor for part in parts for tensor in _outputs(part)]


Sizes = tuple[int, ...]


def stated_sizes(module: OnnxModule, state: ChannelState, examples: Sequence[torch.Tensor]) -> dict[str, Sizes]:
    """What the nodes of a file must state for the channels that are left, by their first outputs."""
    masks = {module.names[path]: mask for path, mask in mark_weights(state).items() if path in module.names}
    if all(bool(mask.all()) for mask in masks.values()):
        return {}
    program, statements = module.statements(examples)
    left = interpret(program, RemainingEntries(masks))
    by_node: dict[str, Sizes] = {}
    for statement in statements:
        before, after = (count_entries(left[node], node.shape) for node in (statement.source, statement.results[0]))
        parts = [count_entries(left[node], node.shape) for node in statement.results]
        if all(size == node.shape for size, node in zip(parts, statement.results, strict=True)):
            continue
        if statement.axis is None:
            by_node[statement.name] = _state_sizes(statement, before, after)
        else:
            by_node[statement.name] = tuple(size[statement.axis] for size in parts)
    return by_node


def _state_sizes(statement: SizeStatement, below: Sizes, above: Sizes) -> Sizes:
    """The sizes of a result: 0 where one is passed on, −1 where one is worked out."""
    before, after = statement.source.shape, statement.results[0].shape
    stated = statement.written
    wanted = [None] * len(after) if stated is None or len(stated) != len(after) else stated
    sizes: list[int] = []
    for at, size in enumerate(wanted):
        passed = before[at : at + 1] == after[at : at + 1] and below[at] == above[at]
        if size is None:
            sizes.append(0 if passed else -1 if after[at] == above[at] else above[at])
        else:
            unchanged = size == -1 or (passed if size == 0 else after[at] == above[at])
            sizes.append(size if unchanged else above[at])
    if sizes.count(-1) > 1:
        raise Unsupported("several sizes of a result depend on the input")
    return tuple(sizes)
