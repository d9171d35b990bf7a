"""Named arrays and networks: what `.safetensors`, `.pt` and `.npz` have in common, and plain matrices (W1, b1, ...)."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.lib.array_utils import byte_bounds
from numpy.typing import NDArray

from lawful.errors import InvalidNetwork, LawfulError, Unsupported
from lawful.formats.io.limits import check_numbers
from lawful.network.architecture import activation_name, parse_activation
from lawful.network.dag import Dag, useful_dag
from lawful.network.mlp import Mlp
from lawful.network.reading import Reading, TensorReading, carrying, list_names

Arrays = Mapping[str, NDArray[Any]]
GRAPH_KEYS = ("dag.names", "dag.roles", "dag.tails", "dag.heads", "dag.slopes")
REMEDY = (
    "only Linear layers can be read from weights alone; give --model module:factory, such as "
    "torchvision.models:resnet18, or an ONNX file"
)
MAX_STEPS = 10_000  # of the search for the layers' order
STATE_DICTS = ("pt", "safetensors", "npz", "state dict")
KEYS = "0.weight, 0.bias, 2.weight, ... (a state dict), W1, b1, W2, b2, ... or arr_0, arr_1, ... (plain matrices)"
NUMBERED = re.compile(r"(w|weights?|b|bias|biases)[_.]?(\d{1,4})", re.I)
UNNAMED = re.compile(r"arr_(\d{1,4})")
SQUARE = (
    "rows of each matrix are outputs, y = W x + b, as in PyTorch: both orders of the axes fit (transpose the "
    "matrices if they are meant for y = x W + b)"
)
Pairs = list[tuple[NDArray[Any], NDArray[Any] | None]]


@dataclass(frozen=True, eq=False)
class StoredArrays:
    """What a file of named tensors holds: the numbers, the types they are stored in, and what else was in it.

    `slopes` are the activations that the file itself states, one per hidden layer; `metadata` other texts in it.
    """

    arrays: Arrays
    dtypes: Mapping[str, str] = field(default_factory=dict)
    slopes: Sequence[float] | None = None
    ignored: tuple[str, ...] = ()
    metadata: Mapping[str, str] = field(default_factory=dict)
    assumed: tuple[str, ...] = ()

    def layer(self, name: str) -> TensorReading:
        """How a tensor is stored."""
        array = self.arrays[name]
        return TensorReading(name, self.dtypes.get(name, str(array.dtype)), tuple(array.shape))


def arrays_of(network: Mlp | Dag, like: Reading | None = None) -> dict[str, NDArray[Any]]:
    """The arrays that stand for a network; an `Mlp`'s have the names of `like`, or of a PyTorch `Sequential`.

    >>> list(arrays_of(Mlp([[[1.0, 2.0]], [[3.0]]], [[0.5], None])))
    ['0.weight', '0.bias', '2.weight']
    """
    if isinstance(network, Mlp):
        pairs = stored_names(like, len(network.weights))
        parameters: dict[str, NDArray[Any]] = {}
        for number, (weight, bias) in enumerate(zip(network.weights, network.biases, strict=True)):
            names = (f"{2 * number}.weight", f"{2 * number}.bias") if pairs is None else pairs[number][:2]
            parameters[names[0]] = weight
            if bias is not None or (pairs is not None and pairs[number][2]):
                parameters[names[1]] = np.zeros(len(weight)) if bias is None else bias
        order = [] if like is None else [layer.name for layer in like.layers]
        return {name: parameters[name] for name in sorted(parameters, key=lambda name: _rank(order, name))}
    arrays: dict[str, NDArray[Any]] = {
        "dag.names": np.frombuffer(json.dumps(network.names, separators=(",", ":")).encode(), dtype=np.uint8),
        "dag.roles": network.roles,
        "dag.tails": network.tails.astype(np.int64),
        "dag.heads": network.heads.astype(np.int64),
        "dag.slopes": network.slopes,
    }
    return arrays if network.weights is None else {**arrays, "dag.weights": network.weights}


def _rank(order: list[str], name: str) -> int:
    return order.index(name) if name in order else len(order)


def stored_names(like: Reading | None, layers: int) -> list[tuple[str, str, bool]] | None:
    """Names of weight and bias of each layer in a state dict that was read, and whether it had that bias."""
    if like is None or like.format not in STATE_DICTS:
        return None
    names = {layer.name for layer in like.layers}
    prefixes = [layer.name.removesuffix("weight") for layer in like.layers if layer.name.endswith("weight")]
    if len(prefixes) != layers:
        return None
    return [(f"{prefix}weight", f"{prefix}bias", f"{prefix}bias" in names) for prefix in prefixes]


def network_of(
    stored: StoredArrays,
    kind: str,
    *,
    activation: str | None = None,
    order: Sequence[str] | None = None,
    drop_useless: bool = False,
) -> Mlp | Dag:
    """The network that named arrays stand for, with its reading.

    `activation` and `order` (names of layers from input to output) are the user's word for files that state none;
    without it ReLU is assumed, and an order that the names do not give is refused.
    """
    arrays = stored.arrays
    total = sum(check_numbers(f"tensor {name[:80]!r}", array.shape) for name, array in arrays.items())
    check_numbers("the file", (total,))
    if "dag.names" in arrays:
        refuse_activation(activation, None)
        layers = tuple(stored.layer(name) for name in arrays if name == "dag.weights")
        return carrying(_graph(arrays, drop_useless), Reading(kind, layers, ignored=stored.ignored))
    chain = chain_of(stored, order)
    numbers = {name: as_float64(name, array) for name, array in arrays.items()}
    assumed = []
    if stored.slopes is not None:
        refuse_activation(activation, stored.slopes)
        if len(stored.slopes) != len(chain) - 1:
            raise InvalidNetwork(f"states {len(stored.slopes)} activations for {len(chain) - 1} hidden layers")
    elif activation is None and len(chain) > 1:
        names = list_names(prefix.rstrip(".") for prefix in chain)
        assumed.append(
            f"ReLU between the layers {names} and nothing after the last, as weights alone do not say: the answer "
            "holds only if so (say it with --activation)"
        )
    elif activation is None:
        assumed.append("nothing before or after the one layer, as weights alone do not say (say it with --activation)")
    elif order is None and not all(re.search(r"\d\.$", prefix) for prefix in chain if len(chain) > 1):
        names = list_names(prefix.rstrip(".") for prefix in chain)
        assumed.append(f"nothing but one layer in each of the blocks {names}: no skips (say it with --order)")
    slopes = stored.slopes if stored.slopes is not None else parse_activation(activation or "relu")
    parts = [f"{prefix}{part}" for prefix in chain for part in ("weight", "bias")]
    reading = Reading(
        kind,
        tuple(stored.layer(name) for name in parts if name in arrays),
        (*stored.assumed, *assumed),
        stored.ignored,
        _tied_tensors({name: arrays[name] for name in parts if name in arrays}),
        states_activations=stored.slopes is not None,
        metadata=stored.metadata,
    )
    try:
        weights, biases = [numbers[f"{p}weight"] for p in chain], [numbers.get(f"{p}bias") for p in chain]
        return Mlp(weights, biases, slopes, reading)
    except InvalidNetwork as error:
        raise InvalidNetwork(f"{error} (layers in order: {list_names(p.rstrip('.') for p in chain)})"[:400]) from None


def _tied_tensors(arrays: Arrays) -> tuple[str, ...]:
    """Which tensors are one in the source: they share memory, as tied layers do in a checkpoint of PyTorch."""
    # Neighbours in memory are enough: a tensor of a checkpoint is one storage, or a part of one.
    bounds = sorted((*byte_bounds(array), name) for name, array in arrays.items() if array.size)
    return tuple(
        f"{one} and {two} are one tensor"
        for (_, end, one), (start, _, two) in itertools.pairwise(bounds)
        if start < end and _overlap(arrays[one], arrays[two])
    )


def _overlap(one: NDArray[Any], two: NDArray[Any]) -> bool:
    try:
        return np.shares_memory(one, two, max_work=10_000)  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return True


def chain_of(stored: StoredArrays, order: Sequence[str] | None) -> list[str]:
    """What stands before `weight` in the names of the Linear layers, from input to output."""
    shapes = {prefix: stored.arrays[f"{prefix}weight"].shape for prefix in layer_prefixes(stored.arrays)}
    chain = stated_order(list(shapes), order) if order is not None else layer_order(shapes)
    _check_chain(chain, shapes)
    return chain


def layer_prefixes(arrays: Arrays) -> list[str]:
    """What stands before `weight` in the names of Linear layers; anything else in the file is refused."""
    prefixes = [name.removesuffix("weight") for name in arrays if re.fullmatch(r"(.*\.)?weight", name, re.DOTALL)]
    if not arrays:
        raise InvalidNetwork(f"holds no tensor; names that are read: {KEYS}")
    if not prefixes:
        tensors = list_names(f"{name[:40]!r} of shape {tuple(array.shape)}" for name, array in arrays.items())
        raise Unsupported(f"tensor {tensors}: names that are read are {KEYS}; {REMEDY}")
    used = {f"{prefix}{kind}" for prefix in prefixes for kind in ("weight", "bias")}
    for name, array in arrays.items():
        expected = 2 if name.endswith("weight") else 1
        if name not in used or array.ndim != expected:
            raise Unsupported(f"tensor {name[:80]!r} of shape {tuple(array.shape)}: {REMEDY}")
    return prefixes


def as_float64(name: str, array: NDArray[Any]) -> NDArray[np.float64]:
    """The same numbers in float64, refused if that would round them or if they are not real numbers."""
    if array.dtype.kind not in "fiu" or array.dtype.itemsize > 8:
        raise Unsupported(f"tensor {name[:80]!r} has numbers of type {array.dtype}: real floats and integers are read")
    # Of the least int64 the absolute value is no int64, so it is taken of Python's integers.
    if array.dtype.kind in "iu" and array.size and max(abs(int(array.max())), abs(int(array.min()))) > 2**53:
        raise Unsupported(f"tensor {name[:80]!r} has integers beyond 2^53, which float64 would round")
    return array.astype(np.float64)


def layer_order(shapes: Mapping[str, tuple[int, ...]]) -> list[str]:
    """Layers from input to output, if their names differ in one number and say so; else nobody can know.

    Weights of an actor and a critic, of queries and keys, of blocks with skips fit together by accident. Numbers that
    are part of a word count every layer (fc1, fc2), or they mean something else (fc1, fc21, fc22).

    >>> layer_order({"l10.": (1, 4), "l9.": (4, 3)})
    ['l9.', 'l10.']
    """
    prefixes = list(shapes)
    families: dict[str, list[str]] = {}
    for prefix in prefixes:
        families.setdefault(re.sub(r"\d+", "#", prefix), []).append(prefix)
    numbered = {prefix: [int(digits) for digits in re.findall(r"\d+", prefix)] for prefix in prefixes}
    for members in families.values():
        members.sort(key=numbered.__getitem__)
    changing = (
        {place for a in prefixes for place, digits in enumerate(numbered[a]) if digits != numbered[prefixes[0]][place]}
        if len(families) == 1
        else set()
    )
    if len(families) == 1 and len(changing) <= 1:
        ordered = next(iter(families.values()))
        if all(re.fullmatch(r"(.*\.)?\d+\.", prefix) for prefix in ordered) or not changing:
            return ordered  # places in a container: what has no weights is not counted
        place = changing.pop()
        steps = {numbered[above][place] - numbered[below][place] for below, above in itertools.pairwise(ordered)}
        if steps == {1}:
            return ordered
    fits = _chains(list(families.values()), shapes) if len(families) > 1 else []
    guess = f" (the widths fit in the order {','.join(p.rstrip('.') for p in fits[0])})" if len(fits) == 1 else ""
    raise InvalidNetwork(
        f"the names {list_names(p.rstrip('.') for p in prefixes)} do not say how its layers are joined: give "
        f"--order first,second,... or --model module:factory{guess}"
    )


def stated_order(prefixes: Sequence[str], order: Sequence[str]) -> list[str]:
    """The user's order, checked: every layer once."""
    known = {prefix.rstrip("."): prefix for prefix in prefixes}
    names = [name.strip().removesuffix(".weight").rstrip(".") for name in order]
    for name in names:
        if name not in known:
            raise LawfulError(f"--order names {name[:60]!r}, and the layers are {list_names(known)}")
    if len(set(names)) < len(names):
        raise LawfulError("--order names a layer twice: a layer used twice needs --model module:factory")
    if missing := [name for name in known if name not in names]:
        raise LawfulError(f"--order leaves out {list_names(missing)}: name every layer, or give --model module:factory")
    return [known[name] for name in names]


def _check_chain(chain: Sequence[str], shapes: Mapping[str, tuple[int, ...]]) -> None:
    for below, above in itertools.pairwise(chain):
        if shapes[above][1] != shapes[below][0]:
            raise InvalidNetwork(
                f"layer {above.rstrip('.')} takes {shapes[above][1]} inputs, but {below.rstrip('.')} before it gives "
                f"{shapes[below][0]}: give --order first,second,... or --model module:factory"
            )


def _chains(families: list[list[str]], shapes: Mapping[str, tuple[int, ...]]) -> list[list[str]]:
    """Up to two orders in which each layer takes what the one before it gives, each family kept in its own order."""
    orders: list[list[str]] = []
    stack: list[tuple[list[str], tuple[int, ...]]] = [([], (0,) * len(families))]
    steps = 0
    # Two orders are as good as many: only one that is alone is worth a guess.
    while stack and len(orders) < 2 and steps < MAX_STEPS:
        steps += 1
        chain, taken = stack.pop()
        if len(chain) == len(shapes):
            orders.append(chain)
        for number, members in enumerate(families):
            if taken[number] < len(members):
                layer = members[taken[number]]
                if not chain or shapes[layer][1] == shapes[chain[-1]][0]:
                    stack.append(([*chain, layer], (*taken[:number], taken[number] + 1, *taken[number + 1 :])))
    return orders if steps < MAX_STEPS else []


def refuse_activation(activation: str | None, recorded: Sequence[float] | None) -> None:
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


def layers_of(arrays: Arrays) -> tuple[dict[str, NDArray[Any]], tuple[str, ...]] | None:
    """The arrays under the names of a state dict, and what was assumed of them; None if they are no plain matrices.

    Matrices for `y = W x + b` and for `y = x W + b` are told apart by which of the two fits together.

    >>> import numpy as np
    >>> found, assumed = layers_of({"W1": np.ones((2, 3)), "b1": np.ones(3), "W2": np.ones((3, 1))})
    >>> {name: array.shape for name, array in found.items()}, assumed
    ({'0.weight': (3, 2), '0.bias': (3,), '1.weight': (1, 3)}, ())
    """
    pairs = _numbered_layers(arrays) if all(NUMBERED.fullmatch(name) for name in arrays) else _unnamed_layers(arrays)
    if not pairs:
        return None
    # Square matrices fit both ways; then the convention of PyTorch is assumed, and said.
    rows_out, columns_out = _fits(pairs, 0), _fits(pairs, 1)
    if not (rows_out or columns_out):
        shapes = ", ".join(f"{name} {array.shape}" for name, array in arrays.items())
        raise Unsupported(f"the matrices do not fit together as layers, one after the other: {shapes[:200]}")
    named: dict[str, NDArray[Any]] = {}
    for number, (weight, bias) in enumerate(pairs):
        named[f"{number}.weight"] = weight if rows_out else weight.T
        if bias is not None:
            named[f"{number}.bias"] = bias.reshape(-1)
    return named, (SQUARE,) if rows_out and columns_out else ()


def _numbered_layers(arrays: Arrays) -> Pairs:
    """W1, b1, ...: a matrix for every number from the first to the last, a vector for some."""
    parts: dict[tuple[bool, int], NDArray[Any]] = {}
    for name, array in arrays.items():
        word, number = NUMBERED.fullmatch(name).groups()  # type: ignore[union-attr]  # the caller asked
        key = word.lower().startswith("b"), int(number)
        if key in parts:
            return []
        parts[key] = array
    numbers = sorted(number for is_bias, number in parts if not is_bias)
    biases = {number for is_bias, number in parts if is_bias}
    whole = bool(numbers) and numbers == list(range(numbers[0], numbers[0] + len(numbers))) and biases <= set(numbers)
    pairs: Pairs = [(parts[False, number], parts.get((True, number))) for number in numbers] if whole else []
    return pairs if all(_is_layer(*pair) for pair in pairs) else []


def _unnamed_layers(arrays: Arrays) -> Pairs:
    """arr_0, arr_1, ...: matrices in order, each perhaps followed by its bias."""
    numbered = {int(match[1]): array for name, array in arrays.items() if (match := UNNAMED.fullmatch(name))}
    if not numbered or len(numbered) != len(arrays) or sorted(numbered) != list(range(len(numbered))):
        return []
    pairs: Pairs = []
    for number in range(len(numbered)):
        array = numbered[number]
        if array.ndim == 2:
            pairs.append((array, None))
        elif pairs and pairs[-1][1] is None and _is_layer(pairs[-1][0], array):
            pairs[-1] = pairs[-1][0], array
        else:
            return []
    return pairs


def _is_layer(weight: NDArray[Any], bias: NDArray[Any] | None) -> bool:
    return weight.ndim == 2 and (
        bias is None or (bias.size in weight.shape and max(bias.shape, default=0) == bias.size)
    )


def _fits(pairs: Pairs, outputs: int) -> bool:
    """Whether the layers fit together if this axis of each matrix counts its outputs."""
    chained = all(above[0].shape[1 - outputs] == below[0].shape[outputs] for below, above in itertools.pairwise(pairs))
    return chained and all(bias is None or bias.size == weight.shape[outputs] for weight, bias in pairs)
