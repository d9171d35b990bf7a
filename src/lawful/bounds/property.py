"""Does a network satisfy a specification: no input of some boxes leads to outputs that are forbidden there.

Each box is decided by an attack, then by halves of inputs and phases of neurons in turns.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from lawful.bounds.layers import Layer, exact_outputs, layers_of
from lawful.bounds.split.attack import attack
from lawful.bounds.split.certificate import SplitTree
from lawful.bounds.split.halving import halve
from lawful.bounds.split.question import BoxQuestion, Replay, cases_of
from lawful.bounds.split.search import MORE_NODES, HalvingSearch, PhaseSearch, SearchOutcome, TreeSearch
from lawful.bounds.workers import cores, workers
from lawful.errors import LawfulError
from lawful.formats.queries.specification import ForbiddenRegion
from lawful.network import Dag, Mlp
from lawful.result import Shown
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
    return RegionAnswer(
        last.input, last.tree, sum(outcome.nodes for outcome in outcomes), last.why == "interrupted", why
    )


@contextmanager
def _threads(search: HalvingSearch, scheduler: str | None, threads: int | None) -> Iterator[None]:
    """Let chunks of nodes be bounded by threads, or by a cluster."""
    count = threads or cores()
    if not search.begin() or (scheduler is None and count == 1):
        yield
        return
    with workers(search.worker_context, halve, scheduler, count) as halver:
        search.halver, search.workers = halver, count
        yield


Described = Callable[[Sequence[Fraction], Sequence[Fraction]], bool]  # whether an input and its outputs are forbidden


@dataclass(frozen=True, eq=False)
class PropertyCheck(Shown):
    """Whether an input of a region leads into one of the intersections of half-spaces that are forbidden there.

    *holds*: none does (float64, rounded outwards); *violated*: `input` does, replayed in rationals.
    """

    status: Literal["holds", "violated", "undecided"]
    input: Floats | None
    outputs: tuple[Fraction, ...] | None
    boxes: int
    seconds: float
    interrupted: bool
    regions: tuple[ForbiddenRegion, ...]  # all that is forbidden, exactly
    proofs: tuple[SplitTree | None, ...] = ()  # one for each of them, if it holds; a single point needs none
    why: str = ""  # nothing was decided, or nothing had to be
    exact_input: tuple[Fraction, ...] | None = None  # `input` is near it: a side such as [0.1, 0.1] has no double


def check_regions(
    network: Mlp | Dag,
    regions: Sequence[ForbiddenRegion],
    *,
    described: Described | None = None,
    seconds: float = 60.0,
    scheduler: str | None = None,
    threads: int | None = None,
    seed: int = 0,
) -> PropertyCheck:
    """Ask region after region; what is left of the time is shared among those that are left.

    Boxes are searched rounded outward, so that *holds* covers the exact ones; an input that shows the contrary has to
    be in a region in exact rationals, and `described`, where more is known of what is forbidden than regions say.

    >>> from lawful.formats.queries.specification import ForbiddenHalfSpace
    >>> negative = ForbiddenHalfSpace((Fraction(1),), (), Fraction(-1, 10), False)
    >>> region = ForbiddenRegion((Fraction(-1),), (Fraction(1),), ((negative,),))
    >>> check_regions(Mlp([[[1.0]], [[1.0]]]), [region]).status
    'holds'
    """
    started = time.monotonic()
    layers = layers_of(network, sparse=True)
    outputs = len(layers[-1].bias)
    if any(len(space.outputs) != outputs for region in regions for case in region.forbidden for space in case):
        raise LawfulError(f"the specification is not about {outputs} outputs")
    proofs: list[SplitTree | None] = []
    status: Literal["holds", "undecided"] = "holds"
    boxes, interrupted, why = 0, False, ""
    for number, region in enumerate(regions):

        def replay(point: Floats, region: ForbiddenRegion = region) -> Floats | None:
            x = region.move_inside(point)
            y = exact_outputs(layers, x)
            return point if region.holds(x, y) and (described is None or described(x, y)) else None

        left = max(0.0, seconds - (time.monotonic() - started)) / (len(regions) - number)
        answer = decide(layers, region, replay, seconds=left, scheduler=scheduler, threads=threads, seed=seed)
        boxes, interrupted = boxes + answer.boxes, answer.interrupted
        if answer.input is not None:
            x, spent = region.move_inside(answer.input), time.monotonic() - started
            values, near = tuple(exact_outputs(layers, x)), np.array([float(value) for value in x])
            return PropertyCheck("violated", near, values, boxes, spent, interrupted, tuple(regions), exact_input=x)
        if answer.proof is None and answer.why:
            status, why = "undecided", why or answer.why
        else:
            proofs.append(answer.proof)
        if interrupted:
            break
    if not regions:
        why = "vacuous: the conditions of the file contradict each other"
    shown = tuple(proofs) if status == "holds" else ()
    return PropertyCheck(status, None, None, boxes, time.monotonic() - started, interrupted, tuple(regions), shown, why)
