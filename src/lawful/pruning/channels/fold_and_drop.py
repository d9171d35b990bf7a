"""What can go beside channels: normalisations that the layer before can hold, and biases that no output sees.

A module without them lacks tensors that its class makes, so this is done only where it is asked for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from lawful.pruning.channels.program import OWN_MEANS, ChannelProgram, Operation
from lawful.types import Floats

NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)


@dataclass(frozen=True)
class Tidying:
    """Layers with the normalisation that each can hold, and layers whose bias nobody sees."""

    folded: tuple[tuple[Operation, Operation], ...] = ()
    dropped: tuple[Operation, ...] = ()

    @property
    def norms(self) -> set[str]:
        """The normalisations that go, by the names of their calls."""
        return {norm.name for _, norm in self.folded}


def foldable(program: ChannelProgram) -> list[tuple[Operation, Operation]]:
    """Normalisations right behind a layer that nothing else reads."""
    written = {operation.name: operation for operation in program.operations}
    again = _used_again(program)
    pairs = [
        (written.get(operation.sources[0]), operation) for operation in program.operations if operation.kind == "norm"
    ]
    return [
        (layer, norm) for layer, norm in pairs
        if layer is not None and layer.kind in ("layer", "depthwise") and layer.name not in program.results
        and [operation for operation in program.operations if layer.name in operation.sources] == [norm]
        and not again & {*layer.tensors.values(), *norm.tensors.values()}
    ]  # fmt: skip


def unseen_biases(program: ChannelProgram) -> list[Operation]:
    """Layers that write keys alone, or what an instance normalisation reads.

    A bias of keys adds the same to all scores of a query, unless positions turn it; a mean takes a bias away.
    """
    unseen, again = [], _used_again(program)
    for layer in program.operations:
        if (
            layer.kind == "layer"
            and layer.tensors["bias"] not in again
            and layer.tensors["bias"] is not None
            and layer.name not in program.results
        ):
            users = [operation for operation in program.operations if layer.name in operation.sources]
            if users and all(_is_centred(operation) or _takes_keys(operation, layer.name) for operation in users):
                unseen.append(layer)
    return unseen


def _used_again(program: ChannelProgram) -> set[str | None]:
    """Tensors of layers that are used several times."""
    names = Counter(name for operation in program.operations for name in operation.tensors.values() if name is not None)
    return {name for name, times in names.items() if times > 1}


def _is_centred(operation: Operation) -> bool:
    return operation.kind in ("other", "instance") and operation.function == OWN_MEANS


def _takes_keys(operation: Operation, name: str) -> bool:
    heads, sources = operation.attention, operation.sources
    return heads is not None and not heads.rotary and sources.count(name) == 1 and sources[1] == name


def tidying(module: nn.Module, program: ChannelProgram) -> Tidying:
    """What a module's layers can hold and lack: plain Linear layers, convolutions and batch normalisations only."""
    parts = dict(module.named_modules())

    def owner(operation: Operation, role: str) -> nn.Module | None:
        return parts.get(str(operation.tensors[role]).rpartition(".")[0])

    pairs = [
        pair for pair in foldable(program)
        if isinstance(owner(pair[0], "weight"), LAYERS) and type(owner(pair[1], "mean")) in NORMS
    ]  # fmt: skip
    return Tidying(
        tuple(pairs), tuple(layer for layer in unseen_biases(program) if isinstance(owner(layer, "weight"), LAYERS))
    )


def with_norm(
    weight: Floats, bias: Floats | None, norm: Sequence[Floats | None], epsilon: float
) -> tuple[Floats, Floats]:
    """A layer's weight and bias with a normalisation (mean, variance, gain, shift) inside.

    >>> with_norm(np.ones((1, 1)), None, [np.array([2.0]), np.array([4.0]), None, np.array([1.0])], 0.0)
    (array([[0.5]]), array([0.]))
    """
    mean, variance, gain, shift = norm
    if mean is None or variance is None:
        raise AssertionError("a normalisation has statistics")
    factor = (1.0 if gain is None else gain) / np.sqrt(variance + epsilon)
    moved = ((0.0 if bias is None else bias) - mean) * factor + (0.0 if shift is None else shift)
    return weight * factor.reshape(-1, *[1] * (weight.ndim - 1)), moved


@torch.no_grad()
def tidy(module: nn.Module, found: Tidying) -> None:
    """Put normalisations into the layers before them and nothing in their place; take biases away that nobody sees."""
    for layer, norm in found.folded:
        part: Any = module.get_submodule(str(layer.tensors["weight"]).rpartition(".")[0])
        path = str(norm.tensors["mean"]).rpartition(".")[0]
        batch_norm: Any = module.get_submodule(path)
        tensors = (batch_norm.running_mean, batch_norm.running_var, batch_norm.weight, batch_norm.bias)
        weight, moved = with_norm(
            part.weight.detach().numpy(),
            _numbers(part.bias),
            [_numbers(tensor) for tensor in tensors],
            float(norm.arguments[0]),
        )
        trained = bool(part.weight.requires_grad)
        part.weight, part.bias = (nn.Parameter(torch.as_tensor(array), trained) for array in (weight, moved))
        where, _, last = path.rpartition(".")
        module.get_submodule(where).register_module(last, nn.Identity())
    for layer in found.dropped:
        module.get_submodule(str(layer.tensors["weight"]).rpartition(".")[0]).register_parameter("bias", None)


def _numbers(tensor: torch.Tensor | None) -> Floats | None:
    return None if tensor is None else np.asarray(tensor.detach().numpy(), dtype=np.float64)


def tidy_notes(program: ChannelProgram, found: Tidying | None, *, can_fold: bool = True) -> list[str]:
    """What was folded and dropped, or could be, in words."""
    means = [str(norm.tensors["mean"]) for _, norm in (found.folded if found else foldable(program))]
    norms = [name.rpartition(".")[0] or name for name in means]  # of a module, or of a tensor that stands alone
    centred = {name for operation in program.operations if _is_centred(operation) for name in operation.sources}
    unseen: dict[str, list[str]] = {}
    for biased_layer in found.dropped if found else unseen_biases(program):
        kind = "before an instance normalisation" if biased_layer.name in centred else "of keys"
        unseen.setdefault(kind, []).append(str(biased_layer.tensors["bias"]))
    notes = []
    if norms and (found or can_fold):
        one = len(norms) == 1
        now = (
            "is nn.Identity now: the layer before holds it"
            if one
            else "are nn.Identity now: the layers before hold them"
        )
        statement = now if found else f"can go into the layer{'' if one else 's'} before: --fold"
        notes.append(f"{len(norms)} normalisation{'' if one else 's'} {statement} ({_few(norms)})")
    for kind, biases in unseen.items():
        statement = "are gone" if found else f"can be anything{', or go: --fold' if can_fold else ''}"
        notes.append(f"{len(biases)} biases {kind}, which no output sees, {statement} ({_few(biases)})")
    packed = [
        str(layer.tensors["bias"]) for layer in program.operations
        if layer.kind == "layer" and layer.tensors["bias"] is not None
        and any(reader.attention is not None and not reader.attention.rotary and reader.sources[1] == layer.name
                and layer.name in (reader.sources[0], reader.sources[2]) for reader in program.operations)
    ]  # fmt: skip
    if packed:
        notes.append(f"entries for keys of {_few(packed)} are seen by no output, and stay: the tensor holds others too")
    return notes


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:6]) + (", ..." if len(names) > 6 else "")
