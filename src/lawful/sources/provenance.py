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
    described = tuple(reading for reading in readings if reading is not None)
    if trained is not None:
        described = tuple(reading.in_training(trained) for reading in described)
    return read_as(result, *(reading.in_exact_terms() for reading in described) if exact else described)


def read_as(result: Result, *found: Reading) -> Result:
    """The result with the readings that it rests on."""
    # Results are frozen for their readers; who made one may still say what it rests on.
    object.__setattr__(result, "reading", found[0] if len(found) == 1 else join_readings(found))
    object.__setattr__(result, "readings", found)
    return result


def join_readings(readings: tuple[Reading, ...]) -> Reading:
    """What was read, assumed and ignored in several networks."""
    return Reading(
        ", ".join(reading.format for reading in readings),
        tuple(layer for reading in readings for layer in reading.layers),
        tuple(dict.fromkeys(sentence for reading in readings for sentence in reading.assumed)),
        tuple(dict.fromkeys(part for reading in readings for part in reading.ignored)),
        source=", ".join(reading.source for reading in readings),
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
