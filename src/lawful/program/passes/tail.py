"""The end of a program that makes probabilities or labels of a piecewise linear function: cut off, and named.

A softmax, a sigmoid, their logarithms, an argmax and what follows them are left out of a scalar graph if they read one
value alone, have no weights of their own, and end in probabilities, their logarithms, or labels. Two ends are one if
their programs are.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import partial

from lawful.program.builder import Builder
from lawful.program.operators.elementwise import log_sigmoid
from lawful.program.operators.normalisation import log_softmax, softmax
from lawful.program.passes.rebuild import rebuild
from lawful.program.program import Node, Program
from lawful.program.table import OperatorFamily

Follows = Callable[[Node, Collection[Node]], bool]
# 128 bits: networks are compared without their ends if the words of both are equal, and of 32 bits two thresholds of a
# comparison have the same ones within a second of search.
MARK = 32
LOGARITHMS = ("log_softmax", "log_sigmoid")
PLAIN = frozenset({OperatorFamily.LEAF, OperatorFamily.MOVEMENT, OperatorFamily.ADDITION, OperatorFamily.PRODUCT})


@dataclass(frozen=True, eq=False)
class Tail:
    """What was cut off: its program, whose one input is the value that it reads, and its name."""

    program: Program
    words: str


def depends_on_input(program: Program) -> dict[Node, None]:
    """The nodes that depend on an input, in order."""
    result: dict[Node, None] = {}
    for node in program.nodes:
        if node.op == "input" or any(operand in result for operand in node.inputs):
            result[node] = None
    return result


def split(program: Program, follows: Follows) -> tuple[Program, Tail | None] | Node:
    """The program before its tail, and the tail; or the first node that `follows` says cannot be followed."""
    varying = depends_on_input(program)
    bad = next((node for node in varying if node.op != "input" and not follows(node, varying)), None)
    if bad is None:
        output = program.outputs[0]
        return _cut(program, output.inputs[0]) if _stacks(program, output) else (program, None)
    after = follows_tail(varying, follows)
    ends = [member for member in program.outputs if member in after]
    if len(ends) != len(program.outputs):
        return bad
    # From the end: the shortest tail that holds all that cannot be followed.
    for node in reversed([member for member in varying if member not in after]):
        if node.kind == "f" and _separates(node, program, varying, after):
            head, tail = _cut(program, node)
            return (head, tail) if _is_tail(tail.program, bad) else bad
    return bad


def follows_tail(varying: Collection[Node], follows: Follows) -> set[Node]:
    """The nodes that cannot be followed, and all that reads them."""
    after: set[Node] = set()
    for node in varying:
        if node.op != "input" and (not follows(node, varying) or any(operand in after for operand in node.inputs)):
            after.add(node)
    return after


def _separates(cut: Node, program: Program, varying: Collection[Node], after: Collection[Node]) -> bool:
    """Whether all that comes after depends on the input through one node alone."""
    reached: set[Node] = set()
    for node in varying:
        if node is not cut and (node.op == "input" or any(operand in reached for operand in node.inputs)):
            if node in after:
                return False
            reached.add(node)
    return True


def _is_tail(tail: Program, first: Node) -> bool:
    (value,) = tail.inputs
    if tail.parameters or tail.buffers or not all(_is_end(value, output) for output in tail.outputs):
        return False
    # The first node that cannot be followed must make probabilities itself: in σ(sin x), sin x is no logit of the
    # graph.
    return starts(first) or any(_is_log_end(value, output) for output in tail.outputs)


def _is_end(value: Node, output: Node) -> bool:
    """Whether an output of a tail is a label, a probability or the logarithm of one, or made of such by moving them."""
    if output.kind in ("b", "i") or starts(output) or _usual_name(value, output, LOGARITHMS):
        return True
    inner = [operand for operand in output.inputs if operand.op != "constant"]
    moves = output.family is OperatorFamily.MOVEMENT or output.op == "cast" or _is_complement(output)
    return moves and bool(inner) and all(_is_end(value, operand) for operand in inner)


def starts(node: Node) -> bool:
    """Whether a node makes probabilities or labels: softmax, sigmoid, argmax, a sort."""
    low, high = node.traits.range
    chooses = node.family is OperatorFamily.REDUCTION and node.kind == "i"
    sorts = node.family is OperatorFamily.CHOICE and len(node.inputs) == 1
    return (low >= 0 and high <= 1 and node.kind == "f") or chooses or sorts


def _is_log_end(value: Node, output: Node) -> bool:
    """Whether a movement of log-probabilities ends the tail."""
    while output.family is OperatorFamily.MOVEMENT and len(output.inputs) == 1:
        (output,) = output.inputs
    return bool(_usual_name(value, output, LOGARITHMS))


def _is_complement(node: Node) -> bool:
    """1 - p, or the product inside."""
    number = node.inputs[0]
    if number.op != "constant" or node.family not in (OperatorFamily.ADDITION, OperatorFamily.PRODUCT):
        return False
    return bool((number["value"] == (1 if node.family is OperatorFamily.ADDITION else -1)).all())


def _usual_name(value: Node, output: Node, names: Collection[str] = ()) -> str:
    """The name of the one call that makes an output of a value; along one of several axes, with its place."""
    text = Program.of([value], [output], {}).text()
    for name, axis, build in _usual(value.rank):
        if names and name not in names:
            continue
        b = Builder()
        # By the text of whole programs: equal texts are equal functions, while a pattern could overlook a factor.
        if b.finish([build(b, b.input("value", value.shape))]).text() == text:
            inner = [n for n in value.shape[1:] if n != 1]
            if axis is None or (len(inner) <= 1 and value.shape[axis] == math.prod(inner)):
                return name
            where = [] if axis == value.rank - 1 else [str(axis)]
            return f"{name}({', '.join([*where, 'of ' + '×'.join(map(str, value.shape[1:]))])})"
    return ""


def _argmax(b: Builder, x: Node, axis: int) -> Node:
    return b.reduce("argmax", x, axis)


def _usual(rank: int) -> Iterator[tuple[str, int | None, Callable[[Builder, Node], Node]]]:
    yield "sigmoid", None, lambda b, x: b.function("sigmoid", x)
    yield "log_sigmoid", None, log_sigmoid
    for axis in range(rank):
        yield "softmax", axis, partial(softmax, dim=axis)
        yield "log_softmax", axis, partial(log_softmax, dim=axis)
        yield "argmax", axis, partial(_argmax, axis=axis)


def _cut(program: Program, at: Node) -> tuple[Program, Tail]:
    head = Program.of(program.inputs, [at], program.tensors, program.source, program.notes, program.places)

    def rule(b: Builder, node: Node, operands: tuple[Node, ...]) -> Node | None:
        return b.input("value", node.shape, node.kind) if node is at else None

    whole = rebuild(program, rule)
    new = next(node for node in whole.nodes if node.op == "input" and node["name"] == "value")
    rest = Program.of([new], whole.outputs, program.tensors)
    return head, Tail(rest, _words(rest))


def _words(tail: Program) -> str:
    """The name of the one call that a tail is; else of all its calls, with a mark that tells it from others."""
    (value,) = tail.inputs
    name = _usual_name(value, tail.outputs[0]) if len(tail.outputs) == 1 else ""
    if name:
        return name
    calls = dict.fromkeys(
        node["name"] if node.family is OperatorFamily.OPAQUE else node.op
        for node in tail.nodes if node.family not in PLAIN and node.op != "cast"
    )  # fmt: skip
    if not calls:
        return f"reshape to {[-1, *tail.outputs[0].shape[1:]]}"
    return f"{', '.join(calls)} ({hashlib.sha256(tail.text().encode()).hexdigest()[:MARK]})"


def _stacks(program: Program, output: Node) -> bool:
    """Whether an output is all samples' numbers in one column: some tools end with that."""
    if output.family is not OperatorFamily.MOVEMENT or len(output.inputs) != 1:
        return False
    (source,), (value,) = output.inputs, program.inputs
    batch = value.shape[0] if value.shape else 0
    apart = source.rank > 1 and source.shape[0] == batch > 1 and source.size == output.size > batch
    return apart and output["map"].keeps_order and output.shape in ((output.size,), (output.size, 1))
