"""The scalar graph of a program: every entry of every value is an affine form of neurons, and activations make neurons.

Rules follow families and traits. A function that is homogeneous of degree 1 is `p max(x, 0) + q max(-x, 0)` with its
values `p` at 1 and `q` at -1; maxima are chains of these; movements, sums, products with numbers and contractions with
numbers act on forms. Everything else is no piecewise linear function, and refused by the name that its source gives it.

Numbers are stored as they are: one weight on an edge is the float64 of the tensor. A weight that meets sums of several
terms, or another weight's, first turns them into linear neurons (`network.assemble`), so nothing grows by multiplying.

Samples of a batch must stay apart: a value knows which of its axes counts them, and holds the entries of one sample.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lawful.errors import InvalidNetwork, LawfulError, Unsupported
from lawful.network.assemble import MAX_TERMS, Assembly, Matrix, Value, check_terms
from lawful.program.arrays import NUMPY
from lawful.program.domains.affine_forms import (
    Entry,
    Fixed,
    Forms,
    Kinks,
    all_entries,
    check_finite,
    constant_entries,
    einsum_matrix,
    exact_quotient,
    read_numbers,
    scale_forms,
    shift_value,
    spread_samples,
    title,
    with_value,
)
from lawful.program.domains.interpret import AbstractDomain
from lawful.program.program import Node, Program
from lawful.program.table import OperatorFamily
from lawful.types import Floats, Indices

UNBOUNDED = 1e38  # a bound near the largest float32 is how files say that there is none


@dataclass
class ScalarGraph(AbstractDomain[Entry]):
    """Affine forms of neurons.

    `entangled` collects why the edges are not the parameters one by one, `computed` says that some were worked out in
    floating point, from others or from numbers such as 1/9, `used` counts how often a tensor meets values, and is in
    the order of the first time.
    """

    program: Program
    assembly: Assembly
    batch: int  # samples along the first axis of the input; 0 if the input is one sample
    frozen: Collection[str] = ()  # parameters that do not train
    may_be_constant: bool = False  # whether an output that ignores the input is one
    entangled: list[str] = field(default_factory=list)
    computed: bool = False
    used: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.readers: dict[Node, list[Node]] = {}
        for node in self.program.nodes:
            for operand in node.inputs:
                self.readers.setdefault(operand, []).append(node)
        # Weights that are zero are edges as well, as training may change them; where they do not fit, they are not,
        # and the reading says that its edges are not the parameters one by one.
        self.keep_zeros: bool = sum(node.size for node in self.program.parameters.values()) <= MAX_TERMS

    # Leaves

    def leaf(self, node: Node) -> Entry:
        """The input, or numbers as they are stored."""
        if node.op == "constant":
            return Fixed(node["value"])
        if node.op == "input":
            whole = self.assembly.input()
            return Forms((whole,), np.arange(whole.size), whole.shape, 0 if self.batch else None, node.kind)
        name = node["name"]
        try:
            return Fixed(read_numbers(name, self.program.tensors[name]), frozenset([name]))
        except LawfulError as error:
            raise type(error)(f"{self._place(self.readers.get(node, [node])[0])}: {error}") from None

    # Families

    def movement(self, node: Node, *sources: Entry) -> Entry:
        """Entries of the sources; the samples must lie along one axis of the result."""
        index = node["map"]
        if all(isinstance(value, Fixed) for value in sources):
            return self._evaluate(node, *sources)
        operands = [value if isinstance(value, Fixed) else self._forms(value) for value in sources]
        parts: list[Value] = []
        rows: list[Indices] = []
        samples: list[Indices] = []
        start = 0
        for value, source in zip(operands, node.inputs, strict=True):
            if isinstance(value, Fixed):
                parts.append(constant_entries(value))
                rows.append(start + np.arange(source.size))
                # -1: a number is the same for every sample, and fits beside all of them.
                samples.append(np.full(source.size, -1))
                start += source.size
            else:
                parts.extend(value.parts)
                row, sample = spread_samples(value, source.shape)
                rows.append(start + row)
                samples.append(sample)
                start += sum(part.size for part in value.parts)
        at = index.positions
        row, sample = np.concatenate(rows)[at], np.concatenate(samples)[at]
        kind = next(operand.kind for operand in operands if isinstance(operand, Forms))
        axis = self._samples_axis(row, sample) if self.batch else None
        if self.batch and axis is None:
            raise self._refuse(node, "does not keep the batch apart: it mixes the samples of a batch")
        one = row if axis is None else row.take(0, axis)
        total = sum(np.diff(part.indptr).any() * part.size for part in parts)
        # An entry twice shares the weights behind it; one left out is a parameter that the graph does not have.
        if one.size != total or len(np.unique(one)) != one.size:
            self._entangle(node)
        self._use(*(value for value in operands if isinstance(value, Fixed)))
        return Forms(tuple(parts), one.ravel(), one.shape, axis, kind)

    def elementwise(self, node: Node, *operands: Entry) -> Entry:
        """Functions of degree 1 bend; a cast of integers to reals is nothing."""
        if all(isinstance(operand, Fixed) for operand in operands):
            return self._evaluate(node, *operands)
        (x,) = operands
        forms = self._forms(x)
        if node.op == "cast":
            return replace(forms, kind=node.kind)
        base, sign = _base(node.inputs[0])
        # Degree 1: the values at 1 and -1 are all there is to know.
        up, down = (float(_run(node, np.array([s]))[0]) for s in (1.0, -1.0))
        if sign < 0:
            up, down, forms = down, up, with_value(forms, forms.value.scale(-1.0))
        slopes = [None if side == 0 else np.full(forms.shape, side) for side in (up, down)]
        return Kinks(base, forms, slopes[0], slopes[1], self._place(node))

    def addition(self, node: Node, x: Entry, y: Entry) -> Entry:
        """Sums of forms; numbers become biases; two sides of one bend become one."""
        if isinstance(x, Fixed) and isinstance(y, Fixed):
            return self._evaluate(node, x, y)
        if isinstance(x, Kinks) and isinstance(y, Kinks) and x.base == y.base:
            # relu(h) and -a relu(-h) are one leaky neuron: two would have two copies of h's weights.
            for one, two in ((x, y), (y, x)):
                if one.negative is None and two.positive is None:
                    return Kinks(x.base, one.operand, one.positive, two.negative, self._place(node))
        if isinstance(x, Fixed):
            x, y = y, x
        forms = self._forms(x)
        if isinstance(y, Fixed):
            return self._shift(node, forms, y)
        self._entangle(node)
        return self._combine(node, forms, self._forms(y), 1.0)

    def product(self, node: Node, x: Entry, y: Entry) -> Entry:
        """A product with numbers."""
        if isinstance(x, Fixed) and isinstance(y, Fixed):
            return self._evaluate(node, x, y)
        if isinstance(x, Fixed):
            x, y = y, x
        if not isinstance(y, Fixed):
            raise self._refuse(node, "multiplies two tensors that both depend on the input")
        self._use(y)
        # A bend that no node has read takes the factor into its slope; a neuron that exists is never changed.
        if isinstance(x, Kinks) and x.forms is None and (x.positive is None or x.negative is None):
            factors = self._of_sample(node, y, x.operand)
            if np.broadcast_shapes(factors.shape, x.operand.shape) == x.operand.shape:
                sides = (None if s is None else s * factors for s in (x.positive, x.negative))
                positive, negative = sides
                return Kinks(x.base, x.operand, positive, negative, self._place(node))
        forms = self._forms(x)
        readers = [] if node in self.program.outputs else self.readers[node]
        if not (readers and all(map(_bends, readers)) and bool((y.numbers == -1).all())):
            self._entangle(node)  # but the negative side of a leaky ReLU is one neuron with the other
        factors = self._of_sample(node, y, forms)
        value = forms.value.broadcast(np.broadcast_shapes(forms.shape, factors.shape))
        self.computed = self.computed or (value.weighted if y.is_learned else _rounds(y.numbers))
        return with_value(forms, value.scale(factors))

    def contraction(self, node: Node, x: Entry, y: Entry) -> Entry:
        """An Einstein sum with numbers; those that are learned meet no pending sums."""
        if isinstance(x, Fixed) and isinstance(y, Fixed):
            return self._evaluate(node, x, y)
        operand_letters, out = node["spec"].split("->")
        first, second = operand_letters.split(",")
        if isinstance(x, Fixed):
            x, y, first, second = y, x, second, first
        if not isinstance(y, Fixed):
            raise self._refuse(node, "multiplies two tensors that both depend on the input")
        forms, numbers = self._forms(x), y.numbers
        self._use(y)
        axis = None
        if forms.axis is not None:
            letter = first[forms.axis]
            if letter not in out:
                raise self._refuse(node, "sums over the samples of a batch")
            if letter in second:
                numbers, second = self._alike(node, numbers, second.index(letter)), second.replace(letter, "")
            axis, first, out = out.index(letter), first.replace(letter, ""), out.replace(letter, "")
        size = {**dict(zip(first, forms.shape, strict=True)), **dict(zip(second, numbers.shape, strict=True))}
        shape = tuple(size[letter] for letter in out)
        matrix = einsum_matrix(first, second, out, size, numbers, zeros=y.is_learned and self.keep_zeros)
        if not y.is_learned:  # a fixed zero is no edge; a trained one is
            self._entangle(node)
            self.computed = self.computed or _rounds(numbers)
            return Forms(*all_entries(forms.value.map(matrix, shape, weighted=False)), axis)
        if len(matrix.entries) != numbers.size:
            self._entangle(node)
        self._check_trained(node, y)
        # Learned numbers on sums of several terms would be products of weights: each sum becomes a neuron first.
        sums = self._settle(forms).value
        return Forms(*all_entries(sums.map(matrix, shape, weighted=True)), axis)

    def reduction(self, node: Node, x: Entry) -> Entry:
        """Sums, and maxima by ReLUs."""
        if isinstance(x, Fixed):
            return self._evaluate(node, x)
        forms = self._forms(x)
        axes = node["axes"]
        if forms.axis is not None and forms.axis in axes:
            raise self._refuse(node, f"a mean, sum or maximum over axes {list(axes)}, which are the batch's too")
        inner = [axis - (forms.axis is not None and axis > forms.axis) for axis in axes]
        sizes = tuple(1 if axis in inner else n for axis, n in enumerate(forms.shape))
        rows = np.broadcast_to(np.arange(math.prod(sizes)).reshape(sizes), forms.shape).ravel()
        order = np.argsort(rows, kind="stable")
        self._entangle(node)
        if node.traits.linear:
            matrix = Matrix(rows[order], order, np.ones(len(order)))
            return Forms(*all_entries(forms.value.map(matrix, sizes, weighted=False)), forms.axis)
        columns = order.reshape(math.prod(sizes), -1)
        return self._extreme(node, forms, columns, sizes)

    def choice(self, node: Node, *operands: Entry) -> Entry:
        """`max(a, b) = a + σ(b - a)`, and with a number `c + σ(b - c)`; minima the other way round."""
        if all(isinstance(operand, Fixed) for operand in operands):
            return self._evaluate(node, *operands)
        x, y = operands
        self._entangle(node)
        sign = _direction(node)
        if isinstance(x, Fixed):
            x, y = y, x
        forms = self._forms(x)
        if not isinstance(y, Fixed):
            return self._maximum(node, forms, self._forms(y), sign)
        self._use(y)
        bounds = self._of_sample(node, y, forms)
        if bool((sign * bounds < -UNBOUNDED).all()):
            return forms
        bounds = check_finite("bound", bounds)
        shape = np.broadcast_shapes(bounds.shape, forms.shape)
        if sign > 0:
            bent = self._bend(with_value(forms, shift_value(forms.value.broadcast(shape), -bounds)), 0.0)
            return with_value(bent, shift_value(bent.value, bounds))
        # min(a, c) = a - σ(a - c) reads a twice: settled first, or its terms would stand twice in the graph.
        broadcast = with_value(forms, self._settle(forms).value.broadcast(shape))
        above = self._bend(with_value(broadcast, shift_value(broadcast.value, -bounds)), 0.0)
        return self._combine(node, broadcast, above, -1.0)

    def other(self, node: Node, *operands: Entry) -> Entry:
        """Numbers are computed; nothing else is a piecewise linear function."""
        if all(isinstance(operand, Fixed) for operand in operands):
            return self._evaluate(node, *operands)
        raise self._refuse(node, "is not supported")

    # What the rules are made of

    def result(self, node: Node, entry: Entry) -> Value:
        """The entries of one sample of an output."""
        if isinstance(entry, Fixed):
            return self._constant(node, entry)
        forms = self._forms(entry)
        if self.batch and forms.axis != 0:
            raise self._refuse(node, "does not keep the batch apart: it mixes the samples of a batch")
        value = forms.value
        if not value.weighted:
            self.entangled.append("the outputs are neurons themselves, by weights that do not train")
        return value

    def _constant(self, node: Node, numbers: Fixed) -> Value:
        """An output that ignores the input: biases alone."""
        if not self.may_be_constant:
            raise InvalidNetwork("does not come from its input")
        self._use(numbers)
        self.computed = True  # constants were folded before, and roundings with them
        array = np.asarray(numbers.numbers, dtype=np.float64)
        array = self._alike(node, array, 0) if self.batch else array
        none, bias = np.zeros(0), array.ravel()
        start = np.zeros(len(bias) + 1, dtype=np.intp)
        return Value(array.shape, start, none.astype(np.intp), none, bias, np.ones(len(bias), dtype=bool), True)

    def _forms(self, entry: Entry) -> Forms:
        """The entries as forms: a bend that is used is made, once."""
        if isinstance(entry, Fixed):
            raise Unsupported("its operand must depend on the network's input")
        if isinstance(entry, Forms):
            return entry
        if entry.forms is None:
            entry.forms = self._make(entry)
        return entry.forms

    def _make(self, kinks: Kinks) -> Forms:
        z, positive, negative = kinks.operand, kinks.positive, kinks.negative
        if negative is None and positive is not None:
            return self._times(kinks, self._bend(z, 0.0), positive)
        turned = with_value(z, z.value.scale(-1.0))
        if positive is None and negative is not None:
            self.entangled.append(f"{kinks.place} shares, fixes or folds weights")
            return self._times(kinks, self._bend(turned, 0.0), negative)
        if positive is None or negative is None:
            return with_value(z, z.value.scale(0.0))
        if bool((positive == 1).all()) and not bool((negative == 1).all()):
            return self._bend(z, np.broadcast_to(0.0 - negative, z.shape))
        self.entangled.append(f"{kinks.place} shares, fixes or folds weights")
        if bool((negative == 1).all()) and not bool((positive == 1).all()):
            return self._bend(turned, np.broadcast_to(0.0 - positive, z.shape))
        slope = exact_quotient(negative, positive)
        if slope is not None:  # one neuron and a factor
            return self._times(kinks, self._bend(z, np.broadcast_to(0.0 - slope, z.shape)), positive)
        settled = self._settle(z)
        turned = with_value(settled, settled.value.scale(-1.0))
        one, two = (self._times(kinks, self._bend(argument, 0.0), side)
                    for argument, side in ((settled, positive), (turned, negative)))  # fmt: skip
        return with_value(one, one.value + two.value)

    def _times(self, kinks: Kinks, forms: Forms, factors: Floats) -> Forms:
        if bool((factors == 1).all()):
            return forms
        self.entangled.append(f"{kinks.place} shares, fixes or folds weights")
        return with_value(forms, forms.value.scale(factors))

    def _bend(self, forms: Forms, slope: Any) -> Forms:
        value = forms.value
        if not value.weighted:
            self.entangled.append("an activation reads neurons by weights that do not train")
        return with_value(forms, self.assembly.activate(value, slope))

    def _settle(self, forms: Forms) -> Forms:
        """Each entry at most one neuron; what movements repeat becomes one neuron all the same."""
        return replace(forms, parts=tuple(self.assembly.settle(part) for part in forms.parts))

    def _shift(self, node: Node, forms: Forms, numbers: Fixed) -> Forms:
        self._use(numbers)
        value, offsets = forms.value, self._of_sample(node, numbers, forms)
        whole = value.broadcast(np.broadcast_shapes(value.shape, offsets.shape))
        entry_by_entry = numbers.is_learned and offsets.size == whole.size == value.size
        if not entry_by_entry or not value.weighted or bool(value.biased.any()):
            self._entangle(node)
        elif numbers.is_learned:
            self._check_trained(node, numbers)
        return with_value(forms, whole.shift(check_finite(title(numbers, "constant"), offsets)))

    def _combine(self, node: Node, one: Forms, two: Forms, factor: float) -> Forms:
        if one.axis != two.axis:
            raise self._refuse(node, "does not keep the batch apart: it mixes the samples of a batch")
        second = two.value if factor == 1 else two.value.scale(factor)
        return with_value(one, one.value + second)

    def _maximum(self, node: Node, one: Forms, two: Forms, sign: float) -> Forms:
        # It is read twice, by the ReLU and beside it.
        base = self._settle(one)
        shape = np.broadcast_shapes(one.shape, two.shape)
        base = with_value(base, base.value.broadcast(shape))
        above = self._bend(self._combine(node, scale_forms(two, sign), scale_forms(base, -sign), 1.0), 0.0)
        return self._combine(node, base, above, sign)

    def _extreme(self, node: Node, forms: Forms, columns: Indices, shape: tuple[int, ...]) -> Forms:
        """The largest entry of each row of columns; infinite constants do not count."""
        sign = _direction(node)
        settled = replace(self._settle(forms), axis=None)
        value = settled.value
        # The padding of a max pool: -∞ never wins, and would be a bias that is no number.
        empty = (np.diff(value.indptr) == 0) & (sign * value.bias < -UNBOUNDED)
        exists = ~empty[columns]
        counts = exists.sum(axis=1)
        if not counts.all():
            raise InvalidNetwork("a maximum sees no input")
        check_terms(columns.size)
        columns = np.take_along_axis(columns, np.argsort(~exists, axis=1, kind="stable"), axis=1)

        def pick(rows: Indices, step: int) -> Forms:
            which = columns[rows, step]
            return replace(settled, rows=settled.rows[which], shape=(len(which),))

        every = np.arange(len(columns))
        largest = pick(every, 0)
        for step in range(1, int(counts.max())):
            # Windows at the border see fewer entries: only those with a further one take part in this step.
            rows = np.flatnonzero(counts > step)
            some = Forms(*all_entries(largest.value.take(rows, (len(rows),))), None)
            best = self._maximum(node, some, pick(rows, step), sign)
            if len(rows) == len(columns):
                largest = best
                continue
            which = every.copy()
            which[rows] = len(columns) + np.arange(len(rows))
            largest = Forms((largest.value, best.value), which, (len(columns),), None)
        return Forms((largest.value,), every, shape, forms.axis)

    def _of_sample(self, node: Node, numbers: Fixed, forms: Forms) -> Floats:
        """Numbers beside entries, without the axis of the samples."""
        array = np.asarray(numbers.numbers, dtype=np.float64)
        return array if forms.axis is None else self._alike(node, array, forms.axis)

    def _alike(self, node: Node, array: NDArray[Any], axis: int) -> NDArray[Any]:
        first = array.take(0, axis)
        if array.shape[axis] > 1 and not bool((array == np.expand_dims(first, axis)).all()):
            raise self._refuse(node, "a constant differs from sample to sample")
        return np.asarray(first)

    def _samples_axis(self, row: Indices, sample: Indices) -> int | None:
        """The axis along which samples follow each other, and nothing else changes."""
        for axis in [k for k, n in enumerate(row.shape) if n == self.batch]:
            counted = np.arange(self.batch).reshape([-1 if k == axis else 1 for k in range(row.ndim)])
            if bool(((sample == counted) | (sample < 0)).all()) and bool((row == row.take([0], axis)).all()):
                return axis
        return None

    def _evaluate(self, node: Node, *operands: Entry) -> Fixed:
        """Numbers made of numbers, in float64; whoever made them of parameters does not train them."""
        if node.family is OperatorFamily.OPAQUE:
            raise self._refuse(node, "is not supported")
        fixed = [operand for operand in operands if isinstance(operand, Fixed)]
        names = frozenset[str]().union(*(number.names for number in fixed))
        result = Fixed(_run(node, *(number.numbers for number in fixed)), names)
        moved = node.family is OperatorFamily.MOVEMENT and len(node.inputs) == 1 and node.inputs[0].size == node.size
        if names and not moved and node.family is not OperatorFamily.LEAF:
            self.computed = True
            self.entangled.append(f"{self._place(node)} computes a weight from others")
        return result

    def _use(self, *held: Fixed) -> None:
        for number in held:
            self.used.update(sorted(number.names))

    def _check_trained(self, node: Node, numbers: Fixed) -> None:
        if any(name in self.frozen or name not in self.program.parameters for name in numbers.names):
            self.entangled.append(f"{self._place(node)} has weights that do not train")

    def _entangle(self, node: Node) -> None:
        self.entangled.append(f"{self._place(node)} shares, fixes or folds weights")

    def _place(self, node: Node) -> str:
        return self.program.places.get(node, node.op)

    def _refuse(self, node: Node, words: str) -> Unsupported:
        return Unsupported(f"{self._place(node)}: {words}")


def _base(node: Node) -> tuple[tuple[Node, float], int]:
    """What an operand is up to a positive factor, and the sign of the factor."""
    if node.family is OperatorFamily.PRODUCT and node.inputs[0].op == "constant" and node.inputs[0].size == 1:
        factor = float(node.inputs[0]["value"].ravel()[0])
        if factor and math.isfinite(factor):
            return (node.inputs[1], abs(factor)), 1 if factor > 0 else -1
    return (node, 1.0), 1


def _rounds(factors: Floats) -> bool:
    """Whether a product with these may be rounded: 1/9 is no double, and only powers of two keep every mantissa."""
    return bool((np.abs(np.frexp(factors)[0]) % 0.5 != 0).any())


def _bends(node: Node) -> bool:
    return node.family is OperatorFamily.ELEMENTWISE and node.traits.degree == 1


def _direction(node: Node) -> float:
    """1 if an operator takes the larger of two numbers, -1 if it takes the smaller."""
    pair = [np.zeros(1), np.ones(1)]
    if len(node.inputs) == 2:
        return 1.0 if node.operator.meaning(NUMPY, node.attributes, *pair)[0] == 1 else -1.0
    return (
        1.0 if node.operator.meaning(NUMPY, {**node.attributes, "axes": (0,)}, np.concatenate(pair))[0] == 1 else -1.0
    )


def _run(node: Node, *operands: NDArray[Any]) -> NDArray[Any]:
    with np.errstate(all="ignore"):
        return np.asarray(NUMPY.cast(node.operator.meaning(NUMPY, node.attributes, *operands), node.kind))
