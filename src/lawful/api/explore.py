"""What the explorer shows of one network: facts with their evidence, computed once; the page itself does the moving."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import Unpack

import numpy as np

from lawful.api.inputs import ReadOptions, open_options, takes
from lawful.conservation import known_laws
from lawful.conservation.count import count_laws
from lawful.conservation.known.law import LawFamily
from lawful.conservation.law_count import LawCount
from lawful.errors import LawfulError, Unsupported
from lawful.fibers.same import same
from lawful.fibers.verdict import Verdict
from lawful.formats.queries.data import Data
from lawful.invariant_set.locks.components import Components, components
from lawful.invariant_set.paths import WeightPath, find_path
from lawful.network import Dag, Mlp
from lawful.pruning.neurons.prune import Pruning, prune
from lawful.result import Shown
from lawful.sources.opening import Source, open_free
from lawful.sources.provenance import with_provenance
from lawful.types import Floats

MOST_PARAMETERS = 20_000  # of a network that the page can move
MOST_COUNTED = 2_500  # of a network whose laws are counted for the page
MOST_WALKED = 600  # of a network whose way to the flipped signs is on the page
MOST_SAMPLES = 128
DECIDE_SECONDS = 5.0  # to decide which neurons are needed


@dataclass(frozen=True, eq=False)
class Exploration(Shown):
    """One network with its laws, locks and prunable neurons, data to train on, and perhaps a second network."""

    source: str
    network: Mlp
    inputs: Floats
    targets: Floats
    made_up: bool
    laws: LawCount | None
    known: LawFamily
    components: Components
    path: WeightPath | None
    pruning: Pruning
    hidden: int | None
    other: Mlp | None
    other_source: str
    verdict: Verdict | None
    asked: str = ""  # the source and the options that reading it took, as a command takes them


@takes(ReadOptions)
def explore(
    network: Source,
    *,
    source: str = "network",
    asked: str = "",
    data: Data | None = None,
    other: Source | None = None,
    other_source: str = "other",
    seed: int = 0,
    **reading: Unpack[ReadOptions],
) -> Exploration:
    """Gather what the page needs; without data, random inputs and the outputs of a random network to learn.

    >>> from lawful.network import Architecture
    >>> found = explore(Architecture.parse("2-4-1 relu bias").initialise(seed=1))
    >>> found.laws.laws, found.components.log2_components, found.made_up
    (4, 0, True)
    """
    layered = _as_layers(open_free(network, seed=seed, **open_options(reading)))
    if layered.parameters > MOST_PARAMETERS:
        raise Unsupported(
            f"the explorer moves networks of up to {MOST_PARAMETERS:,} parameters in the browser, not "
            f"{layered.parameters:,}; `lawful audit --html` describes larger ones"
        )
    second = None if other is None else _as_layers(open_free(other, seed=seed, **open_options(reading)))
    if second is not None and (second.widths[0], second.widths[-1]) != (layered.widths[0], layered.widths[-1]):
        raise LawfulError(f"{layered} and {second} have different inputs or outputs: they cannot be overlaid")
    inputs, targets = _samples(layered, data, seed)
    locked = components(layered)
    exploration = Exploration(
        source=source,
        asked=asked or shlex.quote(source),
        network=layered,
        inputs=inputs,
        targets=targets,
        made_up=data is None or data.y is None,
        laws=count_laws(layered, seed=seed) if layered.parameters <= MOST_COUNTED else None,
        known=known_laws(layered.to_dag()),
        components=locked,
        path=_walk(layered, locked) if layered.parameters <= MOST_WALKED else None,
        pruning=prune(layered, decide=DECIDE_SECONDS),
        hidden=_hidden(layered),
        other=second,
        other_source=other_source,
        verdict=None if second is None else same(layered, second, seconds=20.0, seed=seed),
    )
    return with_provenance(exploration, layered, *([] if second is None else [second]))


def _as_layers(network: Mlp | Dag) -> Mlp:
    try:
        return network if isinstance(network, Mlp) else Mlp.from_dag(network)
    except LawfulError as error:
        raise Unsupported(f"the explorer shows layered networks: {error}") from None


def _samples(network: Mlp, data: Data | None, seed: int) -> tuple[Floats, Floats]:
    rng = np.random.default_rng(seed)
    if data is not None and data.y is not None:
        targets = data.y[:, None] if data.y.ndim == 1 else data.y
        if targets.shape[1] != network.widths[-1] and data.classes is not None:
            targets = np.eye(network.widths[-1])[np.minimum(data.classes, network.widths[-1] - 1)]
        if targets.shape[1] != network.widths[-1]:
            raise LawfulError(f"{network} has {network.widths[-1]} outputs, the data {targets.shape[1]}")
        return data.x[:MOST_SAMPLES], np.asarray(targets[:MOST_SAMPLES], dtype=np.float64)
    inputs = rng.normal(size=(32, network.widths[0])) if data is None else data.x[:MOST_SAMPLES]
    teacher = np.tanh(inputs @ rng.normal(size=(network.widths[0], network.widths[-1])))
    return inputs, teacher


def _walk(network: Mlp, found: Components) -> WeightPath | None:
    """A path inside the invariant set to the weights with every sign flipped that is free."""
    signs = np.full(network.parameters, -1.0)
    signs[[lock.edge for lock in found.locked]] = 1.0
    path = find_path(network, network.with_theta(signs * network.theta))
    return path if isinstance(path, WeightPath) else None


def _hidden(network: Mlp) -> int | None:
    """The first-layer neuron whose hyperplane the second layer hides (P4 Theorem 5), if one is hidden."""
    if len(network.weights) != 3 or network.slopes != (0.0, 0.0) or network.biases[0] is None:
        return None
    weight, bias = network.weights[1], network.biases[1]
    if bias is None or not (bias < 0).all():
        return None
    for neuron in range(weight.shape[1]):
        others = np.delete(weight, neuron, axis=1)
        if (weight[:, neuron] > 0).all() and (others < 0).all():
            return neuron
    return None
