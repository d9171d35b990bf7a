"""How far apart two networks are on a box: certified bounds from both sides."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike

from lawful.bounds.attack import Candidates
from lawful.bounds.box_bounds import bound, boxes_together
from lawful.bounds.branch_and_bound import Measure, Splitting, corners, norm_above, run
from lawful.bounds.layers import Layer, evaluate, exact_difference, gradients, layers_of
from lawful.bounds.pair import NetworkPair, align
from lawful.bounds.result import Distance, OutputDistance, Status, float_below, norm_below
from lawful.bounds.spectral import SpectralBound, spectral_bound
from lawful.bounds.workers import workers
from lawful.errors import LawfulError
from lawful.network import Dag, Mlp
from lawful.sources.opening import Source, open_pair
from lawful.sources.provenance import with_provenance
from lawful.types import Floats, Indices

# Nothing tightens: since a bound last moved by this share of the gap, boxes have grown by this factor (beside a few
# thousand) for this many seconds. Splitting that works halves the gap with every 2^n boxes of the inputs that matter.
STALL_SHARE, STALL_FACTOR, STALL_BOXES, STALL_SECONDS = 1e-3, 4, 2_000, 4.0
PRECISION = 1e-4  # without a question the search ends when the bounds are as close as this, relatively
ROUNDING, UNDERFLOW = 1e-12, 1e-280  # ... or as small as this, relative to the outputs or absolutely
MOST_REPLAYS = 16


def distance(
    first: Source,
    second: Source,
    box: tuple[ArrayLike, ArrayLike],
    *,
    within: Fraction | float | None = None,
    norm: float = math.inf,
    output: int | None = None,
    seconds: float = 60.0,
    scheduler: str | None = None,
    threads: int | None = None,
    seed: int = 0,
    tick: Callable[[float, float], None] = lambda lower, upper: None,
) -> Distance:
    """Bounds of `max ‖g(x) − f(x)‖` over `low ≤ x ≤ high`; with `within`, only until that question is decided.

    >>> one, other = Mlp([[[1.0], [-1.0]], [[1.0, 1.0]]]), Mlp([[[1.0], [-1.0]], [[1.0, 0.5]]])
    >>> found = distance(one, other, ([-1.0], [2.0]))  # |x| against relu(x) + relu(−x) / 2
    >>> found.status, float(found.lower), round(found.upper, 3), found.input
    ('bounded', 0.5, 0.5, array([-1.]))
    >>> distance(one, other, ([-1.0], [2.0]), within=0.25).status
    'violated'
    """
    started = time.monotonic()
    networks = open_pair(first, second, seed=seed)
    pair = align(*_layers(*networks))
    low, high = corners(box, pair.inputs)
    outputs = _chosen(output, pair.outputs)
    question = None if within is None else _question(within)
    if norm not in (1, 2, math.inf):
        raise LawfulError(f"the norm is 1, 2 or inf, not {norm}")
    if not seconds >= 0:
        raise LawfulError(f"a time limit is a number of seconds, at least 0, not {seconds}")
    deadline = started + seconds
    rng = np.random.default_rng(seed)
    score = _Score(pair, outputs, norm)
    candidates = Candidates(low, high, score)
    replays = _Replays(pair, outputs, norm)
    replays.look(candidates.points[-1])
    interrupted, spectral, ended = False, None, ""
    with workers(pair, bound, scheduler, threads) as bounder:
        measure = Measure(
            lambda bounds: np.maximum(np.maximum(bounds.high, -bounds.low)[:, outputs], 0.0),
            lambda gaps: norm_above(gaps, norm),
            slanted=norm != math.inf,
        )
        splitting = Splitting(low, high, measure, bounder, boxes_together(pair))
        if pair.same:
            splitting.settle(math.inf)
            splitting.done_gaps, splitting.done_value = np.zeros(len(outputs)), 0.0
        else:
            try:
                spectral = _spectral(splitting, pair, outputs, question, started, deadline)
            except KeyboardInterrupt:
                interrupted = True
            if not interrupted:
                ended = _search(splitting, candidates, score, replays, question, rng, started, deadline, tick)
                interrupted = ended == "interrupted"
    for point in candidates.points[:-1][:MOST_REPLAYS]:
        replays.look(point)
    upper = splitting.upper
    status: Status = "bounded"
    if question is not None:
        proved = upper <= question
        status = "violated" if replays.lower > question else "proved" if proved else "undecided"
    per_output = tuple(
        OutputDistance(int(which), lower, float(upper))
        for which, lower, upper in zip(outputs, replays.per_output, splitting.gaps, strict=True)
    )
    answer = Distance(
        replays.lower, upper, replays.point, per_output, splitting.bounded, tuple(splitting.preorder()), status,
        question, norm, low, high, time.monotonic() - started, interrupted, pair, spectral,
        ended == "stalled",
    )  # fmt: skip
    return with_provenance(answer, *networks, exact=True)


def bound_of_difference(
    first: Source, second: Source, box: tuple[ArrayLike, ArrayLike], *, seconds: float = 5.0, seed: int = 0
) -> float:
    """A number that `|g(x) − f(x)|` exceeds in no output on the box, certified; infinite if none is known.

    >>> one, other = Mlp([[[1.0], [-1.0]], [[1.0, 1.0]]]), Mlp([[[1.0], [-1.0]], [[1.0, 0.5]]])
    >>> 0.5 <= bound_of_difference(one, other, ([-1.0], [2.0])) < 0.501
    True
    """
    return distance(first, second, box, seconds=seconds, seed=seed).upper


def _spectral(
    splitting: Splitting,
    pair: NetworkPair,
    outputs: Indices,
    question: Fraction | None,
    started: float,
    deadline: float,
) -> SpectralBound | None:
    """A bound of the whole box by singular values, if it helps; it may take a tenth of the time."""
    if question is not None and splitting.upper <= question:
        return None
    box, gaps = (splitting.open.low[0], splitting.open.high[0]), splitting.open.gaps[0]
    bound = spectral_bound(pair, box, outputs, gaps, min(deadline, started + max(2.0, 0.1 * (deadline - started))))
    if bound is None or not (bound.gaps < gaps).any():
        return None
    splitting.cap(bound.gaps)
    return bound


class _Score:
    """The differences of the outputs at points, one by one and in the norm, in floats."""

    def __init__(self, pair: NetworkPair, outputs: Indices, norm: float) -> None:
        self.pair, self.outputs, self.norm = pair, outputs, norm
        self.size = 0.0  # of the first network's outputs

    def __call__(self, points: Floats) -> Floats:
        first, second = (evaluate(layers, points)[:, self.outputs] for layers in (self.pair.first, self.pair.second))
        self.size = max(self.size, float(np.nan_to_num(np.abs(first)).max()))
        gaps = np.abs(second - first)
        return np.column_stack([gaps, np.linalg.norm(gaps, ord=self.norm, axis=1)])

    def slope(self, points: Floats, place: int) -> Floats:
        """Gradients of one of the scores."""
        first, second = self.pair.first, self.pair.second
        gaps = (evaluate(second, points) - evaluate(first, points))[:, self.outputs]
        signs = np.sign(gaps)
        if place < len(self.outputs) and place >= 0:
            chosen = signs * (np.arange(len(self.outputs)) == place)
        elif self.norm == math.inf:
            chosen = signs * (np.abs(gaps) == np.abs(gaps).max(axis=1, keepdims=True))
        else:
            chosen = signs if self.norm == 1 else gaps
        rows = np.zeros((len(points), self.pair.outputs))
        rows[:, self.outputs] = chosen
        return gradients(second, points, rows) - gradients(first, points, rows)


class _Replays:
    """The largest difference that was confirmed in exact arithmetic, and where."""

    def __init__(self, pair: NetworkPair, outputs: Indices, norm: float) -> None:
        self.pair, self.outputs, self.norm = pair, outputs, norm
        self.lower = Fraction(-1)
        self.per_output = [Fraction(0)] * len(outputs)
        self.point = np.zeros(0)
        self.seen: set[bytes] = set()

    def look(self, point: Floats) -> None:
        if point.tobytes() in self.seen:
            return
        self.seen.add(point.tobytes())
        gaps = exact_difference(self.pair.first, self.pair.second, point)
        chosen = [abs(gaps[which]) for which in self.outputs]
        self.per_output = [max(old, new) for old, new in zip(self.per_output, chosen, strict=True)]
        if (size := norm_below(chosen, self.norm)) > self.lower:
            self.lower, self.point = size, point.copy()


def _search(
    splitting: Splitting,
    candidates: Candidates,
    score: _Score,
    replays: _Replays,
    question: Fraction | None,
    rng: np.random.Generator,
    started: float,
    deadline: float,
    tick: Callable[[float, float], None],
) -> str:
    """Bounds from both sides until they suffice; how it ended."""
    threshold = math.inf if question is None else float_below(question)

    def enough() -> float:
        if question is not None:
            return threshold
        return max(float(candidates.values[-1]) * (1 + PRECISION), score.size * ROUNDING, UNDERFLOW)

    def improve(points: Floats) -> None:
        before = candidates.values[-1]
        if len(points):
            candidates.offer(points)
        if candidates.values[-1] > before:
            candidates.ascend(candidates.points[-1:], -1, score.slope, deadline)
            candidates.climb(candidates.points[-1:], -1, rng, deadline, radius=0.02)
        tick(candidates.values[-1], splitting.upper)

    def is_refuted() -> bool:
        if question is None or not candidates.values[-1] > threshold:
            return False
        replays.look(candidates.points[-1])
        return replays.lower > question

    try:
        improve(splitting.corners)
        splitting.settle(enough() if question is not None else 0.0)
        if not is_refuted() and len(splitting.open.value):
            candidates.sample(rng, min(deadline, started + max(2.0, 0.1 * (deadline - started))), score.slope)
    except KeyboardInterrupt:
        return "interrupted"
    progress = _Progress(splitting, candidates)
    ended = run(
        splitting, enough, is_refuted, improve, deadline, progress.has_stalled if question is None else lambda: False
    )
    replays.look(candidates.points[-1])
    return ended


class _Progress:
    """Whether the bounds still move: best-first splitting that needs ever more boxes for nothing may as well stop.

    A question (`within`) is not stopped: boxes are settled there while the largest bound stays where it is.
    """

    def __init__(self, splitting: Splitting, candidates: Candidates) -> None:
        self.splitting, self.candidates = splitting, candidates
        self.boxes, self.since, self.ends = 0, time.monotonic(), (math.inf, -math.inf)

    def has_stalled(self) -> bool:
        upper, lower = self.splitting.upper, float(self.candidates.values[-1])
        least = STALL_SHARE * max(self.ends[0] - self.ends[1], 0.0)
        if self.ends[0] - upper > least or lower - self.ends[1] > least or not math.isfinite(self.ends[0]):
            self.boxes, self.since, self.ends = self.splitting.bounded, time.monotonic(), (upper, lower)
            return False
        many = self.splitting.bounded > STALL_FACTOR * self.boxes + STALL_BOXES
        return many and time.monotonic() - self.since > STALL_SECONDS


def _layers(first: Mlp | Dag, second: Mlp | Dag) -> tuple[tuple[Layer, ...], tuple[Layer, ...]]:
    ours, theirs = layers_of(first), layers_of(second)
    for words, mine, yours in (
        ("inputs", ours[0].weight.shape[1], theirs[0].weight.shape[1]),
        ("outputs", len(ours[-1].weight), len(theirs[-1].weight)),
    ):
        if mine != yours:
            raise LawfulError(f"the networks have {mine} and {yours} {words}: a distance needs as many")
    return ours, theirs


def _chosen(output: int | None, outputs: int) -> Indices:
    if output is None:
        return np.arange(outputs)
    if not 0 <= output < outputs:
        raise LawfulError(f"there are outputs 0 to {outputs - 1}, not {output}")
    return np.array([output])


def _question(within: Fraction | float) -> Fraction:
    try:
        question = Fraction(within)
    except (ValueError, OverflowError):
        question = Fraction(-1)
    if question < 0:
        raise LawfulError(f"a distance is at least 0 and finite: it cannot be within {within}")
    return question
