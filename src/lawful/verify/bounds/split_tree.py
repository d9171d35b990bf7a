"""A network as float64 matrices with bounds for every rounding, for checks of trees of phases and halves.

Every number of a pass is a double, and the argument is always the same: the *computed* row is taken as the definition
of the next function, and what was lost in computing it is bounded. A row on sums z with `|z| <= size` whose
coefficients were computed with a relative error g changes the function by at most `g |row| · size`.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lawful.errors import Unsupported
from lawful.verify.bounds.network import (
    MOST_NUMBERS,
    TOO_LARGE,
    Floats,
    Indices,
    Matrix,
    PackedLayer,
    multiply,
    rows_of,
)
from lawful.verify.bounds.packed import unpack_table
from lawful.verify.core.schema import (
    check_clock,
    integer,
    integers,
    items,
    limit_cost,
    numbers,
    object_with_keys,
    require,
)

# The largest relative error of one rounding to nearest.
ULP = 2.0**-53
# Coefficients below the smallest normal double err by up to n·2^-1074 each and act on values of at most LARGEST:
# for widths below 10^6 this is under 10^-250 a layer, and TINY covers 10^9 of them.
LARGEST = 1e60
TINY = 1e-240


def fold_mirrors(layers: list[PackedLayer]) -> list[PackedLayer]:
    """The same function in real numbers with fewer bends: `max(-z, 0) = max(z, 0) - z`.

    Where two neurons of slope 0 compute z and -z, number for number, the second becomes linear and every reader adds
    its weight of the second to that of the first, if no such sum rounds. A neuron without readers becomes linear too.
    """
    folded = list(layers)
    for at in range(len(folded) - 1):
        weight, bias, slopes = folded[at]
        readers, slopes = folded[at + 1].weight, slopes.copy()
        pairs = mirrored_neurons(weight, bias, slopes)
        if len(pairs):
            one, two = readers[:, pairs[:, 0]], readers[:, pairs[:, 1]]
            total = one + two
            # Knuth's sum of two: nothing was rounded iff each part is the difference of the total and the other.
            rounded = _column_sizes(total - one - two) + _column_sizes(total - two - one) > 0
            pairs, two = pairs[~rounded], two[:, ~rounded]
            slopes[pairs[:, 1]] = 1.0
            readers = _add_columns(readers, pairs[:, 0], two)
        slopes[_column_sizes(readers) == 0] = 1.0
        folded[at], folded[at + 1] = PackedLayer(weight, bias, slopes), folded[at + 1]._replace(weight=readers)
    return folded


def mirrored_neurons(weight: Matrix, bias: Floats, slopes: Floats) -> Indices:
    """Pairs of neurons of slope 0 with sums z and -z, each neuron in one at most."""
    rows: dict[bytes, int] = {}
    pairs: list[tuple[int, int]] = []
    for neuron in np.flatnonzero(slopes == 0):
        row = np.append(rows_of(weight, np.array([neuron]))[0], bias[neuron])
        places = np.flatnonzero(row)
        name, mirror = (places.tobytes() + values.tobytes() for values in (row[places], -row[places]))
        if mirror in rows:
            pairs.append((rows.pop(mirror), int(neuron)))
        else:
            rows[name] = int(neuron)
    return np.array(pairs, dtype=np.intp).reshape(-1, 2)


def _column_sizes(matrix: Matrix) -> Floats:
    return np.asarray(abs(matrix).sum(axis=0)).ravel()


def _add_columns(matrix: Matrix, places: Indices, columns: Matrix) -> Matrix:
    """The matrix with some more at some of its columns."""
    if isinstance(matrix, np.ndarray):
        total = matrix.copy()
        total[:, places] += columns
        return total
    row, column = columns.nonzero()
    values = np.asarray(columns[row, column]).ravel()
    return matrix + type(matrix)((values, (row, places[column])), shape=matrix.shape)


class BentLayer(NamedTuple):
    """Sums `matrix · h + shift` on the activations h of the bent layer below, or on the inputs.

    What is linear between the two was multiplied together: a row on these sums is off by at most `|row| · lost`, all of
    that included, and one more product.
    """

    matrix: Matrix
    size: Matrix  # its absolute values
    shift: Floats
    slopes: Floats
    lost: Floats


class SizedTower:
    """Hidden layers `h = max(z, 0) + s min(z, 0)`, `z = W h + b`, a last linear layer, and sizes of all sums.

    Neurons are counted as the network has them, those of linear layers too. Only layers that bend are bounded: a phase
    of a linear neuron is kept and never used.
    """

    def __init__(self, layers: list[PackedLayer], xsize: Floats, longest: int) -> None:
        """`xsize` bounds the inputs; `longest` is the length of the longest case."""
        self.layers, self.xsize = fold_mirrors(layers), xsize
        last = len(self.layers) - 1
        linear = [bool((layer.slopes == 1).all()) for layer in self.layers]
        require(linear[last], "the last layer is not linear")
        self.numbers = [number for number in range(last) if not linear[number]]  # of the layers that bend
        self.depth: int = len(self.numbers)
        self.cuts: NDArray[np.intp] = np.cumsum([0, *(len(layer.bias) for layer in self.layers[:-1])])
        self.count: int = int(self.cuts[-1])
        # Coefficients on inputs underflow as those on sums do: a weight may be tiny and what it acts on huge.
        require(bool((xsize <= LARGEST).all()), "the box is too large for this check")
        # A dot product of n terms errs by n ulp, twice a layer, and a constant passes two additions a layer: 2n + 4H.
        most = max(longest, *(max(layer.weight.shape) for layer in self.layers))
        self.g: float = 2 * (most + 2 * last + 16) * ULP
        # Every matrix on the way: a row of it stands for a sum, and multiplying it by the next changes that a little.
        # Few numbers may have large products: a layer of one neuron between two of thousands.
        self.products: list[list[Matrix]] = []
        total = 0
        for number, below in zip([*self.numbers, last], [-1, *self.numbers], strict=True):
            products = [self.layers[number].weight]
            for under in range(number - 1, below, -1):
                products.append(multiply(products[-1], self.layers[under].weight))
                total += products[-1].size
                if total > MOST_NUMBERS:
                    raise Unsupported(TOO_LARGE)
            self.products.append(products)
        self.measure(np.full(self.count, np.inf))

    def part(self, flat: NDArray[Any], layer: int) -> NDArray[Any]:
        """The columns of one bent layer, a view."""
        number = self.numbers[layer]
        return flat[..., self.cuts[number] : self.cuts[number + 1]]

    def measure(self, known: Floats) -> None:
        """Bound sums term by term, `|W| |h| + |b|`, and what rounding may change, given bounds of the sums' sizes."""
        sizes: list[Floats] = []
        values = self.xsize
        for number, (weight, bias, _) in enumerate(self.layers):
            sizes.append((abs(weight) @ values + np.abs(bias)) * (1 + 2 * self.g) + TINY)
            require(bool((sizes[-1] <= LARGEST).all()), "the network's values are too large for this check")
            if number < len(self.layers) - 1:
                values = np.minimum(sizes[number], known[self.cuts[number] : self.cuts[number + 1]])
        self.sizes, self.output_sizes = np.concatenate([*sizes[:-1], np.zeros(0)]), sizes[-1]
        numbers = [*self.numbers, len(self.layers) - 1]
        self.bent = [
            self._merge(number, products, sizes) for number, products in zip(numbers, self.products, strict=True)
        ]

    def _merge(self, number: int, products: list[Matrix], sizes: list[Floats]) -> BentLayer:
        shift, lost = self.layers[number].bias, np.zeros(len(self.layers[number].bias))
        under = number
        for matrix in products[:-1]:
            under -= 1
            lost = lost + self.g * (abs(matrix) @ sizes[under])
            shift = shift + matrix @ self.layers[under].bias
        matrix, size = products[-1], abs(products[-1])
        entering = sizes[under - 1] if under else self.xsize
        lost = 1.01 * (lost + self.g * (size @ entering + np.abs(shift))) + TINY
        return BentLayer(matrix, size, shift, self.layers[number].slopes, lost)


class PhaseLines(NamedTuple):
    """Of one layer, (nodes, neurons): loose neurons, the upper line, and the usual lower slope."""

    loose: NDArray[np.bool_]
    up: Floats
    shift: Floats
    low: Floats


def lines_of(slope: Floats, least: Floats, most: Floats) -> PhaseLines:
    """Lines around a layer's activations; exact where a sign is known."""
    loose = (least < 0) & (most > 0) & (slope < 1)
    fixed = np.where(least >= 0, 1.0, slope)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        up = np.where(loose, np.clip((most - slope * least) / (most - least), slope, 1.0), fixed)
    # Whatever slope came out, the line is lifted above both ends of the convex activation, so above all between.
    lift = np.maximum(slope * least - up * least, most - up * most) + 8 * ULP * (np.abs(least) + np.abs(most))
    usual = np.where(loose, np.where(most >= -0.999 * least, 1.0, slope), fixed)
    return PhaseLines(loose, up, np.where(loose, np.maximum(lift, 0.0), 0.0), usual)


class BoundedRows(NamedTuple):
    """Functions `rows · x + constant - lost` of the inputs, each at most the function that it stands for."""

    rows: Floats
    constant: Floats
    lost: Floats

    def least(self, tower: SizedTower, low: Floats, high: Floats) -> Floats:
        """At most the least value of each on its box."""
        value = self.constant + np.einsum("pn,pn->p", np.maximum(self.rows, 0), low)
        value = value + np.einsum("pn,pn->p", np.minimum(self.rows, 0), high)
        lost = self.lost + tower.g * (np.abs(self.rows) @ tower.xsize + np.abs(self.constant))
        return np.asarray(value - 1.01 * lost - TINY)


def substitute(
    tower: SizedTower,
    rows: BoundedRows,
    lines: list[PhaseLines],
    at: Indices,
    slopes: Floats | None = None,
    pushes: Floats | None = None,
) -> BoundedRows:
    """Functions of the activations of the last layer of `lines` as functions of the inputs; row i is of node `at[i]`.

    A positive coefficient takes a lower line, whose slope is any number in [s, 1] (`slopes`, clipped to that), a
    negative one the upper line. `pushes` are `S β` with `β >= 0` where `S z >= 0` is known: `-S β z` is at most 0.
    """
    on, constant, lost = rows
    for layer in range(len(lines) - 1, -1, -1):
        bent, size = tower.bent[layer], np.abs(on)
        loose, up, shift, low = (part[at] for part in lines[layer])
        if slopes is not None:
            low = np.where(loose, np.clip(tower.part(slopes, layer), bent.slopes, 1.0), up)
        negative = np.minimum(on, 0.0)
        constant = constant + np.einsum("pn,pn->p", negative, shift)
        on = (on - negative) * low + negative * up
        if pushes is not None:
            push = tower.part(pushes, layer)
            on, size = on - push, size + np.abs(push)
        lost = lost + size @ bent.lost
        constant = constant + on @ bent.shift
        on = on @ bent.matrix
    return BoundedRows(on, constant, lost)


# No input of a box leads into a case: a tree of phases of neurons and halves of inputs, multipliers at its leaves.
#
# Children `z <= 0` and `z >= 0`, or `x <= m` and `x >= m`, contain their parent whatever the file says, so the leaves
# cover the box. A leaf is closed if its box or an interval is empty, or if some `w >= 0`, slopes in [s, 1] and `β >=
# 0` make `Σ w (a · y + c · x - bound) - Σ β S z`, relaxed line by line, positive on its box: then not all conditions
# of the case hold at an input of the leaf (weak duality, any such numbers do). On the way boxes are cut: a condition
# that is at least `row · x + constant` leaves `row · x + constant <= 0` at every forbidden input, and a phase
# likewise.

# Of contraction at every node; each is a pass of its own, and is counted as such before it is made.
MOST_ROUNDS = 8
MOST_HALVINGS = 12  # of a leaf that is open here by a rounding
TOGETHER = 2_000_000  # numbers in the largest array of nodes that are checked together
# In elementary steps of 3e-7 s (what a whole check may take by what it may count). A multiplication of the count below
# took 7e-11 s on ACAS Xu (2e-4 steps), a node beside its products 50 µs and 0.2 µs a neuron.
PRICE, NODE_PRICE = 5e-4, 200


class CaseRows(NamedTuple):
    """Conditions `outputs · y + inputs · x <= bounds` of one case: doubles, the bounds rounded up."""

    outputs: Floats
    inputs: Floats
    bounds: Floats


class TreeEvidence(NamedTuple):
    """The tree in preorder, case after case, and the multipliers of its leaves, as they were written."""

    splits: list[int]
    middles: list[float]
    slopes: Floats
    pushes: Floats
    weights: Floats
    rounds: int
    tuned: dict[int, tuple[Indices, Floats]]


def read_evidence(value: object, tower: SizedTower, cases: list[CaseRows]) -> TreeEvidence:
    """The evidence for one box, with its sizes checked."""
    listed = object_with_keys(value, "proof", "splits middles slopes pushes weights rounds tuned")
    splits = integers(listed["splits"], "splits", -len(tower.xsize), 1 + tower.count)
    leaves, longest = splits.count(0), max(len(case.bounds) for case in cases)
    middles = numbers(listed["middles"], "middles", length=sum(code < 0 for code in splits))
    slopes = unpack_table(listed["slopes"], "u1", leaves, tower.count) / 128
    pushes = unpack_table(listed["pushes"], "<f4", leaves, tower.count)
    weights = unpack_table(listed["weights"], "<f4", leaves, longest)
    for table in (pushes, weights):
        require(bool((np.isfinite(table) & (table >= 0)).all()), "a multiplier is negative or infinite")
    tuned: dict[int, tuple[Indices, Floats]] = {}
    slopes_tuned = 0
    for item in items(listed["tuned"], "tuned", most=max(tower.depth, 1)):
        part = object_with_keys(item, "tuned", "layer neurons slopes")
        number = integer(part["layer"], "tuned.layer", 1)
        require(number in tower.numbers[1:], "a layer is tuned that has no lines below it")
        layer, before = tower.numbers.index(number), int(tower.cuts[number])
        width = len(tower.bent[layer].shift)
        neurons = np.array(integers(part["neurons"], "tuned.neurons", 0, width - 1, most=width), dtype=np.intp)
        require(layer not in tuned and len(set(neurons.tolist())) == len(neurons), "a neuron is tuned twice")
        slopes_tuned += 2 * len(neurons) * before
        require(slopes_tuned <= MOST_NUMBERS, "a packed table is missing or too large")
        tuned[layer] = neurons, unpack_table(part["slopes"], "u1", 2 * len(neurons), before) / 128
    return TreeEvidence(
        splits, middles, slopes, pushes, weights, integer(listed["rounds"], "rounds", 0, MOST_ROUNDS), tuned
    )


@dataclass
class TreeNodes:
    """Nodes of a tree: boxes, bounds of all sums, phases, whether nothing is left, and how often a leaf was halved."""

    low: Floats
    high: Floats
    least: Floats
    most: Floats
    phase: NDArray[np.int8]
    dead: NDArray[np.bool_]
    halved: Indices

    def take(self, which: Indices) -> TreeNodes:
        """Some of them, copied."""
        return TreeNodes(**{field.name: getattr(self, field.name)[which] for field in fields(self)})


def _join(parts: list[TreeNodes]) -> TreeNodes:
    return TreeNodes(**{f.name: np.concatenate([getattr(part, f.name) for part in parts]) for f in fields(TreeNodes)})


def exclude(tower: SizedTower, low: Floats, high: Floats, cases: list[CaseRows], value: object) -> int:
    """Check the evidence that no case is reached from the box; the number of nodes."""
    evidence = read_evidence(value, tower, cases)
    with np.errstate(all="ignore"):  # what is not finite is refused where it is used
        return _Check(tower, low, high, cases, evidence).run()


class _Check:
    def __init__(
        self, tower: SizedTower, low: Floats, high: Floats, cases: list[CaseRows], evidence: TreeEvidence
    ) -> None:
        self.tower, self.low, self.high, self.cases, self.evidence = tower, low, high, cases, evidence
        inner = [
            bent.matrix.size + 4 * max(bent.matrix.shape) for bent in tower.bent
        ]  # of a sparse one: what is stored
        work = sum(2 * len(tower.bent[k].shift) * sum(inner[:k]) for k in range(tower.depth))
        node_cost = PRICE * (work * evidence.rounds + 4 * sum(inner)) + NODE_PRICE + tower.count
        limit_cost(len(evidence.splits) * node_cost + PRICE * 3 * work)  # the root is bounded up to three times

    def run(self) -> int:
        children, roots = self._tree()
        codes = np.array(self.evidence.splits, dtype=np.int64)
        leaf_of = np.cumsum(codes == 0) - 1
        middle_of = np.cumsum(codes < 0) - 1
        start, nodes = self._root(), 0
        batch = self._count_together(start)
        for case, root in zip(self.cases, roots, strict=True):
            waiting: list[tuple[int, TreeNodes]] = [(root, start)]
            while waiting:
                group, waiting = waiting[-batch:], waiting[:-batch]
                check_clock()
                ids = np.array([number for number, _ in group], dtype=np.intp)
                here = _join([node for _, node in group])
                nodes += len(ids)
                self._propagate(here, case)
                code = codes[ids]
                open_ = (code == 1) & ~here.dead
                leaf = np.flatnonzero((code == 0) & ~here.dead)
                if len(leaf):
                    open_[leaf] = ~self._is_closed(here.take(leaf), case, leaf_of[ids[leaf]])
                for row in np.flatnonzero(open_):
                    waiting += [(int(ids[row]), half) for half in self._halve(here.take(np.array([row])))]
                for row in np.flatnonzero((code != 0) & (code != 1) & ~here.dead):
                    number = int(ids[row])
                    for side in (0, 1):
                        child = here.take(np.array([row]))
                        if code[row] >= 2:
                            child.phase[0, code[row] - 2] = 1 if side else -1
                        else:
                            place, middle = -1 - int(code[row]), self.evidence.middles[middle_of[number]]
                            if side:
                                child.low[0, place] = max(child.low[0, place], middle)
                            else:
                                child.high[0, place] = min(child.high[0, place], middle)
                        waiting.append((int(children[number, side]), child))
        return nodes

    def _count_together(self, root: TreeNodes) -> int:
        """How many nodes to bound at a time: a row for each of a layer's loose neurons, loose at the root."""
        widest, loose = max(max(bent.matrix.shape) for bent in self.tower.bent), (root.least < 0) & (root.most > 0)
        inner = range(1, self.tower.depth if self.evidence.rounds else 0)
        rows = max((int(self.tower.part(loose, layer).sum()) for layer in inner), default=0)
        return int(np.clip(TOGETHER / (widest * (8 + 2 * rows)), 1, 256))

    def _tree(self) -> tuple[Indices, list[int]]:
        """The children of every node, and the roots: one for each case."""
        stack: list[int] = []
        roots: list[int] = []
        children = np.full((len(self.evidence.splits), 2), -1)
        for number, code in enumerate(self.evidence.splits):
            if stack:
                side = int(children[stack[-1], 0] >= 0)
                children[stack.pop() if side else stack[-1], side] = number
            else:
                roots.append(number)
            if code not in (0, 1):
                stack.append(number)
        require(not stack and len(roots) == len(self.cases), "the tree is not whole")
        return children, roots

    def _root(self) -> TreeNodes:
        """The whole box. Sizes are measured twice: sums by terms alone grow with every layer, their bounds do not."""
        tower = self.tower
        size = tower.sizes[None]
        start = TreeNodes(
            self.low[None].copy(), self.high[None].copy(), -size, size.copy(), np.zeros((1, tower.count), np.int8),
            np.zeros(1, dtype=bool), np.zeros(1, dtype=np.intp),
        )  # fmt: skip
        self._bound_neurons(start)
        require(bool(np.isfinite(start.least).all() and np.isfinite(start.most).all()), "a number overflows")
        require(bool((start.least <= start.most).all()), "the whole box is empty")
        tower.measure(np.maximum(np.abs(start.least), np.abs(start.most))[0])
        size = tower.sizes[None]
        start.least, start.most = np.maximum(start.least, -size), np.minimum(start.most, size)
        self._bound_neurons(start)
        if self.evidence.tuned:
            self._bound_neurons(start, tuned=True)
        self._settle(start)
        require(not start.dead[0], "the whole box is empty")
        return start

    # What is known on nodes: these work in place

    def _propagate(self, nodes: TreeNodes, case: CaseRows) -> None:
        self._settle(nodes)
        if self.tower.depth and not self.evidence.rounds:
            self._interval(nodes, 0)
        self._settle(nodes)
        for _ in range(self.evidence.rounds):
            if self.tower.depth:
                self._interval(nodes, 0)
            self._settle(nodes)
            self._contract(nodes, case)
            self._settle(nodes)
            self._bound_neurons(nodes)
            self._settle(nodes)
        if self.evidence.rounds:
            self._contract(nodes, case)
            self._settle(nodes)

    def _settle(self, nodes: TreeNodes) -> None:
        """Use the phases, and note where nothing is left."""
        for ends in (nodes.least, nodes.most, nodes.low, nodes.high):
            require(bool(np.isfinite(ends).all()), "a number overflows")
        nodes.least = np.where(nodes.phase > 0, np.maximum(nodes.least, 0), nodes.least)
        nodes.most = np.where(nodes.phase < 0, np.minimum(nodes.most, 0), nodes.most)
        nodes.dead |= (nodes.least > nodes.most).any(axis=1) | (nodes.low > nodes.high).any(axis=1)
        nodes.most, nodes.high = np.maximum(nodes.least, nodes.most), np.maximum(nodes.low, nodes.high)

    def _interval(self, nodes: TreeNodes, layer: int) -> None:
        bent, low, high = self.tower.bent[layer], nodes.low, nodes.high
        if layer:
            slope = self.tower.bent[layer - 1].slopes
            low, high = (self.tower.part(ends, layer - 1) for ends in (nodes.least, nodes.most))
            low, high = np.where(low > 0, low, slope * low), np.where(high > 0, high, slope * high)
        least, most = (self.tower.part(ends, layer) for ends in (nodes.least, nodes.most))
        middle = (low / 2 + high / 2) @ bent.matrix.T + bent.shift
        width = (high / 2 - low / 2) @ bent.size.T + bent.lost
        np.maximum(least, middle - width, out=least)
        np.minimum(most, middle + width, out=most)

    def _bound_neurons(self, nodes: TreeNodes, *, tuned: bool = False) -> None:
        """Intervals, and a pass backwards for neurons that are loose or split, or tuned."""
        tower, lines = self.tower, list[PhaseLines]()
        for layer, bent in enumerate(tower.bent[:-1]):
            check_clock()
            self._interval(nodes, layer)
            least, most, phase = (tower.part(ends, layer) for ends in (nodes.least, nodes.most, nodes.phase))
            slopes: Floats | None = None
            at, neuron = np.nonzero((((least < 0) & (most > 0)) | (phase != 0)) & (bent.slopes < 1))
            if tuned:  # of the one root
                neuron, slopes = self.evidence.tuned.get(layer, (np.zeros(0, np.intp), None))
                at = np.zeros(len(neuron), np.intp)
            if layer and len(at):
                twice, weight, bias = np.tile(at, 2), rows_of(bent.matrix, neuron), bent.shift[neuron]
                sums = BoundedRows(
                    np.concatenate([weight, -weight]), np.concatenate([bias, -bias]), np.tile(bent.lost[neuron], 2)
                )
                rows = substitute(tower, sums, lines, twice, slopes)
                low = rows.least(tower, nodes.low[twice], nodes.high[twice])
                least[at, neuron] = np.maximum(least[at, neuron], low[: len(at)])
                most[at, neuron] = np.minimum(most[at, neuron], -low[len(at) :])
            # Inside a pass an interval may be empty: the node is dead then, and any lines do.
            most_here = np.where(phase < 0, np.minimum(most, 0), most)
            least_here = np.where(phase > 0, np.maximum(least, 0), least)
            least[:], most[:] = least_here, most_here
            nodes.dead |= (least > most).any(axis=1)
            np.maximum(least, most, out=most)
            lines.append(lines_of(bent.slopes, least, most))

    def _combine(
        self,
        nodes: TreeNodes,
        case: CaseRows,
        weights: Floats,
        at: Indices,
        slopes: Floats | None = None,
        pushes: Floats | None = None,
    ) -> BoundedRows:
        """At most `Σ w (outputs · y + inputs · x - bound)`, for each row of weights, on node `at`."""
        tower, last = self.tower, self.tower.bent[-1]
        top, on_inputs = weights @ case.outputs, weights @ case.inputs
        size = (
            np.abs(case.outputs) @ (2 * tower.output_sizes)
            + 2 * np.abs(case.inputs) @ tower.xsize
            + np.abs(case.bounds)
        )
        start = BoundedRows(
            top @ last.matrix,
            top @ last.shift - weights @ case.bounds,
            tower.g * (weights @ size) + np.abs(top) @ last.lost,
        )
        ends = [(tower.part(nodes.least, layer), tower.part(nodes.most, layer)) for layer in range(tower.depth)]
        lines = [lines_of(bent.slopes, *known) for bent, known in zip(tower.bent, ends, strict=False)]
        rows = substitute(tower, start, lines, at, slopes, pushes)
        return rows._replace(rows=rows.rows + on_inputs)

    def _contract(self, nodes: TreeNodes, case: CaseRows) -> None:
        """Cut the boxes to where every condition may hold, and every phase of a sum that is linear in the inputs."""
        count, rows = len(nodes.low), len(case.bounds)
        at = np.repeat(np.arange(count), rows)
        self._cut(nodes, self._combine(nodes, case, np.tile(np.eye(rows), (count, 1)), at), at)
        if self.tower.depth:
            first = self.tower.bent[0]
            at, neuron = np.nonzero(self.tower.part(nodes.phase, 0))
            if len(at):
                sign = -nodes.phase[at, self.tower.cuts[self.tower.numbers[0]] + neuron].astype(np.float64)
                on = sign[:, None] * rows_of(first.matrix, neuron)
                self._cut(nodes, BoundedRows(on, sign * first.shift[neuron], first.lost[neuron]), at)

    def _cut(self, nodes: TreeNodes, rows: BoundedRows, at: Indices) -> None:
        """`rows · x + constant - lost <= 0` holds at every forbidden input of its node."""
        room = -rows.least(self.tower, nodes.low[at], nodes.high[at])  # what one coordinate can use up at most
        nodes.dead[at[room < 0]] = True
        on = rows.rows
        step = np.maximum(room, 0)[:, None] / np.abs(on) * (1 + 8 * ULP) + TINY
        owners, starts = np.unique(at, return_index=True)
        above = np.minimum.reduceat(np.where(on > 0, step, np.inf), starts)
        below = np.minimum.reduceat(np.where(on < 0, step, np.inf), starts)
        high = np.nextafter(nodes.low[owners] + above, np.inf)
        low = np.nextafter(nodes.high[owners] - below, -np.inf)
        nodes.low[owners] = np.maximum(nodes.low[owners], low)
        nodes.high[owners] = np.minimum(nodes.high[owners], high)

    def _is_closed(self, nodes: TreeNodes, case: CaseRows, leaf: Indices) -> NDArray[np.bool_]:
        """Whether the multipliers of each leaf exclude the case on it."""
        proof = self.evidence
        weights = proof.weights[leaf][:, : len(case.bounds)]
        rows = self._combine(
            nodes, case, weights, np.arange(len(leaf)), proof.slopes[leaf], proof.pushes[leaf] * nodes.phase
        )
        return np.asarray(rows.least(self.tower, nodes.low, nodes.high) > 0)

    def _halve(self, node: TreeNodes) -> list[TreeNodes]:
        """A leaf that is not closed: halves of its widest side, a few times: roundings differ from the maker's."""
        require(int(node.halved[0]) < MOST_HALVINGS, "a leaf of the tree may lead to what is forbidden")
        width = node.high[0] - node.low[0]
        place = int(np.argmax(width / np.where(self.high > self.low, self.high - self.low, 1.0)))
        require(bool(width[place] > 0), "a leaf of the tree may lead to what is forbidden")
        middle = node.low[0, place] / 2 + node.high[0, place] / 2
        halves = [node.take(np.zeros(1, np.intp)) for _ in range(2)]
        halves[0].high[0, place] = halves[1].low[0, place] = middle
        for half in halves:
            half.halved += 1
        return halves
