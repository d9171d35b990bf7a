"""A program as the calls that frameworks have, each for as many nodes as it covers.

The frontends take layers apart: a bias is a sum, a batch normalisation four operators, a pool a maximum of windows. For
running, training and exporting a program, the calls that PyTorch and ONNX have for them are better: they are faster,
and whoever traces or opens the result finds what he knows. So the program is covered from its outputs, the largest call
first; what is used elsewhere too is never hidden inside a call. Every call computes what the nodes that it covers
compute; how it is said in a framework is that framework's backend.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lawful.program.backends.movement_steps import read_windows, spell_movement
from lawful.program.passes.matching import both_orders, divide_by, number_of, peel, read_inverse_root, undo_reshape
from lawful.program.program import Node, Program
from lawful.program.table import OperatorFamily, Refused

_COMMUTES = ("add", "mul", "contract", "maximum", "minimum", "and", "or", "xor")
_BROADCASTING = (
    OperatorFamily.ELEMENTWISE,
    OperatorFamily.ADDITION,
    OperatorFamily.PRODUCT,
    OperatorFamily.CHOICE,
    OperatorFamily.COMPARISON,
)


@dataclass(frozen=True, eq=False)
class Call:
    """The value of a node by one call of some kind: its operands and settings. `operator` is a node's own operator."""

    node: Node
    operands: tuple[Node, ...]
    kind: str = "operator"
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Any:
        return self.settings[name]


def select_calls(program: Program) -> list[Call]:
    """The calls of a program, each after those whose values it needs."""
    return _Selection(program).calls()


def _as_shape(node: Node, shape: Sequence[int]) -> Node | None:
    """The node with axes of size 1 in front, or one of which it is that."""
    if node.shape == tuple(shape):
        return node
    source = undo_reshape(node)
    fits = node.shape == (1,) * (node.rank - len(shape)) + tuple(shape)
    return source if fits and source is not None and source.shape == tuple(shape) else None


def _along(node: Node, axis: int) -> Node | None:
    """The vector that runs along one axis of a node."""
    if any(n != 1 for k, n in enumerate(node.shape) if k != axis):
        return None
    source = peel(node)
    return source if source.rank == 1 else None


class _Selection:
    """The calls of a program."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.uses = Counter(operand for node in program.nodes for operand in node.inputs)
        self.uses.update(program.outputs)
        self.data: set[Node] = set()
        for node in program.nodes:
            if node.op == "input" or any(operand in self.data for operand in node.inputs):
                self.data.add(node)
        self.keys: dict[Node, tuple[Any, ...]] = {}
        for node in program.nodes:
            inside = [self.keys[operand][1] for operand in self.operands(node)]
            name = str(node.attributes.get("name", ""))
            place = node["map"].first if node.op == "take" else 0
            digest = hashlib.sha256(repr((node.op, name, inside)).encode()).digest()
            self.keys[node] = (node not in self.data, digest, place)

    def operands(self, node: Node) -> tuple[Node, ...]:
        """The operands of a node; those that commute in an order in which sizes have no part.

        Data come first, as one writes them. A module with fewer channels makes the same calls in the same order.
        """
        if node.op not in _COMMUTES:
            return node.inputs
        return tuple(sorted(node.inputs, key=self.keys.__getitem__))

    def _in_order(self) -> list[Node]:
        seen: dict[Node, None] = {}
        stack = [(output, False) for output in reversed(self.program.outputs)]
        while stack:
            node, ready = stack.pop()
            if ready:
                seen[node] = None
            elif node not in seen:
                stack.append((node, True))
                stack.extend((operand, False) for operand in reversed(self.operands(node)) if operand not in seen)
        return list(seen)

    def calls(self) -> list[Call]:
        """From the outputs backwards: a node that lies inside a call needs no value."""
        needed, result = set(self.program.outputs), []
        for node in reversed(self._in_order()):
            if node in needed and node.family is not OperatorFamily.LEAF:
                rules = _RULES.get(node.op, ())
                call = next((call for rule in rules if (call := rule(self, node)) is not None), None)
                call = call or _plain(self, node)
                needed.update(call.operands)
                result.append(call)
        return result[::-1]

    def inner(self, node: Node, op: str) -> bool:
        """Whether a node of this kind is used here alone, so that a call may hide it."""
        return node.op == op and self.uses[node] == 1


def _plain(s: _Selection, node: Node) -> Call:
    """The operator itself."""
    if node.op == "opaque":
        if not getattr(node["call"], "of_arrays", False):
            raise Refused(f"{node['name']} can only be run by its own framework")
        return Call(node, node.inputs, "opaque")
    return Call(node, _thin(node, s.operands(node)) if node.family in _BROADCASTING else node.inputs)


def _thin(node: Node, operands: Sequence[Node]) -> tuple[Node, ...]:
    """The operands without axes of size 1 in front: broadcasting adds them where one operand has all axes."""
    if not any(operand.shape == node.shape for operand in operands):
        return tuple(operands)
    result = []
    for operand in operands:
        source = undo_reshape(operand)
        bare = source is not None and operand.shape == (1,) * (operand.rank - source.rank) + source.shape
        result.append(source if source is not None and bare and operand.shape != node.shape else operand)
    return tuple(result)


def _call(node: Node, operands: Sequence[Node], kind: str, **settings: Any) -> Call:
    return Call(node, tuple(operands), kind, settings)


# Layers


def _linear(s: _Selection, node: Node, bias: Node | None = None, whole: Node | None = None) -> Call | None:
    """x Wᵀ + b: the second operand is a matrix that no input moves, and its output axis comes last.

    `order` and `back` permute the axes of x and of the result, if that is needed; `turned` is x W.
    """
    operand_letters, out = node["spec"].split("->")
    for (x, value_letters), (w, letters) in _both(node.inputs, operand_letters.split(",")):
        if x not in s.data or w in s.data or len(letters) != 2 or set(value_letters) & set(letters) & set(out):
            continue
        inside = next((c for c in letters if c in value_letters), "")
        outside = letters.replace(inside, "") if inside else ""
        rest = value_letters.replace(inside, "")
        if not inside or len(outside) != 1 or (bias is not None and (out != rest + outside or not rest)):
            continue
        if len(value_letters) < 2 and bias is None and letters != outside + inside:
            continue
        order = None if value_letters == rest + inside else [value_letters.index(c) for c in rest + inside]
        back = None if out == rest + outside else [(rest + outside).index(c) for c in out]
        turned = letters == inside + outside
        if turned and bias is not None:
            return None
        operands = (x, w) if bias is None else (x, w, bias)
        return _call(whole or node, operands, "linear", order=order, back=back, turned=turned)
    return None


def _both(nodes: Sequence[Node], letters: Sequence[str]) -> Iterator[tuple[tuple[Node, str], tuple[Node, str]]]:
    pairs = list(zip(nodes, letters, strict=True))
    yield pairs[0], pairs[1]
    yield pairs[1], pairs[0]


def _matrix_product(s: _Selection, node: Node) -> Call | None:
    """A product of matrices, or of stacks of them: axes are put in order, and those of one role made one."""
    operand_letters, out = node["spec"].split("->")
    one, two = operand_letters.split(",")
    swap = [c for c in out if c not in one or c not in two][:1]
    operands = node.inputs
    if swap and swap[0] not in one:  # rows come from the operand whose own axis is first
        (one, two), operands = (two, one), operands[::-1]
    sizes = dict(zip(one + two, operands[0].shape + operands[1].shape, strict=True))
    batch = [c for c in out if c in one and c in two]
    inside = [c for c in one if c in two and c not in out]
    rows, columns = ([c for c in out if c in letters and c not in other] for letters, other in ((one, two), (two, one)))
    if not inside and not batch:
        return None
    many = [sizes[c] for c in batch]
    shapes = [
        [*many, math.prod(sizes[c] for c in first), math.prod(sizes[c] for c in second)]
        for first, second in ((rows, inside), (inside, columns))
    ]
    orders = [
        [letters.index(c) for c in (*batch, *parts)]
        for letters, parts in ((one, rows + inside), (two, inside + columns))
    ]
    order = [*batch, *rows, *columns]
    back, shape = [order.index(c) for c in out], [sizes[c] for c in order]
    return _call(node, operands, "matrix product", orders=orders, shapes=shapes, back=back, shape=shape)


def _layer_with_bias(s: _Selection, node: Node) -> Call | None:
    for layer, bias in both_orders(node):
        if s.inner(layer, "contract"):
            vector = _along(bias, node.rank - 1)
            if vector is not None and vector.shape == node.shape[-1:] and vector not in s.data:
                return _linear(s, layer, vector, node)
        if s.inner(layer, "conv"):
            vector = _along(bias, 1)
            if vector is not None and vector.shape == node.shape[1:2] and vector not in s.data:
                return _convolution(s, layer, vector, node)
    return None


def _convolution(s: _Selection, node: Node, bias: Node | None = None, whole: Node | None = None) -> Call:
    operands = node.inputs if bias is None else (*node.inputs, bias)
    return _call(whole or node, operands, "convolution", **node.attributes)


# Normalisations


def _batch_norm(s: _Selection, node: Node) -> Call | None:
    """(x - mean) γ / √(variance + ε) + β by fixed statistics."""
    for product, shift in both_orders(node):
        beta = _along(shift, 1)
        if beta is None or not s.inner(product, "mul"):
            continue
        for centred, scale in both_orders(product):
            read = _along(scale, 1)
            if read is None or read.op != "mul" or not s.inner(centred, "add"):
                continue
            roots = [
                (gamma, *root) for gamma, power in both_orders(read) if (root := read_inverse_root(power)) is not None
            ]
            if not roots or roots[0][1].rank != 1:
                continue
            gamma, variance, epsilon = roots[0]
            for x, minus in both_orders(centred):
                mean = _negated_along(minus, 1)
                if mean is not None and mean not in s.data and x.shape == node.shape:
                    return _call(node, (x, mean, variance, gamma, beta), "batch norm", epsilon=epsilon)
    return None


def _negated_along(node: Node, axis: int) -> Node | None:
    """The vector that runs, negated, along one axis of a node."""
    source = divide_by(peel(node), -1.0)
    vector = None if source is None else peel(source)
    return vector if vector is not None and vector.rank == 1 and node.size == node.shape[axis] else None


def _norm(
    s: _Selection, node: Node, scale: Node | None = None, shift: Node | None = None, whole: Node | None = None
) -> Call | None:
    """Along the last axes, with scale and shift of their sizes."""
    axes, rank = node["axes"], node.rank
    if not axes or tuple(axes) != tuple(range(rank - len(axes), rank)):
        return None
    shape = node.shape[rank - len(axes) :]
    vectors = [None if vector is None else _as_shape(vector, shape) for vector in (scale, shift)]
    if any(vector is not None and result is None for vector, result in zip((scale, shift), vectors, strict=True)):
        return None
    gamma, beta = vectors
    if not node["centre"] and beta is not None:
        return None
    operands = (node.inputs[0], *(vector for vector in (gamma, beta) if vector is not None))
    settings = {"shape": shape, "epsilon": node["epsilon"], "centre": node["centre"]}
    return _call(whole or node, operands, "norm", scaled=gamma is not None, shifted=beta is not None, **settings)


def _group_norm(
    s: _Selection, node: Node, scale: Node | None = None, shift: Node | None = None, whole: Node | None = None
) -> Call | None:
    """A normalisation of groups of channels: of a reshape, and a reshape back."""
    inside = undo_reshape(node)
    if inside is None or not s.inner(inside, "normalise") or inside["axes"] != (2,) or not inside["centre"]:
        return None
    x = undo_reshape(inside.inputs[0])
    if x is None or inside.rank != 3 or node.rank < 3 or inside.shape[0] != node.shape[0]:
        return None
    gamma, beta = (None if vector is None else _along(vector, 1) for vector in (scale, shift))
    if (
        (scale is not None and gamma is None)
        or (shift is not None and beta is None)
        or (gamma is None) != (beta is None)
    ):
        return None
    operands = (x,) if gamma is None or beta is None else (x, gamma, beta)
    settings = {"groups": inside.shape[1], "epsilon": inside["epsilon"]}
    return _call(whole or node, operands, "group norm", shape=node.shape, **settings)


def _scaled_norm(s: _Selection, node: Node) -> Call | None:
    """γ × a normalisation (+ β)."""
    for product, shift in both_orders(node) if node.op == "add" else [(node, None)]:
        if shift in s.data or (product is not node and not s.inner(product, "mul")):
            continue
        for norm, scale in both_orders(product):
            if scale in s.data:
                continue
            if s.inner(norm, "normalise"):
                call = _norm(s, norm, scale, shift, node)
            else:
                call = _group_norm(s, norm, scale, shift, node) if s.inner(norm, "take") else None
            if call is not None:
                return call
    return None


# Arithmetic


def _leaky_relu(s: _Selection, node: Node) -> Call | None:
    """relu(x) - slope relu(-x)."""
    for above, product in both_orders(node):
        if not (s.inner(above, "relu") and s.inner(product, "mul")):
            continue
        x = above.inputs[0]
        number = number_of(product.inputs[0])
        if number is None:
            continue
        below = product.inputs[1]
        if _is_negative_part(below, x):
            return _call(node, (x,), "leaky relu", slope=-float(number))
        if number == -1 and s.inner(below, "mul"):
            for part, slope in both_orders(below):
                vector = _along(slope, 1) if _is_negative_part(part, x) and x.rank > 1 else None
                if vector is not None and vector not in s.data and x.shape == node.shape:
                    return _call(node, (x, vector), "prelu")
    return None


def _is_negative_part(node: Node, x: Node) -> bool:
    """Whether a node is relu(-x)."""
    inside = node.inputs[0] if node.op == "relu" else None
    return inside is not None and inside.op == "mul" and number_of(inside.inputs[0]) == -1 and inside.inputs[1] is x


def _difference(s: _Selection, node: Node) -> Call | None:
    """x - y; a plain number is `number`."""
    for x, minus in both_orders(node):
        if s.inner(minus, "mul") and number_of(minus.inputs[0]) == -1 and minus.inputs[1].shape == minus.shape:
            number = number_of(x)
            if number is not None:
                return _call(node, (minus.inputs[1],), "difference", number=number)
            return _call(node, _thin(node, (x, minus.inputs[1])), "difference", number=None)
    return None


def _write_quotient(s: _Selection, node: Node) -> Call | None:
    for x, inverse in both_orders(node):
        if s.inner(inverse, "power") and inverse["exponent"] == -1 and inverse.inputs[0].shape == inverse.shape:
            number = number_of(x)
            if number is not None:
                return _call(node, inverse.inputs, "quotient", number=number)
            return _call(node, _thin(node, (x, *inverse.inputs)), "quotient", number=None)
    return None


def _mean(s: _Selection, node: Node) -> Call | None:
    """A sum over how many entries it has."""
    number, total = number_of(node.inputs[0]), node.inputs[1]
    if number is None or not s.inner(total, "sum") or total.kind != "f" or total.shape != node.shape:
        return None
    axes = total["axes"]
    count = math.prod(total.inputs[0].shape[k] for k in axes)
    return _call(node, total.inputs, "mean", axes=axes) if number == 1.0 / count else None


def _average_pool(s: _Selection, node: Node) -> Call | None:
    """Sums of windows, each over how many entries it has inside: an average with zeros around, times `factor`."""
    for total, share in both_orders(node):
        flat = undo_reshape(total) if s.inner(total, "take") else None
        if flat is None or share.op != "constant" or not s.inner(flat, "sum"):
            continue
        pool = read_windows(flat, 0.0)
        if pool is None or total.shape != pool.shape:
            continue
        factor = share["value"] * math.prod(pool.kernel)
        even = bool((factor == 1).all())
        return _call(node, (pool.source,), "average pool", pool=pool, factor=None if even else factor)
    return None


def _max_pool(s: _Selection, node: Node) -> Call | None:
    """The maxima of windows, without the axes that a reduction keeps."""
    flat = node if node.op == "amax" else undo_reshape(node)
    if flat is None or not (flat is node or s.inner(flat, "amax")):
        return None
    pool = read_windows(flat, -math.inf)
    return None if pool is None else _call(node, (pool.source,), "max pool", pool=pool)


def _with_number(s: _Selection, node: Node) -> Call | None:
    """A constant of one entry as a plain number: tools that trace a module know that it is one."""
    for x, constant in both_orders(node):
        number = number_of(constant)
        if number is not None and number_of(x) is None and x.shape == node.shape:
            return _call(node, (x,), "with number", number=number)
    return None


def _where(s: _Selection, node: Node) -> Call | None:
    """With a plain number as one of the branches."""
    condition, x, y = node.inputs
    one, other = number_of(x), number_of(y)
    if one is not None and y.shape == node.shape:
        return _call(node, (condition, y), "where number", number=one, first=True)
    if other is not None and x.shape == node.shape:
        return _call(node, (condition, x), "where number", number=other, first=False)
    return None


def _write_movement(s: _Selection, node: Node) -> Call:
    numbers = [None if (n := number_of(operand)) is None else float(n) for operand in node.inputs]
    steps = spell_movement(node["map"], [source.shape for source in node.inputs], numbers)
    if node.kind != "f" and not isinstance(steps, int) and steps.kind == "pad":
        steps = spell_movement(node["map"], [source.shape for source in node.inputs])
    return _call(node, node.inputs, "movement", steps=steps)


def _embedding(s: _Selection, node: Node) -> Call | None:
    table, at = node.inputs
    return None if node["axis"] != 0 or table.rank != 2 or table in s.data else _call(node, (table, at), "embedding")


_Rule = Callable[[_Selection, Node], Call | None]
_RULES: Mapping[str, Sequence[_Rule]] = {
    "take": (_max_pool, _group_norm, _write_movement),
    "contract": (_linear, _matrix_product),
    "conv": (_convolution,),
    "amax": (_max_pool,),
    "normalise": (_norm,),
    "add": (_layer_with_bias, _batch_norm, _scaled_norm, _leaky_relu, _difference, _with_number),
    "mul": (_scaled_norm, _mean, _average_pool, _write_quotient, _with_number),
    "maximum": (_with_number,),
    "minimum": (_with_number,),
    "where": (_where,),
    "lookup": (_embedding,),
}
