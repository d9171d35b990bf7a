"""A pruning job from end to end: score, cut, repair, tune if asked, and measure on samples that chose nothing."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from lawful.errors import LawfulError, Unsupported
from lawful.network import Dag, Mlp
from lawful.program.backends.torch_calls import ProgramModule
from lawful.pruning.channels.prune import ChannelPruning
from lawful.pruning.channels.reading.domain import ChannelReading, read_channels
from lawful.pruning.channels.weights import ChannelWeights, read_arrays
from lawful.pruning.files.onnx_channels import OnnxPruning
from lawful.pruning.job.evidence import HeldOutAgreement, agree, is_classifier
from lawful.pruning.job.network import RunnableProgram
from lawful.pruning.job.plan import RemovalPlan, read_plan, write_plan
from lawful.pruning.job.repair import repair, silence, stored
from lawful.pruning.job.score import Criterion, Removal, order_removals
from lawful.pruning.job.statistics import Labels, gather, taylor_scores
from lawful.pruning.job.subject import ModuleSubject, Subject
from lawful.pruning.job.target import Target
from lawful.pruning.job.units import Costs, Sites, count_macs, find_sites
from lawful.result import Shown
from lawful.types import Floats

BATCH = 64  # samples that a program is read for and run with
CALIBRATION = 2048  # samples that statistics and repair use at most: 512 lose 0.2 point on a CNN, 128 lose 0.6
HELD_OUT = 0.2  # the share of samples that choose nothing, unless they are given
MARGIN = 0.9  # the order goes on to this share of the target: costs are counted again when it is cut
STEPS = 7  # of a bisection: sizes within 1% of the order
Tune = Callable[[nn.Module, nn.Module, torch.Tensor, torch.Tensor | None], nn.Module | None]
Tick = Callable[[str], None]


@dataclass(frozen=True, eq=False)
class JobSamples:
    """Inputs as the network takes them, and labels if there are any."""

    x: Floats
    labels: Labels | None = None

    def __len__(self) -> int:
        return len(self.x)

    def take(self, at: Any) -> JobSamples:
        """Some of them."""
        return JobSamples(self.x[at], None if self.labels is None else self.labels[at])


@dataclass(frozen=True)
class SiteSize:
    """How many units of a site there were and are left; `kind` is channels or heads."""

    name: str
    kind: str
    before: int
    after: int


@dataclass(frozen=True, eq=False)
class PruningJob(Shown):
    """The smaller network, and what is known of it.

    `pruned` is the lossless pruning of the silenced and repaired network: that nothing more changed than the
    least-squares repair is algebra, and can be certified. What the repair changed is measured: `held_out` are samples
    that chose nothing, `calibration` those that did. `module` is the smaller module; `network` the same as a network of
    layers, where that is what was opened.
    """

    target: Target
    criterion: str
    pruned: ChannelPruning | OnnxPruning
    sizes: tuple[SiteSize, ...]
    macs: tuple[int, int]
    parameters: tuple[int, int]
    calibration: int
    chosen_on: int
    held_out: HeldOutAgreement
    latency: dict[str, tuple[float | None, float | None]]
    tuned: bool = False
    notes: tuple[str, ...] = ()
    module: nn.Module | None = field(default=None, repr=False)
    network: Mlp | Dag | None = field(default=None, repr=False)
    example: torch.Tensor = field(default_factory=lambda: torch.zeros(0), repr=False)


@dataclass(frozen=True, eq=False)
class PruningCase:
    """A network as a job sees it: its program, its channels, its units, and the size of a sample."""

    subject: Subject
    network: RunnableProgram
    reading: ChannelReading
    state: ChannelWeights
    sites: Sites
    size: tuple[int, ...]

    def costs(self, kind: str) -> Costs:
        """What all units cost, before any has left."""
        return Costs(self.reading, self.state, self.sites, kind)


def prune_to_target(
    subject: Subject,
    samples: JobSamples,
    target: Target,
    *,
    held_out: JobSamples | None = None,
    criterion: Criterion = "replaced",
    multiple: int = 1,
    mend: bool = True,
    timed: bool = True,
    tune: Tune | None = None,
    plan: Path | None = None,
    seed: int = 0,
    tick: Tick = lambda said: None,
) -> PruningJob:
    """Prune a network to a size, or as far as its accuracy allows.

    Units are scored on calibration samples, and sizes that must be found (accuracy, latency) on a second part; the
    report is on `held_out`, or on a fifth of the samples that is put aside first. `mend=False` leaves the repair out,
    for comparison; `timed=False` measures no latency. `plan` keeps the order of removal in a file: a job that finds
    its plan there does not score again.
    """
    if multiple < 1:
        raise LawfulError(f"sizes are multiples of a number from 1 on, not of {multiple}")
    samples, choosing, outside = split_samples(samples, held_out, target, tune is not None, seed)
    case = read_case(subject, samples)
    if not case.sites.units:
        raise Unsupported("no layer of this network has channels or heads that could leave")
    calibration = samples.take(slice(0, CALIBRATION))
    by_cost = target.kind in ("params", "flops") and multiple == 1  # blocks of units may lie anywhere in the order
    until = MARGIN * target.share if by_cost else 0.0
    order = order_units(case, calibration, target.cost, criterion, until, plan, seed, tick)
    tick("choosing sizes")
    gone = _choose(case, order, target, multiple, calibration, choosing, mend, tick)
    pruned, small = _cut(case, gone, calibration, mend, tick)
    tuned, notes = False, list(case.sites.notes)
    if tune is not None:
        small, tuned, said = _tuned(case, small, tune, samples, choosing, tick)
        notes.append(said)
    tick("measuring")
    after = RunnableProgram(small.read(case.size, case.network.batch))
    agreement = agree(case.network.outputs(outside.x), after.outputs(outside.x), outside.labels)
    costs = [count_macs(each.program) // each.batch for each in (case.network, after)]
    before, now = (_parameters(each) for each in (case.network, after))
    return PruningJob(
        target, criterion, pruned, count_sizes(case, gone), (costs[0], costs[1]), (before, now), len(calibration),
        len(choosing), agreement, _latency(subject, small, outside) if timed else {}, tuned, (*notes, *pruned.notes),
        small.module if isinstance(small, ModuleSubject) else None,
        example=small.example(case.size, 2) if isinstance(small, ModuleSubject) else torch.zeros(0),
    )  # fmt: skip


def split_samples(
    samples: JobSamples, held_out: JobSamples | None, target: Target, tunes: bool, seed: int
) -> tuple[JobSamples, JobSamples, JobSamples]:
    """Samples that fit, that choose sizes, and that do neither; drawn at random, as files are often sorted by label."""
    order = np.random.default_rng(seed).permutation(len(samples))
    aside = 0 if held_out is not None else max(1, int(HELD_OUT * len(samples)))
    chooses = target.kind == "accuracy" or tunes
    second = max(1, int(HELD_OUT * len(samples))) if chooses else 0
    if len(samples) - aside - second < 2:
        raise LawfulError(f"{len(samples)} samples are too few to calibrate on some and to measure on others")
    rest = samples.take(order[aside + second :])
    outside = held_out if held_out is not None else samples.take(order[:aside])
    if not len(outside):
        raise LawfulError("there are no held-out samples to measure on")
    return rest, samples.take(order[aside : aside + second]) if chooses else rest.take(slice(0, 0)), outside


def read_case(subject: Subject, samples: JobSamples) -> PruningCase:
    """Read a network, and find what can leave it."""
    size = tuple(samples.x.shape[1:])
    program = subject.read(size, min(BATCH, len(samples)))
    reading = read_channels(program)
    state = ChannelWeights(reading.program, read_arrays(program, reading.program))
    case = PruningCase(subject, RunnableProgram(program), reading, state, find_sites(reading, state), size)
    heads = [site for site in case.sites.sites if site.heads]
    if not heads or not isinstance(subject, ModuleSubject):
        return case
    # A class that has one size for all its heads could only be written as a traced graph, for one batch: better to
    # keep the class, and its heads. Whether it is one shows when a head leaves.
    tried = _cut(case, [heads[0].units[0]], samples, False, lambda said: None)[0]
    if not isinstance(tried, ChannelPruning) or not isinstance(tried.module, ProgramModule):
        return case
    sites = find_sites(reading, state, heads_stay=True)
    said = f"heads stay: {type(subject.module).__name__} has one size for all of them in its own code"
    return replace(case, sites=replace(sites, notes=(*sites.notes, said)))


def order_units(
    case: PruningCase,
    samples: JobSamples,
    cost: str,
    criterion: Criterion,
    until: float,
    path: Path | None,
    seed: int,
    tick: Tick,
) -> list[Removal]:
    """Units from the least needed on, scored on samples, or as a plan has them."""
    made = RemovalPlan.of(case.network, case.sites, samples.x, cost, criterion, seed)
    if path is not None and path.exists():
        return read_plan(path, made, until)
    tick("scoring")
    statistics = gather(case.network, case.sites, samples.x, seed)
    taylor = None
    if criterion == "taylor":
        if samples.labels is None:
            raise LawfulError("the Taylor score needs labels: `y` in the data")
        taylor = taylor_scores(case.network, case.sites, samples.x, samples.labels)
    order = order_removals(case.sites, case.costs(cost), case.state, statistics, criterion, until, taylor, tick)
    if path is not None:
        write_plan(path, made, order)
    return order


def _choose(
    case: PruningCase,
    order: list[Removal],
    target: Target,
    multiple: int,
    calibration: JobSamples,
    choosing: JobSamples,
    mend: bool,
    tick: Tick,
) -> list[int]:
    """The units that leave."""
    if target.kind in ("params", "flops"):
        return _to_share(case, order, target.cost, target.share, multiple)
    if target.kind == "accuracy":
        if choosing.labels is None:
            raise LawfulError("a target of accuracy needs labels: `y` in the data")
        goal = target.share * _accuracy(case.network, choosing)

        def fits(gone: list[int]) -> bool:
            tensors = new_weights(case, gone, calibration, mend, tick)
            return _accuracy(case.network.with_tensors(tensors), choosing) >= goal
    else:
        given = torch.as_tensor(calibration.x[: case.network.batch]).to(torch.float32)
        first = _first_time(case.subject, given)

        def fits(gone: list[int]) -> bool:
            small = _cut(case, gone, calibration.take(slice(0, 64)), mend, tick)[1]
            return _first_time(small, given) <= target.share * first

        # a smaller network is quicker: the bisection looks for the first share that fits
        return _bisect(case, order, multiple, fits, falling=True)
    return _bisect(case, order, multiple, fits, falling=False)


def _bisect(
    case: PruningCase, order: list[Removal], multiple: int, fits: Callable[[list[int]], bool], *, falling: bool
) -> list[int]:
    """The smallest network that `fits`, or (`falling`) the largest one, if fitting were monotone in the share left."""
    low, high = order[-1].left if order else 1.0, 1.0
    best: list[int] | None = None
    for _ in range(STEPS):
        middle = (low + high) / 2
        gone = _to_share(case, order, "flops", middle, multiple)
        good = fits(gone)
        if good:
            best = gone
        if good is falling:
            low = middle
        else:
            high = middle
    if best is None:
        if falling:
            raise LawfulError("no size that was tried is as quick as that")
        return []
    return best


def _to_share(case: PruningCase, order: list[Removal], cost: str, share: float, multiple: int) -> list[int]:
    """Leave by the order until a share of the cost is left, or less; then sizes in multiples.

    With multiples, sites start at the next multiple above what the order leaves, and lose blocks until the target is
    met, those first that the order would have taken first.
    """
    costs = case.costs(cost)
    gone: list[int] = []
    for removal in order:
        if costs.now <= share * costs.total:
            break
        gone.append(removal.unit)
        costs.remove(removal.unit)
    if costs.now > share * costs.total:
        raise LawfulError(f"{100 * costs.now / costs.total:.0f}% are left when every site has one unit: ask for more")
    if multiple == 1:
        return gone
    rank = {removal.unit: place for place, removal in enumerate(order)}
    taken: set[int] = set()
    blocks: list[tuple[float, int, list[int]]] = []
    costs = case.costs(cost)
    for number, site in enumerate(case.sites.sites):
        leaving = sorted((unit for unit in site.units if unit in rank), key=lambda unit: rank[unit])
        if site.heads or len(site.units) <= multiple:
            taken.update(unit for unit in leaving if unit in set(gone) and site.heads)
            continue
        # the first block makes a multiple of what there was, and may be smaller
        at, size = 0, len(site.units) % multiple or multiple
        while at + size <= len(leaving) and len(site.units) - at - size >= multiple:
            units = leaving[at : at + size]
            blocks.append((float(np.mean([rank[unit] for unit in units])), number, units))
            at, size = at + size, multiple
    for unit in taken:
        costs.remove(unit)
    cut: list[tuple[int, list[int]]] = []
    for _, number, units in sorted(blocks, key=lambda block: block[0]):
        if costs.now <= share * costs.total:
            break
        cut.append((number, units))
        for unit in units:
            costs.remove(unit)
    # The last block may have saved far more than was missing: sites get blocks back, the most needed first.
    for number, units in reversed(cut[:-1]):
        last = [block for block in cut if block[0] == number][-1]
        if last[1] is units and costs.now + costs.regained(units) <= share * costs.total:
            cut.remove(last)
            costs.restore(units)
    taken.update(unit for _, units in cut for unit in units)
    if costs.now > share * costs.total:
        raise LawfulError(
            f"sizes in multiples of {multiple} leave {100 * costs.now / costs.total:.0f}%: ask for a smaller multiple"
        )
    return sorted(taken, key=lambda unit: rank[unit])


def new_weights(
    case: PruningCase, gone: Collection[int], calibration: JobSamples, mend: bool, tick: Tick
) -> dict[str, torch.Tensor]:
    """The numbers that change: readers of what left, with or without repair."""
    if mend:
        return repair(case.network, case.state, case.sites, gone, calibration.x, tick=tick)
    silent = silence(case.state, case.sites, gone)
    return {weight: stored(case.state, weight, array) for weight, array in silent.items()}


def _cut(
    case: PruningCase, gone: Collection[int], calibration: JobSamples, mend: bool, tick: Tick
) -> tuple[ChannelPruning | OnnxPruning, Subject]:
    tensors = new_weights(case, gone, calibration, mend, tick)
    tick("cutting")
    return case.subject.cut(tensors, case.size)


def _tuned(
    case: PruningCase, small: Subject, tune: Tune, samples: JobSamples, choosing: JobSamples, tick: Tick
) -> tuple[Subject, bool, str]:
    """What the user's function makes of it, if that is better on the samples that choose."""
    if not (isinstance(small, ModuleSubject) and isinstance(case.subject, ModuleSubject)):
        raise Unsupported("an ONNX file is not trained here: tune the module that it came from")
    tick("tuning")
    import copy

    student = copy.deepcopy(small.module).train()
    x = torch.as_tensor(samples.x)
    x = x.to(torch.int64) if small.whole else x.to(next(student.parameters()).dtype)
    y = None if samples.labels is None else torch.as_tensor(samples.labels)
    made = tune(student, case.subject.module, x, y)
    trained = ModuleSubject((made if isinstance(made, nn.Module) else student).eval(), small.whole)
    scores = [_quality(case, each, choosing) for each in (small, trained)]
    if scores[1] >= scores[0]:
        return trained, True, f"tuned: {_said(scores[0])} before and {_said(scores[1])} after, on the choosing samples"
    return small, False, f"tuning made it worse on the choosing samples ({_said(scores[0])} before): it was not kept"


def _said(score: float) -> str:
    return f"{score:.4g}"


def _quality(case: PruningCase, subject: Subject, samples: JobSamples) -> float:
    """Accuracy, or without labels how near outputs are to the original's: larger is better."""
    network = RunnableProgram(subject.read(case.size, case.network.batch))
    out = network.outputs(samples.x)
    if samples.labels is not None and is_classifier(out):
        return float((out.argmax(1) == torch.as_tensor(samples.labels)).double().mean())
    return -float((out - case.network.outputs(samples.x)).double().pow(2).mean())


def _accuracy(network: RunnableProgram, samples: JobSamples) -> float:
    out = network.outputs(samples.x)
    if samples.labels is None or not is_classifier(out):
        raise LawfulError("accuracy is measured on one row of scores and one label for each sample")
    return float((out.argmax(1) == torch.as_tensor(samples.labels)).double().mean())


def _parameters(network: RunnableProgram) -> int:
    return sum(int(np.prod(node.shape)) for node in network.program.parameters.values())


def count_sizes(case: PruningCase, gone: Collection[int]) -> tuple[SiteSize, ...]:
    """How many units of each site are left."""
    left = [len(site.units) for site in case.sites.sites]
    for unit in gone:
        left[case.sites.units[unit].site] -= 1
    return tuple(
        SiteSize(site.name, "heads" if site.heads else "channels", len(site.units), count)
        for site, count in zip(case.sites.sites, left, strict=True)
    )


def _latency(before: Subject, after: Subject, samples: JobSamples) -> dict[str, tuple[float | None, float | None]]:
    """Milliseconds of one sample and of a batch."""
    found: dict[str, tuple[float | None, float | None]] = {}
    for count in (1, BATCH):
        rows = np.resize(samples.x, (count, *samples.x.shape[1:]))
        kind = torch.int64 if getattr(before, "whole", False) else torch.float32
        given = torch.as_tensor(rows).to(kind)
        was, now = before.latency(given), after.latency(given)
        found |= {f"{name}, batch {count}": (was[name], now.get(name)) for name in was}
    return found


def _first_time(subject: Subject, given: torch.Tensor) -> float:
    """The time in the runtime that is there: ONNX Runtime before PyTorch."""
    found = subject.latency(given)
    for name in ("ONNX Runtime", "PyTorch"):
        if found.get(name) is not None:
            return float(found[name] or 0.0)
    raise Unsupported("its time cannot be measured: neither PyTorch nor ONNX Runtime runs it")
