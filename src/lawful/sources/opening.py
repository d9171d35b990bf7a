"""Anything that a user has becomes a network that says how it was read: the one door of every verb and function."""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lawful.errors import InvalidNetwork, LawfulError, Unsupported
from lawful.formats.io.detect_format import ENDINGS, KNOWN, kind_of
from lawful.formats.io.limits import MAX_BYTES, check_bytes
from lawful.formats.io.reading import naming
from lawful.formats.tensors import arrays
from lawful.formats.tensors.shards import folder_of
from lawful.network.architecture import Architecture, is_homogeneous
from lawful.network.dag import Dag
from lawful.network.mlp import Mlp
from lawful.network.reading import IN_EVAL, Reading, carrying
from lawful.sources import files
from lawful.sources.checkpoints.load import fill_module, is_factory, make_module, state_of
from lawful.sources.modules.module_network import ModuleNetwork
from lawful.sources.provenance import Opened, describe

if TYPE_CHECKING:
    import torch

Source = Any  # whatever `open` reads: a path, an architecture, a module, a state dict, an ONNX model, a network
Model = str | Callable[[], Any]
HIDDEN_STATES = "its answer is the first tensor that it returns, the hidden states: nothing asks its pooler"


def open(
    source: Any,
    *,
    model: Model | torch.nn.Module | None = None,
    activation: str | None = None,
    order: str | Sequence[str] | None = None,
    input_shape: tuple[int, ...] | None = None,
    drop_useless: bool = False,
    glance: bool = False,
) -> Opened:
    """The network that a source stands for; its `reading` says what was read, assumed and ignored.

    A source is a path, an architecture such as `"3-4-2 relu"`, a `"module:factory"`, a folder of Hugging Face, `"-"`
    for standard input, a PyTorch module, a state dict, an ONNX model, or a network. `model` makes the module into which
    a checkpoint is loaded, strictly; `activation` and `order` are for weights without either. A `glance` is for whoever
    computes nothing with the network: it does not ask whether a module of one sample can take several.

    >>> open("3-4-2 relu").parameters
    20
    >>> import numpy as np
    >>> weights = {"fc1.weight": np.ones((2, 3)), "fc2.weight": np.ones((1, 2))}
    >>> open(weights), open(weights, activation="linear").reading.assumed
    (Mlp(3-2-1), ())
    >>> open(weights).reading.assumed[0][:36]
    'ReLU between the layers fc1, fc2 and'
    """
    return open_source(
        source, ReadingOptions(model, activation, _names(order), input_shape, drop_useless, glance=glance)
    )


def _names(order: str | Sequence[str] | None) -> Sequence[str] | None:
    return [part for part in order.split(",") if part] if isinstance(order, str) else order


def open_graph(source: Any, *, seed: int = 0, **options: Any) -> Mlp | Dag:
    """Like `open`, but always with weights and as a graph: an architecture's are drawn, a module that is none refused.

    >>> open_graph("3-4-2 relu").reading.assumed
    ("random weights: PyTorch's default initialisation, seed 0",)
    """
    network = open(source, **options)  # refuses what it has no use for, of a network that is complete too
    if isinstance(source, (Mlp, Dag)):
        return source
    if isinstance(network, Architecture):
        assumed = f"random weights: PyTorch's default initialisation, seed {seed}"
        return carrying(network.initialise(seed=seed), network.reading.assuming(assumed))
    if isinstance(network, ModuleNetwork):
        network.to_dag()
    return network


def open_module(
    source: Any,
    *,
    seed: int = 0,
    model: Model | torch.nn.Module | None = None,
    activation: str | None = None,
    order: str | Sequence[str] | None = None,
    input_shape: tuple[int, ...] | None = None,
) -> ModuleNetwork:
    """The source as a PyTorch module, of any size: no graph of scalar weights is tried.

    An architecture's weights are drawn, for questions that do not depend on them.

    >>> open_module("3-4-2 relu").module[0]
    Linear(in_features=3, out_features=4, bias=False)
    """
    chosen = ReadingOptions(model, activation, _names(order), input_shape, drop_useless=True, whole=True)
    network = open_source(source, chosen)
    if isinstance(network, ModuleNetwork):
        return network
    graph = network.initialise(seed=seed) if isinstance(network, Architecture) else network
    if not isinstance(graph, Mlp):
        raise Unsupported("it is a graph of scalar weights, and no layered network: give the module that it came from")
    from lawful.sources.modules.convert import to_module

    reading = network.reading or Reading("Mlp")
    module = reading.module if reading.module is not None else to_module(graph)
    return ModuleNetwork(module, "", reading, (graph.widths[0],))


def open_trained(source: Any, **options: Any) -> Architecture | Mlp | Dag | torch.nn.Module:
    """The network as it trains: the module if there is one, else a graph whose weights are the parameters."""
    network = open(source, **options)
    if isinstance(network, ModuleNetwork):
        return network.module
    reading = network.reading
    if (module := module_behind(reading)) is not None:
        return module
    if reading is not None and reading.entangled:
        where = reading.source or reading.format
        raise Unsupported(f"{where}: {reading.entangled[0]}, so it trains differently: give the PyTorch module instead")
    return network


def module_behind(reading: Reading | None) -> torch.nn.Module | None:
    """The module whose parameters are the source's own, where there is one: given, or made of an ONNX file's nodes.

    The latter only if the weights of the graph are not those of the file, one by one.
    """
    if reading is None or reading.module is not None:
        return None if reading is None else reading.module
    if reading.template is None or reading.changed or not reading.entangled:
        return None
    try:
        from lawful.sources.onnx.network import network_of

        return network_of(reading.template, Path(reading.source).parent, "").module
    except (ImportError, Unsupported):
        return None


def open_free(source: Any, *, seed: int = 0, **options: Any) -> Mlp | Dag:
    """Like `open_graph`, refused if a weight of the graph is not one parameter that trains by itself."""
    network = open_graph(source, seed=seed, **options)
    if network.reading is not None and network.reading.entangled:
        raise Unsupported(
            f"{network.reading.source or network.reading.format}: {network.reading.entangled[0]}, so balances of its "
            "unrolled graph would be false"
        )
    return network


def open_pair(first: Source, second: Source, *, seed: int = 0) -> tuple[Mlp | Dag, Mlp | Dag]:
    """Two networks to compare as functions: an end that was cut off must have been the same."""
    one, two = open_graph(first, seed=seed), open_graph(second, seed=seed)
    tails = [network.reading.tail if network.reading is not None else "" for network in (one, two)]
    if len({tail.lower().replace("_", "") for tail in tails}) > 1:
        words = [f"{tail} at its end" if tail else "no such end" for tail in tails]
        raise Unsupported(f"the first network has {words[0]}, the second {words[1]}: only equal ends can be left out")
    return one, two


@dataclass
class ReadingOptions:
    """How the user wants a source to be read."""

    model: Any
    activation: str | None
    order: Sequence[str] | None
    input_shape: tuple[int, ...] | None
    drop_useless: bool
    whole: bool = False
    glance: bool = False

    def as_network(
        self, module: torch.nn.Module, shape: tuple[int, ...] | None, source: str = ""
    ) -> Mlp | Dag | ModuleNetwork:
        """What a module becomes: a graph if it can be one, or the module itself if that is wanted."""
        if not self.whole:
            return from_any_module(module, shape, source)
        from lawful.sources.modules.convert import module_reading

        return ModuleNetwork(module, "", replace(module_reading(module), source=source), shape)

    def refuse(self, why: str, but: Sequence[str] = ("drop_useless",)) -> None:
        """Options that mean nothing for this source are a mistake."""
        for name, value in vars(self).items():
            if value not in (None, False) and name not in (*but, "whole", "glance"):
                option = {"input_shape": "--input"}.get(name, f"--{name}")
                raise LawfulError(f"{why}: leave out {option} ({name})")


def open_source(source: Any, chosen: ReadingOptions) -> Opened:
    """The network that any source stands for, read as the options say."""
    if isinstance(source, (Architecture, Mlp, Dag, ModuleNetwork)):
        chosen.refuse("a network is complete", but=("input_shape", "drop_useless"))
        return describe(source)
    if isinstance(source, Mapping):
        return _from_state(source, chosen)
    if isinstance(source, (str, os.PathLike)):
        return _from_text(os.fspath(source), chosen)
    if is_module(source):
        chosen.refuse("a module is complete", but=("input_shape", "drop_useless"))
        return chosen.as_network(source, chosen.input_shape)
    if type(source).__module__.startswith("onnx") and hasattr(source, "SerializeToString"):
        chosen.refuse("an ONNX model is complete", but=("input_shape", "drop_useless"))
        return _from_bytes(source.SerializeToString(), chosen, ".onnx")
    raise LawfulError(
        f"cannot read a {type(source).__name__} as a network: give a path, an architecture, a module, a state dict, "
        "an ONNX model or a network"
    )


def is_module(source: Any) -> bool:
    """Whether it is a PyTorch module; nobody has one without having imported PyTorch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(source, torch.nn.Module)


def _from_text(text: str, chosen: ReadingOptions) -> Opened:
    if text == "-":
        content = sys.stdin.buffer.read(MAX_BYTES + 1)
        check_bytes("standard input", len(content))
        if not content:
            raise InvalidNetwork("standard input is empty")
        return _from_bytes(content, chosen)
    path = Path(text)
    # From what only one kind of text can be to what could be several: a path that exists is never an architecture.
    if is_factory(text):
        chosen.refuse("a factory makes the whole module", but=("input_shape", "drop_useless"))
        return chosen.as_network(make_module(text), chosen.input_shape, text)
    if re.match(r"\s*\d+-", text) and not path.exists():
        chosen.refuse("an architecture is complete")
        return Architecture.parse(text)
    if path.is_dir() and chosen.model is None:
        return _from_folder(path, chosen)
    # Weights beside their config.json say more than weights alone.
    if (chosen.model, chosen.activation, chosen.order) == (None, None, None) and (folder := as_folder(path)) != path:
        return _from_folder(folder, chosen)
    if not path.exists() and path.suffix.lower() not in ENDINGS:
        raise InvalidNetwork(
            f"{text[:80]!r} is neither a file ({KNOWN}), nor module:factory, nor an architecture like '3-4-2 relu'"
        )
    if chosen.model is not None:
        return _load_into(make_module(chosen.model), path, chosen, chosen.input_shape, ())
    if chosen.activation is not None and not is_homogeneous(chosen.activation) and path.is_file():
        files.check_file(path)
        stored = files.load_arrays(path, kind := kind_of(path))
        return _smooth_network(stored, kind, chosen, text)
    with naming(path):
        files.check_file(path)
        if kind_of(path) == "onnx":
            return _from_onnx(path, chosen)
    return files.read(
        path,
        activation=chosen.activation,
        order=chosen.order,
        drop_useless=chosen.drop_useless,
        input_shape=chosen.input_shape,
    )


def _from_onnx(path: Path, chosen: ReadingOptions) -> Opened:
    """A graph of scalar weights if the file is one, else the module that it computes."""
    obstacle = Unsupported("it is asked for as a module, which needs PyTorch")
    if chosen.whole:
        chosen.refuse("the file states its layers", but=("input_shape", "drop_useless"))
    else:
        # A graph of scalar weights answers more questions than a module, so it is tried first.
        try:  # strides of pools may leave places that nobody reads
            return files.read(
                path,
                activation=chosen.activation,
                order=chosen.order,
                drop_useless=True,
                input_shape=chosen.input_shape,
            )
        except Unsupported as error:
            obstacle = error
    try:
        from lawful.sources.onnx.network import load
    except ImportError:  # without PyTorch there are no modules
        raise obstacle from None
    reason = str(obstacle).removeprefix(f"{path}: ").partition("; ")[0]
    reason = reason.replace("): is not supported", ") is not piecewise linear, or not known to be")
    network = load(path, reason, chosen.input_shape, chosen.glance)
    return carrying(network, replace(network.reading, source=str(path), size=path.stat().st_size))


def as_folder(path: Path) -> Path:
    """The folder of Hugging Face that a file of weights belongs to; any other path as it is."""
    from lawful.sources.checkpoints.hugging_face import read_settings

    folder = folder_of(path)
    if folder is None:
        return path
    try:
        read_settings(folder)
    except LawfulError:  # somebody else's config.json
        return path
    return folder


def _from_folder(path: Path, chosen: ReadingOptions) -> Opened:
    """A folder of Hugging Face; names that its library gives differently today are left to that library."""
    from lawful.sources.checkpoints.hugging_face import module_of, renamed_module
    from lawful.sources.checkpoints.translation import is_translated, left_out

    module, shape, ignored = module_of(path)
    size = chosen.input_shape or shape
    state, kind, unused = state_of(path)
    with naming(path):
        if is_translated(module, list(state)):
            renamed = renamed_module(module, state)
        else:
            try:
                return _with_assumptions(_load_into(module, path, chosen, size, ignored), module)
            except InvalidNetwork as refusal:
                renamed = _load_by_library(refusal, module, state)
    network = chosen.as_network(renamed, size, str(path))
    reading = network.reading
    if reading is None:
        return network
    words = (*reading.ignored, *ignored, *unused, *(f"{name} (not used)" for name in left_out(renamed, list(state))))
    words = (*words, "older names of tensors, which transformers translates")
    return _with_assumptions(carrying(network, replace(reading, format=kind, ignored=words)), module)


def _load_by_library(refusal: InvalidNetwork, module: Any, state: Mapping[str, Any]) -> Any:
    """What the library makes of tensors that do not fit as they stand: a prefix, or masks that are left out."""
    from lawful.sources.checkpoints.hugging_face import renamed_module

    try:
        return renamed_module(module, state)
    except InvalidNetwork:
        raise refusal from None


def _with_assumptions(found: Opened, module: torch.nn.Module) -> Opened:
    """No folder says in which mode a normalisation is meant, or which of a model's outputs is."""
    reading = None if isinstance(found, Architecture) else found.reading
    if reading is None:
        return found
    pooled = getattr(module, "pooler", None) is not None
    unnamed = getattr(module, "lawful_assumed", ())
    return carrying(found, reading.assuming(*([IN_EVAL] * reading.normalised), *([HIDDEN_STATES] * pooled), *unnamed))


def _from_bytes(content: bytes, chosen: ReadingOptions, ending: str = "") -> Opened:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"network{ending}"
        path.write_bytes(content)
        try:
            network = _from_text(str(path), chosen)
        except LawfulError as error:
            raise type(error)(str(error).replace(str(path), "standard input" if not ending else "ONNX model")) from None
    if isinstance(network, Architecture) or network.reading is None:
        return network
    return carrying(network, replace(network.reading, source="" if ending else "-"))


def _load_into(
    module: torch.nn.Module, path: Path, chosen: ReadingOptions, shape: tuple[int, ...] | None, ignored: tuple[str, ...]
) -> Opened:
    """A checkpoint in the user's module."""
    chosen.refuse("a model states its layers", but=("model", "input_shape", "drop_useless"))
    state, kind, unused = state_of(path)
    try:
        module, prefix = fill_module(module, state)
    except LawfulError as error:
        raise type(error)(f"{path}: {error}") from None
    network = chosen.as_network(module, shape, str(path))
    reading = network.reading if not isinstance(network, Architecture) else None
    if reading is None:
        return network
    described = replace(reading, format=kind, ignored=(*reading.ignored, *ignored, *unused))
    return carrying(network, _with_prefix(described, prefix))


def _with_prefix(reading: Reading, prefix: str) -> Reading:
    """The tensors under the names of the checkpoint, which has a prefix that the module has not."""
    if not prefix:
        return reading
    layers = tuple(replace(layer, name=prefix + layer.name) for layer in reading.layers)
    return replace(reading, layers=layers, ignored=(*reading.ignored, f"the prefix {prefix!r} of every name"))


def from_any_module(
    module: torch.nn.Module, input_shape: tuple[int, ...] | None, source: str = ""
) -> Mlp | Dag | ModuleNetwork:
    """The graph that a module computes, or the module itself with what prevents one."""
    from lawful.sources.modules.convert import from_module, module_reading

    try:
        network = from_module(module, input_shape, drop_useless=True)
    except InvalidNetwork:
        raise
    except Unsupported as obstacle:
        return ModuleNetwork(module, str(obstacle), replace(module_reading(module), source=source), input_shape)
    return carrying(network, replace(network.reading or module_reading(module), source=source))


def _from_state(state: Mapping[str, Any], chosen: ReadingOptions) -> Opened:
    if not state or not all(isinstance(name, str) for name in state):
        raise InvalidNetwork("a state dict maps names to tensors")
    if chosen.model is not None:
        import torch

        tensors = {name: torch.as_tensor(value) for name, value in state.items()}
        module, prefix = fill_module(make_module(chosen.model), tensors)
        network = chosen.as_network(module, chosen.input_shape)
        return carrying(network, _with_prefix(network.reading, prefix)) if network.reading is not None else network
    chosen.refuse("weights state their input size", but=("activation", "order", "drop_useless"))
    seen: dict[Any, np.ndarray[Any, Any]] = {}  # what is one tensor stays one, in whatever type
    numbers = {name: seen.setdefault(id(value), _numbers(name, value)) for name, value in state.items()}
    stored = arrays.StoredArrays(numbers, _types(state))
    if chosen.activation is not None and not is_homogeneous(chosen.activation):
        return _smooth_network(stored, "state dict", chosen, "")
    return arrays.network_of(
        stored, "state dict", activation=chosen.activation, order=chosen.order, drop_useless=chosen.drop_useless
    )


def _numbers(name: str, value: Any) -> np.ndarray[Any, Any]:
    if hasattr(value, "detach"):
        plain = value.detach().cpu()
        return np.asarray((plain.float() if str(plain.dtype) == "torch.bfloat16" else plain).numpy())
    array = np.asarray(value)
    if array.dtype == object:
        raise InvalidNetwork(f"entry {name[:80]!r} is a {type(value).__name__}, not a tensor")
    return array


def _types(state: Mapping[str, Any]) -> dict[str, str]:
    return {name: str(value.dtype).removeprefix("torch.") for name, value in state.items() if hasattr(value, "dtype")}


def _smooth_network(stored: arrays.StoredArrays, kind: str, chosen: ReadingOptions, source: str) -> ModuleNetwork:
    """Linear layers with an activation that is not homogeneous, such as tanh: a module, not a graph of ReLUs."""
    from lawful.sources.modules.convert import smooth_chain

    module, layers = smooth_chain(stored, chosen.order, chosen.activation or "")
    reading = Reading(kind, layers, ignored=stored.ignored, states_activations=False, source=source, module=module)
    return ModuleNetwork(module, f"{chosen.activation} is not piecewise linear", reading)
