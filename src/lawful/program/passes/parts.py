"""Values that are computed in parts and put together again, as one value.

`cat([f(x, w[:2]), f(x, w[2:])])` is `f(x, w)`: layers split into shards, gates computed one by one, a bias as the last
column of a matrix. Idea: join the operands of the parts instead of the parts, and theirs, until slices of one value
meet and are the whole value again; if they do not, nothing is rewritten. Invariant: a rewrite never leaves more sources
than there were parts, so a pass cannot go on for ever. Cost: one concatenation of index maps for each node below the
parts.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from lawful.program.builder import Builder
from lawful.program.index_map import IndexMap
from lawful.program.passes.matching import both_orders
from lawful.program.program import Node
from lawful.program.table import OperatorFamily

PAIRS = (OperatorFamily.ADDITION, OperatorFamily.PRODUCT)
MOST_PARTS = 64  # as many as a layer is split into: a stack of steps in time has more, and nothing to join


def join_parts(b: Builder, node: Node, operands: tuple[Node, ...]) -> Node | None:
    """A movement that puts parts of one value together, as a movement of that value; None if it is none."""
    first = operands[0] if node.op == "take" and 1 < len(operands) <= MOST_PARTS else None
    if first is None or any((part.op, part.rank) != (first.op, first.rank) for part in operands):
        return None
    if first.family is OperatorFamily.LEAF:
        return None
    for axis in range(first.rank):
        around = {(*part.shape[:axis], *part.shape[axis + 1 :]) for part in operands}
        whole = _join(b, operands, axis) if len(around) == 1 else None
        if whole is not None:
            return b.take((whole,), _inside_whole(operands, axis, node["map"]))
    return None


def _inside_whole(parts: Sequence[Node], axis: int, index: IndexMap) -> IndexMap:
    """A map of parts laid end to end as a map of the parts side by side along an axis."""
    starts = np.cumsum([0, *(part.size for part in parts)])
    labels = [start + np.arange(part.size).reshape(part.shape) for start, part in zip(starts, parts, strict=False)]
    place = np.empty(int(starts[-1]), dtype=np.int64)
    place[np.concatenate(labels, axis).ravel()] = np.arange(len(place))
    return IndexMap.of(place[index.positions])


def _join(b: Builder, parts: Sequence[Node], axis: int) -> Node | None:
    """The value of which these are the parts along an axis; None where joining them makes nothing simpler."""
    first = parts[0]
    if all(part.op == first.op and part.kind == "f" and part.inputs for part in parts):
        joined: Node | None = None
        if first.op == "contract":
            joined = _join_contractions(b, parts, axis)
        elif first.op == "conv":
            joined = _join_convolutions(b, parts, axis)
        elif first.family in PAIRS:
            joined = _join_pairs(b, parts, axis)
        elif first.family is OperatorFamily.ELEMENTWISE and len(first.inputs) == 1 and _alike(parts):
            inner = _join(b, [part.inputs[0] for part in parts], axis)
            joined = None if inner is None else b.elementwise(first.op, inner, **first.attributes)
        if joined is not None:
            return joined
    if len({(*part.shape[:axis], *part.shape[axis + 1 :]) for part in parts}) > 1:
        return None
    # Here slices of one value meet again. Side by side, values of several sources would be no simpler than the parts.
    side_by_side = b.concatenate(parts, axis)
    return side_by_side if is_whole(side_by_side) else None


def is_whole(node: Node) -> bool:
    """Whether a value is no movement, or one regular block of one source: strides, and no entry twice."""
    if node.op != "take":
        return True
    return len(node.inputs) == 1 and node["map"].strides is not None and not node["map"].repeated_axes()


def _alike(parts: Sequence[Node]) -> bool:
    return all(part.attributes == parts[0].attributes for part in parts)


def _join_pairs(b: Builder, parts: Sequence[Node], axis: int) -> Node | None:
    """Of sums or products whose operands are parts, or one value that is the same along the axis for all."""
    sides: list[Node] = []
    pairs = [_in_order(part, parts[0]) for part in parts]
    for operands in zip(*pairs, strict=True):
        if all(operand is operands[0] for operand in operands) and operands[0].shape[axis] == 1:
            sides.append(operands[0])
            continue
        if any(operand.shape[axis] != part.shape[axis] for operand, part in zip(operands, parts, strict=True)):
            return None
        joined = _join(b, operands, axis)
        if joined is None:
            return None
        sides.append(joined)
    return b.add(*sides) if parts[0].op == "add" else b.mul(*sides)


def _in_order(part: Node, like: Node) -> tuple[Node, ...]:
    """The operands of a part in the order of another's: which comes first is decided by what they compute."""
    ops, expected = ([operand.op for operand in node.inputs] for node in (part, like))
    return part.inputs[::-1] if ops != expected and ops[::-1] == expected else part.inputs


def _join_contractions(b: Builder, parts: Sequence[Node], axis: int) -> Node | None:
    """Of one value with parts of a weight along an axis that the value does not have."""
    for x in parts[0].inputs:
        # In x xᵀ neither operand is the weight, and a part without x is none of this layer.
        if any((x is part.inputs[0]) == (x is part.inputs[1]) for part in parts):
            continue
        specs = {_spec_with(part, x) for part in parts}
        if len(specs) != 1:
            continue
        value_letters, other, out = specs.pop()
        # Along an axis of x the parts are those of x, and one weight would not make them.
        if out[axis] in value_letters:
            continue
        weight = _join(b, [part.inputs[1 if part.inputs[0] is x else 0] for part in parts], other.index(out[axis]))
        if weight is not None:
            return b.contract(f"{value_letters},{other}->{out}", x, weight)
    return None


def _spec_with(part: Node, x: Node) -> tuple[str, str, str]:
    """The letters of x, of the other operand and of the result, named in this order."""
    operands, out = part["spec"].split("->")
    value_letters, other = operands.split(",")[:: 1 if part.inputs[0] is x else -1]
    names = {letter: chr(ord("a") + number) for number, letter in enumerate(dict.fromkeys(value_letters + other))}
    value_letters, other, out = (
        "".join(names[letter] for letter in letters) for letters in (value_letters, other, out)
    )
    return value_letters, other, out


def _join_convolutions(b: Builder, parts: Sequence[Node], axis: int) -> Node | None:
    x = parts[0].inputs[0]
    # Groups read channels of their own: kernels side by side would need other numbers of groups.
    if axis != 1 or not _alike(parts) or parts[0]["groups"] != 1 or any(part.inputs[0] is not x for part in parts):
        return None
    joined = _join(b, [part.inputs[1] for part in parts], 1 if parts[0]["transposed"] else 0)
    return None if joined is None else b.apply("conv", (x, joined), **parts[0].attributes)


def join_sums(b: Builder, node: Node, operands: tuple[Node, ...]) -> Node | None:
    """`x₁ W₁ + x₂ W₂` as `[x₁ x₂] [W₁; W₂]` where the blocks are those of one weight; one of them may have a bias."""
    if node.op != "add" or node.kind != "f":
        return None
    for one, two in (operands, operands[::-1]):
        terms = two.inputs if two.op == "add" else (two,)
        for term in terms if one.op == "contract" else ():
            joined = _join_terms(b, one, term) if term.op == "contract" else None
            if joined is not None:
                rest = [summand for summand in terms if summand is not term]
                return b.add(joined, rest[0]) if rest else joined
    return None


def _join_terms(b: Builder, one: Node, two: Node) -> Node | None:
    if one is two or one.shape != two.shape:
        return None
    for x, weight in both_orders(one):
        for y, other in both_orders(two):
            letters, further = _spec_with(one, x), _spec_with(two, y)
            summed = set(letters[0]) & set(letters[1]) - set(letters[2])
            if letters != further or len(summed) != 1 or x.rank != y.rank or weight.rank != other.rank:
                continue
            (letter,) = summed
            blocks = b.concatenate([weight, other], letters[1].index(letter))
            # Blocks of one parameter alone: for other values neither spelling is simpler, and `split_sums` would undo
            # it.
            if is_whole(blocks) and blocks.op != "constant" and _parameter_of(blocks) is not None:
                values = b.concatenate([x, y], letters[0].index(letter))
                return b.contract(f"{letters[0]},{letters[1]}->{letters[2]}", values, blocks)
    return None


def _parameter_of(node: Node) -> Node | None:
    source = node.inputs[0] if node.op == "take" else node
    return source if source.op == "parameter" else None


def split_sums(b: Builder, node: Node, operands: tuple[Node, ...]) -> Node | None:
    """`[x y] [W; V]` as `x W + y V`, where a product puts several weights together: a bias as a column of a matrix."""
    if node.op != "contract" or node.kind != "f":
        return None
    for x, weight in (operands, operands[::-1]):
        if x.op != "take" or weight.op != "take" or len(x.inputs) < 2 or len(weight.inputs) < 2:
            continue
        sources = {source.op for source in weight.inputs}
        if "constant" in sources or "parameter" not in sources:  # (two activations put together stay one product)
            continue
        value_letters, other, out = _spec_with(node, node.inputs[0 if x is operands[0] else 1])
        for letter in (candidate for candidate in value_letters if candidate in other and candidate not in out):
            terms = _split_sum(b, (value_letters, other, out), x, weight, letter)
            if terms is not None:
                return terms
    return None


def _split_sum(b: Builder, spec: tuple[str, str, str], x: Node, weight: Node, letter: str) -> Node | None:
    value_letters, other, out = spec
    axis, cuts = value_letters.index(letter), _boundaries(weight, other.index(letter))
    blocks = [b.slice(weight, other.index(letter), cut) for cut in cuts]
    if len(blocks) < 2 or not all(map(is_whole, blocks)):
        return None
    total: Node | None = None
    for cut, block in zip(cuts, blocks, strict=True):
        part = b.slice(x, axis, cut)
        number = b.number(part)
        left = other.replace(letter, "")
        if number is None:
            term = b.contract(f"{value_letters},{other}->{out}", part, block)
        elif set(left) <= set(out):
            bias = b.permute(b.sum(block, [other.index(letter)]), [left.index(c) for c in out if c in left])
            term = b.mul(
                b.reshape(bias, [weight.shape[other.index(c)] if c in left else 1 for c in out]), float(number)
            )
        else:
            return None
        total = term if total is None else b.add(total, term)
    return total


def _boundaries(node: Node, axis: int) -> list[slice]:
    """Where along an axis a movement goes from one source to the next; one slice if entries are mixed otherwise."""
    ends = np.cumsum([operand.size for operand in node.inputs])
    owners = np.moveaxis(np.searchsorted(ends, node["map"].positions, "right"), axis, 0).reshape(node.shape[axis], -1)
    if not (owners == owners[:, :1]).all():
        return [slice(None)]
    changes = [0, *(np.flatnonzero(np.diff(owners[:, 0])) + 1).tolist(), node.shape[axis]]
    return [slice(start, end) for start, end in itertools.pairwise(changes)]


def cut_product(b: Builder, node: Node, operands: tuple[Node, ...]) -> Node | None:
    """A part of `x [W V] + [b c]` along the axis where weights are put together, as `x W + b`."""
    if node.op != "take" or len(operands) != 1 or operands[0].op not in ("contract", "add") or node.kind != "f":
        return None
    # A layer of one weight whose result is cut (GPT-2's queries, keys and values) stays one product.
    (whole,) = operands
    inside = np.unravel_index(node["map"].positions, whole.shape) if _puts_weights_together(whole) else ()
    for axis, indices in enumerate(inside):
        low, high = int(indices.min(initial=whole.shape[axis])), int(indices.max(initial=-1)) + 1
        part = _cut(b, whole, axis, slice(low, high)) if 0 < high - low < whole.shape[axis] else None
        if part is not None:
            places = [at - low if k == axis else at for k, at in enumerate(inside)]
            return b.take((part,), IndexMap.of(np.asarray(np.ravel_multi_index(places, part.shape))))
    return None


def _puts_weights_together(node: Node) -> bool:
    products = node.inputs if node.op == "add" else (node,)
    return any(
        operand.op == "take" and len(operand.inputs) > 1 and all(source.op == "parameter" for source in operand.inputs)
        for product in products if product.op == "contract" for operand in product.inputs
    )  # fmt: skip


def _cut(b: Builder, node: Node, axis: int, cut: slice) -> Node | None:
    """The part of a value, computed from parts of weights that are fewer weights; None where it is not."""
    if node.op == "add":
        sides = [operand if operand.shape[axis] == 1 else _cut(b, operand, axis, cut) for operand in node.inputs]
        return None if None in sides else b.add(*(side for side in sides if side is not None))
    if node.op == "contract":
        operands, out = node["spec"].split("->")
        letters = operands.split(",")
        place = next((k for k in (0, 1) if out[axis] in letters[k] and out[axis] not in letters[1 - k]), None)
        weight = None if place is None else _cut(b, node.inputs[place], letters[place].index(out[axis]), cut)
        if place is None or weight is None:
            return None
        return b.contract(node["spec"], *(weight if k == place else operand for k, operand in enumerate(node.inputs)))
    part = b.slice(node, axis, cut) if node.op == "take" else node
    return part if node.op == "take" and (part.op != "take" or len(part.inputs) < len(node.inputs)) else None
