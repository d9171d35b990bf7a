"""Every answer carries `reading`: how its networks were read, and what was assumed of them."""

from __future__ import annotations

from typing import TypeVar

from lawful.network.architecture import Architecture
from lawful.network.dag import Dag
from lawful.network.mlp import Mlp
from lawful.network.reading import Reading, TensorReading, carrying
from lawful.sources.modules.module_network import ModuleNetwork

Opened = Architecture | Mlp | Dag | ModuleNetwork
Result = TypeVar("Result")


def with_provenance(result: Result, *networks: Opened, trained: str | None = None, exact: bool = False) -> Result:
    """The result, which now says how the networks that it is about were read.

    `result.reading` is the network's, or what was read of all of them; `result.readings` has each. An answer about
    training in the mode `trained` ("train" or "eval"; "" if nobody chose) rests on how normalisation works there, an
    `exact` one on weights as reading rounded them.

    >>> from lawful.invariant_set import components
    >>> components("3-4-2 relu").reading.assumed
    ("random weights: PyTorch's default initialisation, seed 0",)
    """
    readings = [describe(network).reading for network in networks]
    found = tuple(each for each in readings if each is not None)
    if trained is not None:
        found = tuple(each.in_training(trained) for each in found)
    return read_as(result, *(each.in_exact_terms() for each in found) if exact else found)


def read_as(result: Result, *found: Reading) -> Result:
    """The result with the readings that it rests on."""
    object.__setattr__(result, "reading", found[0] if len(found) == 1 else join_readings(found))
    object.__setattr__(result, "readings", found)
    return result


def join_readings(readings: tuple[Reading, ...]) -> Reading:
    """What was read, assumed and ignored in several networks."""
    return Reading(
        ", ".join(each.format for each in readings),
        tuple(layer for each in readings for layer in each.layers),
        tuple(dict.fromkeys(sentence for each in readings for sentence in each.assumed)),
        tuple(dict.fromkeys(part for each in readings for part in each.ignored)),
        source=", ".join(each.source for each in readings),
    )


def describe(network: Opened) -> Opened:
    """A network made in Python says so."""
    if isinstance(network, (Architecture, ModuleNetwork)) or network.reading is not None:
        return network
    kind = type(network).__name__
    if isinstance(network, Mlp):
        pairs = zip(network.weights, network.biases, strict=True)
        parts = [
            (f"{2 * number}.{name}", part)
            for number, pair in enumerate(pairs)
            for name, part in zip(("weight", "bias"), pair, strict=True)
        ]
        layers = [TensorReading(name, "float64", part.shape) for name, part in parts if part is not None]
    else:
        layers = [] if network.weights is None else [TensorReading("edges", "float64", (network.parameters,))]
    return carrying(network, Reading(kind, tuple(layers)))
