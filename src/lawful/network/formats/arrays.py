"""Named arrays and networks: what `.safetensors`, `.pt` and `.npz` have in common."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lawful.errors import InvalidNetwork, LawfulError, Unsupported
from lawful.network.architecture import activation_name, parse_activation
from lawful.network.dag import Dag, useful_dag
from lawful.network.formats.limits import check_numbers
from lawful.network.mlp import Mlp

Arrays = Mapping[str, NDArray[Any]]
GRAPH_KEYS = ("dag.names", "dag.roles", "dag.tails", "dag.heads", "dag.slopes")
REMEDY = "only Linear layers can be read from a state dict; give the module or an ONNX file"
MAX_STEPS = 10_000  # of the search for the layers' order


def arrays_of(network: Mlp | Dag) -> dict[str, NDArray[Any]]:
    """The arrays that stand for a network; an `Mlp`'s have the names of a PyTorch `Sequential`.

    >>> list(arrays_of(Mlp([[[1.0, 2.0]], [[3.0]]], [[0.5], None])))
    ['0.weight', '0.bias', '2.weight']
    """
    if isinstance(network, Mlp):
        arrays: dict[str, NDArray[Any]] = {}
        for layer, (weight, bias) in enumerate(zip(network.weights, network.biases, strict=True)):
            arrays[f"{2 * layer}.weight"] = weight
            if bias is not None:
                arrays[f"{2 * layer}.bias"] = bias
        return arrays
    arrays = {
        "dag.names": np.frombuffer(json.dumps(network.names, separators=(",", ":")).encode(), dtype=np.uint8),
        "dag.roles": network.roles,
        "dag.tails": network.tails.astype(np.int64),
        "dag.heads": network.heads.astype(np.int64),
        "dag.slopes": network.slopes,
    }
    return arrays if network.weights is None else {**arrays, "dag.weights": network.weights}


def network_of(
    arrays: Arrays,
    *,
    recorded: Sequence[float] | None = None,
    activation: str | None = None,
    drop_useless: bool = False,
    in_order: bool = True,
) -> Mlp | Dag:
    """The network that named arrays stand for.

    `recorded` are the slopes that the file itself states, one per hidden layer; `activation` is the user's word for
    files that state none (else ReLU). `in_order`: the file keeps the order in which the layers were made.
    """
    total = sum(check_numbers(f"tensor {name[:80]!r}", array.shape) for name, array in arrays.items())
    check_numbers("the file", (total,))
    if "dag.names" in arrays:
        _refuse_activation(activation, None)
        return _graph(arrays, drop_useless)
    prefixes = [name.removesuffix("weight") for name in arrays if re.fullmatch(r"(.*\.)?weight", name, re.DOTALL)]
    used = {f"{prefix}{kind}" for prefix in prefixes for kind in ("weight", "bias")}
    for name, array in arrays.items():
        expected = 2 if name.endswith("weight") else 1
        if name not in used or array.ndim != expected:
            raise Unsupported(f"tensor {name[:80]!r} of shape {array.shape}: {REMEDY}")
    if not prefixes:
        raise InvalidNetwork("holds no tensor called '*.weight'")
    numbers = {name: as_float64(name, array) for name, array in arrays.items()}
    order = layer_order(prefixes, [numbers[f"{prefix}weight"].shape for prefix in prefixes], in_order)
    if recorded is not None:
        _refuse_activation(activation, recorded)
        if len(recorded) != len(prefixes) - 1:
            raise InvalidNetwork(f"states {len(recorded)} activations for {len(prefixes) - 1} hidden layers")
    slopes = recorded if recorded is not None else parse_activation(activation or "relu")
    try:
        return Mlp([numbers[f"{p}weight"] for p in order], [numbers.get(f"{p}bias") for p in order], slopes)
    except InvalidNetwork as error:
        raise InvalidNetwork(f"{error} (layers in order: {', '.join(p.rstrip('.') for p in order)})"[:400]) from None


def as_float64(name: str, array: NDArray[Any]) -> NDArray[np.float64]:
    """The same numbers in float64, refused if that would round them or if they are not real numbers."""
    if array.dtype.kind not in "fiu" or array.dtype.itemsize > 8:
        raise Unsupported(f"tensor {name[:80]!r} has numbers of type {array.dtype}: real floats and integers are read")
    if array.dtype.kind in "iu" and array.size and max(abs(int(array.max())), abs(int(array.min()))) > 2**53:
        raise Unsupported(f"tensor {name[:80]!r} has integers beyond 2^53, which float64 would round")
    return array.astype(np.float64)


def layer_order(prefixes: Sequence[str], shapes: Sequence[tuple[int, ...]], in_order: bool) -> list[str]:
    """Layers from input to output.

    Names that differ only in their numbers are ordered by the numbers. Otherwise the file's order counts if it means
    something, else the only order in which the widths fit; if there are several, nobody can know.

    >>> layer_order(["l10.", "l9."], [(1, 4), (4, 3)], True)
    ['l9.', 'l10.']
    >>> layer_order(["head.", "fc1."], [(1, 4), (4, 3)], False)
    ['fc1.', 'head.']
    """
    families: dict[str, list[int]] = {}
    for place, prefix in enumerate(prefixes):
        families.setdefault(re.sub(r"\d+", "#", prefix), []).append(place)
    for members in families.values():
        members.sort(key=lambda place: [int(digits) for digits in re.findall(r"\d+", prefixes[place])])
    if len(families) == 1:
        return [prefixes[place] for place in next(iter(families.values()))]
    if in_order:
        return list(prefixes)
    found = _chains(list(families.values()), shapes)
    if len(found) != 1:
        say = "several orders fit" if found else "no order fits"
        raise InvalidNetwork(
            f"cannot tell the order of the layers {', '.join(prefixes)[:120]} ({say}): number their names"
        )
    return [prefixes[place] for place in found[0]]


def _chains(families: list[list[int]], shapes: Sequence[tuple[int, ...]]) -> list[list[int]]:
    """Up to two orders in which each layer takes what the one before it gives, each family kept in its own order."""
    found: list[list[int]] = []
    stack: list[tuple[list[int], tuple[int, ...]]] = [([], (0,) * len(families))]
    steps = 0
    while stack and len(found) < 2 and steps < MAX_STEPS:
        steps += 1
        chain, taken = stack.pop()
        if len(chain) == len(shapes):
            found.append(chain)
        for number, members in enumerate(families):
            if taken[number] < len(members):
                place = members[taken[number]]
                if not chain or shapes[place][1] == shapes[chain[-1]][0]:
                    stack.append(([*chain, place], (*taken[:number], taken[number] + 1, *taken[number + 1 :])))
    return found if steps < MAX_STEPS else []


def _refuse_activation(activation: str | None, recorded: Sequence[float] | None) -> None:
    """The user's activation must not contradict the file's own."""
    if activation is None or (recorded is not None and set(recorded) <= {parse_activation(activation)}):
        return
    stated = "its own for every node" if recorded is None else ", ".join(activation_name(slope) for slope in recorded)
    raise LawfulError(f"the file states its activations ({stated}): leave out --activation")


def _graph(arrays: Arrays, drop_useless: bool) -> Dag:
    missing = [key for key in GRAPH_KEYS if key not in arrays]
    unknown = [name for name in arrays if name not in (*GRAPH_KEYS, "dag.weights")]
    if missing or unknown:
        word = f"lacks {missing[0]!r}" if missing else f"has an unknown entry {unknown[0][:80]!r}"
        raise InvalidNetwork(f"a stored graph that {word}")
    for key, array in arrays.items():
        kinds = "f" if key in ("dag.slopes", "dag.weights") else "iu"
        if array.ndim != 1 or array.dtype.kind not in kinds:
            raise InvalidNetwork(f"{key!r} has shape {array.shape} and type {array.dtype}: not a stored graph's")
    try:
        names = json.loads(arrays["dag.names"].astype(np.uint8).tobytes())
    except (ValueError, RecursionError):
        names = None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise InvalidNetwork("'dag.names' is not a list of names")
    if len(arrays["dag.slopes"]) != len(names) or len(arrays["dag.roles"]) != len(names):
        raise InvalidNetwork(f"{len(names)} nodes, but {len(arrays['dag.slopes'])} slopes")
    if not np.isin(arrays["dag.roles"], (0, 1, 2, 3)).all():
        raise InvalidNetwork("'dag.roles' has a role other than 0 (input), 1 (hidden), 2 (output), 3 (constant)")
    for key in ("dag.tails", "dag.heads"):
        if len(arrays[key]) and not (int(arrays[key].min()) >= 0 and int(arrays[key].max()) < len(names)):
            raise InvalidNetwork(f"{key!r} names a node that does not exist")
    make = useful_dag if drop_useless else Dag
    parts = (arrays["dag.roles"], arrays["dag.tails"], arrays["dag.heads"])
    return make(names, *parts, arrays.get("dag.weights"), arrays["dag.slopes"])
