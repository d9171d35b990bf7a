"""A network as a pruning job sees it: its samples, its program, its units, and the order in which these leave."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lawful.errors import LawfulError
from lawful.program.backends.torch_calls import ProgramModule
from lawful.pruning.channels.model_files import config_fits
from lawful.pruning.channels.onnx_file import OnnxPruning
from lawful.pruning.channels.prune import ChannelPruning
from lawful.pruning.channels.reading.domain import ChannelReading, read_channels
from lawful.pruning.channels.state import read_arrays
from lawful.pruning.channels.weights import ChannelWeights
from lawful.pruning.job.least_squares import Labels, gather, repair, silence, taylor_scores, to_stored
from lawful.pruning.job.network import ModuleSubject, RunnableProgram, Subject
from lawful.pruning.job.score import Criterion, Removal, RemovalPlan, order_removals, read_plan, write_plan
from lawful.pruning.job.units import Costs, Sites, find_sites
from lawful.types import Floats

BATCH = 64  # samples that a program is read for and run with
CALIBRATION = 2048  # samples that statistics and repair use at most: 512 lose 0.2 point on a CNN, 128 lose 0.6
HELD_OUT = 0.2  # the share of samples that choose nothing, unless they are given
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


def split_samples(
    samples: JobSamples, held_out: JobSamples | None, seed: int, *, chooses: bool
) -> tuple[JobSamples, JobSamples, JobSamples]:
    """Samples that fit, that choose sizes, and that do neither; drawn at random, as files are often sorted by label."""
    order = np.random.default_rng(seed).permutation(len(samples))
    aside = 0 if held_out is not None else max(1, int(HELD_OUT * len(samples)))
    second = max(1, int(HELD_OUT * len(samples))) if chooses else 0
    if len(samples) - aside - second < 2:
        raise LawfulError(f"{len(samples)} samples are too few to calibrate on some and to measure on others")
    rest = samples.take(order[aside + second :])
    outside = held_out if held_out is not None else samples.take(order[:aside])
    if not len(outside):
        raise LawfulError("there are no held-out samples to measure on")
    return rest, samples.take(order[aside : aside + second]) if chooses else rest.take(slice(0, 0)), outside


@dataclass(frozen=True)
class SiteSize:
    """How many units of a site there were and are left; `kind` is channels, heads or blocks."""

    name: str
    kind: str
    before: int
    after: int


@dataclass(frozen=True, eq=False)
class PruningCase:
    """A network as a job sees it: its program, its channels, its units, the size of a sample.

    `fitting` are the samples that score and repair; without `mend`, what left is silenced and nothing takes it over.
    """

    subject: Subject
    network: RunnableProgram
    reading: ChannelReading
    state: ChannelWeights
    sites: Sites
    size: tuple[int, ...]
    fitting: JobSamples
    mend: bool = True
    tick: Tick = lambda said: None

    def costs(self, kind: str) -> Costs:
        """What all units cost, before any has left."""
        return Costs(self.reading, self.state, self.sites, kind)

    def new_weights(self, gone: Collection[int], emphasis: Floats | None = None) -> dict[str, torch.Tensor]:
        """The numbers that change when units leave: those of their readers, with or without repair."""
        if self.mend:
            x = self.fitting.x
            return repair(self.network, self.state, self.sites, gone, x, emphasis=emphasis, tick=self.tick)
        silent = silence(self.state, self.sites, gone)
        return {weight: to_stored(self.state, weight, array) for weight, array in silent.items()}

    def cut(self, gone: Collection[int]) -> tuple[ChannelPruning | OnnxPruning, Subject]:
        """The network without some units: what exact pruning did, and the smaller one."""
        tensors = self.new_weights(gone)
        self.tick("cutting")
        return self.subject.cut(tensors, self.size)

    def count_sizes(self, gone: Collection[int]) -> tuple[SiteSize, ...]:
        """How many units of each site are left."""
        left = [len(site.units) for site in self.sites.sites]
        for unit in gone:
            left[self.sites.units[unit].site] -= 1
        return tuple(
            SiteSize(site.name, "heads" if site.heads else "channels", len(site.units), count)
            for site, count in zip(self.sites.sites, left, strict=True)
        )

    def order_units(
        self,
        cost: str,
        criterion: Criterion = "replaced",
        until: float = 0.0,
        *,
        plan: Path | None = None,
        seed: int = 0,
    ) -> list[Removal]:
        """Units from the least needed on, until a share of the cost is left; as a plan has them, if there is one."""
        samples = self.fitting
        question = RemovalPlan.of(self.network, self.sites, samples.x, cost, criterion, seed)
        if plan is not None and (known := read_plan(plan, question, until)) is not None:
            return known
        self.tick("scoring")
        statistics = gather(self.network, self.sites, samples.x, seed)
        taylor = None
        if criterion == "taylor":
            if samples.labels is None:
                raise LawfulError("the Taylor score needs labels: `y` in the data, one whole number for each sample")
            taylor = taylor_scores(self.network, self.sites, samples.x, samples.labels)
        order = order_removals(
            self.sites, self.costs(cost), self.state, statistics, criterion, until, taylor, self.tick
        )  # fmt: skip
        if plan is not None:
            write_plan(plan, question, order)
        return order


def read_case(
    subject: Subject, samples: JobSamples, *, mend: bool = True, even: bool = False, tick: Tick = lambda said: None
) -> PruningCase:
    """Read a network, and find what can leave it: heads only if its class (if `even`, its config) can be without."""
    size = tuple(samples.x.shape[1:])
    program = subject.read(size, min(BATCH, len(samples)))
    reading = read_channels(program)
    state = ChannelWeights(reading.program, read_arrays(program, reading.program))
    sites = find_sites(reading, state)
    fitting = samples.take(slice(0, CALIBRATION))
    case = PruningCase(subject, RunnableProgram(program), reading, state, sites, size, fitting, mend, tick)
    heads = [site for site in sites.sites if site.heads]
    if not heads or not isinstance(subject, ModuleSubject):
        return case
    # A class that has one size for all its heads could only be written as a traced graph, for one batch: better to
    # keep the class, and its heads. Whether it is one shows when a head leaves.
    tried = replace(case, mend=False).cut([site.units[0] for site in (heads if even else heads[:1])])[0]
    if not isinstance(tried, ChannelPruning):
        return case
    loads = not even or not hasattr(subject.module, "config") or config_fits(tried.original, tried.module)
    if loads and not isinstance(tried.module, ProgramModule):
        return case
    sites = find_sites(reading, state, heads_stay=True)
    note = f"heads stay: {type(subject.module).__name__} has one size for all of them in its own code"
    return replace(case, sites=replace(sites, notes=(*sites.notes, note)))
