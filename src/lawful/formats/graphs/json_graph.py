"""The JSON graph: inputs, outputs, edges, biases and activations by name.

`{"inputs": ["a", "b"], "outputs": ["y"], "edges": [["a", "h", 0.5], ["h", "y", -1.0]], "biases": {"h": 0.1},
"activation": "relu"}`. Weights may be left out everywhere (then `biases` is a list of nodes). `activation` is one name
or a map by hidden node. `hidden` may give the order of the hidden nodes; without it they come as the edges name them.
`constant` may name the virtual input, whose edges are then biases in their place among the others.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from lawful.errors import InvalidNetwork, LawfulError
from lawful.formats.io.limits import check_bytes
from lawful.formats.io.reading import refuse_duplicates
from lawful.network.architecture import activation_name, parse_activation
from lawful.network.assemble import as_layers
from lawful.network.dag import Dag, useful_dag
from lawful.network.mlp import Mlp
from lawful.network.reading import Reading, TensorReading, carrying
from lawful.network.validity import Role

MAX_TEXT = 128 * 2**20
MAX_LISTS = 4_000_000  # an edge is a list
MAX_VALUES = 16_000_000
KEYS = ("inputs", "outputs", "edges", "biases", "activation", "hidden", "constant")


def decode(text: bytes, *, activation: str | None = None, drop_useless: bool = False) -> Mlp | Dag:
    """Read a graph; what an `Mlp` wrote comes back as that `Mlp`.

    >>> decode(b'{"inputs": ["a"], "outputs": ["y"], "edges": [["a", "h", 2], ["h", "y", 1], ["a", "y", 1]]}')
    Dag(inputs=1, hidden=1, outputs=1, edges=3)
    """
    graph = _parse(text)
    inputs, outputs = _names(graph, "inputs"), _names(graph, "outputs")
    tails, heads, weights = _edges(graph)
    constant = graph.get("constant")
    if constant is not None and not isinstance(constant, str):
        raise InvalidNetwork(f"'constant' is a name, not {_kind(constant)}")
    seen = dict.fromkeys(name for pair in zip(tails, heads, strict=True) for name in pair)
    hidden = _hidden(graph, [name for name in seen if name not in {*inputs, *outputs, constant}])
    biased, offsets = _biases(graph, weights is None, {*hidden, *outputs})
    if constant is None and biased:
        constant = _free_name({*inputs, *hidden, *outputs})
    if constant is not None:
        tails, heads = [*tails, *([constant] * len(biased))], [*heads, *biased]
    names = [*inputs, *hidden, *outputs, *([constant] if constant is not None else [])]
    index = {name: number for number, name in enumerate(names)}
    if len(index) < len(names):
        twice = next(name for number, name in enumerate(names) if index[name] != number)
        raise InvalidNetwork(f"two nodes are called {twice!r}")
    kinds = (Role.INPUT, Role.HIDDEN, Role.OUTPUT, Role.CONSTANT)
    roles = np.repeat(kinds, (len(inputs), len(hidden), len(outputs), len(names) - len(inputs + hidden + outputs)))
    make = useful_dag if drop_useless else Dag
    dag = make(
        names,
        roles,
        np.array([index[name] for name in tails], dtype=np.intp),
        np.array([index[name] for name in heads], dtype=np.intp),
        None if weights is None else [*weights, *offsets],
        _slopes(graph, activation, index, set(hidden)),
    )
    network = dag if dag.weights is None else _as_written(dag)
    return carrying(network, _reading(dag, "activation" in graph or activation is not None))


def _reading(dag: Dag, stated: bool) -> Reading:
    layers = () if dag.weights is None else (TensorReading("edges", "decimal", (dag.parameters,)),)
    reading = Reading("json", layers, states_activations=stated)
    return (
        reading
        if stated or not len(dag.hidden)
        else reading.assuming("ReLU at every hidden node: the graph names no activation")
    )


def encode(network: Mlp | Dag) -> bytes:
    """Write a graph; numbers are printed so that they read back exactly.

    >>> encode(Mlp([[[0.5]], [[-1.0]]], [[0.1], None])).decode().split()[:4]
    ['{', '"inputs":', '["x0"],', '"outputs":']
    """
    dag = network.to_dag()
    order = np.argsort(dag.roles, kind="stable")
    names = [json.dumps(name) for name in dag.names]
    from_constant = dag.roles[dag.tails] == Role.CONSTANT
    last = bool((np.diff(from_constant.astype(np.int8)) >= 0).all())
    inline = dag.constant is not None and not (last and dag.names[dag.constant] == _free_name(_others(dag)))
    inline = inline and not isinstance(network, Mlp)  # its edges come back in order without help
    shown = np.arange(dag.parameters) if inline else np.flatnonzero(~from_constant)
    weights = [None] * dag.parameters if dag.weights is None else dag.weights.tolist()
    ends = zip(dag.tails[shown].tolist(), dag.heads[shown].tolist(), shown.tolist(), strict=True)
    edges = [_row(names[tail], names[head], weights[edge]) for tail, head, edge in ends]
    fields = {
        "inputs": _list(names[node] for node in order if dag.roles[node] == Role.INPUT),
        "outputs": _list(names[node] for node in order if dag.roles[node] == Role.OUTPUT),
        "edges": "[\n  " + ",\n  ".join(edges) + "\n ]" if edges else "[]",
    }
    rest = [] if inline else np.flatnonzero(from_constant).tolist()
    if rest and dag.weights is None:
        fields["biases"] = _list(names[dag.heads[edge]] for edge in rest)
    elif rest:
        fields["biases"] = "{" + ", ".join(f"{names[dag.heads[edge]]}: {weights[edge]!r}" for edge in rest) + "}"
    slopes = dag.slopes[dag.hidden]
    if len(set(slopes.tolist())) > 1:
        pairs = (f'{names[node]}: "{activation_name(float(dag.slopes[node]))}"' for node in dag.hidden)
        fields["activation"] = "{" + ", ".join(pairs) + "}"
    elif network.reading is None or network.reading.states_activations or slopes.any():
        fields["activation"] = f'"{activation_name(float(slopes[0]) if len(slopes) else 0.0)}"'
    met = dict.fromkeys(np.stack([dag.tails[shown], dag.heads[shown]], axis=1).ravel().tolist())
    if [node for node in met if dag.roles[node] == Role.HIDDEN] != dag.hidden.tolist():
        fields["hidden"] = _list(names[node] for node in dag.hidden)
    if inline and dag.constant is not None:
        fields["constant"] = names[dag.constant]
    return ("{\n " + ",\n ".join(f'"{key}": {value}' for key, value in fields.items()) + "\n}\n").encode()


def _as_written(dag: Dag) -> Mlp | Dag:
    """The `Mlp` whose graph this is, name by name and edge by edge; else the graph itself."""
    mlp = as_layers(dag)
    twin = mlp.to_dag()
    if mlp is dag or twin.names != dag.names:
        return dag
    order = np.argsort(twin.roles[twin.tails] == Role.CONSTANT, kind="stable")  # here biases come last
    same = (twin.tails[order] == dag.tails).all() and (twin.heads[order] == dag.heads).all()
    return mlp if same else dag


def _others(dag: Dag) -> set[str]:
    return {name for node, name in enumerate(dag.names) if node != dag.constant}


def _free_name(taken: set[str]) -> str:
    """`bias`, or with as many underscores as it needs to be nobody else's name."""
    name = "bias"
    while name in taken:
        name += "_"
    return name


def _row(tail: str, head: str, weight: float | None) -> str:
    return f"[{tail}, {head}]" if weight is None else f"[{tail}, {head}, {weight!r}]"


def _list(items: Any) -> str:
    return "[" + ", ".join(items) + "]"


def _parse(text: bytes) -> dict[str, Any]:
    check_bytes("the text", len(text), MAX_TEXT)
    # Counted before it is parsed: lists take some thirty times as much memory as their text.
    lists = text.count(b"[") + text.count(b"{")
    if lists > MAX_LISTS or text.count(b",") > MAX_VALUES:
        raise InvalidNetwork(f"{lists:,} lists are too many for JSON: use .npz or .safetensors for large graphs")
    try:
        graph = json.loads(text, object_pairs_hook=refuse_duplicates)
    except RecursionError:
        raise InvalidNetwork("its JSON is nested too deeply") from None
    except ValueError as error:
        raise InvalidNetwork(f"not JSON: {str(error)[:160]}") from None
    if not isinstance(graph, dict):
        raise InvalidNetwork(f"a graph is a JSON object, not {_kind(graph)}")
    for key in graph:
        if key not in KEYS:
            raise InvalidNetwork(f"unknown key {key[:40]!r}: a graph has {', '.join(KEYS)}")
    for key in KEYS[:3]:
        if key not in graph:
            raise InvalidNetwork(f"a graph needs {key!r}")
    return graph


def _kind(value: Any) -> str:
    kinds = {dict: "an object", list: "a list", str: "a text", bool: "a truth value", type(None): "null"}
    return kinds.get(type(value), "a number")


def _names(graph: dict[str, Any], key: str) -> list[str]:
    names = graph[key]
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise InvalidNetwork(f"{key!r} is a list of names")
    return names


def _edges(graph: dict[str, Any]) -> tuple[list[str], list[str], list[float] | None]:
    edges = graph["edges"]
    if not isinstance(edges, list):
        raise InvalidNetwork(f"'edges' is a list, not {_kind(edges)}")
    weighted = isinstance(edges[0], list) and len(edges[0]) == 3 if edges else not isinstance(graph.get("biases"), list)
    for number, edge in enumerate(edges):
        if type(edge) is not list or len(edge) not in (2, 3) or type(edge[0]) is not str or type(edge[1]) is not str:
            raise InvalidNetwork(f"edge {number} must be [from, to] or [from, to, weight]")
        if (len(edge) == 3) != weighted:
            raise InvalidNetwork(f"edge {number}: either all edges have weights or none")
        if weighted and type(edge[2]) not in (int, float):
            raise InvalidNetwork(f"edge {edge[0][:40]} -> {edge[1][:40]}: its weight is {_kind(edge[2])}, not a number")
    tails, heads = [edge[0] for edge in edges], [edge[1] for edge in edges]
    return tails, heads, [_number(edge[2]) for edge in edges] if weighted else None


def _number(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return float("inf")


def _hidden(graph: dict[str, Any], met: list[str]) -> list[str]:
    if "hidden" not in graph:
        return met
    hidden = _names(graph, "hidden")
    if wrong := sorted(set(hidden) ^ set(met)):
        raise InvalidNetwork(f"'hidden' and the edges do not agree about {wrong[0][:40]!r}")
    return hidden


def _biases(graph: dict[str, Any], weightless: bool, known: set[str]) -> tuple[Sequence[str], list[float]]:
    biases = graph.get("biases", [] if weightless else {})
    if not biases:
        return [], []
    if not isinstance(biases, list if weightless else dict):
        wanted = "a list of nodes, as the edges have no weights" if weightless else "a map from node to number"
        raise InvalidNetwork(f"'biases' must be {wanted}, not {_kind(biases)}")
    values = list(biases.values()) if isinstance(biases, dict) else []
    for name in biases:
        if not isinstance(name, str) or name not in known:
            raise InvalidNetwork(f"a bias at {str(name)[:40]!r}, which is no hidden or output node of the edges")
    for name, value in zip(biases, values, strict=False):
        if type(value) not in (int, float):
            raise InvalidNetwork(f"the bias of {name[:40]!r} is {_kind(value)}, not a number")
    return list(biases), [_number(value) for value in values]


def _slopes(graph: dict[str, Any], activation: str | None, index: dict[str, int], hidden: set[str]) -> Any:
    stated = graph.get("activation")
    if activation is not None:
        if stated is not None and not (
            isinstance(stated, str) and parse_activation(stated) == parse_activation(activation)
        ):
            raise LawfulError("the file states its activations: leave out --activation")
        return parse_activation(activation)
    if stated is None or isinstance(stated, str):
        return parse_activation(stated or "relu")
    if not isinstance(stated, dict) or not all(isinstance(word, str) for word in stated.values()):
        raise InvalidNetwork("'activation' is one name or a map from hidden node to name")
    slopes = np.zeros(len(index))
    for name, word in stated.items():
        if name not in hidden:
            raise InvalidNetwork(f"an activation for {name[:40]!r}, which is no hidden node")
        slopes[index[name]] = parse_activation(word)
    return slopes
