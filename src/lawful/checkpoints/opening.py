"""Two checkpoints and the architecture they share, from whatever a user has."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from lawful.checkpoints.architecture import MANY_NUMBERS, CheckpointArchitecture, read_architecture
from lawful.checkpoints.folds import State
from lawful.errors import InvalidNetwork, LawfulError, Unsupported
from lawful.network.formats.reading import read_json
from lawful.network.modules import hugging_face
from lawful.network.modules.load import fitting, is_factory, make_module, state_of
from lawful.network.reading import listed
from lawful.symmetry.inputs import Input

Source = str | os.PathLike[str] | nn.Module | Mapping[str, torch.Tensor]
Model = str | Callable[[], Any] | nn.Module
TOKENS = "8:int"
NOT_COMPARED = {"_name_or_path", "torch_dtype", "dtype", "transformers_version", "architectures", "use_cache"}


@dataclass(frozen=True, eq=False)
class OpenCheckpoint:
    """The tensors of a checkpoint under the module's names; `keys` are their names in the file."""

    state: State
    keys: Mapping[str, str]
    source: str


@dataclass(frozen=True, eq=False)
class CheckpointPair:
    """Two checkpoints of one architecture."""

    architecture: CheckpointArchitecture
    first: OpenCheckpoint
    second: OpenCheckpoint


def open_checkpoints(
    first: Source, second: Source, *, model: Model | None = None, input: Input | Sequence[Input] | None = None
) -> CheckpointPair:
    """Open two checkpoints: files with `model` (a module, its factory, or `"module:factory"`), modules, state dicts, or
    folders of Hugging Face."""
    if model is None:
        model, input = _own_model(first, second, input)
    module = make_module(model)
    found = read_architecture(module, input)
    return CheckpointPair(found, open_checkpoint(first, module), open_checkpoint(second, module))


def _own_model(first: Source, second: Source, input: Any) -> tuple[Model, Any]:
    """The module that the first source itself names."""
    if isinstance(first, nn.Module):
        return first, input
    if isinstance(first, (str, os.PathLike)):
        text = os.fspath(first)
        if is_factory(text):
            return text, input
        folder = Path(text)
        if (folder / "config.json").is_file():
            _same_settings(folder, second)
            module, size, _ = hugging_face.module_of(folder, MANY_NUMBERS)
            return module, input if input is not None else size if size is not None else TOKENS
    raise LawfulError("weights alone do not say what is computed with them: give --model module:factory")


def _same_settings(folder: Path, second: Source) -> None:
    if isinstance(second, (str, os.PathLike)) and (Path(second) / "config.json").is_file():
        one, two = (read_json(Path(each) / "config.json") for each in (folder, second))
        differ = [key for key in sorted({*one, *two} - NOT_COMPARED) if one.get(key) != two.get(key)]
        if differ:
            words = [f"{key} {one.get(key)} and {two.get(key)}" for key in differ[:4]]
            raise InvalidNetwork(f"the checkpoints are of different architectures: {'; '.join(words)[:300]}")


def open_checkpoint(source: Source, module: nn.Module) -> OpenCheckpoint:
    """The tensors of one checkpoint, which have to fit the module."""
    if isinstance(source, nn.Module):
        if source is module:
            state = _own(module)
            return OpenCheckpoint(state, {name: name for name in state}, type(source).__name__)
        return _fitted(dict(source.state_dict()), module, type(source).__name__)
    if isinstance(source, Mapping):
        return _fitted(dict(source), module, "state dict")
    text = os.fspath(source)
    if is_factory(text):
        return open_checkpoint(make_module(text), module)
    return _fitted(state_of(Path(text))[0], module, text)


def _own(module: nn.Module) -> State:
    tensors = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    return {name: tensor.detach() for name, tensor in tensors.items()}


def _fitted(given: Mapping[str, torch.Tensor], module: nn.Module, source: str) -> OpenCheckpoint:
    wanted = module.state_dict(keep_vars=True)
    names, _ = fitting(list(given), set(wanted))
    back = dict(zip(names, given, strict=True))
    aliases: dict[int, list[str]] = {}
    for name, tensor in wanted.items():
        aliases.setdefault(id(tensor), []).append(name)
    unknown = [name for name in back if name not in wanted]
    state: State = {}
    keys: dict[str, str] = {}
    missing: list[str] = []
    tensors = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    for name, tensor in tensors.items():
        if name not in wanted:  # a buffer that is not stored
            state[name] = tensor.detach()
            continue
        held = [each for each in aliases[id(tensor)] if each in back]
        if not held:
            missing.append(name)
            continue
        values = [given[back[each]] for each in held]
        for other, alias in zip(values[1:], held[1:], strict=True):
            if not torch.equal(values[0], other):
                raise InvalidNetwork(
                    f"{source}: {held[0]} and {alias} are one tensor in {type(module).__name__}, but differ in the file"
                )
        if values[0].shape != tensor.shape:
            raise InvalidNetwork(
                f"{source}: {name} is {tuple(values[0].shape)}, and that of {type(module).__name__} is "
                f"{tuple(tensor.shape)}"
            )
        if not values[0].is_floating_point() and tensor.is_floating_point():
            raise Unsupported(f"{source}: {name} holds {str(values[0].dtype).removeprefix('torch.')} numbers: weights "
                              "that are stored as integers have to be made into floating point first")  # fmt: skip
        state[name], keys[name] = values[0].detach(), back[held[0]]
    if unknown or missing:
        parts = [f"the module has no {listed(unknown, 4)}"] * bool(unknown)
        parts += [f"the checkpoint has no {listed(missing, 4)}"] * bool(missing)
        raise InvalidNetwork(f"{source} does not fit {type(module).__name__}: {'; '.join(parts)}")
    return OpenCheckpoint(state, keys, source)
