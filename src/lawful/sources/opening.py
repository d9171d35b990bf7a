"""Anything that a user has becomes a network that says how it was read: the one door of every verb and function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lawful.errors import Unsupported
from lawful.network.architecture import Architecture
from lawful.network.dag import Dag
from lawful.network.mlp import Mlp
from lawful.network.reading import Reading, carrying
from lawful.sources.kinds import ReadingOptions, open_source
from lawful.sources.modules.module_network import ModuleNetwork
from lawful.sources.provenance import Opened

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
