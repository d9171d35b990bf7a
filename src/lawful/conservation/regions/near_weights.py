"""Which neurons act linearly near given weights: for any data, or for one data set.

At given weights a ReLU neuron may be dead for every input, or active for every input. Training cannot see the
difference to a linear neuron, so there are more laws than at the φ level (P4 Theorem 6).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lawful.conservation.fields.gradient import MIXED, Gradients
from lawful.conservation.regions.on_a_line import line_patterns
from lawful.conservation.regions.on_data import OnData, seen_by, seen_by_all, seen_by_any
from lawful.conservation.regions.patterns import distinct, exact_signs, refine_patterns, rough_signs, signs
from lawful.errors import LawfulError
from lawful.exact import Dual, independent_rows, residues, to_residues
from lawful.network import Dag, Role
from lawful.network.intervals import activation_range, affine
from lawful.types import Floats, Residues

SAMPLES = 2**13  # inputs that look for activation patterns, fewer for networks of more than
ENTRIES = 2**23  # so many values in all
LINES = 256  # pairs of inputs between which every pattern is looked for
MOST_PATTERNS = 1024
MOST_EXACT = 128
OFTEN = 0.01  # a neuron on its boundary at so many random inputs is there because of its weights
NUDGE = 2.0**-30  # how far, relative to their size, weights move that lie on a boundary


@dataclass(frozen=True, eq=False)
class Region:
    """The activation patterns that inputs realise at θ.

    `patterns` has a row per pattern and a column per hidden neuron, holding gates (1, or the neuron's slope).
    `witnesses` are inputs that show them: one each or, if there are `groups`, all the data, with the number of the
    pattern that each shows; `spans` then holds the data of each pattern (with a 1 for the constant) as residues.
    `fixed` is the gate of every node that provably has one gate only, else NaN. `unsure` are neurons that showed one
    gate only although nothing proves that it is the only one, `together` sets of neurons that were never seen to
    switch one without the other. `theta` are the weights: those asked for or, where these lie on a boundary between
    patterns, `nudged` ones next to them. Nodes with the same number in `alike` always have the same gate (−1: none).
    `on_data` is what the samples leave alone or, where all patterns that occur are known, all inputs.
    """

    patterns: Floats
    witnesses: Floats
    fixed: Floats
    theta: Floats
    unsure: tuple[str, ...] = ()
    together: tuple[tuple[str, ...], ...] = ()
    spans: tuple[Residues, ...] | None = None
    groups: NDArray[np.intp] | None = None
    nudged: bool = False
    alike: NDArray[np.intp] | None = None
    on_data: OnData | None = None
    mixed: int = MIXED

    @property
    def numbers(self) -> Floats:
        """The numbers that enter the fields: gates, and the data if there are."""
        return self.patterns.ravel() if self.groups is None else np.append(self.patterns.ravel(), self.witnesses)

    def modulo(self, prime: int, dag: Dag) -> Region:
        """The same for another prime, every field summing all patterns."""
        spans = None
        if self.groups is not None:
            exact = to_residues(_extend_points(dag, self.witnesses), prime)
            spans = tuple(exact[self.groups == number] for number in range(len(self.patterns)))
        return replace(self, spans=spans, mixed=len(self.patterns))

    def gates(self, prime: int) -> Residues:
        """The patterns as residues."""
        values, where = np.unique(self.patterns, return_inverse=True)
        return to_residues(values, prime)[where].reshape(self.patterns.shape)


def near(dag: Dag, seed: int = 0) -> Region:
    """The patterns of random inputs and between them, and the gates that interval bounds prove for every input.

    A neuron whose signal vanishes at every input because its weights do is on a boundary: the weights are nudged.

    >>> from lawful.network import Mlp
    >>> always_on = Mlp([[[1.0], [-1.0]], [[1.0, 2.0]], [[1.0]]], [[0.0, 0.0], [0.5], None]).to_dag()
    >>> near(always_on).fixed[always_on.index["h2.0"]]
    np.float64(1.0)
    """
    if (whole := line_patterns(dag)) is not None and len(whole[0]) <= MOST_PATTERNS:
        view = seen_by_all(dag, whole[0])
        return Region(*whole, view.fixed, dag.theta, alike=view.alike, on_data=view)
    inputs, sides, rng = _draw_inputs(dag, seed)
    if (sides == 0).mean(axis=0).max(initial=0.0) > OFTEN:
        return replace(near(nudge(dag, seed), seed), nudged=True)
    return _patterns_seen(dag, inputs, sides, rng)


def clear(dag: Dag, seed: int = 0) -> Region | None:
    """As `near`, at the weights themselves: only inputs count at which no neuron is on a boundary; None without any.

    What they show is there at all weights nearby, on whichever side of a boundary.
    """
    inputs, sides, rng = _draw_inputs(dag, seed)
    return _patterns_seen(dag, inputs, sides, rng) if (sides != 0).all(axis=1).any() else None


def _draw_inputs(dag: Dag, seed: int) -> tuple[Floats, NDArray[np.int8], np.random.Generator]:
    """Random inputs of many sizes, and on which side of every neuron they are."""
    rng = np.random.default_rng(seed)
    samples = min(SAMPLES, max(256, ENTRIES // (len(dag.names) + dag.parameters)))
    sizes = 10.0 ** rng.uniform(-3, 3, size=(samples, 1))
    inputs = _round_bits(rng.normal(size=(samples, len(dag.inputs))) * sizes)
    return inputs, rough_signs(dag, inputs), rng


def _patterns_seen(dag: Dag, inputs: Floats, sides: NDArray[np.int8], rng: np.random.Generator) -> Region:
    decided = (sides != 0).all(axis=1)
    inputs, sides = inputs[decided], sides[decided]
    lines = LINES if dag.constant is not None or len(dag.inputs) > 1 else 0  # else there are only x > 0 and x < 0
    between, together = refine_patterns(dag, inputs[:lines], np.roll(inputs[:lines], 1, axis=0))
    thin = _separate_patterns(dag, between)
    inputs, sides = np.concatenate([inputs, between]), np.concatenate([sides, thin])
    inputs, sides = inputs[(sides != 0).all(axis=1)], sides[(sides != 0).all(axis=1)]
    patterns, witnesses, _ = _distinct(dag, sides, inputs)
    if len(patterns) > MOST_PATTERNS:
        chosen = rng.choice(len(patterns), MOST_PATTERNS, replace=False)
        patterns, witnesses = patterns[chosen], witnesses[chosen]
    fixed = proved_gates(dag)
    seen_once = (patterns == patterns[:1]).all(axis=0)
    unsure = tuple(dag.names[node] for node, once in zip(dag.hidden, seen_once, strict=True) if once)
    unsure = tuple(name for name in unsure if np.isnan(fixed[dag.index[name]]))
    return Region(patterns, witnesses, fixed, dag.theta, unsure, together, alike=alike_gates(dag, fixed))


def _separate_patterns(dag: Dag, inputs: Floats) -> NDArray[np.int8]:
    """Signs at inputs between others, some of which only fractions can tell."""
    sides = rough_signs(dag, inputs)
    for row in np.flatnonzero((sides == 0).any(axis=1))[:MOST_EXACT]:
        sides[row] = exact_signs(dag, inputs[row])
    return sides


def at_data(dag: Dag, data: ArrayLike, prime: int, seed: int = 0) -> Region:
    """The patterns of the data, and for each pattern the span of its points (with a 1 for the constant)."""
    points = np.asarray(data, dtype=np.float64)
    if points.ndim != 2 or points.shape[1] != len(dag.inputs) or not len(points):
        raise LawfulError(f"data for this network has shape (samples, {len(dag.inputs)}), not {points.shape}")
    if not np.isfinite(points).all():
        raise LawfulError("the data has entries that are not finite")
    sides = signs(dag, points)
    moved = bool((sides == 0).any())
    if moved:
        dag = nudge(dag, seed)
        sides = signs(dag, points)
        if (sides == 0).any():
            raise LawfulError("the data lie on a boundary between activation patterns that no small change resolves")
    patterns, _, where = _distinct(dag, sides, points)
    view = seen_by(dag, patterns, where, points, prime)
    exact = to_residues(_extend_points(dag, points), prime)
    spans = tuple(_basis(exact[where == number], prime) for number in range(len(patterns)))
    return Region(
        patterns, points, view.fixed, dag.theta, spans=spans, groups=where, nudged=moved, alike=view.alike, on_data=view
    )  # fmt: skip


def _extend_points(dag: Dag, points: Floats) -> Floats:
    return points if dag.constant is None else np.append(points, np.ones((len(points), 1)), axis=1)


def any_side(dag: Dag, region: Region, data: ArrayLike | None, prime: int) -> Region:
    """A region beside a boundary, with no laws but those that hold on every side of it.

    What bounds prove at the weights themselves stays; on data, sums that no sample moves whichever neurons are on.
    """
    fixed = proved_gates(dag)
    view = None
    if data is not None:
        fixed = np.where(dag.slopes == 1.0, 1.0, np.nan)
        points = np.asarray(data, dtype=np.float64)
        view = seen_by_any(dag, points, fixed, prime)
    alike = alike_gates(dag, fixed) if data is None else None
    return replace(region, fixed=fixed, alike=alike, on_data=view)


def nudge(dag: Dag, seed: int) -> Dag:
    """The same network with every weight moved a little: what vanishes by accident no longer does."""
    rng = np.random.default_rng((seed, 1))
    sizes = np.abs(dag.theta)
    typical = float(np.median(sizes[sizes > 0])) if sizes.any() else 1.0
    return dag.with_theta(dag.theta + NUDGE * np.maximum(sizes, typical) * rng.normal(size=len(sizes)))


def _distinct(dag: Dag, found: NDArray[np.int8], inputs: Floats) -> tuple[Floats, Floats, NDArray[np.intp]]:
    """Distinct gates of the hidden neurons, an input for each, and the pattern of every input."""
    first, where = distinct(found > 0)
    return np.where(found[first] > 0, 1.0, dag.slopes[dag.hidden]), inputs[first], where


def _round_bits(values: Floats) -> Floats:
    """Numbers of few binary digits: certificates store them."""
    mantissa, exponent = np.frexp(values)
    return np.asarray(np.ldexp(np.round(mantissa * 2**12), exponent - 12))


def _basis(points: Residues, prime: int) -> Residues:
    """At most as many combinations of the points as there are coordinates, with the same span."""
    count, width = points.shape
    if count <= width:
        return points
    weights = residues(0, (3,), np.arange(width), count, prime)
    total = np.zeros((width, width), dtype=np.int64)
    for point, weight in zip(points, weights.T, strict=True):
        total = (total + weight[:, None] * point[None]) % prime
    return total


def proved_gates(dag: Dag) -> Floats:
    """The gate of each node that bounds over *all* inputs prove, robustly under small changes of θ; else NaN.

    A weight that is exactly 0 proves nothing: the slightest change could turn the neuron. A neuron that reads nothing
    but silent ones (dead, or reading nothing but silent ones) is 0 whatever its weights; one that reads signals of one
    sign with weights of that sign is never negative, and where it is 0 its gate does not matter.
    """
    low, high = np.full(len(dag.names), -np.inf), np.full(len(dag.names), np.inf)
    silent, least, most = (np.zeros(len(dag.names), dtype=bool) for _ in range(3))  # 0; never negative; never positive
    if dag.constant is not None:
        low[dag.constant] = high[dag.constant] = 1.0
        least[dag.constant] = True
    gates = np.where(dag.slopes == 1.0, 1.0, np.nan)
    for node in np.concatenate(dag.layers):
        if dag.roles[node] != Role.HIDDEN:
            continue
        edges = np.flatnonzero(dag.heads == node)
        edges = edges[~silent[dag.tails[edges]]]
        tails, weights = dag.tails[edges], dag.theta[edges]
        bottom, top = _interval(weights, low[tails], high[tails])
        rising = bool(((weights > 0) & least[tails] | (weights < 0) & most[tails]).all())
        falling = bool(((weights < 0) & least[tails] | (weights > 0) & most[tails]).all())
        slope = dag.slopes[node]
        if not len(edges):
            gates[node], silent[node] = slope, True
        elif bottom > 0 or rising:
            gates[node], least[node] = 1.0, True
        elif top < 0 or falling:
            gates[node] = slope
            silent[node], least[node], most[node] = slope == 0, slope <= 0, slope >= 0
        else:
            least[node] = slope <= 0
        low[[node]], high[[node]] = activation_range(np.array([bottom]), np.array([top]), dag.slopes[[node]])
    return gates


def alike_gates(dag: Dag, fixed: Floats) -> NDArray[np.intp]:
    """A number for each hidden node that provably shares its gate with others at every input, else −1.

    Neurons that read one and the same signal, through weights of one sign, switch together.
    """
    alike = np.full(len(dag.names), -1)
    numbers: dict[tuple[int, bool, float], int] = {}
    for node in dag.hidden.tolist():
        edges = np.flatnonzero(dag.heads == node)
        edges = edges[fixed[dag.tails[edges]] != 0.0]
        if len(edges) == 1 and np.isnan(fixed[node]) and dag.theta[edges[0]] != 0:
            key = (int(dag.tails[edges[0]]), bool(dag.theta[edges[0]] > 0), float(dag.slopes[node]))
            alike[node] = numbers.setdefault(key, len(numbers))
    return alike


def _interval(weights: Floats, low: Floats, high: Floats) -> tuple[float, float]:
    if ((weights == 0.0) & (np.isinf(low) | np.isinf(high))).any():
        return -np.inf, np.inf  # the slightest change of such a weight
    lower, upper = affine(weights[None], None, low, high)
    return float(lower[0]), float(upper[0])


SPANNING = 2**33  # label of the random point, inputs and output weights
FIRST = 32  # more patterns than dimensions are looked at first
ROUNDS = 64  # gradients of each pattern at most


def spanning(region: Region, gradients: Gradients, most: int) -> Region:
    """The region with a row for every dimension that a pattern adds; itself where data or few patterns are given.

    `most` is a dimension that gradients cannot exceed.

    >>> from lawful.exact import PRIME
    >>> from lawful.conservation.regions.near_weights import near
    >>> from lawful.network import Architecture
    >>> dag = Architecture.parse("3-6-7-10-9 relu").initialise(seed=0).to_dag()
    >>> region = near(dag)
    >>> len(region.patterns), len(spanning(region, Gradients(dag, PRIME), 197).patterns)
    (330, 189)
    """
    if region.groups is not None or region.on_data is not None or len(region.patterns) <= MIXED:
        return region
    dag, prime = gradients.dag, gradients.prime
    point = residues(gradients.seed, (SPANNING,), [0], dag.parameters, prime)[0]
    gates = region.gates(prime).T
    order = np.random.default_rng(gradients.seed).permutation(len(region.patterns))
    basis, chosen = np.zeros((0, dag.parameters), dtype=np.int64), order[:0]
    for number in range(ROUNDS):
        rows = order[: most + FIRST] if number == 0 else order
        sample = gradients.draw((SPANNING, number), rows)
        sample[dag.hidden] = gates[:, rows]
        state = Dual.constant(np.repeat(point[:, None], len(rows), axis=1), prime)
        every = np.concatenate([basis, gradients.field(state, sample).real.T])
        independent = independent_rows(every, prime)
        if len(independent) == len(basis):
            break
        basis, chosen = every[independent], np.append(chosen, rows)[independent]
        if len(basis) >= most:
            break
    return replace(region, patterns=region.patterns[chosen], witnesses=region.witnesses[chosen])
