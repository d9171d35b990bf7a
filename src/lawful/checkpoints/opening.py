"""Two checkpoints and the architecture they share, from whatever a user has."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from lawful.checkpoints.architecture import MANY_NUMBERS, CheckpointArchitecture, check_numbers
from lawful.checkpoints.read_architecture import in_evaluation, read_for
from lawful.checkpoints.rewrite.common_form import find_bridges, make_tensors
from lawful.checkpoints.rewrite.folds import State
from lawful.checkpoints.rewrite.parametrised_operators import TensorSource
from lawful.checkpoints.rewrite.same_program import (
    describe,
    differing,
    first_difference,
    rounded_by_dtype,
    settings_of,
    tokens_computed_with,
    written_alike,
)
from lawful.errors import InvalidNetwork, LawfulError, Unsupported
from lawful.network import Mlp
from lawful.network.reading import list_names
from lawful.program.frontends.export import copy_module
from lawful.sources.checkpoints import hugging_face
from lawful.sources.checkpoints.adapters import is_described
from lawful.sources.checkpoints.load import fitting, is_factory, make_module, state_for
from lawful.sources.checkpoints.translation import widest
from lawful.sources.modules.convert import to_module
from lawful.sources.modules.module_network import ModuleNetwork
from lawful.sources.opening import open as open_network
from lawful.sources.opening import open_module
from lawful.symmetry.inputs import Input

Source = str | os.PathLike[str] | nn.Module | Mapping[str, torch.Tensor]
Model = str | Callable[[], Any] | nn.Module
TOKENS = "8:int"
NOT_READ = {"_name_or_path", "transformers_version"}  # in config.json: no module depends on them


@dataclass(frozen=True, eq=False)
class OpenCheckpoint:
    """The tensors of a checkpoint under the names of the common form; `keys` are the names of those that are in the
    file as they stand. What is made of several is in `sources`, and then `stored` is what the file holds."""

    state: State
    keys: Mapping[str, str]
    source: str
    sources: Mapping[str, TensorSource] = field(default_factory=dict)
    stored: Mapping[str, torch.Tensor] | None = None

    @property
    def tensors(self) -> Mapping[str, torch.Tensor]:
        """The tensors of the file by their names there."""
        return {key: self.state[name] for name, key in self.keys.items()} if self.stored is None else self.stored


@dataclass(frozen=True, eq=False)
class CheckpointPair:
    """Two checkpoints in one form: that of one architecture, or of two that differ by `rewritten`."""

    architecture: CheckpointArchitecture
    first: OpenCheckpoint
    second: OpenCheckpoint
    rewritten: tuple[str, ...] = ()
    others: tuple[CheckpointPair, ...] = ()  # the same two in other forms that they may share
    as_written: ApartPair | None = None  # the same two, each in its own module, if these are written in two ways
    is_tried: bool = False  # that both modules compute what the common form does was seen at random weights alone


@dataclass(frozen=True, eq=False)
class ApartPair:
    """Two checkpoints of modules that no known rewriting brings to one form, and why."""

    architectures: tuple[CheckpointArchitecture, CheckpointArchitecture]
    first: OpenCheckpoint
    second: OpenCheckpoint
    reason: str


def open_checkpoints(
    first: Source,
    second: Source,
    *,
    model: Model | None = None,
    model_b: Model | None = None,
    input: Input | Sequence[Input] | None = None,
) -> CheckpointPair:
    """Open two checkpoints: files with `model` (a module, its factory, or `"module:factory"`), modules, state dicts, or
    folders of Hugging Face; `model_b` if the second belongs to a module that is written in another way."""
    pair = open_both(first, second, model=model, model_b=model_b, input=input)
    if isinstance(pair, ApartPair):
        raise InvalidNetwork(f"the checkpoints are of different architectures: {pair.reason}")
    return pair


def open_both(
    first: Source,
    second: Source,
    *,
    model: Model | None = None,
    model_b: Model | None = None,
    input: Input | Sequence[Input] | None = None,
) -> CheckpointPair | ApartPair:
    """Two checkpoints in one form if there is one."""
    mine, size = _own_module(first, model)
    shares = model is None and _same_settings(first, second)
    theirs, their_size = (None, None) if shares else _own_module(second, model)
    if model_b is not None:
        theirs = make_module(model_b)
    shared = None if model is None or (mine is not None and theirs is not None) else make_module(model)
    # Weights alone belong to the module that is given, or else to that of the other side, whichever comes first.
    one = next((module for module in (mine, shared, theirs) if module is not None), None)
    two = next((module for module in (theirs, shared, mine) if module is not None), None)
    if one is None or two is None:
        raise LawfulError("weights alone do not say what is computed with them: give --model module:factory")
    input = next((sizes for sizes in (input, size, their_size) if sizes is not None), None)
    opened = open_checkpoint(first, one), open_checkpoint(second, two)
    for checkpoint, which in zip(opened, ("the first checkpoint", "the second checkpoint"), strict=True):
        check_numbers(
            checkpoint.state, f"{which} ({checkpoint.source})"
        )  # what is wrong with the files is said before anything that takes time
    if two is not one:
        one, two = _in_one_type(one, two)
    states = [checkpoint.state for checkpoint in opened if checkpoint.state.keys() == opened[0].state.keys()]
    architecture = replace(read_for(states, one, input), unread=_unread(one, two))
    if two is one:
        return CheckpointPair(architecture, *opened)
    architecture = replace(architecture, unsettled=differing_settings(one, two, *opened))
    if (alike := written_alike(architecture, two)) is not None:
        apart = ApartPair((architecture, replace(architecture, module=in_evaluation(two))), *opened, "")
        settled = alike == "call by call" and not architecture.unsettled
        return CheckpointPair(architecture, *opened, as_written=None if settled else apart)
    other = replace(
        read_for([opened[1].state], two, input), unread=architecture.unread, unsettled=architecture.unsettled
    )
    difference = first_difference(architecture.program, other.program, calls_alike=True)
    if difference is not None:  # the same calls with another constant: never one form, however small
        return ApartPair((architecture, other), *opened, difference)
    reasons = []
    for host, guest, turned in ((architecture, other, False), (other, architecture, True)):
        try:
            bridges = find_bridges(host, guest)
        except Unsupported as error:
            reasons.append(str(error))
            continue
        pairs = []
        for bridge in bridges:
            sources = (bridge.guest, bridge.host) if turned else (bridge.host, bridge.guest)
            a, b = (_in_form(checkpoint, how) for checkpoint, how in zip(opened, sources, strict=True))
            apart = ApartPair((architecture, other), *opened, "")
            pairs.append(CheckpointPair(bridge.architecture, a, b, bridge.words, as_written=apart, is_tried=True))
        return replace(pairs[0], others=tuple(pairs[1:]))
    words = first_difference(architecture.program, other.program, calls_alike=False)
    return ApartPair((architecture, other), *opened, words or "; ".join(dict.fromkeys(reasons)))


def _in_one_type(one: nn.Module, two: nn.Module) -> tuple[nn.Module, nn.Module]:
    """Modules whose numbers are of two types, both in the wider one, so that one input can be traced through both.

    The tensors that are compared are read before, in the type in which each is stored.
    """
    mine, theirs = widest(one.state_dict()), widest(two.state_dict())
    if mine is None or theirs is None or mine == theirs:
        return one, two
    kind = torch.promote_types(mine, theirs)
    return (one if mine == kind else copy_module(one).to(kind)), (two if theirs == kind else copy_module(two).to(kind))


def _unread(one: nn.Module, two: nn.Module) -> tuple[str, ...]:
    """What the folders of two modules say that is not carried out."""
    return tuple(dict.fromkeys(words for module in (one, two) for words in getattr(module, "lawful_unread", ())))


def differing_settings(
    one: nn.Module, two: nn.Module, first: OpenCheckpoint, second: OpenCheckpoint
) -> tuple[str, ...]:
    """Settings in which two modules of `transformers` differ, and that may matter where the inputs have other sizes."""
    settings = settings_of(one), settings_of(two)
    if settings[0] is None or settings[1] is None:  # then it is known that the sizes tried are all that is compared
        return ()
    kinds = [getattr(type(module), "family", type(module)).__name__ for module in (one, two)]
    words_of_settings = describe({"architectures": (kinds[0], kinds[1])} if kinds[0] != kinds[1] else {})
    words_of_settings += describe(differing(settings[0], settings[1]) | tokens_computed_with(one, two))
    rounded = rounded_by_dtype(settings[0], first.state), rounded_by_dtype(settings[1], second.state)
    if rounded[0] != rounded[1]:
        words = [f"as {kind}, which rounds its weights" if kind else "as it is stored" for kind in rounded]
        words_of_settings += (f"A is loaded {words[0]}, and B {words[1]} (dtype)",)
    return words_of_settings


def _own_module(source: Source, model: Model | None = None) -> tuple[nn.Module | None, Any]:
    """The module that a source itself names, and the size of its input if it says so; for a folder of Hugging Face
    `model` is another, of whoever knows better."""
    if isinstance(source, nn.Module):
        return source, None
    if isinstance(source, (str, os.PathLike)):
        text = os.fspath(source)
        if is_factory(text):
            return make_module(text), None
        if Path(text).suffix.lower() == ".onnx" and Path(text).is_file():
            network = open_module(text)
            return network.module, network.input_shape
        if model is None and is_described(Path(text)):
            module, size, _ = hugging_face.module_of(Path(text), MANY_NUMBERS)
            return module, size or list(module.input_sizes) or TOKENS
    return None, None


def _same_settings(first: Source, second: Source) -> bool:
    """Whether both are folders of Hugging Face that state the same, so that one module serves both.

    A setting that is not stated takes the default of its class, which `null` need not be: the texts are compared.
    """
    paths = [Path(source) for source in (first, second) if isinstance(source, (str, os.PathLike))]
    if len(paths) < 2 or not all(is_described(path) for path in paths):
        return False
    one, two = (read_statement(path) for path in paths)
    return one == two


def read_statement(folder: Path) -> tuple[str, tuple[str, ...]]:
    """What a folder states of its module as text, in which `true` is not 1; and what is not carried out of it."""
    settings, unread = hugging_face.read_settings(folder)
    read = {key: value for key, value in settings.items() if key not in NOT_READ}
    return json.dumps(read, sort_keys=True), unread


def _in_form(opened: OpenCheckpoint, sources: Mapping[str, TensorSource]) -> OpenCheckpoint:
    """A checkpoint in the common form."""
    keys = {name: opened.keys[str(how.plain)] for name, how in sources.items() if how.plain in opened.keys}
    named = {
        name: replace(how, parts=tuple(opened.keys[part] if isinstance(part, str) else part for part in how.parts))
        for name, how in sources.items()
        if name not in keys and all(part in opened.keys for part in how.names)
    }
    return OpenCheckpoint(make_tensors(sources, opened.state), keys, opened.source, named, opened.tensors)


def open_one(
    source: Any,
    *,
    model: Model | None = None,
    activation: str | None = None,
    order: str | Sequence[str] | None = None,
) -> tuple[OpenCheckpoint, nn.Module, Any]:
    """One checkpoint, its module, and the size of its input if that is known; weights alone are layers in a row."""
    named_module, size = _own_module(source)
    if named_module is not None or model is not None:
        module = named_module if named_module is not None else make_module(model)  # type: ignore[arg-type]
        return open_checkpoint(source, module), module, size
    network = open_network(source, activation=activation, order=order)
    if isinstance(network, ModuleNetwork):
        module, size = network.module, network.input_shape
    elif isinstance(network, Mlp):
        module, size = to_module(network), (network.widths[0],)
    else:
        raise LawfulError("a graph of scalar weights is no module: give layers, or --model module:factory")
    state = _tensors_of(module)
    layers = [] if network.reading is None else list(network.reading.layers)
    fits = [layer.shape for layer in layers] == [tuple(tensor.shape) for tensor in state.values()]
    named = dict(zip(state, layers, strict=True)) if fits else {}
    kinds = {name: getattr(torch, layer.dtype, None) for name, layer in named.items()}
    stored = {name: tensor.to(kinds[name]) if isinstance(kinds.get(name), torch.dtype) else tensor
              for name, tensor in state.items()}  # fmt: skip
    keys = {name: named[name].name if named else name for name in state}
    return OpenCheckpoint(stored, keys, str(source)), module, size


def open_checkpoint(source: Source, module: nn.Module) -> OpenCheckpoint:
    """The tensors of one checkpoint, which have to fit the module."""
    if isinstance(source, nn.Module):
        if source is module:
            state, stored = _tensors_of(module), module.state_dict()
            return OpenCheckpoint(state, {name: name for name in state if name in stored}, type(source).__name__)
        return _fit_tensors(dict(source.state_dict()), module, type(source).__name__)
    if isinstance(source, Mapping):
        return _fit_tensors(dict(source), module, "state dict")
    text = os.fspath(source)
    if is_factory(text):
        return open_checkpoint(make_module(text), module)
    return _fit_tensors(state_for(module, Path(text)), module, text)


def _tensors_of(module: nn.Module) -> State:
    tensors = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    return {name: tensor.detach() for name, tensor in tensors.items()}


def _is_counting(name: str, tensor: torch.Tensor) -> bool:
    """Whether it is the positions 0, 1, 2, ... that older folders of `transformers` store and no module loads."""
    if name.rpartition(".")[2] != "position_ids" or tensor.is_floating_point():
        return False
    return torch.equal(tensor.reshape(-1), torch.arange(tensor.numel(), dtype=tensor.dtype))


def _fit_tensors(tensors_in_file: Mapping[str, torch.Tensor], module: nn.Module, source: str) -> OpenCheckpoint:
    wanted = module.state_dict(keep_vars=True)
    names, _ = fitting(list(tensors_in_file), set(wanted))
    back = dict(zip(names, tensors_in_file, strict=True))
    aliases: dict[int, list[str]] = {}
    for name, tensor in wanted.items():
        aliases.setdefault(id(tensor), []).append(name)
    unknown = [
        name for name, key in back.items() if name not in wanted and not _is_counting(name, tensors_in_file[key])
    ]
    state: State = {}
    keys: dict[str, str] = {}
    missing: list[str] = []
    tensors = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    for name, tensor in tensors.items():
        if name not in wanted:  # a buffer that is not stored
            state[name] = tensor.detach()
            continue
        stored_names = [alias for alias in aliases[id(tensor)] if alias in back]
        if not stored_names:
            missing.append(name)
            continue
        values = [tensors_in_file[back[alias]] for alias in stored_names]
        for other, alias in zip(values[1:], stored_names[1:], strict=True):
            if not torch.equal(values[0], other):
                raise InvalidNetwork(
                    f"{source}: {stored_names[0]} and {alias} are one tensor in {type(module).__name__}, "
                    "but differ in the file"
                )
        if values[0].shape != tensor.shape:
            raise InvalidNetwork(
                f"{source}: {name} is {tuple(values[0].shape)}, and that of {type(module).__name__} is "
                f"{tuple(tensor.shape)}"
            )
        if not values[0].is_floating_point() and tensor.is_floating_point():
            raise Unsupported(f"{source}: {name} holds {str(values[0].dtype).removeprefix('torch.')} numbers: weights "
                              "that are stored as integers have to be made into floating point first")  # fmt: skip
        state[name], keys[name] = values[0].detach(), back[stored_names[0]]
    if unknown or missing:
        parts = [f"the module has no {list_names(unknown, 4)}"] * bool(unknown)
        parts += [f"the checkpoint has no {list_names(missing, 4)}"] * bool(missing)
        raise InvalidNetwork(f"{source} does not fit {type(module).__name__}: {'; '.join(parts)}")
    return OpenCheckpoint(state, keys, source)
