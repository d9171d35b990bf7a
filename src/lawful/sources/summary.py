"""What a network is, at a glance."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from lawful.network.architecture import Architecture, activation_name
from lawful.network.dag import Dag
from lawful.network.mlp import Mlp
from lawful.network.reading import Reading, TensorReading
from lawful.network.relaxation import classify, preactivation_bounds
from lawful.network.validity import Role
from lawful.result import Shown
from lawful.types import Mask

PROBES = 4  # inputs at which sums are enclosed: one usually shows that a sum is not 0


@dataclass(frozen=True)
class LayerSummary:
    """The nodes at one distance from the inputs."""

    role: str
    width: int
    activation: str
    parameters: int | None  # None where weights are shared among layers, folded or fixed


@dataclass(frozen=True)
class TensorSummary(Shown):
    """The tensors of a source of which no graph of scalar weights is known, and why there is none."""

    name: str
    tensors: tuple[TensorReading, ...]
    reason: str

    @property
    def parameters(self) -> int:
        """How many numbers they hold."""
        return sum(math.prod(tensor.shape) for tensor in self.tensors)


@dataclass(frozen=True)
class Summary(Shown):
    """Sizes, bottlenecks (P0 Definition 2), neurons that never bend, and the range of the balances `B̃θ²`.

    `dead` and `linear` hold for every input in R^d; of the neurons `undecided` it is not known whether they are one of
    these. All of them and `balance` are None for a network without weights. Of a graph that shares, fixes or folds the
    weights of its source (`unrolled` says why, as convolutions do), parameters are those of the source, each once;
    balances of its neurons are not conserved, so there are none.
    """

    name: str
    inputs: int
    outputs: int
    hidden: int
    parameters: int
    biases: int | None
    layers: tuple[LayerSummary, ...]
    in_bottlenecks: tuple[str, ...]
    out_bottlenecks: tuple[str, ...]
    dead: tuple[str, ...] | None
    linear: tuple[str, ...] | None
    balance: tuple[float, float, float] | None  # smallest, median, largest
    undecided: tuple[str, ...] | None = None
    edges: int = 0  # of the graph
    unrolled: tuple[str, ...] = ()


def summarise(network: Architecture | Mlp | Dag) -> Summary:
    """Describe a network.

    >>> summary = summarise(Architecture.parse("3-4-1 relu bias"))
    >>> summary.parameters, summary.hidden, len(summary.out_bottlenecks)
    (21, 4, 4)
    """
    dag = network.to_dag()
    hidden = dag.hidden
    from_constant = dag.roles[dag.tails] == Role.CONSTANT
    weighted = dag.weights is not None
    kinds = classify(dag) if weighted else None
    undecided = None
    if kinds is not None:
        settled = kinds.dead | _first(dag) | (kinds.always_linear & _moves(dag))
        undecided = _names(dag, hidden[~settled[hidden]])
    reading: Reading | None = getattr(network, "reading", None)
    unrolled = tuple(reading.entangled) if reading is not None else ()
    squares = dag.hidden_incidence @ dag.theta**2 if weighted and len(hidden) and not unrolled else None
    return Summary(
        name=str(network) if isinstance(network, Architecture) else repr(network),
        inputs=len(dag.inputs),
        outputs=len(dag.outputs),
        hidden=len(hidden),
        parameters=_own_parameters(reading) if reading is not None and unrolled else dag.parameters,
        biases=None if unrolled else int(from_constant.sum()),
        layers=_layers(dag, unrolled=bool(unrolled)),
        in_bottlenecks=_names(dag, hidden[dag.in_degree[hidden] == 1]),
        out_bottlenecks=_names(dag, hidden[dag.out_degree[hidden] == 1]),
        dead=_names(dag, np.flatnonzero(kinds.dead)) if kinds else None,
        linear=_names(dag, np.flatnonzero(kinds.always_linear)) if kinds else None,
        balance=None if squares is None else tuple(float(f(squares)) for f in (np.min, np.median, np.max)),  # type: ignore[arg-type]
        undecided=undecided,
        edges=dag.parameters,
        unrolled=unrolled,
    )


def _first(dag: Dag) -> Mask:
    """Nodes that read an input, and nothing that is computed: their sums take both signs."""
    reads = np.zeros(len(dag.names), dtype=bool)
    reads[dag.heads[(dag.roles[dag.tails] == Role.INPUT) & (dag.theta != 0)]] = True
    return np.asarray(reads & (dag.levels == 1))


def _moves(dag: Dag) -> Mask:
    """Nodes whose sums are not 0 for all inputs: an enclosure at one of a few inputs says so."""
    rng = np.random.default_rng(0)
    moving = np.zeros(len(dag.names), dtype=bool)
    for _ in range(PROBES):
        point = rng.normal(size=len(dag.inputs))
        lower, upper = preactivation_bounds(dag, point, point)
        moving |= (lower > 0) | (upper < 0)
    return moving


def _own_parameters(reading: Reading) -> int:
    """The numbers of a source that are trained, each once."""
    from lawful.sources.opening import module_behind

    if (module := module_behind(reading)) is not None:
        return sum(int(tensor.numel()) for tensor in module.parameters())
    return sum(math.prod(tensor.shape) for tensor in reading.layers if "float" in tensor.dtype)


def _names(dag: Dag, nodes: np.ndarray) -> tuple[str, ...]:
    return tuple(dag.names[node] for node in nodes)


def _layers(dag: Dag, *, unrolled: bool) -> tuple[LayerSummary, ...]:
    """Rows for the inputs, the hidden nodes level by level, and the outputs."""
    entering = dag.in_degree
    rows = [LayerSummary("input", len(dag.inputs), "", 0)]
    for layer in dag.layers:
        nodes = layer[dag.roles[layer] == Role.HIDDEN]
        if len(nodes):
            names = sorted({activation_name(float(slope)) for slope in np.unique(dag.slopes[nodes])})
            rows.append(LayerSummary("hidden", len(nodes), ", ".join(names), int(entering[nodes].sum())))
    rows.append(LayerSummary("output", len(dag.outputs), "linear", int(entering[dag.outputs].sum())))
    return tuple(replace(row, parameters=None) for row in rows) if unrolled else tuple(rows)
