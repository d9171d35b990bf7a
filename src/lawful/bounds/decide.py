"""One box of a specification, decided: an attack, then halves of inputs and phases of neurons in turns."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from lawful.bounds.layers import Layer
from lawful.bounds.split.attack import attack
from lawful.bounds.split.halving import halve
from lawful.bounds.split.question import BoxQuestion, ForbiddenRegion, Replay, cases_of
from lawful.bounds.split.search import MORE_NODES, HalvingSearch, PhaseSearch, SearchOutcome, TreeSearch
from lawful.bounds.split.tree import SplitTree
from lawful.bounds.workers import cores, workers
from lawful.types import Floats

# Nobody knows beforehand which search is the quicker: on ACAS Xu and tllverifybench halving is by a factor of ten, on
# half of cersyve it never ends. They take turns, each with twice the nodes of its last turn, so that all of it costs a
# few times the better one; a node of halving costs a tenth to a twentieth of one of phases. Counted in nodes, not in
# seconds, so that a busy machine finds the same answer.
HALVING_NODES, PHASE_NODES, GROWTH = 4_000, 200, 2
MOST_HALVED = 12  # inputs: 30 and more (sat_relu, mnist_fc) are never decided by halves alone


class RegionAnswer(NamedTuple):
    """An input that shows that something forbidden occurs, or a proof that it does not, or neither, and then `why`.

    A single point that is not forbidden has no proof: the checker evaluates it as well."""

    input: Floats | None
    proof: SplitTree | None
    boxes: int
    interrupted: bool
    why: str


def decide(
    layers: tuple[Layer, ...],
    region: ForbiddenRegion,
    replay: Replay,
    *,
    seconds: float,
    scheduler: str | None = None,
    threads: int | None = None,
    seed: int = 0,
) -> RegionAnswer:
    """Search the least box of doubles around a region until it is decided or time is up."""
    started, box = time.monotonic(), region.outward()
    if region.low == region.high:  # its one input decides, in rationals
        point = replay(box[0])
        return RegionAnswer(point, None, 1, False, "")
    if not all(region.forbidden):  # a case without conditions: every input of the box is in it
        point = replay(box[0] / 2 + box[1] / 2)
        return RegionAnswer(point, None, 0, False, "the exact box contains no double")
    cases = cases_of(region.forbidden, len(box[0]), len(layers[-1].bias))
    question = BoxQuestion(layers, *box, cases)
    few = len(box[0]) <= MOST_HALVED
    with threadpool_limits(limits=1, user_api="blas"), np.errstate(all="ignore"):
        try:
            point = attack(
                question, replay, list(range(len(region.forbidden)))[:64],
                starts=16, steps=12, seed=seed, deadline=started + seconds,
            )  # fmt: skip
        except KeyboardInterrupt:
            return RegionAnswer(None, None, 0, True, "interrupted")
        if point is not None:
            return RegionAnswer(point, None, 0, False, "")
        left = max(0.0, seconds - (time.monotonic() - started))
        phases = PhaseSearch(question, replay, left, seed)
        if not few:
            return _answer([phases.run()])
        halving = HalvingSearch(question, replay, left, seed)
        with _threads(halving, scheduler, threads):
            return _take_turns([Turn(halving, HALVING_NODES), Turn(phases, PHASE_NODES)])


@dataclass
class Turn:
    """A search, and how many nodes it may have bounded by the end of its next turn."""

    search: TreeSearch
    nodes: int


def _take_turns(turns: list[Turn]) -> RegionAnswer:
    """Let each search go on for a while until one decides; one that cannot go on leaves the rest to the other.

    A search with fewer open nodes than at the end of its last turn is about to finish, and goes on at once.
    """
    outcomes: dict[int, SearchOutcome] = {}
    while True:
        for number, turn in enumerate(list(turns)):
            shrinking = True
            while shrinking:
                before = turn.search.open
                outcome = outcomes[number] = turn.search.run(turn.nodes if len(turns) > 1 else np.inf)
                ended = outcome.why in ("the time is up", "interrupted")
                if outcome.status != "undecided" or ended or len(turns) == 1:
                    others = [other for key, other in outcomes.items() if key != number]
                    return _answer([*others, outcome])
                shrinking = outcome.why == MORE_NODES and turn.search.open < before
                turn.nodes *= GROWTH
            if outcome.why != MORE_NODES:
                turns.remove(turn)


def _answer(outcomes: list[SearchOutcome]) -> RegionAnswer:
    """The last outcome; nodes are counted over all."""
    last = outcomes[-1]
    why = last.why if last.status == "undecided" else ""
    return RegionAnswer(last.input, last.tree, sum(each.nodes for each in outcomes), last.why == "interrupted", why)


@contextmanager
def _threads(search: HalvingSearch, scheduler: str | None, threads: int | None) -> Iterator[None]:
    """Let chunks of nodes be bounded by threads, or by a cluster."""
    count = threads or cores()
    if not search.begin() or (scheduler is None and count == 1):
        yield
        return
    with workers(search.shared, halve, scheduler, count) as halver:
        search.halver, search.workers = halver, count
        yield
