"""Two sources of any kind: graphs of scalar weights, or checkpoints of a module that its symmetries compare."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lawful.api.inputs import input_size
from lawful.errors import InvalidNetwork, LawfulError, Unsupported
from lawful.network import Dag, Mlp
from lawful.network.reading import Reading
from lawful.sources.checkpoints.adapters import is_described
from lawful.sources.checkpoints.load import fill_module, is_factory, make_module, state_for
from lawful.sources.modules.module_network import ModuleNetwork
from lawful.sources.opening import Model, Source, as_folder, is_module, open_graph
from lawful.sources.opening import open as open_any

if TYPE_CHECKING:
    from torch import nn

    from lawful.checkpoints.opening import ApartPair, CheckpointPair
    from lawful.symmetry.inputs import Input

SMALL = 50_000  # parameters up to which a module is unrolled into a graph, and compared exactly
WITH_A_GRAPH = (".onnx", ".nnet", ".json")  # files that say how their weights are joined


@dataclass(frozen=True)
class TwoNetworks:
    """Two sources, and what their user says of how to read them (`model_b` if the second has a module of its own)."""

    first: Source
    second: Source
    model: Model | nn.Module | None = None
    model_b: Model | nn.Module | None = None
    input: Input | Sequence[Input] | None = None
    activation: str | None = None
    order: str | Sequence[str] | None = None

    def __post_init__(self) -> None:
        """A file of weights beside the settings of Hugging Face is that folder."""
        if (self.model, self.activation, self.order) == (None, None, None):
            for name in ("first", "second"):
                source = getattr(self, name)
                if isinstance(source, (str, os.PathLike)) and not _is_text_of_factory(source):
                    object.__setattr__(self, name, _in_users_words(source, as_folder(Path(source))))

    @property
    def sources(self) -> tuple[Source, Source]:
        """Both as they were given."""
        return self.first, self.second

    @cached_property
    def models(self) -> tuple[Any, Any]:
        """The module into which each is loaded; a module is complete, and so is a file with a graph beside weights."""
        models = self.model, self.model if self.model_b is None else self.model_b
        whole = [_has_a_graph(source) for source in self.sources]
        complete = [
            is_module(source) or (graph and not all(whole)) for source, graph in zip(self.sources, whole, strict=True)
        ]
        one, two = (None if done else m for done, m in zip(complete, models, strict=True))
        if models == (None, None) and not self._states_layers:
            return _host(self.first, self.second), _host(self.second, self.first)
        return one, two

    @property
    def _states_layers(self) -> bool:
        """Whether the user says how weights alone are joined."""
        return (self.activation, self.order) != (None, None)

    def are_checkpoints(self, *, balances: bool = False) -> bool:
        """Whether they are compared by weights: modules that are large, or no graphs of scalar weights.

        Of a graph that shares or folds weights the function is right and the `balances` are not.
        """
        if isinstance(self.input, str) and ":" in self.input:
            return True
        if self.model is None and any(map(_is_folder, self.sources)):  # their settings are compared too
            return True
        return any(map(self._is_checkpoint, self.sources, self.models, (balances, balances)))

    def _is_checkpoint(self, source: Source, model: Any, balances: bool) -> bool:
        if model is None and _is_folder(source):
            return True
        named = source if is_module(source) or _is_text_of_factory(source) else model
        if named is not None and _is_large(make_module(named)):
            return True
        network = open_any(source, model=model, **self._options(source, model))
        if isinstance(network, ModuleNetwork):
            return True
        return balances and named is not None and network.reading is not None and bool(network.reading.entangled)

    def _options(self, source: Source, model: Any = None) -> dict[str, Any]:
        """What the user says, as far as it is about this source.

        A module beside weights alone has its own activations, and a state dict beside a module its own size of inputs;
        of two sources of one kind nothing is left out, so that a useless option is still refused.
        """
        options = {"activation": self.activation, "order": self.order, "input_shape": input_size(self.input)}
        alone = [_is_weights(source) for source in self.sources]
        if model is not None or all(alone) or not any(alone):
            return options
        if not _is_weights(source):
            return options | {"activation": None, "order": None}
        return options | {"input_shape": None} if isinstance(source, Mapping) else options

    def graphs(self, *, seed: int = 0, drop_useless: bool = False) -> tuple[Mlp | Dag, Mlp | Dag]:
        """Both as graphs of scalar weights."""
        self._refuse_other_settings(*self.models)
        one, two = (
            open_graph(source, model=model, seed=seed, drop_useless=drop_useless, **self._options(source, model))
            for source, model in zip(self.sources, self.models, strict=True)
        )
        return one, two

    def scalar_weights(self, *, seed: int = 0) -> tuple[list[float], list[float]] | None:
        """The weights of both, if both are graphs of scalar weights and no checkpoints."""
        if self.are_checkpoints():
            return None
        one, two = self.graphs(seed=seed, drop_useless=True)
        return one.theta.tolist(), two.theta.tolist()

    def _refuse_other_settings(self, one: Any, two: Any) -> None:
        """Graphs are unrolled at one size of inputs, and by the class of `transformers`: settings are to be alike."""
        pairs = zip((self.first, self.second), (one, two), strict=True)
        paths = [Path(source) for source, model in pairs if model is None and _is_folder(source)]
        if not paths:
            return
        from lawful.checkpoints.rewrite.same_program import describe, differing, flatten
        from lawful.sources.checkpoints.hugging_face import read_settings

        folders = [read_settings(path) for path in paths]
        for _, unread in folders:
            if unread:
                raise Unsupported(f"{'; '.join(unread)}: give --model module:factory")
        if len(folders) == 2 and (apart := differing(*(dict(flatten(settings)) for settings, _ in folders))):
            raise Unsupported(f"the settings of the folders differ: {'; '.join(describe(apart))[:300]}")

    def checkpoints(self) -> tuple[CheckpointPair | ApartPair, tuple[Reading, ...]]:
        """Both as checkpoints, in one form if there is one, and how they were read."""
        from lawful.checkpoints.opening import ApartPair, open_both
        from lawful.sources.modules.convert import module_reading, to_module

        first, second = map(_as_module, self.sources)
        if self.model is not None or (any(map(_knows_its_module, self.sources)) and not self._states_layers):
            pair = open_both(first, second, model=self.model, model_b=self.model_b, input=self.input)
            both = pair.architectures if isinstance(pair, ApartPair) else (pair.architecture, pair.architecture)
            named = zip(both, self.sources, strict=True)
            return pair, tuple(
                replace(module_reading(network.module), source=_name(source)) for network, source in named
            )
        opened = [open_any(source, **self._options(source)) for source in (first, second)]
        readings = [network.reading for network in opened if network.reading is not None]
        modules, size = [], self.input
        for source, network, other in zip(self.sources, opened, reversed(opened), strict=True):
            if isinstance(network, ModuleNetwork):
                modules.append(_as_stored(network.module, network.reading) if _is_weights(source) else network.module)
                size = size if size is not None else network.input_shape
            elif isinstance(network, Mlp):
                assumed = _is_weights(source) and network.reading is not None and bool(network.reading.assumed)
                if assumed and isinstance(other, ModuleNetwork):
                    raise LawfulError(
                        f"{_name(source)}: weights alone do not say their activation, and the other network "
                        "is more than layers of ReLU: give --activation, or --model module:factory"
                    )
                modules.append(_as_stored(to_module(network), network.reading))
                size = size if size is not None else (network.widths[0],)
            else:
                return open_both(first, second, input=size), ()  # says what is missing
        return open_both(modules[0], modules[1], input=size), tuple(readings)

    def one_form(self) -> tuple[CheckpointPair, tuple[Reading, ...]]:
        """Both as checkpoints of one architecture, or an error that says why they are none."""
        from lawful.checkpoints.opening import ApartPair

        pair, readings = self.checkpoints()
        if isinstance(pair, ApartPair):
            raise InvalidNetwork(f"the checkpoints are of different architectures: {pair.reason}")
        return pair, readings


def _as_stored(module: nn.Module, reading: Reading | None) -> nn.Module:
    """A module of float64 in the type in which its source holds all its numbers, if that is one."""
    import torch

    kinds = {layer.dtype for layer in reading.layers} if reading is not None else set()
    kind = getattr(torch, kinds.pop(), None) if len(kinds) == 1 else None
    return module.to(kind) if isinstance(kind, torch.dtype) and kind.is_floating_point else module


def _is_large(module: nn.Module) -> bool:
    """Too large to be unrolled into scalar weights; Linear layers need no unrolling."""
    from torch import nn

    linear = all(
        isinstance(part, nn.Linear) for part in module.modules() if next(part.parameters(False), None) is not None
    )
    return not linear and sum(tensor.numel() for tensor in module.parameters()) > SMALL


def _in_users_words(source: str | os.PathLike[str], path: Path) -> str | os.PathLike[str]:
    """A path in the words of its user, where it is the one that was given."""
    return source if path == Path(source) else os.fspath(path)


def _is_text_of_factory(source: Source) -> bool:
    return isinstance(source, str) and is_factory(source)


def _has_a_graph(source: Source) -> bool:
    return isinstance(source, (str, Path)) and Path(source).suffix.lower() in WITH_A_GRAPH and not _is_index(source)


def _is_index(source: str | os.PathLike[str]) -> bool:
    """Whether it lists the shards of a checkpoint."""
    return os.fspath(source).endswith(".index.json")


def _is_weights(source: Source) -> bool:
    """Whether it is tensors alone: a state dict, or a file of tensors that no settings describe."""
    if isinstance(source, (str, os.PathLike)) and not _is_text_of_factory(source):
        return Path(source).is_file() and not _has_a_graph(source)
    return isinstance(source, Mapping)


def _host(weights: Source, other: Source) -> nn.Module | None:
    """The other's module, if these are weights alone that fit it, tensor by tensor: so both orders mean the same."""
    if not (_is_weights(weights) and (is_module(other) or _is_text_of_factory(other))):
        return None
    module = make_module(other)
    try:
        fill_module(module, dict(weights) if isinstance(weights, Mapping) else state_for(module, Path(weights)))
    except LawfulError:
        return None
    if not isinstance(weights, Mapping) and not _is_large(module):
        try:
            stated = open_any(weights).reading
        except LawfulError:  # no layers in a row
            return module
        return None if stated is not None and stated.states_activations else module
    return module


def _as_module(source: Source) -> Source:
    """A file of a graph in layers, other than ONNX, as the module that it is."""
    if not _has_a_graph(source) or Path(source).suffix.lower() == ".onnx":
        return source
    from lawful.sources.modules.convert import to_module

    graph = open_graph(source, drop_useless=True)
    try:
        return to_module(graph if isinstance(graph, Mlp) else Mlp.from_dag(graph))
    except Unsupported:
        return source


def _is_folder(source: Source) -> bool:
    """Whether it is a folder of Hugging Face, or of an adapter of one."""
    return isinstance(source, (str, os.PathLike)) and is_described(Path(source))


def _knows_its_module(source: Source) -> bool:
    """Modules, factories and folders of Hugging Face."""
    if isinstance(source, (str, os.PathLike)):
        return _is_text_of_factory(source) or _is_folder(source)
    return is_module(source)


def _name(source: Source) -> str:
    return os.fspath(source) if isinstance(source, (str, os.PathLike)) else type(source).__name__
