"""What each operator means: arithmetic modulo the primes where it is arithmetic, and new variables where it is not.

All runs (`sides`) go through a node together. Sums, products, movements, Einstein sums and whole powers are carried
out. Any other function f gets a variable for each value that it is applied to, the same one for the same value: that is all
that is used of it, with a few laws that hold for all real numbers:

- relu, abs, max and min: f(s x) = s f(x) for numbers s > 0; a comparison is the same then;
- tanh, erf, sin and others are odd, f(-x) = -f(x); cos and cosh are even;
- softmax is exp(x - mean) divided by the sum, so shifts are not seen and the results add up to 1;
- `normalise` is x - mean times a function of the mean square, so a rotation is seen by nobody but its readers;
- the entries of a table at a position that is data are a combination of all its entries, the same in all runs.

Where one run applies a function to a value that no other has, its variable is new: the first such node is where the
runs part, if they do not meet again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from lawful.verify.core.schema import need
from lawful.verify.relational.program import ListedProgram, ListedNode, NotCovered
from lawful.verify.relational.residues import LANES, PRIMES, Lanes, Residues
from lawful.verify.relational.weights import Weight

ODD = {"tanh", "erf", "sin", "tan", "asin", "atan", "sinh", "asinh", "atanh", "round", "trunc", "sign"}
EVEN = {"cos", "cosh"}
COMPARISONS = {"eq", "ne", "lt", "le", "gt", "ge"}
PLAIN = {"exp", "expm1", "log", "log1p", "erfc", "sigmoid", "softplus", "acos", "acosh", "lgamma", "floor", "ceil"}
TOGETHER = {"pow", "atan2", "fmod", "remainder", "floor_divide", "trunc_divide"}
SMALL_TABLE = 200_000  # values of a function that are remembered one by one, to be met again at another node

Leaf = Residues | Weight


@dataclass(eq=False)
class SideValues:
    """One array a run; the same object where runs cannot differ. `below`: entries that are minus infinity in all."""

    sides: list[Any]
    below: np.ndarray[Any, Any] | None = None
    positions: np.ndarray[Any, Any] | None = None  # the integers that a constant is


class Runs:
    """A program run with several assignments of its parameters beside each other."""

    def __init__(
        self,
        field: Lanes,
        program: ListedProgram,
        leaves: list[dict[str, Leaf]],
        generic: list[bool],
        held: Callable[[str], np.ndarray[Any, Any]],
    ) -> None:
        self.field, self.program, self.leaves, self.generic, self.held = field, program, leaves, generic, held
        self.known: dict[tuple[str, float], dict[bytes, Residues]] = {}
        self.parted: ListedNode | None = None
        self.node: ListedNode = program.nodes[0]

    def outputs_agree(self) -> bool:
        """Run it; whether the outputs of all sides are the same."""
        last = {source: node.number for node in self.program.nodes for source in node.operands}
        wanted = set(self.program.outputs)
        values: dict[int, SideValues] = {}
        for node in self.program.nodes:
            need(True, "")  # asks how late it is
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

    # Parts of values

    def each(self, change: Callable[..., Any], *values: SideValues) -> list[Any]:
        """A function of the arrays of each side, computed once for the same arrays."""
        done: dict[tuple[int, ...], Any] = {}
        found = []
        for arrays in zip(*(value.sides for value in values), strict=True):
            key = tuple(map(id, arrays))
            if key not in done:
                done[key] = change(*arrays)
            found.append(done[key])
        return found

    def dense(self, value: SideValues) -> SideValues:
        """Parameters written out."""
        if not any(isinstance(side, Weight) for side in value.sides):
            return value
        made = self.each(lambda w: w.write_out(self.field) if isinstance(w, Weight) else w, value)
        return SideValues(made, value.below, value.positions)

    def finite(self, *values: SideValues) -> None:
        """Refuse minus infinity where no rule speaks of it."""
        if any(value.below is not None for value in values):
            raise NotCovered(f"minus infinity in {self.node.op}")

    # New variables

    def distinct(self, sides: list[Residues]) -> list[Residues]:
        """The different arrays among the sides."""
        return list({id(each): each for each in sides}.values())

    def spread(
        self, sides: list[Residues], table: Residues, kinds: Any, shape: tuple[int, ...], scale: Any = None
    ) -> SideValues:
        """For each side its part of one long line of results."""
        line = table[:, kinds]
        if scale is not None:
            line = self.field.times(line, scale)
        found: dict[int, Residues] = {}
        start = 0
        for each in self.distinct(sides):
            size = prod(each.shape[1:])
            found[id(each)] = line[:, start : start + size].reshape(LANES, *shape)
            start += size
        return SideValues([found[id(each)] for each in sides])

    def note_parting(self, sides: list[Residues], kinds: Any) -> None:
        """Remember the first node at which one side has values that the first side has not."""
        if self.parted is not None:
            return
        start, first = 0, None
        for each in self.distinct(sides):
            size = prod(each.shape[1:])
            own = np.unique(kinds[start : start + size])
            start += size
            if first is None:
                first = own
            elif not np.isin(own, first).all():
                self.parted = self.node
                return

    def variables(self, sides: list[Residues], shape: tuple[int, ...]) -> SideValues:
        """A variable for every different column of the keys `(lanes, *shape)`."""
        line = np.concatenate([each.reshape(len(each), -1) for each in self.distinct(sides)], axis=1)
        first, kinds = self.field.groups(line)
        self.note_parting(sides, kinds)
        return self.spread(sides, self.field.draw((len(first),)), kinds, shape)

    def function(self, name: str, detail: float, x: SideValues, shape: tuple[int, ...]) -> SideValues:
        """A function of one number whose values are remembered, so that another node or a fold meets them again."""
        sides = self.distinct(x.sides)
        line = np.concatenate([each.reshape(LANES, -1) for each in sides], axis=1)
        first, kinds = self.field.groups(line)
        self.note_parting(x.sides, kinds)
        if len(first) > SMALL_TABLE:
            return self.spread(x.sides, self.field.draw((len(first),)), kinds, shape)
        memory = self.known.setdefault((name, detail), {})
        table = self.field.draw((len(first),))
        for place, column in enumerate(np.ascontiguousarray(line[:, first].T)):
            if name == "power" and bool((column == 1).all()):
                table[:, place] = 1  # a value that is 1 at all points is the number 1
            else:
                table[:, place] = memory.setdefault(column.tobytes(), table[:, place].copy())
        return self.spread(x.sides, table, kinds, shape)

    def homogeneous(
        self, sides: list[Residues], extra: list[Residues] | None, degree: int, even: bool = False
    ) -> SideValues:
        """f with f(s x) = s^degree f(x) for numbers s > 0, degree 0 or 1.

        Values that are multiples of each other have the same quotient of their two points. The multiple is a number
        that has to be recognised: only then its sign is known.
        """
        field, shape = self.field, sides[0].shape[1:]
        line = np.concatenate([each.reshape(LANES, -1) for each in self.distinct(sides)], axis=1)
        beside = None
        if extra is not None:
            chosen = {id(one): two for one, two in zip(sides, extra, strict=True)}
            beside = np.concatenate([chosen[id(each)].reshape(LANES, -1) for each in self.distinct(sides)], axis=1)
        one, two = line[:PRIMES], line[PRIMES:]
        ratio = field.times(two, field.inverse(one))
        zero = np.asarray(~line.any(0))
        keys = np.concatenate([ratio, zero[None].astype(np.int64)] + ([] if beside is None else [beside]))
        first, kinds = field.groups(keys)
        scale = field.times(one, field.inverse(one[:, first[kinds]]))
        scale[:, zero] = 1
        scales, which = field.groups(scale)
        numbers = [field.number(scale[:, place]) for place in scales]
        sign = np.array([0 if each is None else (1 if each > 0 else -1) for each in numbers])[which]
        # Three kinds of variables: of the value that came first, of its opposite, and of what is no known multiple.
        own = np.zeros(len(kinds), dtype=np.int64)
        if (sign == 0).any():
            whole = line if beside is None else np.concatenate([line, beside])
            own = field.groups(whole)[1] + 1
        opposite = (sign < 0) & (not even)
        firsts, final = field.groups(np.stack([kinds, np.where(sign == 0, own, 0), opposite]).astype(np.int64))
        self.note_parting(sides, final)
        table = field.draw((len(firsts),))
        if degree == 0:
            return self.spread(sides, table, final, shape)
        table[:, zero[firsts]] = 0
        size = np.where(sign < 0, field.primes_for(scale) - scale, scale)
        size = np.where(sign == 0, 1, size)
        return self.spread(sides, table, final, shape, np.concatenate([size, size]))

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
                return self.function("cast" + node.attributes["to"], 0.0, self.dense(x[0]), node.shape)
            return x[0]
        if op == "contract":
            (left, right), out = node.attributes["spec"]
            return self.contract(x[0], x[1], left, right, out)
        if op == "conv":
            return self.convolve(node, x[0], x[1])
        if op == "lookup":
            return self.lookup(node, x[0], x[1])
        x = [self.dense(each) for each in x]
        if op == "add":
            return self.add(node, *x)
        if op == "softmax":
            return self.softmax(node, x[0])
        if op in ("amax", "amin"):
            return self.extreme(node, x[0], node.attributes["axes"])
        if op == "where":
            return self.where(node, *x)
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
            return self.signed(node, x[0])
        if op in PLAIN:
            return self.function(op, 0.0, x[0], node.shape)
        if op in TOGETHER:
            return self.variables(self.each(lambda a, b: np.concatenate(self.laid(node, a, b)), *x), node.shape)
        if op in ("not", "and", "or", "xor"):
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
        x = [self.dense(each) for each in x]
        sizes = [prod(each.sides[0].shape[1:]) for each in x]

        def move(*arrays: Residues) -> Residues:
            flat = [array.reshape(LANES, -1) for array in arrays]
            return (flat[0] if len(flat) == 1 else np.concatenate(flat, axis=1))[:, places]

        below = None
        if any(each.below is not None for each in x):
            parts = [
                np.zeros(n, dtype=bool) if v.below is None else v.below.reshape(-1)
                for v, n in zip(x, sizes, strict=True)
            ]
            below = np.concatenate(parts)[places]
        exact = None
        if all(each.positions is not None for each in x):
            exact = np.concatenate([np.asarray(each.positions).reshape(-1) for each in x])[places]
        return SideValues(self.each(move, *x), below if below is not None and below.any() else None, exact)

    def laid(self, node: ListedNode, *arrays: Residues) -> list[Residues]:
        """Arrays of the shape of the node."""
        rank = len(node.shape)
        found = []
        for array in arrays:
            wide = array.reshape(LANES, *(1,) * (rank - array.ndim + 1), *array.shape[1:])
            found.append(np.broadcast_to(wide, (LANES, *node.shape)))
        return found

    def add(self, node: ListedNode, x: SideValues, y: SideValues) -> SideValues:
        """x + y; minus infinity stays what it is."""
        below = None
        for value in (x, y):
            if value.below is not None:
                own = np.broadcast_to(value.below, node.shape)
                below = own if below is None else below | own

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
        if x.below is not None or y.below is not None or c.below is not None:
            raise NotCovered("minus infinity where a condition that is data holds")

        def choose(a: Residues, b: Residues, d: Residues) -> Residues:
            gate, one, two = self.laid(node, a, b, d)
            return self.field.reduce(self.field.times(gate, self.field.reduce(one - two)) + two)

        return SideValues(self.each(choose, c, x, y))

    def power(self, node: ListedNode, x: SideValues) -> SideValues:
        """Whole powers are products; 1/x too, unless a parameter of several factors is in x: degrees are of polynomials."""
        exponent = node.attributes["exponent"]
        whole = exponent == int(exponent) and abs(exponent) <= 64
        if whole and (exponent >= 0 or self.generic[node.operands[0]]):
            return SideValues(self.each(lambda a: self.field.power(a, int(exponent)), x))
        return self.function("power", exponent, x, node.shape)

    def signed(self, node: ListedNode, x: SideValues) -> SideValues:
        """Odd and even functions: of a value and its opposite, the one that is less in the first lane is looked up."""
        field, p = self.field, int(self.field.p[0])
        flips = self.each(lambda a: 2 * a[0] > p, x)
        upright = self.each(lambda a: np.where(2 * a[0] > p, field.reduce(-a), a), x)
        made = self.function(node.op, 0.0, SideValues(upright), node.shape)
        if node.op in EVEN:
            return made
        found: dict[tuple[int, int], Residues] = {}
        for flip, value, given in zip(flips, made.sides, x.sides, strict=True):
            zero = ~given.any(0)  # an odd function is 0 at 0
            turned = np.where(flip, field.reduce(-value), value)
            found.setdefault((id(flip), id(value)), np.where(zero, 0, turned))
        return SideValues([found[id(flip), id(value)] for flip, value in zip(flips, made.sides, strict=True)])

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
            kept = np.where(there, a, 0)
            return field.reduce(kept - field.times(self.total(kept, (axis,)), share))

        grown = self.function("exp", 0.0, SideValues(self.each(centre, x)), node.shape)

        def divide(a: Residues) -> Residues:
            kept = np.where(there, a, 0)
            return field.times(kept, field.inverse(self.total(kept, (axis,))))

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

        def told(a: Residues) -> tuple[Residues, Residues]:
            order = [0] + [k for k in range(1, a.ndim) if k not in moved] + moved
            flat = a.transpose(order).reshape(LANES, *rest, -1)
            flat = np.where(flat_there, flat, 0)
            total = field.reduce(flat.sum(-1))
            lifted = field.times(total, t.reshape((LANES,) + (1,) * len(rest)))
            product, power = np.ones_like(total), np.ones_like(total)
            for k in range(flat.shape[-1]):
                inside = flat_there[..., k]
                product = np.where(inside, field.times(product, field.reduce(lifted - flat[..., k])), product)
                power = np.where(inside, field.times(power, total), power)
            return total, field.times(product, field.inverse(power))

        both = self.each(told, x)
        sums, signs = [one for one, _ in both], [two for _, two in both]
        if any(bool((~each.any(0)).any()) for each in sums):
            raise NotCovered("a maximum of values that add up to 0")
        made = self.homogeneous(sums, signs, 1)
        return SideValues(self.each(lambda a: a.reshape(LANES, *node.shape), made))

    # Einstein sums

    def contract(self, x: SideValues, y: SideValues, lx: str, ly: str, out: str) -> SideValues:
        """An Einstein sum; a parameter is used vector by vector."""
        self.finite(x, y)

        def once(a: Any, b: Any) -> Residues:
            if isinstance(a, Weight) and isinstance(b, Weight):
                a = a.write_out(self.field)
            if isinstance(a, Weight):
                return self.through(b, a, ly, lx, out)
            if isinstance(b, Weight):
                return self.through(a, b, lx, ly, out)
            return self.einstein(a, b, lx, ly, out)

        return SideValues(self.each(once, x, y))

    def through(self, x: Residues, w: Weight, lx: str, lw: str, out: str) -> Residues:
        """A parameter of few products: one vector after the other, those that are summed first."""
        letters = ["".join(lw[k] for k in axes) for axes in w.groups]
        order = sorted(range(len(letters)), key=lambda n: sum(c in out for c in letters[n]))
        have, inside = lx, x
        for turn, number in enumerate(order):
            later = set(out).union(*(letters[n] for n in order[turn + 1 :]))
            last = turn == len(order) - 1
            mine = "*" + letters[number]
            keep = [c for c in dict.fromkeys(have + mine) if c in later or (c == "*" and not last)]
            inside = self.einstein(inside, w.factors[number], have, mine, "".join(keep))
            have = "".join(keep)
        return np.ascontiguousarray(inside.transpose(0, *(1 + have.index(c) for c in out)))

    def einstein(self, a: Residues, b: Residues, la: str, lb: str, out: str) -> Residues:
        """An Einstein sum of two arrays, as matrix products."""
        field = self.field
        for letters, other in ((la, lb), (lb, la)):
            alone = tuple(k for k, c in enumerate(letters) if c not in other and c not in out)
            if alone and letters is la:
                a = field.reduce(a.sum(tuple(1 + k for k in alone)))
                la = "".join(c for k, c in enumerate(la) if k not in alone)
            elif alone:
                b = field.reduce(b.sum(tuple(1 + k for k in alone)))
                lb = "".join(c for k, c in enumerate(lb) if k not in alone)
        size = {**dict(zip(la, a.shape[1:], strict=True)), **dict(zip(lb, b.shape[1:], strict=True))}
        batch = [c for c in la if c in lb and c in out]
        inner = [c for c in la if c in lb and c not in out]
        left, right = [c for c in la if c not in lb], [c for c in lb if c not in la]
        counts = [prod(size[c] for c in each) for each in (batch, left, inner, right)]
        one = a.transpose(0, *(1 + la.index(c) for c in batch + left + inner)).reshape(
            LANES, counts[0], counts[1], counts[2]
        )
        two = b.transpose(0, *(1 + lb.index(c) for c in batch + inner + right)).reshape(
            LANES, counts[0], counts[2], counts[3]
        )
        made = field.matmul(one, two).reshape(LANES, *(size[c] for c in batch + left + right))
        have = batch + left + right
        return made.transpose(0, *(1 + have.index(c) for c in out))

    def convolve(self, node: ListedNode, x: SideValues, w: SideValues) -> SideValues:
        """Padding is 0; for each place of the kernel an Einstein sum with what lies there."""
        x = self.dense(x)
        self.finite(x, w)
        return SideValues(self.each(lambda a, b: self.convolution(node, a, b), x, w))

    def convolution(self, node: ListedNode, x: Residues, w: Any) -> Residues:
        """One run of it."""
        attributes, field = node.attributes, self.field
        groups, rank = attributes["groups"], len(node.shape) - 2
        shape = self.program.nodes[node.operands[1]].shape
        kernel = tuple(range(2, 2 + rank))
        places, offsets = node.shape[2:], list(np.ndindex(*shape[2:]))
        pad = [(p, p) for p in attributes["padding"]]
        wide = np.pad(x, [(0, 0)] * 3 + pad) if any(attributes["padding"]) else x

        def window(a: Residues, at: tuple[int, ...]) -> Residues:
            """What the kernel's place `at` meets, for every place of the result (the last axes)."""
            cut = tuple(
                slice(k * d, k * d + s * (n - 1) + 1, s)
                for k, d, s, n in zip(at, attributes["dilation"], attributes["stride"], places, strict=True)
            )
            found: Residues = a[(Ellipsis, *cut)]  # type: ignore[arg-type]
            return found

        uvw = "uvw"[:rank]
        if isinstance(w, Weight) and kernel in w.groups and groups == 1 and {(0,), (1,)} <= set(w.groups):
            outer, inner, inside = (w.factors[w.groups.index(axes)] for axes in ((0,), (1,), kernel))
            met = self.einstein(wide, inner, "nc" + uvw, "*c", "n*" + uvw)
            total = field.zeros((node.shape[0], w.terms, *places))
            for at in offsets:
                share = inside[(slice(None), slice(None), *at)][(slice(None), None, ..., *(None,) * rank)]
                total = field.reduce(total + field.times(window(met, at), share))
            return self.einstein(total, outer, "n*" + uvw, "*o", "no" + uvw)
        array = w.write_out(field) if isinstance(w, Weight) else w
        split = wide.reshape(LANES, wide.shape[1], groups, -1, *wide.shape[3:])
        kernels = array.reshape(LANES, groups, shape[0] // groups, *shape[1:])
        total = field.zeros((node.shape[0], groups, shape[0] // groups, *places))
        for at in offsets:
            part = kernels[(..., *at)]
            total = field.reduce(total + self.einstein(window(split, at), part, "ngc" + uvw, "goc", "ngo" + uvw))
        return total.reshape(LANES, *node.shape)

    def lookup(self, node: ListedNode, table: SideValues, index: SideValues) -> SideValues:
        """Entries at known positions; at positions that are data, the same combination of all entries in every run."""
        axis, shape = node.attributes["axis"], self.program.nodes[node.operands[0]].shape
        self.finite(table, index)
        count = shape[axis]
        if index.positions is not None:
            at = index.positions
            need(bool((at >= -count).all() and (at < count).all()), "a table is read outside of it")
            at = np.where(at < 0, at + count, at)
            index = SideValues([self.field.integers(at)] * len(self.leaves))
            line = at.reshape(-1)
            weights = [self.field.integers((line[:, None] == np.arange(count)).astype(np.int64))] * len(self.leaves)
        else:
            index = self.dense(index)
            keys = np.concatenate([each.reshape(LANES, -1) for each in self.distinct(index.sides)], axis=1)
            first, kinds = self.field.groups(keys)
            self.note_parting(index.sides, kinds)
            need(count * len(first) <= 20_000_000, "a table is read too often")
            chosen = self.field.draw((len(first), count))
            # One of the entries is picked: whatever else is not known of the combination, its coefficients add up to 1.
            chosen[:, :, -1] = self.field.reduce(1 - chosen[:, :, :-1].sum(-1))
            weights, start, made = [], 0, {}
            for each in self.distinct(index.sides):
                size = prod(each.shape[1:])
                made[id(each)] = chosen[:, kinds[start : start + size]]
                start += size
            weights = [made[id(each)] for each in index.sides]
        letters = "abcdefghijkl"[: len(shape)]
        mine = letters[axis]
        out = letters.replace(mine, "y")
        found = self.contract(table, SideValues(weights), letters, "y" + mine, out)
        return SideValues(self.each(lambda a: np.ascontiguousarray(a).reshape(LANES, *node.shape), found))


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
    made: dict[int, Any] = {}
    for side in sides:
        if not isinstance(side, Weight):
            made[id(side)] = np.ascontiguousarray(
                side.transpose(0, *(1 + k for k in order + [k for k in range(len(first.shape)) if k not in order]))
            ).reshape(LANES, *shape)
            continue
        groups, factors, free = [], [], list(spare)
        for axes, factor in zip(side.groups, side.factors, strict=True):
            kept = [k for k in axes if k in to]
            factor = factor.reshape(*factor.shape[:2], *(side.shape[k] for k in kept))
            groups.append(tuple(to[k] for k in kept))
            factors.append(factor)
        if free:
            groups[0] = (*groups[0], *free)
            factors[0] = factors[0].reshape(*factors[0].shape, *(1,) * len(free))
        made[id(side)] = Weight(shape, tuple(groups), tuple(factors))
    return [made[id(side)] for side in sides]
