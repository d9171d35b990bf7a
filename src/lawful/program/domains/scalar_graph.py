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
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lawful.errors import InvalidNetwork, LawfulError, Unsupported
from lawful.network import Dag, Mlp
from lawful.network.assemble import Assembly, Matrix, Value, check_terms, fixed_value, join
from lawful.program.arrays import NUMPY
from lawful.program.builder import Builder
from lawful.program.domains.interpret import AbstractDomain, interpret
from lawful.program.passes.core import lower_convolution
from lawful.program.passes.rebuild import rebuild
from lawful.program.passes.tail import Tail, depends_on_input, split, starts
from lawful.program.program import Node, Program
from lawful.program.table import OperatorFamily
from lawful.types import Floats, Indices

ROUNDS = "rounds to "  # how notes begin
UNBOUNDED = 1e38  # a bound near the largest float32 is how files say that there is none


@dataclass(frozen=True, eq=False)
class Fixed:
    """Numbers that do not depend on the input; `learned` if some are parameters or buffers, whose names they have."""

    numbers: NDArray[Any]
    names: frozenset[str] = frozenset()

    @property
    def learned(self) -> bool:
        """Whether training, or the data it saw, made some of the numbers."""
        return bool(self.names)


@dataclass(frozen=True, eq=False)
class Forms:
    """Entries of forms: `rows` say which of those of all parts, laid end to end; the samples lie along `axis`.

    A movement changes `rows` alone, so that a sum which it repeats is still one sum when it has to become a neuron.
    """

    parts: tuple[Value, ...]
    rows: Indices
    shape: tuple[int, ...]  # of one sample
    axis: int | None  # None if there is no batch
    kind: str = "f"

    @property
    def value(self) -> Value:
        """The entries, spelled out."""
        whole = self.parts[0] if len(self.parts) == 1 else join(self.parts)
        plain = len(self.rows) == whole.size and bool((self.rows == np.arange(whole.size)).all())
        return whole.reshape(self.shape) if plain else whole.take(self.rows, self.shape)


@dataclass(eq=False)
class Kinks:
    """`positive max(z, 0) + negative max(-z, 0)`, not yet neurons: leaky ReLUs are sums of two of them.

    `base` names z up to a positive factor; None for a side is 0.
    """

    base: tuple[Node, float]
    operand: Forms
    positive: Floats | None
    negative: Floats | None
    place: str
    forms: Forms | None = None


Entry = Fixed | Forms | Kinks


@dataclass
class ScalarGraph(AbstractDomain[Entry]):
    """Affine forms of neurons.

    `entangled` collects why the edges are not the parameters one by one, `computed` says that some were worked out from
    others in floating point, `used` counts how often a tensor meets values, and is in the order of the first time.
    """

    program: Program
    assembly: Assembly
    batch: int  # samples along the first axis of the input; 0 if the input is one sample
    frozen: Collection[str] = ()  # parameters that do not train
    entangled: list[str] = field(default_factory=list)
    computed: bool = False
    used: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.readers: dict[Node, list[Node]] = {}
        for node in self.program.nodes:
            for each in node.inputs:
                self.readers.setdefault(each, []).append(node)

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
            return Fixed(_numbers(name, self.program.tensors[name]), frozenset([name]))
        except LawfulError as error:
            raise type(error)(f"{self._place(self.readers.get(node, [node])[0])}: {error}") from None

    # Families

    def movement(self, node: Node, *sources: Entry) -> Entry:
        """Entries of the sources; the samples must lie along one axis of the result."""
        index = node["map"]
        if all(isinstance(each, Fixed) for each in sources):
            return self._evaluate(node, *sources)
        operands = [each if isinstance(each, Fixed) else self._forms(each) for each in sources]
        parts: list[Value] = []
        rows: list[Indices] = []
        samples: list[Indices] = []
        start = 0
        for each, source in zip(operands, node.inputs, strict=True):
            if isinstance(each, Fixed):
                parts.append(_constants(each))
                rows.append(start + np.arange(source.size))
                samples.append(np.full(source.size, -1))
                start += source.size
            else:
                parts.extend(each.parts)
                row, sample = _spread(each, source.shape)
                rows.append(start + row)
                samples.append(sample)
                start += sum(part.size for part in each.parts)
        at = index.positions
        row, sample = np.concatenate(rows)[at], np.concatenate(samples)[at]
        kind = next(each.kind for each in operands if isinstance(each, Forms))
        axis = self._samples_axis(row, sample) if self.batch else None
        if self.batch and axis is None:
            raise self._refused(node, "does not keep the batch apart: it mixes the samples of a batch")
        one = row if axis is None else row.take(0, axis)
        total = sum(np.diff(part.indptr).any() * part.size for part in parts)
        if one.size != total or len(np.unique(one)) != one.size:
            self._entangle(node)
        self._use(*(each for each in operands if isinstance(each, Fixed)))
        return Forms(tuple(parts), one.ravel(), one.shape, axis, kind)

    def elementwise(self, node: Node, *operands: Entry) -> Entry:
        """Functions of degree 1 bend; a cast of integers to reals is nothing."""
        if all(isinstance(each, Fixed) for each in operands):
            return self._evaluate(node, *operands)
        (x,) = operands
        forms = self._forms(x)
        if node.op == "cast":
            return replace(forms, kind=node.kind)
        base, sign = _base(node.inputs[0])
        up, down = (float(_run(node, np.array([s]))[0]) for s in (1.0, -1.0))
        if sign < 0:
            up, down, forms = down, up, _with_value(forms, forms.value.scaled(-1.0))
        each = [None if side == 0 else np.full(forms.shape, side) for side in (up, down)]
        return Kinks(base, forms, each[0], each[1], self._place(node))

    def addition(self, node: Node, x: Entry, y: Entry) -> Entry:
        """Sums of forms; numbers become biases; two sides of one bend become one."""
        if isinstance(x, Fixed) and isinstance(y, Fixed):
            return self._evaluate(node, x, y)
        if isinstance(x, Kinks) and isinstance(y, Kinks) and x.base == y.base:
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
            raise self._refused(node, "multiplies two tensors that both depend on the input")
        self._use(y)
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
        self.computed = self.computed or (y.learned and value.weighted)
        return _with_value(forms, value.scaled(factors))

    def contraction(self, node: Node, x: Entry, y: Entry) -> Entry:
        """An Einstein sum with numbers; those that are learned meet no pending sums."""
        if isinstance(x, Fixed) and isinstance(y, Fixed):
            return self._evaluate(node, x, y)
        given, out = node["spec"].split("->")
        first, second = given.split(",")
        if isinstance(x, Fixed):
            x, y, first, second = y, x, second, first
        if not isinstance(y, Fixed):
            raise self._refused(node, "multiplies two tensors that both depend on the input")
        forms, numbers = self._forms(x), y.numbers
        self._use(y)
        axis = None
        if forms.axis is not None:
            letter = first[forms.axis]
            if letter not in out:
                raise self._refused(node, "sums over the samples of a batch")
            if letter in second:
                numbers, second = self._alike(node, numbers, second.index(letter)), second.replace(letter, "")
            axis, first, out = out.index(letter), first.replace(letter, ""), out.replace(letter, "")
        size = {**dict(zip(first, forms.shape, strict=True)), **dict(zip(second, numbers.shape, strict=True))}
        shape = tuple(size[letter] for letter in out)
        matrix = _einsum_matrix(first, second, out, size, numbers)
        if not y.learned:
            self._entangle(node)
            inside = matrix.entries != 0  # a fixed zero is no edge; a trained one is
            matrix = Matrix(matrix.rows[inside], matrix.columns[inside], matrix.entries[inside])
            return Forms(*_whole(forms.value.mapped(matrix, shape, weighted=False)), axis)
        if len(matrix.entries) != numbers.size:
            self._entangle(node)
        self._check_trained(node, y)
        held = self._settled(forms).value
        return Forms(*_whole(held.mapped(matrix, shape, weighted=True)), axis)

    def reduction(self, node: Node, x: Entry) -> Entry:
        """Sums, and maxima by ReLUs."""
        if isinstance(x, Fixed):
            return self._evaluate(node, x)
        forms = self._forms(x)
        axes = node["axes"]
        if forms.axis is not None and forms.axis in axes:
            raise self._refused(node, f"a mean, sum or maximum over axes {list(axes)}, which are the batch's too")
        inner = [axis - (forms.axis is not None and axis > forms.axis) for axis in axes]
        kept = tuple(1 if axis in inner else n for axis, n in enumerate(forms.shape))
        rows = np.broadcast_to(np.arange(math.prod(kept)).reshape(kept), forms.shape).ravel()
        order = np.argsort(rows, kind="stable")
        self._entangle(node)
        if node.traits.linear:
            matrix = Matrix(rows[order], order, np.ones(len(order)))
            return Forms(*_whole(forms.value.mapped(matrix, kept, weighted=False)), forms.axis)
        columns = order.reshape(math.prod(kept), -1)
        return self._extreme(node, forms, columns, kept)

    def choice(self, node: Node, *operands: Entry) -> Entry:
        """`max(a, b) = a + σ(b - a)`, and with a number `c + σ(b - c)`; minima the other way round."""
        if all(isinstance(each, Fixed) for each in operands):
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
        bounds = _finite("bound", bounds)
        shape = np.broadcast_shapes(bounds.shape, forms.shape)
        if sign > 0:
            bent = self._bend(_with_value(forms, _shifted(forms.value.broadcast(shape), -bounds)), 0.0)
            return _with_value(bent, _shifted(bent.value, bounds))
        held = _with_value(forms, self._settled(forms).value.broadcast(shape))
        above = self._bend(_with_value(held, _shifted(held.value, -bounds)), 0.0)
        return self._combine(node, held, above, -1.0)

    def other(self, node: Node, *operands: Entry) -> Entry:
        """Numbers are computed; nothing else is a piecewise linear function."""
        if all(isinstance(each, Fixed) for each in operands):
            return self._evaluate(node, *operands)
        raise self._refused(node, "is not supported")

    # What the rules are made of

    def result(self, node: Node, entry: Entry) -> Value:
        """The entries of one sample of an output."""
        if isinstance(entry, Fixed):
            raise InvalidNetwork("does not come from its input")
        forms = self._forms(entry)
        if self.batch and forms.axis != 0:
            raise self._refused(node, "does not keep the batch apart: it mixes the samples of a batch")
        value = forms.value
        if not value.weighted:
            self.entangled.append("the outputs are neurons themselves, by weights that do not train")
        return value

    def _forms(self, entry: Entry) -> Forms:
        """The entries as forms: a bend that is used is made, once."""
        if isinstance(entry, Fixed):
            raise Unsupported("its operand must depend on the network's input")
        if isinstance(entry, Forms):
            return entry
        if entry.forms is None:
            entry.forms = self._made(entry)
        return entry.forms

    def _made(self, kinks: Kinks) -> Forms:
        z, positive, negative = kinks.operand, kinks.positive, kinks.negative
        if negative is None and positive is not None:
            return self._times(kinks, self._bend(z, 0.0), positive)
        turned = _with_value(z, z.value.scaled(-1.0))
        if positive is None and negative is not None:
            self.entangled.append(f"{kinks.place} shares, fixes or folds weights")
            return self._times(kinks, self._bend(turned, 0.0), negative)
        if positive is None or negative is None:
            return _with_value(z, z.value.scaled(0.0))
        if bool((positive == 1).all()) and not bool((negative == 1).all()):
            return self._bend(z, np.broadcast_to(0.0 - negative, z.shape))
        self.entangled.append(f"{kinks.place} shares, fixes or folds weights")
        if bool((negative == 1).all()) and not bool((positive == 1).all()):
            return self._bend(turned, np.broadcast_to(0.0 - positive, z.shape))
        slope = _exact_quotient(negative, positive)
        if slope is not None:  # one neuron and a factor
            return self._times(kinks, self._bend(z, np.broadcast_to(0.0 - slope, z.shape)), positive)
        held = self._settled(z)
        turned = _with_value(held, held.value.scaled(-1.0))
        one, two = (self._times(kinks, self._bend(each, 0.0), side)
                    for each, side in ((held, positive), (turned, negative)))  # fmt: skip
        return _with_value(one, one.value + two.value)

    def _times(self, kinks: Kinks, forms: Forms, factors: Floats) -> Forms:
        if bool((factors == 1).all()):
            return forms
        self.entangled.append(f"{kinks.place} shares, fixes or folds weights")
        return _with_value(forms, forms.value.scaled(factors))

    def _bend(self, forms: Forms, slope: Any) -> Forms:
        value = forms.value
        if not value.weighted:
            self.entangled.append("an activation reads neurons by weights that do not train")
        return _with_value(forms, self.assembly.activate(value, slope))

    def _settled(self, forms: Forms) -> Forms:
        """Each entry at most one neuron; what movements repeat becomes one neuron all the same."""
        return replace(forms, parts=tuple(self.assembly.settle(part) for part in forms.parts))

    def _shift(self, node: Node, forms: Forms, numbers: Fixed) -> Forms:
        self._use(numbers)
        value, offsets = forms.value, self._of_sample(node, numbers, forms)
        whole = value.broadcast(np.broadcast_shapes(value.shape, offsets.shape))
        own = numbers.learned and offsets.size == whole.size == value.size
        if not own or not value.weighted or bool(value.biased.any()):
            self._entangle(node)
        elif numbers.learned:
            self._check_trained(node, numbers)
        return _with_value(forms, whole.shifted(_finite(_title(numbers, "constant"), offsets)))

    def _combine(self, node: Node, one: Forms, two: Forms, factor: float) -> Forms:
        if one.axis != two.axis:
            raise self._refused(node, "does not keep the batch apart: it mixes the samples of a batch")
        second = two.value if factor == 1 else two.value.scaled(factor)
        return _with_value(one, one.value + second)

    def _maximum(self, node: Node, one: Forms, two: Forms, sign: float) -> Forms:
        held = self._settled(one)
        shape = np.broadcast_shapes(one.shape, two.shape)
        held = _with_value(held, held.value.broadcast(shape))
        above = self._bend(self._combine(node, _scale(two, sign), _scale(held, -sign), 1.0), 0.0)
        return self._combine(node, held, above, sign)

    def _extreme(self, node: Node, forms: Forms, columns: Indices, shape: tuple[int, ...]) -> Forms:
        """The largest entry of each row of columns; infinite constants do not count."""
        sign = _direction(node)
        held = replace(self._settled(forms), axis=None)
        value = held.value
        empty = (np.diff(value.indptr) == 0) & (sign * value.bias < -UNBOUNDED)
        exists = ~empty[columns]
        counts = exists.sum(axis=1)
        if not counts.all():
            raise InvalidNetwork("a maximum sees no input")
        check_terms(columns.size)
        columns = np.take_along_axis(columns, np.argsort(~exists, axis=1, kind="stable"), axis=1)

        def pick(rows: Indices, step: int) -> Forms:
            which = columns[rows, step]
            return replace(held, rows=held.rows[which], shape=(len(which),))

        every = np.arange(len(columns))
        largest = pick(every, 0)
        for step in range(1, int(counts.max())):
            rows = np.flatnonzero(counts > step)
            some = Forms(*_whole(largest.value.take(rows, (len(rows),))), None)
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
            raise self._refused(node, "a constant differs from sample to sample")
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
            raise self._refused(node, "is not supported")
        held = [each for each in operands if isinstance(each, Fixed)]
        names = frozenset[str]().union(*(each.names for each in held))
        found = Fixed(_run(node, *(each.numbers for each in held)), names)
        moved = node.family is OperatorFamily.MOVEMENT and len(node.inputs) == 1 and node.inputs[0].size == node.size
        if names and not moved and node.family is not OperatorFamily.LEAF:
            self.computed = True
            self.entangled.append(f"{self._place(node)} computes a weight from others")
        return found

    def _use(self, *held: Fixed) -> None:
        for each in held:
            self.used.update(sorted(each.names))

    def _check_trained(self, node: Node, numbers: Fixed) -> None:
        if any(name in self.frozen or name not in self.program.parameters for name in numbers.names):
            self.entangled.append(f"{self._place(node)} has weights that do not train")

    def _entangle(self, node: Node) -> None:
        self.entangled.append(f"{self._place(node)} shares, fixes or folds weights")

    def _place(self, node: Node) -> str:
        return self.program.places.get(node, node.op)

    def _refused(self, node: Node, words: str) -> Unsupported:
        return Unsupported(f"{self._place(node)}: {words}")


def is_piecewise_linear(node: Node, given: Collection[Node]) -> bool:
    """Whether the graph can follow a node, of whose operands those in `given` depend on the input."""
    varying = [each for each in node.inputs if each in given]
    traits = node.traits
    if node.family is OperatorFamily.MOVEMENT:
        return True
    if node.family is OperatorFamily.ELEMENTWISE:
        bends = traits.degree == 1 and len(node.inputs) == 1
        return bends or (node.op == "cast" and node.kind == "f" and node.inputs[0].kind == "i")
    if node.family is OperatorFamily.ADDITION:
        return node.kind == "f"
    if node.family in (OperatorFamily.PRODUCT, OperatorFamily.CONTRACTION):
        return len(varying) == 1 and node.kind == "f"
    if node.family is OperatorFamily.REDUCTION:
        return node.kind == "f" and traits.degree == 1 and (traits.linear != "" or traits.shift == 1)
    if node.family is OperatorFamily.CHOICE:
        return node.kind == "f" and len(node.inputs) == 2 and traits.degree == 1 and traits.shift == 1
    return False


def unrolled_edges(program: Program) -> int:
    """How many edges the convolutions unroll into, by their sizes alone: taps that fall beside the picture are none."""
    total = 0
    for node in program.nodes:
        if node.op != "conv" or node["transposed"]:
            continue
        picture, kernel = (each.shape for each in node.inputs)
        count = kernel[0] * kernel[1]
        steps = (node["stride"], node["padding"], node["dilation"])
        for inside, taps, outside, step, before, apart in zip(
            picture[2:], kernel[2:], node.shape[2:], *steps, strict=True
        ):
            spots = np.arange(outside)[:, None] * step - before + np.arange(taps) * apart
            count *= int(((spots >= 0) & (spots < inside)).sum())
        total += int(count)
    return total


def _lower(program: Program) -> Program:
    check_terms(unrolled_edges(program))

    def rule(b: Builder, node: Node, operands: tuple[Node, ...]) -> Node | None:
        return lower_convolution(b, node, *operands) if node.op == "conv" else None

    return rebuild(program, rule) if any(node.op == "conv" for node in program.nodes) else program


@dataclass(frozen=True, eq=False)
class GraphReading:
    """The neurons of a program, the entries of its output, and the end that was cut off."""

    domain: ScalarGraph
    value: Value
    tail: Tail | None

    @property
    def casts(self) -> set[str]:
        """The types to which values are rounded on the way."""
        return {note.removeprefix(ROUNDS) for note in self.domain.program.notes if note.startswith(ROUNDS)}

    def entangled(self, network: Mlp | Dag, holder: str) -> tuple[str, ...]:
        """Why the graph's edges are not the parameters one by one; `holder` is what holds them."""
        twice = [f"{name} is used more than once" for name, times in self.domain.used.items() if times > 1]
        trained = self.domain.program.parameters
        held = sum(node.size for name, node in trained.items() if name in self.domain.used)
        reasons = (*self.domain.entangled, *twice)
        if not reasons and held != network.parameters:
            return (f"the {holder} holds {held:,} weights and its graph {network.parameters:,}",)
        return tuple(dict.fromkeys(reasons))


def read_graph(
    program: Program, batch: int, frozen: Collection[str] = (), hint: Callable[[str], str] | None = None
) -> GraphReading:
    """The scalar graph of a program of one input, whose first axis counts samples if `batch` says how many.

    `frozen` are parameters that do not train, `hint` says what to do about a place that cannot be followed.
    """
    parts = split(program, is_piecewise_linear)
    if isinstance(parts, Node):
        place = program.places.get(parts, parts.op)
        raise Unsupported(f"{place}: {_obstacle(parts, program, hint(place) if hint else '')}")
    head, tail = parts
    lowered, shape = _lower(head), program.inputs[0].shape
    domain = ScalarGraph(lowered, Assembly(shape[1:] if batch else shape), batch, frozen)
    (output,) = lowered.outputs
    return GraphReading(domain, domain.result(output, interpret(lowered, domain)[output]), tail)


def _obstacle(node: Node, program: Program, hint: str) -> str:
    """Why a node cannot be followed."""
    varying = depends_on_input(program)
    if node.family is OperatorFamily.OPAQUE:
        reason = node["detail"].rpartition(" (")[2].removesuffix(")")
        return f"is not supported{'' if reason == 'no entry' else f' ({reason})'}{hint and '; '}{hint}"
    bilinear = node.family in (OperatorFamily.PRODUCT, OperatorFamily.CONTRACTION)
    if (bilinear and all(each in varying for each in node.inputs)) or (node.op == "power" and node["exponent"] > 1):
        return "multiplies two tensors that both depend on the input"
    if node.op == "cast":
        return "rounds to whole numbers"
    if any(each.kind == "i" and each in varying for each in node.inputs):
        return "computes with whole numbers before they are cast to real ones"
    if starts(node):
        return f"is supported at the end of a network alone{hint and '; '}{hint}"
    return f"is not supported{hint and '; '}{hint}"


def _einsum_matrix(first: str, second: str, out: str, size: dict[str, int], numbers: NDArray[Any]) -> Matrix:
    """The linear map of an Einstein sum with numbers: rows in order, and columns in order where letters are."""
    letters = out + "".join(dict.fromkeys(c for c in first + second if c not in out))
    shape = tuple(size[c] for c in letters)
    check_terms(math.prod(shape))
    rows = np.repeat(np.arange(math.prod(size[c] for c in out)), math.prod(size[c] for c in letters if c not in out))
    columns: NDArray[Any] = np.zeros((1,) * len(letters), dtype=np.intp)
    step = 1
    for c in reversed(first):
        spread = [1] * len(letters)
        spread[letters.index(c)] = size[c]
        columns = columns + step * np.arange(size[c]).reshape(spread)
        step *= size[c]
    order = [second.index(c) for c in letters if c in second]
    entries = np.asarray(numbers, dtype=np.float64).transpose(order)
    entries = entries.reshape([size[c] if c in second else 1 for c in letters])
    return Matrix(rows, np.broadcast_to(columns, shape).ravel(), np.broadcast_to(entries, shape).ravel())


def _spread(forms: Forms, shape: tuple[int, ...]) -> tuple[Indices, Indices]:
    """For every entry of the whole value: its row, and its sample (-1 if there is no batch)."""
    rows = forms.rows.reshape(forms.shape)
    if forms.axis is None:
        return rows.ravel(), np.zeros(rows.size, dtype=np.intp)
    count = shape[forms.axis]
    turned = [-1 if k == forms.axis else 1 for k in range(len(shape))]
    samples = np.broadcast_to(np.arange(count).reshape(turned), shape)
    return np.broadcast_to(np.expand_dims(rows, forms.axis), shape).ravel(), samples.ravel()


def _constants(numbers: Fixed) -> Value:
    """Numbers as entries; a constant zero (padding) is no bias."""
    value = fixed_value(np.asarray(numbers.numbers, dtype=np.float64))
    return value if numbers.learned else replace(value, biased=value.bias != 0)


def _whole(value: Value) -> tuple[tuple[Value, ...], Indices, tuple[int, ...]]:
    return (value,), np.arange(value.size), value.shape


def _with_value(forms: Forms, value: Value) -> Forms:
    return Forms(*_whole(value), forms.axis, forms.kind)


def _scale(forms: Forms, factor: float) -> Forms:
    return forms if factor == 1 else _with_value(forms, forms.value.scaled(factor))


def _shifted(value: Value, offsets: Floats) -> Value:
    return value.shifted(offsets) if bool(np.any(offsets)) else value


def _base(node: Node) -> tuple[tuple[Node, float], int]:
    """What an operand is up to a positive factor, and the sign of the factor."""
    if node.family is OperatorFamily.PRODUCT and node.inputs[0].op == "constant" and node.inputs[0].size == 1:
        factor = float(node.inputs[0]["value"].ravel()[0])
        if factor and math.isfinite(factor):
            return (node.inputs[1], abs(factor)), 1 if factor > 0 else -1
    return (node, 1.0), 1


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


def _numbers(name: str, held: Any) -> NDArray[Any]:
    """A tensor's own numbers, in float64 where they are real."""
    if hasattr(held, "detach"):
        if held.is_complex() or held.is_meta or str(held.layout) != "torch.strided":
            raise Unsupported(f"tensor {name!r} is {held.dtype}, {held.layout}: dense real tensors are supported")
        held = held.detach().cpu()
        held = (held.double() if held.is_floating_point() else held).numpy()
    array = np.asarray(held)
    return _finite(name, array.astype(np.float64)) if array.dtype.kind == "f" else array


def _exact_quotient(negative: Floats, positive: Floats) -> Floats | None:
    """The slope of `z ↦ positive · leaky(z)` below 0, if positive is a power of two: no bit of a slope is rounded."""
    mantissa, _ = np.frexp(positive)
    quotient = negative / np.where(positive == 0, 1.0, positive)
    exact = bool((mantissa == 0.5).all()) and bool((quotient * positive == negative).all())
    return quotient if exact and bool(np.isfinite(quotient).all()) else None


def _finite(what: str, numbers: Floats) -> Floats:
    """The same numbers, refused if one is NaN or infinite."""
    if not np.isfinite(numbers).all():
        where = [int(place) for place in np.argwhere(~np.isfinite(numbers))[0]]
        raise InvalidNetwork(f"{what}{where} is not finite")
    return numbers


def _title(numbers: Fixed, otherwise: str) -> str:
    return min(numbers.names) if len(numbers.names) == 1 else otherwise
