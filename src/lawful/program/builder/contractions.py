"""Sums along axes: reductions, Einstein sums; and the whole builder, which passes use to make nodes again."""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lawful.program.builder.algebra import AlgebraBuilder
from lawful.program.builder.nodes import OPAQUE
from lawful.program.program import Node, Program, widest
from lawful.program.table import OPERATORS, OperatorFamily, Refused

STACKED = 4  # values side by side whose maximum is that of pairs: `stack([h, zeros]).amax(0)` is a ReLU
_EMPTY = {"amax": -math.inf, "amin": math.inf}  # of nothing


class Builder(AlgebraBuilder):
    """Makes the nodes of one program.

    >>> b = Builder()
    >>> x = b.input("x", (2, 3))
    >>> b.add(b.permute(b.permute(x, (1, 0)), (1, 0)), 0.0) is x
    True
    >>> b.maximum(x, 0.0) is b.elementwise("relu", x)
    True
    """

    def adopt(self, node: Node) -> Node:
        """A node of another builder whose operands are this one's; the one that is spelled like it, if there is one."""
        return self._known.setdefault(node.identity, node)

    def remake(self, node: Node, operands: Sequence[Node]) -> Node:
        """A node with other operands, brought to normal form again: what passes are made of."""
        if node.family is OperatorFamily.LEAF:
            if node.op == "input" and node not in self.inputs:
                self.inputs.append(node)
            return self.adopt(node)
        if node.family is OperatorFamily.OPAQUE:
            return self._emit(node.op, tuple(operands), node.attributes, node.shape, node.kind)
        if node.op == "take":
            return self.take(operands, node["map"])
        if node.op in ("add", "mul", "maximum", "minimum", "where"):
            return getattr(self, node.op)(*operands)  # type: ignore[no-any-return]
        if node.op == "contract":
            return self.contract(node["spec"], *operands)
        if node.op == "lookup":
            return self.lookup(operands[0], operands[1], node["axis"])
        if node.op == "power":
            return self.power(operands[0], node["exponent"])
        if node.family is OperatorFamily.ELEMENTWISE or node.family is OperatorFamily.COMPARISON:
            commutes = node.op in ("and", "or", "xor")
            return self.elementwise(node.op, *operands, kind=node.kind, commutes=commutes, **node.attributes)
        return self.apply(node.op, operands, node.kind, **node.attributes)

    def finish(self, outputs: Iterable[Node]) -> Program:
        """The program of these outputs."""
        results = tuple(outputs)
        program = Program.of(self.inputs, results, self.tensors, self.source)
        used = {*program.parameters, *program.buffers}
        notes = Counter({note: count for note, count in self.notes.items() if not note.startswith(OPAQUE)})
        notes.update(OPAQUE + name for name in program.opaque)  # of those that an output still reads
        tensors = {name: tensor for name, tensor in self.tensors.items() if name in used}
        places = {node: self.places[node] for node in program.nodes if node in self.places}
        return replace(program, tensors=tensors, notes=notes, places=places, parts=self.parts)

    def lookup(self, x: Node, index: Node, axis: int) -> Node:
        """The slices of x at positions along an axis, negative ones from its end; known positions are a movement."""
        at, size = self.value(index), x.shape[axis]
        if at is None:
            return self.apply("lookup", (x, self.as_kind(index, "i")), x.kind, axis=axis)
        return self.pick(x, axis, np.where(at < 0, at + size, at))

    # Reductions and contractions

    def axes(self, x: Node, axes: int | Sequence[int] | None) -> tuple[int, ...]:
        """Axes as numbers from 0, in order; all of them for None."""
        if axes is None:
            return tuple(range(x.rank))
        listed = (axes,) if isinstance(axes, int) else tuple(axes)
        if any(not -max(x.rank, 1) <= axis < max(x.rank, 1) for axis in listed):
            raise Refused(f"axes {list(listed)} of {x.rank}")
        return tuple(sorted({int(axis) % x.rank for axis in listed})) if x.rank else ()

    def reduce(self, name: str, x: Node, axes: int | Sequence[int] | None = None, keep: bool = False) -> Node:
        """A reduction along axes. Its node keeps them with size 1; a reshape drops them."""
        over = self.axes(x, axes)
        active = tuple(axis for axis in over if x.shape[axis] != 1)
        # NumPy refuses the maximum of nothing; the frameworks say its neutral element, which integers do not have.
        if name in _EMPTY and any(x.shape[axis] == 0 for axis in active):
            if x.kind == "i":
                raise Refused(f"{name} of no integers")
            unit_sizes = [1 if axis in over else n for axis, n in enumerate(x.shape)]
            result = (
                self.constant(np.full(unit_sizes, _EMPTY[name]), x.kind)
                if x.kind == "f"
                else self.constant(np.full(unit_sizes, _EMPTY[name] > 0))
            )
            return result if keep else self.reshape(result, [n for axis, n in enumerate(x.shape) if axis not in over])
        stacked = self._extreme_of_stack(name, x, active)
        result = x if stacked is None else stacked
        if stacked is not None:
            pass
        # Over axes of size 1 there is nothing to reduce, unless the operator has a kind of its own: the argmax of one
        # number is 0, not that number.
        elif active or OPERATORS[name].kind is not None:
            if x.kind == "b" and OPERATORS[name].kind is None:
                result = self.as_kind(x, "i")
            if OPERATORS[name].attributes == ("axis",):
                result = self.apply(name, (result,), axis=over[0]) if x.rank else self.constant(0)
            else:
                result = self.apply(name, (result,), axes=active)
        elif x.kind == "b":
            result = self.as_kind(x, "i")
        return result if keep else self.reshape(result, [n for axis, n in enumerate(x.shape) if axis not in over])

    def _extreme_of_stack(self, name: str, x: Node, active: tuple[int, ...]) -> Node | None:
        """The maximum of a few values that lie side by side, pair by pair; None where x is nothing like that."""
        if name not in _EMPTY or len(active) != 1 or x.op != "take" or len(x.inputs) == 1:
            return None
        (axis,) = active
        if x.shape[axis] > STACKED:
            return None
        parts = [self.slice(x, axis, slice(k, k + 1)) for k in range(x.shape[axis])]
        if any(part.op == "take" and len(part.inputs) > 1 for part in parts):
            return None
        return functools.reduce(self.maximum if name == "amax" else self.minimum, parts)

    def sum(self, x: Node, axes: int | Sequence[int] | None = None, keep: bool = False) -> Node:
        """The sum along axes. Of a product of two values that both vary along them it is an Einstein sum."""
        over = self.axes(x, axes)
        active = [axis for axis in over if x.shape[axis] != 1]
        factors = x.inputs if x.op == "mul" and x.kind == "f" and active else ()
        if not factors or any(
            factor.op == "constant" or any(factor.shape[axis] == 1 for axis in active) for factor in factors
        ):
            return self.reduce("sum", x, over, keep)
        if factors[0].shape == factors[1].shape and _share_a_source(*factors):
            return self.reduce("sum", x, over, keep)  # a GELU's h Φ(h), entry by entry: channels stay apart in its mean
        letters = [chr(ord("a") + axis) for axis in range(x.rank)]
        # an axis of size 1 of both, a batch of one sample, is that of the factor which is no parameter
        data = 1 if _is_parameter(factors[0]) else 0
        varying = [
            [axis for axis, n in enumerate(factor.shape) if n != 1 or (k == data and x.shape[axis] == 1)]
            for k, factor in enumerate(factors)
        ]
        bare = [
            self.reshape(factor, [factor.shape[axis] for axis in axes])
            for factor, axes in zip(factors, varying, strict=True)
        ]
        inside = ",".join("".join(letters[axis] for axis in axes) for axes in varying)
        out = "".join(letters[axis] for axis in range(x.rank) if axis not in over)
        total = self.contract(f"{inside}->{out}", *bare)
        unit_sizes = [1 if axis in over else n for axis, n in enumerate(x.shape)]
        return self.reshape(total, unit_sizes if keep else [n for axis, n in enumerate(x.shape) if axis not in over])

    def mean(self, x: Node, axes: int | Sequence[int] | None = None, keep: bool = False) -> Node:
        """The mean along axes: their sum, divided by how many entries it has."""
        total = self.sum(self.as_kind(x, "f"), axes, keep)
        if not total.size:
            return total
        return self.div(total, float(x.size // total.size)) if x.size else self.mul(total, math.nan)

    def contract(self, spec: str, *operands: Node) -> Node:
        """An Einstein sum: of two operands, or of more from the left.

        Normal form: permutations of operands are in the letters; an axis along which an operand only repeats is not
        among its letters if the other operand has it, nor an axis of size 1 that it was given for this sum; operands
        stand in the order of what they compute, and letters are named in the order in which they appear.
        """
        operand_letters, out = spec.split("->")
        letters = operand_letters.split(",")
        # From the left, as `einsum` without a path: another order has other values between, of other sizes.
        while len(operands) > 2:
            needed = set("".join(letters[2:]) + out)
            joint = "".join(dict.fromkeys(c for c in letters[0] + letters[1] if c in needed))
            operands = (self.contract(f"{letters[0]},{letters[1]}->{joint}", *operands[:2]), *operands[2:])
            letters = [joint, *letters[2:]]
        kind = widest("i", *(operand.kind for operand in operands))
        nodes = [
            self._diagonal(self.as_kind(operand, kind), axes) for operand, axes in zip(operands, letters, strict=True)
        ]
        letters = ["".join(dict.fromkeys(axes)) for axes in letters]
        for k in (0, 1) if len(nodes) == 2 else ():
            if _is_identity(nodes[k]) and len(set(letters[k]) & set(letters[1 - k])) == 1:  # it renames an axis
                (same,) = set(letters[k]) & set(letters[1 - k])
                other = letters[k].replace(same, "")
                # Only where its two axes become one: if the result keeps both, the identity is a mask.
                if same not in out and other in out:
                    return self._contract_one(nodes[1 - k], letters[1 - k].replace(same, other), out)
        if len(nodes) == 1:
            return self._contract_one(nodes[0], letters[0], out)
        for k in (0, 1, 0):  # what leaves the second operand may leave the first with an axis of its own
            nodes[k], letters[k] = self._plain_operand(nodes[k], letters[k], letters[1 - k], out)
        sizes = dict(zip(letters[0] + letters[1], nodes[0].shape + nodes[1].shape, strict=True))
        shape, out = [sizes.get(c, 1) for c in out], "".join(c for c in out if c in sizes)
        # By what they compute, never by the call: `x @ W.T` and `(W @ x.T).T` are one node.
        if nodes[0].order > nodes[1].order:
            nodes, letters = nodes[::-1], letters[::-1]
        names = {c: chr(ord("a") + k) for k, c in enumerate(dict.fromkeys(letters[0] + letters[1]))}
        final = ",".join("".join(names[c] for c in axes) for axes in letters) + "->" + "".join(names[c] for c in out)
        return self.reshape(self.apply("contract", nodes, kind, spec=final), shape)

    def _diagonal(self, x: Node, own: str) -> Node:
        unique = "".join(dict.fromkeys(own))
        if unique == own:
            return x
        return self.move(lambda t: np.einsum(f"{own}->{unique}", t), x)

    def _contract_one(self, x: Node, own: str, out: str) -> Node:
        x = self.sum(x, [k for k, c in enumerate(own) if c not in out])
        left = [c for c in own if c in out]
        return self.permute(x, [left.index(c) for c in out])

    def _plain_operand(self, x: Node, axes: str, other: str, out: str) -> tuple[Node, str]:
        """An operand without axes that it alone sums over, without repetition, and with its axes in their order."""
        lone = [k for k, c in enumerate(axes) if c not in out and c not in other]
        if lone:
            x, axes = self.sum(x, lone), "".join(c for k, c in enumerate(axes) if k not in lone)
        repeated = [k for k in x["map"].repeated_axes() if axes[k] in other] if x.op == "take" else []
        if x.op == "take" and x.inputs[0].op == "parameter" and x.inputs[0].rank < x.rank:
            # a parameter that was given an axis of one sample: of more samples it would repeat along it
            repeated += [k for k, n in enumerate(x.shape) if n == 1 and axes[k] in other and axes[k] in out]
        if repeated:
            first = self.take(x.inputs, x["map"].first_along(repeated))
            axes = "".join(c for k, c in enumerate(axes) if k not in repeated)
            x = self.reshape(first, [n for k, n in enumerate(first.shape) if k not in repeated])
        if x.op == "take" and len(x.inputs) == 1 and x.inputs[0].size == x.size:
            new = _new_axes(x, axes, other)
            axes = "".join(c for k, c in enumerate(axes) if k not in new)
            shape = [n for k, n in enumerate(x.shape) if k not in new]
            # in letters before it is made: a sum would take the permutation into its own letters
            order = x["map"].reshape(shape).permutation_of(x.inputs[0].shape)
            if order is not None:
                return x.inputs[0], "".join(axes[order.index(axis)] for axis in range(len(order)))
            x = self.reshape(x, shape) if new else x
        return x, axes

    def matmul(self, x: Node, y: Node) -> Node:
        """The matrix product; axes before the last two broadcast, and a vector has no axis of its own."""
        inner = ["mk" if x.rank > 1 else "k", "kn" if y.rank > 1 else "k"]
        batch = "ABCDEFGHIJKLMNOPQRSTUVW"[: max(x.rank, y.rank, 2) - 2]
        # an operand that repeats along a batch axis has no letter for it; where both have size 1, both have
        batch_letters = [batch[len(batch) - max(operand.rank - 2, 0) :] for operand in (x, y)]
        sizes = [
            dict(zip(letters, operand.shape, strict=False))
            for letters, operand in zip(batch_letters, (x, y), strict=True)
        ]
        varying = [
            "".join(c for c in batch_letters[k] if sizes[k][c] != 1 or sizes[1 - k].get(c, 1) == 1) for k in (0, 1)
        ]
        a, b = (
            self.reshape(operand, [*(size[c] for c in letters), *operand.shape[-2:]])
            for operand, size, letters in zip((x, y), sizes, varying, strict=True)
        )
        out = batch + "".join(c for c in "mn" if c in inner[0] + inner[1])
        return self.contract(f"{varying[0]}{inner[0]},{varying[1]}{inner[1]}->{out}", a, b)

    def linear(self, x: Node, weight: Node, bias: Node | None = None) -> Node:
        """x Wᵀ + b along the last axis."""
        batch = "ABCDEFGHIJKLMNOPQRSTUVW"[: x.rank - 1]
        total = self.contract(f"{batch}i,oi->{batch}o" if weight.rank == 2 else f"{batch}i,i->{batch}", x, weight)
        return total if bias is None else self.add(total, bias)

    def along(self, x: Node, axis: int, matrix: NDArray[Any]) -> Node:
        """A fixed linear map along one axis: matrix (result, given)."""
        if x.kind == "b":
            x = self.as_kind(x, "i")
        letters = "abcdefghijklmnopqrstuvw"[: x.rank]
        at = letters[axis % x.rank]
        return self.contract(f"{letters},z{at}->{letters.replace(at, 'z')}", x, self.constant(matrix, x.kind))


def _share_a_source(x: Node, y: Node) -> bool:
    """Whether two values are computed, entry by entry, from one value that is no parameter."""

    def sources(start: Node) -> set[Node]:
        reached, waiting = {start}, [start]
        while waiting:
            node = waiting.pop()
            if node.family in (OperatorFamily.ELEMENTWISE, OperatorFamily.ADDITION, OperatorFamily.PRODUCT):
                new = [operand for operand in node.inputs if operand.shape == x.shape and operand not in reached]
                reached.update(new)
                waiting += new
        return reached

    return any(source.op != "parameter" for source in sources(x) & sources(y))


def _is_identity(x: Node) -> bool:
    """Whether a value is the identity matrix."""
    if x.op != "constant" or x.rank != 2 or x.shape[0] != x.shape[1]:
        return False
    return bool(np.array_equal(x["value"], np.eye(x.shape[0])))


def _is_parameter(x: Node) -> bool:
    """Whether a value is a parameter, perhaps in another shape."""
    return x.op == "parameter" or (x.op == "take" and len(x.inputs) == 1 and x.inputs[0].op == "parameter")


def _new_axes(x: Node, own: str, other: str) -> list[int]:
    """The axes of size 1 that a movement gave an operand; none where it is not clear which ones are new.

    A source without such axes leaves no doubt. One that has some, a batch of one sample, loses the first of those that
    the other operand does not have: along them the sum is the same whichever is taken for the new one.
    """
    source, single = x.inputs[0], [k for k, n in enumerate(x.shape) if n == 1]
    surplus = x.rank - source.rank
    if surplus <= 0 or len(single) < surplus:
        return []
    if 1 not in source.shape:
        return single if len(single) == surplus else []
    free = [k for k in single if own[k] not in other][:surplus]
    rest = tuple(n for k, n in enumerate(x.shape) if k not in free)
    return free if len(free) == surplus and rest == source.shape and x["map"].keeps_order else []
