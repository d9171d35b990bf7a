"""Anything that a user has becomes a network that says how it was read: the one door of every verb and function."""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lawful.errors import InvalidNetwork, LawfulError, Unsupported
from lawful.network.answers import Opened, described
from lawful.network.architecture import Architecture, is_homogeneous
from lawful.network.dag import Dag
from lawful.network.formats import arrays, files
from lawful.network.formats.kinds import ENDINGS, KNOWN, kind_of
from lawful.network.formats.limits import MAX_BYTES, check_bytes
from lawful.network.formats.reading import naming
from lawful.network.mlp import Mlp
from lawful.network.modules.load import fill, is_factory, make_module, state_of
from lawful.network.modules.network import ModuleNetwork
from lawful.network.reading import Reading, carrying

if TYPE_CHECKING:
    import torch

Source = Any  # whatever `open` reads: a path, an architecture, a module, a state dict, an ONNX model, a network
Model = str | Callable[[], Any]


def open(
    source: Any,
    *,
    model: Model | torch.nn.Module | None = None,
    activation: str | None = None,
    order: str | Sequence[str] | None = None,
    input_shape: tuple[int, ...] | None = None,
    drop_useless: bool = False,
) -> Opened:
    """The network that a source stands for; its `reading` says what was read, assumed and ignored.

    A source is a path, an architecture such as `"3-4-2 relu"`, a `"module:factory"`, a folder of Hugging Face, `"-"`
    for standard input, a PyTorch module, a state dict, an ONNX model, or a network. `model` makes the module into which
    a checkpoint is loaded, strictly; `activation` and `order` are for weights without either.

    >>> open("3-4-2 relu").parameters
    20
    >>> weights = {"fc1.weight": np.ones((2, 3)), "fc2.weight": np.ones((1, 2))}
    >>> open(weights), open(weights, activation="linear").reading.assumed
    (Mlp(3-2-1), ())
    >>> open(weights).reading.assumed[0][:36]
    'ReLU between the layers fc1, fc2 and'
    """
    names = [part for part in order.split(",") if part] if isinstance(order, str) else order
    chosen = _Options(model, activation, names, input_shape, drop_useless)
    if isinstance(source, (Architecture, Mlp, Dag, ModuleNetwork)):
        chosen.refuse("a network is complete", but=("input_shape", "drop_useless"))
        return described(source)
    if isinstance(source, Mapping):
        return _from_state(source, chosen)
    if isinstance(source, (str, os.PathLike)):
        return _from_text(os.fspath(source), chosen)
    if _is_module(source):
        chosen.refuse("a module is complete", but=("input_shape", "drop_useless"))
        return from_any_module(source, chosen.input_shape)
    if type(source).__module__.startswith("onnx") and hasattr(source, "SerializeToString"):
        chosen.refuse("an ONNX model is complete", but=("input_shape", "drop_useless"))
        return _from_bytes(source.SerializeToString(), chosen, ".onnx")
    raise LawfulError(
        f"cannot read a {type(source).__name__} as a network: give a path, an architecture, a module, a state dict, "
        "an ONNX model or a network"
    )


def open_graph(source: Any, *, seed: int = 0, **options: Any) -> Mlp | Dag:
    """Like `open`, but always with weights and as a graph: an architecture's are drawn, a module that is none refused.

    >>> open_graph("3-4-2 relu").reading.assumed
    ("random weights: PyTorch's default initialisation, seed 0",)
    """
    if isinstance(source, (Mlp, Dag)):
        return source
    found = open(source, **options)
    if isinstance(found, Architecture):
        made = found.initialise(seed=seed)
        drawn = f"random weights: PyTorch's default initialisation, seed {seed}"
        return carrying(made, found.reading.assuming(drawn))
    if isinstance(found, ModuleNetwork):
        found.to_dag()
    return found


def open_trained(source: Any, **options: Any) -> Architecture | Mlp | Dag | torch.nn.Module:
    """The network as it trains: the module if there is one, else a graph whose weights are the parameters."""
    found = open(source, **options)
    if isinstance(found, ModuleNetwork):
        return found.module
    reading = found.reading
    if reading is not None and reading.module is not None:
        return reading.module  # type: ignore[no-any-return]
    if reading is not None and reading.entangled:
        where = reading.source or reading.format
        raise Unsupported(f"{where}: {reading.entangled[0]}, so it trains differently: give the PyTorch module instead")
    return found


def open_free(source: Any, *, seed: int = 0, **options: Any) -> Mlp | Dag:
    """Like `open_graph`, refused if a weight of the graph is not one parameter that trains by itself."""
    found = open_graph(source, seed=seed, **options)
    if found.reading is not None and found.reading.entangled:
        raise Unsupported(
            f"{found.reading.source or found.reading.format}: {found.reading.entangled[0]}, so balances of its "
            "unrolled graph would be false"
        )
    return found


def open_pair(first: Source, second: Source, *, seed: int = 0) -> tuple[Mlp | Dag, Mlp | Dag]:
    """Two networks to compare as functions: an end that was cut off must have been the same."""
    one, two = open_graph(first, seed=seed), open_graph(second, seed=seed)
    tails = [each.reading.tail if each.reading is not None else "" for each in (one, two)]
    if tails[0] != tails[1]:
        words = [f"{tail} at its end" if tail else "no such end" for tail in tails]
        raise Unsupported(f"the first network has {words[0]}, the second {words[1]}: they compute different things")
    return one, two


class _Options:
    """How the user wants a source to be read."""

    def __init__(
        self,
        model: Any,
        activation: str | None,
        order: Sequence[str] | None,
        input_shape: tuple[int, ...] | None,
        drop_useless: bool,
    ) -> None:
        self.model, self.activation, self.order = model, activation, order
        self.input_shape, self.drop_useless = input_shape, drop_useless

    def refuse(self, why: str, but: Sequence[str] = ("drop_useless",)) -> None:
        """Options that mean nothing for this source are a mistake."""
        for name, value in vars(self).items():
            if value not in (None, False) and name not in but:
                option = {"input_shape": "--input"}.get(name, f"--{name}")
                raise LawfulError(f"{why}: leave out {option} ({name})")


def _is_module(source: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(source, torch.nn.Module)


def _from_text(text: str, chosen: _Options) -> Opened:
    if text == "-":
        content = sys.stdin.buffer.read(MAX_BYTES + 1)
        check_bytes("standard input", len(content))
        if not content:
            raise InvalidNetwork("standard input is empty")
        return _from_bytes(content, chosen)
    path = Path(text)
    if is_factory(text):
        chosen.refuse("a factory makes the whole module", but=("input_shape", "drop_useless"))
        return from_any_module(make_module(text), chosen.input_shape, text)
    if re.match(r"\s*\d+-", text) and not path.exists():
        chosen.refuse("an architecture is complete")
        return Architecture.parse(text)
    if path.is_dir() and chosen.model is None:
        from lawful.network.modules.hugging_face import module_of

        module, shape, ignored = module_of(path)
        return _loaded(module, path, chosen, chosen.input_shape or shape, ignored)
    if not path.exists() and path.suffix.lower() not in ENDINGS:
        raise InvalidNetwork(
            f"{text[:80]!r} is neither a file ({KNOWN}), nor module:factory, nor an architecture like '3-4-2 relu'"
        )
    if chosen.model is not None:
        return _loaded(make_module(chosen.model), path, chosen, chosen.input_shape, ())
    if chosen.activation is not None and not is_homogeneous(chosen.activation) and path.is_file():
        files.check_file(path)
        stored = files.load_arrays(path, kind := kind_of(path))
        return _bent_chain(stored, kind, chosen, text)
    with naming(path):
        files.check_file(path)
        drop = chosen.drop_useless or kind_of(path) == "onnx"  # strides of pools may leave places that nobody reads
    return files.read(
        path, activation=chosen.activation, order=chosen.order, drop_useless=drop, input_shape=chosen.input_shape
    )


def _from_bytes(content: bytes, chosen: _Options, ending: str = "") -> Opened:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"network{ending}"
        path.write_bytes(content)
        try:
            found = _from_text(str(path), chosen)
        except LawfulError as error:
            raise type(error)(str(error).replace(str(path), "standard input" if not ending else "ONNX model")) from None
    if isinstance(found, Architecture) or found.reading is None:
        return found
    return carrying(found, replace(found.reading, source="" if ending else "-"))


def _loaded(
    module: torch.nn.Module, path: Path, chosen: _Options, shape: tuple[int, ...] | None, ignored: tuple[str, ...]
) -> Opened:
    """A checkpoint in the user's module."""
    chosen.refuse("a model states its layers", but=("model", "input_shape", "drop_useless"))
    state, kind, unused = state_of(path)
    try:
        dropped = fill(module, state)
    except LawfulError as error:
        raise type(error)(f"{path}: {error}") from None
    found = from_any_module(module, shape, str(path))
    reading = found.reading if not isinstance(found, Architecture) else None
    if reading is None:
        return found
    rest = (*ignored, *unused, *dropped)
    return carrying(found, replace(reading, format=kind, ignored=(*reading.ignored, *rest)))


def from_any_module(
    module: torch.nn.Module, input_shape: tuple[int, ...] | None, source: str = ""
) -> Mlp | Dag | ModuleNetwork:
    """The graph that a module computes, or the module itself with what prevents one."""
    from lawful.network.modules.convert import from_module, module_reading

    try:
        found = from_module(module, input_shape, drop_useless=True)
    except InvalidNetwork:
        raise
    except Unsupported as obstacle:
        return ModuleNetwork(module, str(obstacle), replace(module_reading(module), source=source), input_shape)
    return carrying(found, replace(found.reading or module_reading(module), source=source))


def _from_state(state: Mapping[str, Any], chosen: _Options) -> Opened:
    if not state or not all(isinstance(name, str) for name in state):
        raise InvalidNetwork("a state dict maps names to tensors")
    if chosen.model is not None:
        import torch

        module = make_module(chosen.model)
        dropped = fill(module, {name: torch.as_tensor(value) for name, value in state.items()})
        found = from_any_module(module, chosen.input_shape)
        return carrying(found, replace(found.reading, ignored=dropped)) if found.reading is not None else found
    chosen.refuse("weights state their input size", but=("activation", "order", "drop_useless"))
    stored = arrays.StoredArrays({name: _numbers(name, value) for name, value in state.items()}, _types(state))
    if chosen.activation is not None and not is_homogeneous(chosen.activation):
        return _bent_chain(stored, "state dict", chosen, "")
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


def _bent_chain(stored: arrays.StoredArrays, kind: str, chosen: _Options, source: str) -> ModuleNetwork:
    """Linear layers with an activation that is not homogeneous, such as tanh: a module, not a graph of ReLUs."""
    from lawful.network.modules.convert import smooth_chain

    module, layers = smooth_chain(stored, chosen.order, chosen.activation or "")
    reading = Reading(kind, layers, ignored=stored.ignored, states_activations=False, source=source, module=module)
    return ModuleNetwork(module, f"{chosen.activation} is not piecewise linear", reading)
