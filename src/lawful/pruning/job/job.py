"""A pruning job from end to end: score, cut, repair, tune if asked, and measure on samples that chose nothing.

Units (channels, heads) leave by their order until the target is met. Whether a whole block should leave first is tried
out: the job is done again without the least needed block, and again, as long as the outputs on samples that neither
scored nor repaired come nearer to the original's (for a target of accuracy: as long as the network gets smaller).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import nn

from lawful.errors import LawfulError, Unsupported
from lawful.network import Dag, Mlp
from lawful.pruning.channels.onnx_file import OnnxPruning
from lawful.pruning.channels.prune import ChannelPruning
from lawful.pruning.job.blocks import close_gaps, find_blocks, output_change, without_block
from lawful.pruning.job.case import BATCH, JobSamples, PruningCase, SiteSize, Tick, read_case, split_samples
from lawful.pruning.job.evidence import HeldOutAgreement, agree
from lawful.pruning.job.network import ModuleSubject, RunnableProgram, Subject, time_together
from lawful.pruning.job.score import Criterion
from lawful.pruning.job.sizes import OutOfReach, Target, accuracy, choose_units, share_left, time_left
from lawful.pruning.job.tuning import Tune, tune_small
from lawful.pruning.job.units import count_macs
from lawful.result import Shown

MARGIN = 0.9  # the order goes on to this share of the target: costs are counted again when it is cut


@dataclass(frozen=True, eq=False)
class PruningJob(Shown):
    """The smaller network, and what is known of it.

    `pruned` is the lossless pruning of the silenced and repaired network: that nothing more changed than the
    least-squares repair is algebra, and can be certified. What the repair changed is measured: `held_out` are samples
    that chose nothing, `calibration` those that did. `module` is the smaller module; `network` the same as a network of
    layers, where that is what was opened. `blocks` left whole, before any unit.
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
    blocks: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class _Cut:
    """A network that meets the target, and how far its outputs are from the original's on the choosing samples."""

    pruned: ChannelPruning | OnnxPruning
    small: Subject
    network: RunnableProgram
    sizes: tuple[SiteSize, ...]
    blocks: tuple[str, ...]
    notes: tuple[str, ...]
    change: float

    @property
    def macs(self) -> int:
        """Multiplications a sample."""
        return count_macs(self.network.program) // self.network.batch


def prune_to_target(
    subject: Subject,
    samples: JobSamples,
    target: Target,
    *,
    held_out: JobSamples | None = None,
    criterion: Criterion = "replaced",
    blocks: bool = True,
    mend: bool = True,
    timed: bool = True,
    tune: Tune | None = None,
    plan: Path | None = None,
    seed: int = 0,
    tick: Tick = lambda said: None,
) -> PruningJob:
    """Prune a network to a size, or as far as its accuracy allows.

    Units are scored on calibration samples; sizes that must be found (accuracy), whole blocks and what tuning made are
    chosen on a second part; the report is on `held_out`, or on a fifth of the samples that is put aside first.
    `blocks=False` keeps all blocks, `mend=False` leaves the repair out, for comparison; `timed=False` measures no
    latency. `plan` keeps the order of removal in a file, and what tuning ended with beside it: a job that finds them
    there does neither again.
    """
    everything = samples
    samples, choosing, outside = split_samples(
        everything, held_out, seed, chooses=target.kind == "accuracy" or tune is not None
    )
    case = read_case(subject, samples, mend=mend, even=target.even, tick=tick)
    candidates = find_blocks(case, target.cost) if blocks else []
    if not case.sites.units and not candidates:
        raise Unsupported("no layer of this network has channels or heads that could leave")
    if candidates and not len(choosing):
        samples, choosing, outside = split_samples(everything, held_out, seed, chooses=True)
        case = read_case(subject, samples, mend=mend, even=target.even, tick=tick)
    best = _search(case, target, criterion, choosing, len(candidates), plan, seed)
    small, tuned, notes = best.small, False, list(best.notes)
    if tune is not None:
        if not (isinstance(small, ModuleSubject) and isinstance(subject, ModuleSubject)):
            raise Unsupported("an ONNX file is not trained here: tune the module that it came from")
        tick("tuning")
        trained = tune_small(tune, small, subject, samples, plan, seed)
        scores = [_quality(case, network, choosing) for network in (small, trained)]
        tuned = scores[1] >= scores[0]
        if tuned:
            small = trained
            notes.append(f"tuned: {scores[0]:.4g} before and {scores[1]:.4g} after, on the choosing samples")
        else:
            notes.append(f"tuning made it worse on the choosing samples ({scores[0]:.4g} before): it was not kept")
    notes += case.network.notes
    tick("measuring")
    after = RunnableProgram(small.read(case.size, case.network.batch))
    outputs = case.network.outputs(outside.x), after.outputs(outside.x)
    agreement = agree(*outputs, outside.labels, case.network.classes)
    macs = count_macs(case.network.program) // case.network.batch, count_macs(after.program) // after.batch
    parameters = _parameters(case.network), _parameters(after)
    whole = [SiteSize("whole", "blocks", len(candidates), len(candidates) - len(best.blocks))] if best.blocks else []
    times = _latency(subject, small, outside) if timed else {}
    notes += _note_missed_target(target, len(choosing), agreement, times)
    return PruningJob(
        target, criterion, best.pruned, (*best.sizes, *whole), macs, parameters, len(case.fitting),
        len(choosing), agreement, times, tuned,
        (*notes, *best.pruned.notes), small.module if isinstance(small, ModuleSubject) else None,
        example=small.example(case.size, 2) if isinstance(small, ModuleSubject) else torch.zeros(0),
        blocks=best.blocks,
    )  # fmt: skip


def _search(
    case: PruningCase,
    target: Target,
    criterion: Criterion,
    choosing: JobSamples,
    most: int,
    plan: Path | None,
    seed: int,
) -> _Cut:
    """The best network that meets the target, with up to `most` blocks less."""
    best: _Cut | None = None
    refusal: LawfulError = Unsupported("no block of this network can leave")
    gone: tuple[str, ...] = ()
    # `current` has stand-ins, so that its layers keep their names; `closed` is the same with shorter containers
    current, closed, notes = case, case, list(case.sites.notes)
    while True:
        try:
            order_file = plan if plan is None or not gone else plan.with_name(f"{plan.stem}.{len(gone)}{plan.suffix}")
            attempt = _cut(case, closed, gone, notes, target, criterion, choosing, order_file, seed)
            if best is not None and not _is_better(attempt, best, target):
                return best
            best = attempt
        except OutOfReach as error:  # units alone are not enough: with a block less they may be
            if best is not None:
                return best
            refusal = error
        shorter = without_block(current, target.cost, choosing) if len(gone) < most else None
        if shorter is None:
            if best is None:
                raise refusal
            return best
        gone = (*gone, shorter[0])
        current = read_case(shorter[1], case.fitting, mend=case.mend, even=target.even, tick=case.tick)
        subject, gap_notes = close_gaps(shorter[1], gone, shorter[1].batch(case.fitting.x[:2]))
        closed = read_case(subject, case.fitting, mend=case.mend, even=target.even, tick=case.tick)
        notes = [*gap_notes, *closed.sites.notes]


def _cut(
    case: PruningCase,
    shorter: PruningCase,
    blocks: tuple[str, ...],
    notes: list[str],
    target: Target,
    criterion: Criterion,
    choosing: JobSamples,
    plan: Path | None,
    seed: int,
) -> _Cut:
    """Cut a network, which may have lost blocks, to the target; nothing more where that is met."""
    share = share_left(target, case, shorter)
    by_cost = (
        target.kind in ("params", "flops") and target.multiple == 1 and not target.even
    )  # blocks of units may lie anywhere in the order
    order = []
    if shorter.sites.units:
        until = MARGIN * share if by_cost else 0.0
        order = shorter.order_units(target.cost, criterion, until, plan=plan, seed=seed)
    case.tick("choosing sizes")
    units = choose_units(shorter, order, target, share, choosing, case)
    pruned, small = shorter.cut(units)
    network = RunnableProgram(small.read(case.size, case.network.batch))
    change = output_change(case.network, network, choosing) if len(choosing) else 0.0
    return _Cut(pruned, small, network, shorter.count_sizes(units), blocks, tuple(notes), change)


def _is_better(made: _Cut, best: _Cut, target: Target) -> bool:
    return made.macs < best.macs if target.kind == "accuracy" else made.change < best.change


def _quality(case: PruningCase, subject: Subject, samples: JobSamples) -> float:
    """Accuracy, or without labels how near outputs are to the original's: larger is better."""
    network = RunnableProgram(subject.read(case.size, case.network.batch))
    if samples.labels is not None and case.network.classes:
        return accuracy(network, samples)
    return -output_change(case.network, network, samples)


def _parameters(network: RunnableProgram) -> int:
    return sum(node.size for node in network.program.parameters.values())


def _latency(before: Subject, after: Subject, samples: JobSamples) -> dict[str, tuple[float | None, float | None]]:
    """Milliseconds of one sample and of a batch."""
    times: dict[str, tuple[float | None, float | None]] = {}
    for count in (1, BATCH):
        rows = np.resize(samples.x, (count, *samples.x.shape[1:]))
        kind = torch.int64 if getattr(before, "whole", False) else torch.float32
        batch = torch.as_tensor(rows).to(kind)
        pairs = time_together(before.runs(batch), after.runs(batch))
        times |= {f"{name}, batch {count}": pair for name, pair in pairs.items()}
    return times


def _note_missed_target(
    target: Target, chosen_on: int, seen: HeldOutAgreement, times: Mapping[str, tuple[float | None, float | None]]
) -> list[str]:
    """Where the network was chosen for less than what is measured at the end: that is no promise, and is said."""
    if target.kind == "accuracy" and seen.accuracy is not None and seen.accuracy[1] < target.share * seen.accuracy[0]:
        reached = 100 * seen.accuracy[1] / seen.accuracy[0]
        return [f"accuracy is {reached:.2f}% of the original's on the held-out samples, "
                f"and {target.share:.2%} was the target: the size was chosen on {chosen_on} others"]  # fmt: skip
    if target.kind == "latency" and times:
        last = {name.partition(",")[0]: pair for name, pair in times.items()}  # of the larger batch, as it was chosen
        if (share := time_left(last)) > target.share:
            return [f"timed again at the end, {share:.0%} of the time is left, and {target.share:.0%} was the target"]
    return []
