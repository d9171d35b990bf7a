"""What each operator means: arithmetic modulo the primes where it is arithmetic, and new variables where it is not.

All runs (`sides`) go through a node together. Sums, products, movements, Einstein sums and whole powers are carried
out. Any other function f gets a variable for each value that it is applied to, the same one for the same value: that is
all that is used of it, with a few laws that hold for all real numbers:

- relu, abs, max and min: f(s x) = s f(x) for numbers s > 0; a comparison is the same then;
- tanh, erf, sin and others are odd, f(-x) = -f(x); cos and cosh are even;
- softmax is exp(x - mean) divided by the sum, so shifts are not seen and the results add up to 1;
- `normalise` is x - mean times a function of the mean square, so a rotation is seen by nobody but its readers;
- the entries of a table at a position that is data are a combination of all its entries, the same in all runs.

Where one run applies a function to a value that no other has, its variable is new: the first such node is where the
runs part, if they do not meet again.
"""

from __future__ import annotations

import time
from math import prod
from typing import Any

import numpy as np

from lawful.verify.core.residues import LANES, NotCovered, Residues, SideValues
from lawful.verify.core.schema import check_clock
from lawful.verify.relational.contraction import Contractions, Weight
from lawful.verify.relational.program import ListedNode

ODD = {"tanh", "erf", "sin", "tan", "asin", "atan", "sinh", "asinh", "atanh", "round", "trunc", "sign"}
EVEN = {"cos", "cosh"}
COMPARISONS = {"eq", "ne", "lt", "le", "gt", "ge"}
PLAIN = {"exp", "expm1", "log", "log1p", "erfc", "sigmoid", "softplus", "acos", "acosh", "lgamma", "floor", "ceil"}
TOGETHER = {"pow", "atan2", "fmod", "remainder", "floor_divide", "trunc_divide"}
SECONDS = 120  # of processor time for all nodes: half of what a whole check may take


class Runs(Contractions):
    """A program run with several assignments of its parameters beside each other."""

    def outputs_agree(self) -> bool:
        """Run it; whether the outputs of all sides are the same."""
        last = {source: node.number for node in self.program.nodes for source in node.operands}
        wanted = set(self.program.outputs)
        values: dict[int, SideValues] = {}
        end = time.process_time() + SECONDS
        for node in self.program.nodes:
            check_clock()
            if time.process_time() > end:
                raise NotCovered(f"so large a program in {SECONDS} s")
            self.node = node
            values[node.number] = self.value(node, [values[k] for k in node.operands])
            for source in {*node.operands, node.number}:
                if source not in wanted and last.get(source, source) == node.number:
                    del values[source]
        for number in self.program.outputs:
            first, *others = (self.dense(values[number])).sides
            if any(other is not first and not np.array_equal(first, other) for other in others):
                self.parted = self.parted or self.program.nodes[number]
                return False
        return True

    # The operators

    def value(self, node: ListedNode, x: list[SideValues]) -> SideValues:
        """The value of a node, by its operator."""
        op, field = node.op, self.field
        if op == "input":
            drawn = field.draw(node.shape)
            return SideValues([drawn] * len(self.leaves))
        if op == "parameter":
            return SideValues([leaves[node.attributes["name"]] for leaves in self.leaves])
        if op == "held":
            return self.constant(self.held(node.attributes["name"]))
        if op == "constant":
            return self.constant(node.attributes["value"])
        if op == "take":
            return self.take(node, x)
        if op == "detach" or op == "cast":
            if op == "cast" and node.attributes["to"] != "f":
                self.finite(x[0])
                return self.function("cast" + node.attributes["to"], 0.0, self.dense(x[0]), node.shape)
            return x[0]
        if op == "contract":
            (left, right), out = node.attributes["spec"]
            return self.contract(x[0], x[1], left, right, out)
        if op == "conv":
            return self.convolve(node, x[0], x[1])
        if op == "lookup":
            return self.lookup(node, x[0], x[1])
        x = [self.dense(operand) for operand in x]
        if op == "add":
            return self.add(node, *x)
        if op == "softmax":
            return self.softmax(node, x[0])
        if op in ("amax", "amin"):
            return self.extreme(node, x[0], node.attributes["axes"])
        if op == "where":
            self.finite(x[0])
            return self.where(node, self.truths(node, 0, x[0]), *x[1:])
        self.finite(*x)
        if op == "mul":
            return SideValues(self.each(lambda a, b: self.by_entry(node, a, b), *x))
        if op == "sum":
            return SideValues(self.each(lambda a: self.total(a, node.attributes["axes"]), x[0]))
        if op == "normalise":
            return self.normalise(node, x[0])
        if op == "power":
            return self.power(node, x[0])
        if op == "relu":
            return self.homogeneous(x[0].sides, None, 1)
        if op == "abs":
            return self.homogeneous(x[0].sides, None, 1, even=True)
        if op in ("maximum", "minimum"):
            both = self.each(lambda a, b: np.stack(self.laid(node, a, b), axis=-1), *x)
            return self.extreme(node, SideValues(both), (len(node.shape),))
        if op in COMPARISONS:
            return self.homogeneous(self.each(lambda a, b: self.difference(node, a, b), *x), None, 0)
        if op in ODD or op in EVEN:
            return self.odd_or_even(node, x[0])
        if op in PLAIN:
            return self.function(op, 0.0, x[0], node.shape)
        if op in TOGETHER:
            return self.variables(self.each(lambda a, b: np.concatenate(self.laid(node, a, b)), *x), node.shape)
        if op in ("not", "and", "or", "xor"):
            x = [self.truths(node, place, operand) for place, operand in enumerate(x)]
            return SideValues(self.each(lambda *arrays: self.logic(node, *arrays), *x))
        return self.opaque(node, x)

    def opaque(self, node: ListedNode, x: list[SideValues]) -> SideValues:
        """Any function: the same operands have the same result."""
        for value in x:
            first = value.sides[0]
            if any(side is not first and not np.array_equal(side, first) for side in value.sides):
                raise NotCovered(f"{node.op} of values that differ")
        drawn = self.field.draw(node.shape)
        return SideValues([drawn] * len(self.leaves))

    def constant(self, values: np.ndarray[Any, Any]) -> SideValues:
        """Numbers, exactly."""
        if values.dtype.kind == "i":
            array = self.field.integers(values)
            return SideValues([array] * len(self.leaves), positions=values)
        if np.isnan(values).any() or (values == np.inf).any():
            raise NotCovered("constants that are infinite or no numbers")
        below = values == -np.inf
        array = self.field.floats(np.where(below, 0.0, values))
        return SideValues([array] * len(self.leaves), below if below.any() else None)

    def take(self, node: ListedNode, x: list[SideValues]) -> SideValues:
        """Entries of the operands, laid end to end, at an index map."""
        places = node.attributes["map"]
        if len(x) == 1 and any(isinstance(side, Weight) for side in x[0].sides):
            turned = _turn(x[0].sides, places, node.shape)
            if turned is not None:
                return SideValues(turned)
        x = [self.dense(operand) for operand in x]
        sizes = [prod(operand.sides[0].shape[1:]) for operand in x]

        def move(*arrays: Residues) -> Residues:
            flat = [array.reshape(LANES, -1) for array in arrays]
            return (flat[0] if len(flat) == 1 else np.concatenate(flat, axis=1))[:, places]

        below = None
        if any(operand.below is not None for operand in x):
            parts = [
                np.zeros(n, dtype=bool) if v.below is None else v.below.reshape(-1)
                for v, n in zip(x, sizes, strict=True)
            ]
            below = np.concatenate(parts)[places]
        exact = None
        if all(operand.positions is not None for operand in x):
            exact = np.concatenate([np.asarray(operand.positions).reshape(-1) for operand in x])[places]
        return SideValues(self.each(move, *x), below if below is not None and below.any() else None, exact)

    def laid(self, node: ListedNode, *arrays: Residues) -> list[Residues]:
        """Arrays of the shape of the node."""
        rank = len(node.shape)
        laid_out = []
        for array in arrays:
            wide = array.reshape(LANES, *(1,) * (rank - array.ndim + 1), *array.shape[1:])
            laid_out.append(np.broadcast_to(wide, (LANES, *node.shape)))
        return laid_out

    def add(self, node: ListedNode, x: SideValues, y: SideValues) -> SideValues:
        """x + y; minus infinity stays what it is."""
        below = None
        for value in (x, y):
            if value.below is not None:
                entries = np.broadcast_to(value.below, node.shape)
                below = entries if below is None else below | entries

        def total(a: Residues, b: Residues) -> Residues:
            one, two = self.laid(node, a, b)
            return self.field.reduce(one + two)

        return SideValues(self.each(total, x, y), below)

    def by_entry(self, node: ListedNode, a: Residues, b: Residues) -> Residues:
        """x y."""
        one, two = self.laid(node, a, b)
        return self.field.times(one, two)

    def difference(self, node: ListedNode, a: Residues, b: Residues) -> Residues:
        """x - y."""
        one, two = self.laid(node, a, b)
        return self.field.reduce(one - two)

    def total(self, a: Residues, axes: tuple[int, ...]) -> Residues:
        """Sums along axes: below 2^32 terms nothing overflows."""
        return self.field.reduce(a.sum(tuple(1 + k for k in axes), keepdims=True))

    def truths(self, node: ListedNode, place: int, x: SideValues) -> SideValues:
        """An operand that is asked whether it holds: of a number that is not 0 or 1, whether it is not 0."""
        asked = self.program.nodes[node.operands[place]]
        return x if asked.truths else self.function("castb", 0.0, x, asked.shape)

    def logic(self, node: ListedNode, *arrays: Residues) -> Residues:
        """Truth values are 0 and 1: not a = 1 - a, a and b = a b."""
        field = self.field
        if node.op == "not":
            return field.reduce(1 - arrays[0])
        a, b = self.laid(node, *arrays)
        both = field.times(a, b)
        return both if node.op == "and" else field.reduce(a + b - (both if node.op == "or" else 2 * both))

    def where(self, node: ListedNode, c: SideValues, x: SideValues, y: SideValues) -> SideValues:
        """c x + (1 - c) y with a truth value c."""
        if x.below is not None or y.below is not None:
            raise NotCovered("minus infinity where a condition that is data holds")

        def choose(a: Residues, b: Residues, d: Residues) -> Residues:
            gate, one, two = self.laid(node, a, b, d)
            return self.field.reduce(self.field.times(gate, self.field.reduce(one - two)) + two)

        return SideValues(self.each(choose, c, x, y))

    def power(self, node: ListedNode, x: SideValues) -> SideValues:
        """Whole powers are products; so is 1/x where x holds no parameter of several factors: others are variables."""
        exponent = node.attributes["exponent"]
        whole = exponent == int(exponent) and abs(exponent) <= 64
        if whole and (exponent >= 0 or self.generic[node.operands[0]]):
            return SideValues(self.each(lambda a: self.field.power(a, int(exponent)), x))
        return self.function("power", exponent, x, node.shape)

    def odd_or_even(self, node: ListedNode, x: SideValues) -> SideValues:
        """Odd and even functions: of a value and its opposite, the one that is less in the first lane is looked up."""
        field, p = self.field, int(self.field.p[0])
        flips = self.each(lambda a: 2 * a[0] > p, x)
        upright = self.each(lambda a: np.where(2 * a[0] > p, field.reduce(-a), a), x)
        results = self.function(node.op, 0.0, SideValues(upright), node.shape)
        if node.op in EVEN:
            return results
        sides: dict[tuple[int, int], Residues] = {}
        for flip, value, argument in zip(flips, results.sides, x.sides, strict=True):
            zero = ~argument.any(0)  # an odd function is 0 at 0
            turned = np.where(flip, field.reduce(-value), value)
            sides.setdefault((id(flip), id(value)), np.where(zero, 0, turned))
        return SideValues([sides[id(flip), id(value)] for flip, value in zip(flips, results.sides, strict=True)])

    def normalise(self, node: ListedNode, x: SideValues) -> SideValues:
        """x - mean, times (mean square + ε)^(-1/2), which is a function of one number."""
        field, axes = self.field, node.attributes["axes"]
        count = prod(self.program.nodes[node.operands[0]].shape[k] for k in axes)
        rank = len(node.shape)
        share = field.inverse(field.rational(count)).reshape((LANES,) + (1,) * rank)
        epsilon = field.floats(np.array(node.attributes["epsilon"])).reshape((LANES,) + (1,) * rank)

        def centre(a: Residues) -> Residues:
            return field.reduce(a - field.times(self.total(a, axes), share)) if node.attributes["centre"] else a

        centred = SideValues(self.each(centre, x))
        squares = self.each(
            lambda a: field.reduce(field.times(self.total(field.times(a, a), axes), share) + epsilon), centred
        )
        shape = tuple(1 if k in axes else n for k, n in enumerate(node.shape))
        size = self.function("power", -0.5, SideValues(squares), shape)
        return SideValues(self.each(lambda a, b: self.by_entry(node, a, b), centred, size))

    def softmax(self, node: ListedNode, x: SideValues) -> SideValues:
        """exp(x - mean of what is finite), divided by its sum; minus infinity gives 0."""
        field, axis = self.field, node.attributes["axis"]
        there = np.ones(node.shape, dtype=bool) if x.below is None else ~x.below
        count = there.sum(axis, keepdims=True)
        if (count == 0).any():
            raise NotCovered("softmax of nothing but minus infinity")
        share = field.inverse(field.integers(count))

        def centre(a: Residues) -> Residues:
            finite = np.where(there, a, 0)
            return field.reduce(finite - field.times(self.total(finite, (axis,)), share))

        grown = self.function("exp", 0.0, SideValues(self.each(centre, x)), node.shape)

        def divide(a: Residues) -> Residues:
            finite = np.where(there, a, 0)
            return field.times(finite, field.inverse(self.total(finite, (axis,))))

        return SideValues(self.each(divide, grown))

    def extreme(self, node: ListedNode, x: SideValues, axes: tuple[int, ...]) -> SideValues:
        """The maximum of some values is a function of them together, in any order, and s > 0 comes out of it.

        They are told by Π (t e - x_k) / e^n with their sum e and a random number t: it has the t = x_k/e as zeros.
        """
        field = self.field
        moved = [1 + k for k in axes]
        shape = x.sides[0].shape[1:]
        t = field.draw(())
        there = np.ones(shape, dtype=bool) if x.below is None else ~x.below
        kept_there = there.transpose([k for k in range(len(shape)) if k not in axes] + list(axes))
        rest = tuple(shape[k] for k in range(len(shape)) if k not in axes)
        flat_there = kept_there.reshape(*rest, -1)
        if not flat_there.any(-1).all():
            raise NotCovered("a maximum of nothing but minus infinity")

        def sum_and_product(a: Residues) -> tuple[Residues, Residues]:
            order = [0] + [k for k in range(1, a.ndim) if k not in moved] + moved
            flat = a.transpose(order).reshape(LANES, *rest, -1)
            flat = np.where(flat_there, flat, 0)
            total = field.reduce(flat.sum(-1))
            lifted = field.times(total, t.reshape((LANES,) + (1,) * len(rest)))
            product, power = np.ones_like(total), np.ones_like(total)
            for k in range(flat.shape[-1]):
                check_clock()
                inside = flat_there[..., k]
                product = np.where(inside, field.times(product, field.reduce(lifted - flat[..., k])), product)
                power = np.where(inside, field.times(power, total), power)
            return total, field.times(product, field.inverse(power))

        both = self.each(sum_and_product, x)
        sums, signs = [one for one, _ in both], [two for _, two in both]
        if any(bool((~total_of_side.any(0)).any()) for total_of_side in sums):
            raise NotCovered("a maximum of values that add up to 0")
        result = self.homogeneous(sums, signs, 1)
        return SideValues(self.each(lambda a: a.reshape(LANES, *node.shape), result))


def _turn(sides: list[Any], places: np.ndarray[Any, Any], shape: tuple[int, ...]) -> list[Any] | None:
    """Parameters whose axes are only permuted, or lose and gain axes of size 1; None if entries move otherwise."""
    first = sides[0]
    before = [k for k, n in enumerate(first.shape) if n > 1]
    after = [k for k, n in enumerate(shape) if n > 1]
    if places.size != prod(first.shape) or len(before) != len(after):
        return None
    order = []
    steps = np.cumprod([1, *first.shape[:0:-1]])[::-1]
    for k in after:
        step = int(places.take(1, k).flat[0] - places.flat[0])
        axis = next((j for j in before if int(steps[j]) == step and first.shape[j] == shape[k]), None)
        if axis is None or axis in order:
            return None
        order.append(axis)
    whole = (
        np.arange(places.size)
        .reshape(first.shape)
        .transpose(order + [k for k in range(len(first.shape)) if k not in order])
    )
    if not np.array_equal(whole.reshape(-1), places.reshape(-1)):
        return None
    to = dict(zip(order, after, strict=True))
    spare = [k for k, n in enumerate(shape) if n == 1]
    turned: dict[int, Any] = {}
    for side in sides:
        if not isinstance(side, Weight):
            turned[id(side)] = np.ascontiguousarray(
                side.transpose(0, *(1 + k for k in order + [k for k in range(len(first.shape)) if k not in order]))
            ).reshape(LANES, *shape)
            continue
        groups, factors, free = [], [], list(spare)
        for axes, factor in zip(side.groups, side.factors, strict=True):
            staying = [k for k in axes if k in to]
            factor = factor.reshape(*factor.shape[:2], *(side.shape[k] for k in staying))
            groups.append(tuple(to[k] for k in staying))
            factors.append(factor)
        if free:
            groups[0] = (*groups[0], *free)
            factors[0] = factors[0].reshape(*factors[0].shape, *(1,) * len(free))
        turned[id(side)] = Weight(shape, tuple(groups), tuple(factors))
    return [turned[id(side)] for side in sides]
