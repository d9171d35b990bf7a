"""Channels and neurons that leave with a certified bound: the difference of both networks, carried through their graph.

A module that is a piecewise linear graph of scalar weights (convolutions, batch normalisation, residual sums, means) is
written out; so is the same module with columns of 0 for what leaves and its readers repaired. Both have the same
neurons, so that what left and what took it over stand side by side, and `bounds` carries their difference through the
layers: on a box, or around each sample. What no graph is (attention) or is too large is for statistics.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
import torch
from torch import nn

from lawful.bounds.box_bounds import bound, boxes_together
from lawful.bounds.layers import Layer, layers_of
from lawful.bounds.pair import UNIT, Layered, Matching, NetworkPair, align
from lawful.errors import LawfulError, Unsupported
from lawful.network import Dag, Mlp
from lawful.pruning.channels.prune import ChannelPruning
from lawful.pruning.job.case import JobSamples, PruningCase, SiteSize, Tick, read_case, split_samples
from lawful.pruning.job.evidence import HeldOutAgreement, agree
from lawful.pruning.job.network import ModuleSubject
from lawful.pruning.job.score import Removal
from lawful.pruning.neurons.bounds import boxes_near
from lawful.pruning.neurons.certificate import near_certificate
from lawful.result import Shown
from lawful.sources.modules.convert import from_module
from lawful.types import Floats, Indices

FEW = 8  # boxes that propose a size, those of the samples that changed most; all of them decide
STEPS = 7  # of the bisection for a size
# Rounds of repair with other weights of samples. On a CNN for digits the largest change fell to 0.44, 0.54 and 0.63 of
# that of one fit (5, 12, 20 units less) after 10 rounds, and to 0.44, 0.52 and 0.61 after 20.
EVENED = 10
BACK = 0.85  # of the units that were to leave, where all boxes say no to what a few allowed
ROOM = 2.0**-16  # relative: a verifier rounds in its own order
ROUNDED = "exact but for rounding: weights that take over removed channels are rounded to the type they are stored in"
Boxes = tuple[Floats, Floats]


@dataclass(frozen=True, eq=False)
class BoundedPruning(Shown):
    """The smaller module, and how far outputs can move: certified on boxes, or measured.

    `kind` is what the bound is: `exact` (nothing left but what changes nothing), `certified` (for every input of the
    boxes, of the graph that the module is), or `statistical` (for all but 1% of inputs like the samples). `bounds` are
    per output; None if statistical. With samples `near` the boxes are those `around` each, within the `box` if there is
    one too. `graphs` are both networks written out.
    """

    kind: str
    tolerance: tuple[float, ...]
    bounds: tuple[float, ...] | None
    pruned: ChannelPruning
    sizes: tuple[SiteSize, ...]
    held_out: HeldOutAgreement | None
    around: float | None = None
    near: Floats | None = None
    box: Boxes | None = None
    notes: tuple[str, ...] = ()
    graphs: tuple[Mlp | Dag, Mlp | Dag] | None = field(default=None, repr=False)
    example: torch.Tensor = field(default_factory=lambda: torch.zeros(0), repr=False)

    @property
    def module(self) -> nn.Module:
        """The smaller module."""
        return self.pruned.module


def prune_within(
    subject: ModuleSubject,
    samples: JobSamples,
    tolerance: float,
    *,
    relative: bool = False,
    box: Boxes | None = None,
    around: float | None = None,
    seed: int = 0,
    tick: Tick = lambda said: None,
) -> BoundedPruning:
    """Remove what moves no output by more than a tolerance: on a box, around samples, or (neither) by statistics.

    The tolerance may be `relative` to the range of each output on the samples. Samples that fit weights are never
    those of the statistical statement; a certified bound holds around *all* samples, those that fitted too.
    """
    if not tolerance >= 0 or not np.isfinite(tolerance):
        raise LawfulError(f"a tolerance is a number from 0 on, not {tolerance}")
    if around is not None and not (around >= 0 and np.isfinite(around)):
        raise LawfulError(f"a distance from samples is a number from 0 on, not {around}")
    # A certified bound holds on its boxes whatever the weights were fitted to: only a statistical one needs samples
    # that chose nothing.
    statistical = box is None and around is None
    fitting, _, outside = split_samples(samples, None, seed, chooses=False) if statistical else (samples,) * 3
    case = read_case(subject, fitting, tick=tick)
    order = case.order_units("params", seed=seed) if case.sites.units else []
    out = case.network.outputs(samples.x)
    if out.dim() != 2:
        raise Unsupported(f"bounds are for one row of outputs a sample, and these have size {tuple(out.shape[1:])}")
    width = (out.amax(0) - out.amin(0)).double().numpy() if relative else np.ones(out.shape[1])
    allowed = tolerance * width
    if statistical:
        return _prune_statistically(case, order, allowed, outside)
    return _prune_certified(case, order, allowed, samples, out, box, around)


def _prune_statistically(
    case: PruningCase, order: list[Removal], allowed: Floats, outside: JobSamples
) -> BoundedPruning:
    """As many units as half of the held-out samples allow; the other half states what holds."""
    half = len(outside) // 2
    choosing, stating = outside.take(slice(0, half)), outside.take(slice(half, None))
    if half < 1:
        raise LawfulError("too few samples to choose a size on some and to measure it on others")

    def fits(gone: Collection[int]) -> bool:
        changed = case.network.with_tensors(case.new_weights(gone))
        gaps = (changed.outputs(choosing.x) - case.network.outputs(choosing.x)).abs().double().numpy()
        return bool((np.quantile(gaps, 0.99, axis=0) <= allowed).all())

    count = _most(len(order), lambda count: fits([removal.unit for removal in order[:count]]))
    gone = [removal.unit for removal in order[:count]]
    tensors = case.new_weights(gone) if gone else {}
    changed = case.network.with_tensors(tensors)
    outputs = case.network.outputs(stating.x), changed.outputs(stating.x)
    seen = agree(*outputs, stating.labels, case.network.classes)
    pruned, small = case.subject.cut(tensors, case.size)
    return BoundedPruning(
        "statistical" if gone else "exact", tuple(allowed.tolist()), None, _module_pruning(pruned),
        case.count_sizes(gone), seen, notes=(*case.network.notes, *_notes(case, gone, pruned)),
        example=_example(small, case),
    )  # fmt: skip


def _prune_certified(
    case: PruningCase,
    order: list[Removal],
    allowed: Floats,
    samples: JobSamples,
    outputs: torch.Tensor,
    box: Boxes | None,
    around: float | None,
) -> BoundedPruning:
    subject = case.subject
    if not isinstance(subject, ModuleSubject):
        raise Unsupported("bounds on boxes are for modules: name the module, or leave the box out for statistics")
    flat = samples.x.reshape(len(samples), -1)
    if box is not None:
        corners = boxes_of(flat, box, None)
        box = corners[0][0], corners[1][0]
    low, high = boxes_of(flat, box, around)
    first = written_out(subject, {}, case.size)
    try:
        ours = layers_of(first)
    except Unsupported as refusal:
        raise Unsupported(f"{refusal}; without a box or a distance from samples the bound is statistical") from None

    attempts: dict[int, _Attempt] = {}

    def attempt(count: int) -> _Attempt:
        if count not in attempts:
            gone = [removal.unit for removal in order[:count]]
            attempts[count] = _repair_evenly(case, gone, samples.x, outputs, allowed)
        return attempts[count]

    def bounds_for(count: int, boxes: Indices) -> tuple[Floats, Mlp | Dag]:
        second = written_out(subject, attempt(count).tensors, case.size)
        case.tick(f"{count} units, bounding {len(boxes)} boxes")
        pair = beside(ours, layers_of(second))
        return bound_boxes(pair, low[boxes], high[boxes]) * (1 + ROOM), second

    def fits(count: int) -> bool:
        if around is None:
            return bool((bounds_for(count, np.arange(len(low)))[0] <= allowed).all())
        ratios = attempt(count).ratios  # at the samples, which lie in their boxes: the bounds are no smaller
        return bool(ratios.max() <= 1) and bool((bounds_for(count, ratios.argsort()[-FEW:])[0] <= allowed).all())

    count = _most(len(order), fits)
    while True:
        gone, tensors = [removal.unit for removal in order[:count]], attempt(count).tensors
        stated, second = bounds_for(count, np.arange(len(low)))
        pruned, small = subject.cut(tensors, case.size)
        if gone and _module_pruning(pruned).moves:
            # Constants and multiples that take others over are folded into weights of the stored type, which rounds.
            folded = layers_of(from_module(_module_pruning(pruned).module, case.size, drop_useless=True))
            stated = (stated + bound_boxes(align(layers_of(second), folded), low, high)) * (1 + ROOM)
        if not gone or bool((stated <= allowed).all()):
            break
        count = min(count - 1, int(BACK * count))
    return BoundedPruning(
        "certified" if gone else "exact", tuple(allowed.tolist()), tuple((stated if gone else 0 * allowed).tolist()),
        _module_pruning(pruned),
        case.count_sizes(gone), None, around, flat if around is not None else None,
        box, _notes(case, gone, pruned), (first, second),
        _example(small, case),
    )  # fmt: skip


def _notes(case: PruningCase, gone: Collection[int], pruned: Any) -> tuple[str, ...]:
    """What the reading says, and that an exact answer is about real numbers: bounds have their rounding in them."""
    rounded = not gone and _module_pruning(pruned).moves
    return (*case.sites.notes, *([ROUNDED] if rounded else []))


def _most(count: int, fits: Callable[[int], bool]) -> int:
    """How many units can leave by their order, if leaving fewer were always safer; 0 always fits."""
    low, high = 0, count
    for _ in range(STEPS):
        if high <= low:
            break
        middle = (low + high + 1) // 2
        if fits(middle):
            low = middle
        else:
            high = middle - 1
    return low


@dataclass(frozen=True, eq=False)
class _Attempt:
    """Weights without some units, and for each sample the largest change of an output over what is allowed."""

    tensors: dict[str, torch.Tensor]
    ratios: Floats


def _repair_evenly(
    case: PruningCase, gone: Collection[int], x: Floats, outputs: torch.Tensor, allowed: Floats
) -> _Attempt:
    """Repair for the worst sample: least squares minimise the mean change, but a bound is about the largest.

    Lawson's algorithm: samples are fitted again with weights in proportion to what they changed by. For one linear
    layer it converges to the least maximum; here every round is tried, and the best is taken.
    """
    best = _Attempt({}, np.full(len(x), np.inf) if gone else np.zeros(len(x)))
    emphasis = np.ones(len(case.fitting))
    for _ in range(EVENED if gone else 0):
        tensors = case.new_weights(gone, emphasis)
        gaps = (case.network.with_tensors(tensors).outputs(x) - outputs).abs().double().numpy()
        with np.errstate(divide="ignore", invalid="ignore"):
            ratios = np.where(gaps > 0, gaps / allowed, 0.0).max(axis=1)
        if not ratios.max() > best.ratios.max():
            best = _Attempt(tensors, ratios)
        if not np.isfinite(ratios).all():  # what may not change at all does
            break
        emphasis *= ratios[: len(emphasis)]
        emphasis /= max(float(emphasis.mean()), 1e-300)
    return best


def boxes_of(samples: Floats, box: Boxes | None, around: float | None) -> Boxes:
    """The corners of all boxes: one around each sample (within the box, if there is one too), or the box alone."""
    if around is None:
        if box is None:
            raise LawfulError("a bound needs a box, or samples and how far around them")
        sides = [np.broadcast_to(np.asarray(side, dtype=np.float64), samples.shape[1:])[None] for side in box]
        if not bool((sides[0] <= sides[1]).all()):
            raise LawfulError("a box needs its lower corner below its upper one, and no NaN")
        return sides[0].copy(), sides[1].copy()
    return boxes_near(samples, around, box)


def written_out(subject: ModuleSubject, tensors: Mapping[str, torch.Tensor], size: tuple[int, ...]) -> Mlp | Dag:
    """The graph of scalar weights of a module with some weights replaced, each rounded to the type it is stored in."""
    # A stride may pass pixels by: both graphs lose the same neurons that nobody reads, for edges of weight 0 are edges.
    return from_module(subject.with_numbers(tensors), size, drop_useless=True)


def beside(first: tuple[Layer, ...], second: tuple[Layer, ...]) -> NetworkPair:
    """Two networks of one shape, neuron beside neuron: nothing has to be matched.

    The float `E = V − W` is off by at most half an ulp, `2⁻⁵³ |E|`; twice that is stated.
    """
    if [layer.weight.shape for layer in first] != [layer.weight.shape for layer in second]:
        raise Unsupported("the smaller network's graph has another shape")
    layers, matches = [], []
    for mine, yours in zip(first, second, strict=True):
        E, e = yours.weight - mine.weight, yours.bias - mine.bias
        layers.append(
            Layered(
                mine.weight, mine.bias, yours.weight, yours.bias, E, e, 2 * UNIT * np.abs(E), 2 * UNIT * np.abs(e),
                mine.slopes,
            )
        )  # fmt: skip
        matches.append(Matching(np.arange(len(mine.weight)), np.arange(len(mine.weight)), np.ones(len(mine.weight))))
    return NetworkPair(tuple(layers), tuple(matches[:-1]), first, second)


def bound_boxes(pair: NetworkPair, low: Floats, high: Floats) -> Floats:
    """For every output a number that its difference exceeds on no box; infinite where nothing is known."""
    bounds = np.zeros(pair.outputs)
    together = boxes_together(pair)
    for start in range(0, len(low), together):
        part = bound(pair, low[start : start + together], high[start : start + together])
        largest = np.maximum(np.abs(part.low), np.abs(part.high))
        bounds = np.maximum(bounds, np.where(np.isnan(largest), np.inf, largest).max(axis=0))
    return bounds


def certificate(found: BoundedPruning) -> dict[str, Any]:
    """Evidence of a certified bound: both graphs and every box, of the kind that `lawful distance` writes."""
    if found.kind != "certified" or found.graphs is None or found.bounds is None:
        raise LawfulError(f"the bound is {found.kind}: there is no certified bound to write down")
    if found.near is None or found.around is None:
        from lawful.bounds.distance import distance
        from lawful.bounds.result import certificate as distance_certificate

        if found.box is None:
            raise AssertionError("a certified bound has a box")
        measured = distance(*found.graphs, found.box, within=Fraction(max(found.bounds)))
        if measured.status != "proved":
            raise LawfulError("the bound on the box was not proved again in the time allowed: no certificate")
        return distance_certificate(measured, *found.graphs)
    low, high = boxes_near(found.near, found.around, found.box)
    pair = beside(*(layers_of(graph) for graph in found.graphs))
    box = low.min(axis=0), high.max(axis=0)
    return near_certificate(found.graphs, pair, found.bounds, box, found.near, found.around)


def _module_pruning(found: Any) -> ChannelPruning:
    if not isinstance(found, ChannelPruning):
        raise Unsupported("bounds and tolerances are for modules; an ONNX file takes a --target")
    return found


def _example(small: Any, case: PruningCase) -> torch.Tensor:
    return small.example(case.size, 2) if isinstance(small, ModuleSubject) else torch.zeros(0)
