"""The program of a certificate: nodes of a small language, each with a shape that is worked out again.

A node is `[operator, operands, attributes, shape]`, operands by their numbers. `take` moves entries of its operands,
laid end to end, by an index map; everything else computes. What an operator means stands in `operators.py`; here its
shape must be the one that its operands give it, so that a program that is read can be run.
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lawful.errors import NotACertificate
from lawful.verify.core.checkpoint import unpack
from lawful.verify.core.residues import NotCovered
from lawful.verify.core.schema import (
    integer,
    integers,
    items,
    number,
    object_with_keys,
    printable,
    require,
    truth,
    word,
)

MOST_NODES = 200_000
MOST_ENTRIES = 60_000_000  # of all values together
MOST_AT_ONCE = 8_000_000  # of values that are needed at one time: 64 bytes each, in up to three runs, and copies
SAME = {"erf", "tanh", "sigmoid", "exp", "expm1", "log", "log1p", "erfc", "softplus", "sin", "cos", "tan", "asin",
        "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh", "lgamma", "floor", "ceil", "round", "trunc", "relu",
        "abs", "sign", "not", "detach"}  # fmt: skip
TWO = {"add", "mul", "maximum", "minimum", "eq", "ne", "lt", "le", "gt", "ge", "and", "or", "xor", "pow", "atan2",
       "fmod", "remainder", "floor_divide", "trunc_divide"}  # fmt: skip
ALONG = {"sum", "amax", "amin", "prod", "any", "all"}
TRUTHS = {"eq", "ne", "lt", "le", "gt", "ge", "not", "and", "or", "xor", "any", "all", "isnan", "isinf"}


AS_GIVEN = {"gather", "scatter", "isnan", "isinf"}  # run only where all runs have the same operands
# How many operands, and which attributes; `take` has any number of operands, and one of two ways to say what it takes.
OPERATORS: dict[str, tuple[int, str]] = {
    **dict.fromkeys(("input", "parameter", "held"), (0, "name")), "constant": (0, "kind values"),
    **dict.fromkeys(SAME, (1, "")), "power": (1, "exponent"), "cast": (1, "to"), **dict.fromkeys(ALONG, (1, "axes")),
    **dict.fromkeys(("argmax", "argmin", "softmax"), (1, "axis")),
    **dict.fromkeys(("sorted", "argsort"), (1, "axis descending")), "normalise": (1, "axes centre epsilon"),
    **dict.fromkeys(TWO, (2, "")), "contract": (2, "spec"), "lookup": (2, "axis"), "where": (3, ""),
    "conv": (2, "stride padding dilation groups transposed output_padding"),
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class ListedNode:
    """One value of the program."""

    number: int
    op: str
    operands: tuple[int, ...]
    shape: tuple[int, ...]
    attributes: dict[str, Any] = field(default_factory=dict)
    truths: bool = False  # whether all its entries are 0 or 1, whatever the inputs and parameters

    def __str__(self) -> str:
        name = f" {self.attributes['name']}" if "name" in self.attributes else ""
        return f"%{self.number} {self.op}{name}"


@dataclass(frozen=True, eq=False)
class ListedProgram:
    """Nodes in an order in which each comes after what it reads."""

    nodes: tuple[ListedNode, ...]
    outputs: tuple[int, ...]
    digest: str


def read_program(value: object, shapes: dict[str, tuple[int, ...]]) -> ListedProgram:
    """The program, whose parameters are tensors of these shapes."""
    parts = object_with_keys(value, "program", "nodes outputs")
    nodes: list[ListedNode] = []
    entries = 0
    for item in items(parts["nodes"], "program.nodes", most=MOST_NODES):
        op, operands, attributes, shape = items(item, "program.nodes", length=4)
        if not isinstance(op, str):
            raise NotACertificate("program.nodes: an operator has no name")
        size = tuple(integers(shape, "program.nodes", 1, 10**9, most=12))
        entries += math.prod(size) if op != "parameter" else 0
        if entries > MOST_ENTRIES or (op != "parameter" and math.prod(size) > MOST_AT_ONCE):
            raise NotCovered("programs with so many numbers")
        inside = tuple(integers(operands, "program.nodes", 0, len(nodes) - 1, most=64))
        nodes.append(_node(len(nodes), op, [nodes[k] for k in inside], attributes, size, shapes))
    require(bool(nodes), "the program is empty")
    outputs = tuple(integers(parts["outputs"], "program.outputs", 0, len(nodes) - 1, most=1_000))
    require(bool(outputs), "the program has no output")
    _need_room(nodes, outputs)
    return ListedProgram(tuple(nodes), outputs, program_digest(value))


def program_digest(value: object) -> str:
    """Names a listed program: SHA-256 of its JSON with sorted keys and no spaces."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _need_room(nodes: list[ListedNode], outputs: tuple[int, ...]) -> None:
    """Refuse a program of a few lines that takes gigabytes: what is read later is kept until then."""
    last = {source: node.number for node in nodes for source in node.operands} | dict.fromkeys(outputs, len(nodes))
    ending: dict[int, int] = {}
    room = 0
    for node in nodes:
        size = math.prod(node.shape) if node.op != "parameter" else 0
        room += size
        if room + node.attributes.get("padded", 0) > MOST_AT_ONCE:
            raise NotCovered("programs with so many numbers at a time")
        end = last.get(node.number, node.number)
        ending[end] = ending.get(end, 0) + size
        room -= ending.pop(node.number, 0)


def _node(
    place: int,
    op: str,
    inside: list[ListedNode],
    given: object,
    shape: tuple[int, ...],
    shapes: dict[str, tuple[int, ...]],
) -> ListedNode:
    where = f"program node {place}"
    sizes = [operand.shape for operand in inside]
    attributes: dict[str, Any] = {}
    result = shape
    if op == "take":
        if not inside:
            raise NotACertificate(f"{where}: expected operands")
        attributes["map"] = _positions(object_with_keys(given, where, "", "offset strides positions"), shape, where)
        total = sum(math.prod(size) for size in sizes)
        low, high = int(attributes["map"].min()), int(attributes["map"].max())
        require(low >= 0 and high < total, "a movement reads outside of its operands")
    elif op in OPERATORS:
        count, keys = OPERATORS[op]
        if len(inside) != count:
            raise NotACertificate(f"{where}: expected {count} operands")
        parts = object_with_keys(given, where, keys)
        if op == "conv":
            attributes, result = _convolution(parts, sizes)
        elif op == "constant":
            attributes = {"kind": parts["kind"], "value": _constant(parts, shape, where)}
        elif op == "contract":
            attributes["spec"] = _spec(parts["spec"], sizes, where)
        else:
            attributes = {key: _attribute(key, value, sizes, where) for key, value in parts.items()}
        known = op in ("input", "constant") or shapes.get(attributes.get("name", "")) == shape
        require(count > 0 or known, "a parameter of the program is no tensor of the certificate")
        result = _result(op, attributes, sizes, where) if count and op != "conv" else result
    elif op not in AS_GIVEN:
        raise NotCovered(printable(op)[:40])
    require(result == shape, "a node of the program has another shape than its operands give it")
    truths = op in TRUTHS or attributes.get("to") == "b" or attributes.get("kind") == "b"
    truths = truths or (op in ("take", "detach", "cast") and all(operand.truths for operand in inside))
    return ListedNode(place, op, tuple(operand.number for operand in inside), shape, attributes, truths)


def _attribute(key: str, value: object, sizes: list[tuple[int, ...]], where: str) -> Any:
    match key:
        case "name" if not isinstance(value, str):
            raise NotACertificate(f"{where}: expected a name")
        case "axis":
            return integer(value, where, 0, len(sizes[0]) - 1)
        case "axes":
            return _axes(value, sizes[0], where)
        case "to":
            return word(value, where, "b", "i", "f")
        case "exponent" | "epsilon":
            exact = number(value, where)
            require(key == "exponent" or exact >= 0, "an ε is negative")
            return exact
        case "centre" | "descending":
            return truth(value, where)
    return value


def _result(op: str, attributes: dict[str, Any], sizes: list[tuple[int, ...]], where: str) -> tuple[int, ...]:
    """The shape that operands give."""
    if op in TWO or op == "where":
        return _broadcast(sizes, where)
    if op in ALONG or op in ("argmax", "argmin"):
        axes = attributes.get("axes", (attributes.get("axis"),))
        return tuple(1 if k in axes else n for k, n in enumerate(sizes[0]))
    if op == "contract":
        (left, right), out = attributes["spec"]
        size = dict(zip(left + right, sizes[0] + sizes[1], strict=True))
        return tuple(size[letter] for letter in out)
    if op == "lookup":
        axis = attributes["axis"]
        return (*sizes[0][:axis], *sizes[1], *sizes[0][axis + 1 :])
    return sizes[0]


def _broadcast(sizes: list[tuple[int, ...]], where: str) -> tuple[int, ...]:
    try:
        return tuple(int(n) for n in np.broadcast_shapes(*sizes))
    except ValueError:
        raise NotACertificate(f"{where}: operands do not fit") from None


def _axes(value: object, shape: tuple[int, ...], where: str) -> tuple[int, ...]:
    axes = tuple(integers(value, where, 0, len(shape) - 1, most=len(shape)))
    require(len(set(axes)) == len(axes) and bool(axes), "an axis is named twice, or none")
    return axes


def _spec(value: object, sizes: list[tuple[int, ...]], where: str) -> tuple[tuple[str, str], str]:
    if not isinstance(value, str) or value.count("->") != 1 or value.count(",") != 1:
        raise NotACertificate(f"{where}: expected an Einstein sum of two operands")
    inside, out = value.split("->")
    left, right = inside.split(",")
    letters = left + right + out
    require(letters.isalpha() and letters.isascii(), "an Einstein sum has letters alone")
    require(
        all(len(set(letters_of)) == len(letters_of) for letters_of in (left, right, out)),
        "a letter is repeated in one operand",
    )
    require(len(left) == len(sizes[0]) and len(right) == len(sizes[1]), "an Einstein sum does not fit its operands")
    require(set(out) <= set(left + right), "a result of an Einstein sum is no letter of its operands")
    size = dict(zip(left, sizes[0], strict=True))
    require(all(size.get(c, n) == n for c, n in zip(right, sizes[1], strict=True)), "a letter has two sizes")
    return (left, right), out


def _convolution(parts: dict[str, Any], sizes: list[tuple[int, ...]]) -> tuple[dict[str, Any], tuple[int, ...]]:
    (batch, channels, *places), (outer, inner, *kernel) = sizes[0], sizes[1]
    rank = len(places)
    require(rank == len(kernel) and 1 <= rank <= 3, "a convolution does not fit its kernel")
    names = ("stride", "padding", "dilation", "output_padding")
    lists = {name: tuple(integers(parts[name], "conv", 0, 10**6, length=rank)) for name in names}
    groups = integer(parts["groups"], "conv", 1, 10**6)
    if truth(parts["transposed"], "conv"):
        raise NotCovered("transposed convolutions")
    require(min(lists["stride"]) > 0 and min(lists["dilation"]) > 0, "a stride is zero")
    require(inner * groups == channels and outer % groups == 0, "a convolution does not fit its groups")
    result = [
        (n + 2 * p - d * (k - 1) - 1) // s + 1
        for n, k, s, p, d in zip(places, kernel, lists["stride"], lists["padding"], lists["dilation"], strict=True)
    ]
    require(min(result) > 0, "a kernel is larger than what it reads")
    padded = batch * channels * math.prod(n + 2 * p for n, p in zip(places, lists["padding"], strict=True))
    return {**lists, "groups": groups, "padded": padded}, (batch, outer, *result)


def _positions(parts: dict[str, Any], shape: tuple[int, ...], where: str) -> np.ndarray[Any, Any]:
    """An affine map `offset + Σ stride_k i_k`, or the positions themselves."""
    if "positions" in parts:
        object_with_keys(parts, where, "positions")
        return unpack(parts["positions"], math.prod(shape), where, "<i8").reshape(shape)
    object_with_keys(parts, where, "offset strides")
    strides = integers(parts["strides"], where, -(10**10), 10**10, length=len(shape))
    total = np.full(shape, integer(parts["offset"], where, 0, 10**10), dtype=np.int64)
    for axis, (size, step) in enumerate(zip(shape, strides, strict=True)):
        total += (step * np.arange(size)).reshape(-1, *(1,) * (len(shape) - axis - 1))
    return total


def _constant(parts: dict[str, Any], shape: tuple[int, ...], where: str) -> np.ndarray[Any, Any]:
    kind = word(parts["kind"], where, "b", "i", "f")
    count = math.prod(shape)
    values = unpack(parts["values"], count, where, "<f8" if kind == "f" else "<i8").reshape(shape)
    require(kind != "b" or bool(((values == 0) | (values == 1)).all()), "a truth value is neither 0 nor 1")
    return values
