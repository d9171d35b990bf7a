"""How much is to be left, and which units leave for that: a share of a cost, of the time, or an accuracy."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch

from lawful.errors import LawfulError, Unsupported
from lawful.pruning.channels.program import notes_of
from lawful.pruning.job.case import JobSamples, PruningCase
from lawful.pruning.job.network import RunnableProgram, time_together
from lawful.pruning.job.score import Removal
from lawful.pruning.job.units import Site

STEPS = 7  # of a bisection: sizes within 1% of the order
TIMED = 64  # samples that repair sizes whose time is tried: the time does not depend on the numbers
Kind = Literal["params", "flops", "latency", "accuracy"]
NAMES: dict[str, Kind] = {
    "params": "params", "parameters": "params", "flops": "flops", "macs": "flops", "latency": "latency",
    "accuracy": "accuracy",
}  # fmt: skip


@dataclass(frozen=True)
class Target:
    """How much is to be left: at most a share of the cost, or at least a share of the original's accuracy.

    Sizes are in multiples of a number; if `even`, layers that are alike (`layers.0.up`, `layers.1.up`) have one size.
    """

    kind: Kind
    share: float
    multiple: int = 1
    even: bool = False

    def __post_init__(self) -> None:
        if self.multiple < 1:
            raise LawfulError(f"sizes are multiples of a number from 1 on, not of {self.multiple}")

    def __str__(self) -> str:
        return f"{self.kind}:{self.share:g}"

    @property
    def cost(self) -> Literal["params", "flops"]:
        """The cost by which units are compared."""
        return "params" if self.kind == "params" else "flops"


def read_target(text: str) -> Target:
    """Read `params:0.5`, `flops:40%` or `accuracy:99%`.

    >>> str(read_target("params:50%")), str(read_target("macs:0.4"))
    ('params:0.5', 'flops:0.4')
    """
    name, _, number = text.partition(":")
    kind = NAMES.get(name.strip().lower())
    try:
        share = float(number.strip().removesuffix("%")) / (100 if number.strip().endswith("%") else 1)
    except ValueError:
        share = -1.0
    if kind is None or not 0 < share <= 1:
        raise LawfulError(
            f"a target is params:0.5, flops:40%, latency:0.7 or accuracy:99%, not {text[:40]!r}: "
            "a share above 0, at most 1"
        )
    return Target(kind, share)


class OutOfReach(LawfulError):
    """Even the smallest network that units leave is larger or slower than the target."""


def share_left(target: Target, whole: PruningCase, shorter: PruningCase) -> float:
    """What share of a network that lost blocks is the target's share of the whole one; 1 where it is small enough."""
    totals = [case.costs(target.cost).total for case in (whole, shorter)]
    return min(1.0, target.share * totals[0] / max(totals[1], 1.0))


def choose_units(
    case: PruningCase,
    order: list[Removal],
    target: Target,
    share: float,
    choosing: JobSamples,
    whole: PruningCase,
) -> list[int]:
    """The units that leave, where `share` of the cost may stay; accuracy and time are those of the whole network."""
    if target.kind in ("params", "flops"):
        return _to_share(case, order, target, share)
    if target.kind == "accuracy":
        if choosing.labels is None:
            raise LawfulError("a target of accuracy needs labels: `y` in the data, one whole number for each sample")
        goal = target.share * accuracy(whole.network, choosing)
        return _bisect(
            case, order, target,
            lambda gone: accuracy(case.network.with_tensors(case.new_weights(gone)), choosing) >= goal,
        )  # fmt: skip
    batch = torch.as_tensor(case.fitting.x[: case.network.batch]).to(torch.float32)
    first, quick = whole.subject.runs(batch), replace(case, fitting=case.fitting.take(slice(0, TIMED)))
    # a smaller network is quicker: the bisection looks for the first share that fits
    return _bisect(
        case, order, target,
        lambda gone: time_left(time_together(first, quick.cut(gone)[1].runs(batch))) <= target.share, falling=True,
    )  # fmt: skip


def _bisect(
    case: PruningCase, order: list[Removal], target: Target, fits: Callable[[list[int]], bool], *, falling: bool = False
) -> list[int]:
    """The smallest network that `fits`, or (`falling`) the largest one, if fitting were monotone in the share left."""
    low, high = order[-1].left if order else 1.0, 1.0
    best: list[int] | None = None
    for _ in range(STEPS):
        middle = (low + high) / 2
        gone = _to_share(case, order, target, middle)
        good = fits(gone)
        if good:
            best = gone
        if good is falling:
            low = middle
        else:
            high = middle
    if best is None:
        if falling:
            raise OutOfReach("no size that was tried is as quick as that")
        return []
    return best


def _to_share(case: PruningCase, order: list[Removal], target: Target, share: float) -> list[int]:
    """Leave by the order until a share of the cost is left, or less; in blocks where sizes are not free."""
    costs = case.costs(target.cost)
    gone: list[int] = []
    for removal in order:
        if costs.now <= share * costs.total:
            break
        gone.append(removal.unit)
        costs.remove(removal.unit)
    if costs.now > share * costs.total:
        reasons = "".join(f"; {note}" for note in (*case.sites.notes, *notes_of(case.reading.program)))
        share_now = 100 * costs.now / costs.total
        raise OutOfReach(f"{share_now:.0f}% are left when every site has one unit: ask for more{reasons}")
    return gone if target.multiple == 1 and not target.even else _to_share_in_blocks(case, order, target, share)


def _to_share_in_blocks(case: PruningCase, order: list[Removal], target: Target, share: float) -> list[int]:
    """Sites lose blocks until the target is met, those first that the order would have taken first.

    A block is as many units as a multiple has, of one site or of each of those that are alike.
    """
    rank = {removal.unit: place for place, removal in enumerate(order)}
    blocks: list[tuple[int, list[int]]] = []
    for number, sites in enumerate(_alike(case, target.even)):
        step, count = 1 if sites[0].heads else target.multiple, len(sites[0].units)
        leaving = [sorted((unit for unit in site.units if unit in rank), key=lambda unit: rank[unit]) for site in sites]
        # the first block makes a multiple of what there was, and may be smaller
        at, size = 0, count % step or step
        while at + size <= min(map(len, leaving)) and count - at - size >= step:
            blocks.append((number, [unit for units in leaving for unit in units[at : at + size]]))
            at, size = at + size, step
    costs = case.costs(target.cost)
    cut: list[tuple[int, list[int]]] = []
    for block in sorted(blocks, key=lambda block: float(np.mean([rank[unit] for unit in block[1]]))):
        if costs.now <= share * costs.total:
            break
        cut.append(block)
        for unit in block[1]:
            costs.remove(unit)
    # The last block may have saved far more than was missing: sites get blocks back, the most needed first.
    for number, units in reversed(cut[:-1]):
        last = [block for block in cut if block[0] == number][-1]
        if last[1] is units and costs.now + costs.return_cost(units) <= share * costs.total:
            cut.remove(last)
            costs.restore(units)
    if costs.now > share * costs.total:
        sizes = f"multiples of {target.multiple}" + " that are the same in all layers" * target.even
        raise OutOfReach(
            f"sizes in {sizes} leave {100 * costs.now / costs.total:.0f}%: ask for a smaller multiple, or for more"
        )
    return sorted((unit for _, units in cut for unit in units), key=lambda unit: rank[unit])


def _alike(case: PruningCase, even: bool) -> list[list[Site]]:
    """Sites that have one size: those of the same size whose names differ in numbers alone, or each by itself."""
    groups: dict[object, list[Site]] = {}
    for number, site in enumerate(case.sites.sites):
        key = (re.sub(r"\d+", "", site.name), len(site.units), site.heads) if even else number
        groups.setdefault(key, []).append(site)
    return list(groups.values())


def accuracy(network: RunnableProgram, samples: JobSamples) -> float:
    """The share of samples whose largest output is their label."""
    if samples.labels is None or not network.classes:
        raise LawfulError("accuracy is measured on one row of scores and one label for each sample")
    scores = network.outputs(samples.x)[:, : network.classes]
    return float((scores.argmax(1) == torch.as_tensor(samples.labels)).double().mean())


def time_left(times: Mapping[str, tuple[float | None, float | None]]) -> float:
    """The share of the time that is left, in the runtime that is there: ONNX Runtime before PyTorch."""
    for name in ("ONNX Runtime", "PyTorch"):
        before, after = times.get(name, (None, None))
        if before is not None and after is not None:
            return after / before
    raise Unsupported("its time cannot be measured: neither PyTorch nor ONNX Runtime runs it")
