"""One box of a specification, decided: attacks and the whole box, halves of inputs for a moment, phases and halves."""

from __future__ import annotations

import time
from typing import NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from lawful.bounds.layers import Layer
from lawful.bounds.property import Forbidden, check_property
from lawful.bounds.split.certificate import ForbiddenRegion, Proof
from lawful.bounds.split.question import BoxQuestion, Replay, cases_of
from lawful.bounds.split.search import search
from lawful.network import Dag, Mlp
from lawful.types import Floats

# Halving alone is the quicker way where trees are small: most instances of ACAS Xu and tllverifybench close within a
# second. On sat_relu (30 inputs and more) it never closes anything. Counted in boxes, so that a busy machine finds the
# same answer; some 2 s of the processor for ACAS Xu.
HALVING_BOXES = 2_000
HALVING_SHARE = 0.25  # of the time, if there is little
MOST_HALVED = 12  # inputs


class RegionAnswer(NamedTuple):
    """An input that shows that something forbidden occurs, or a proof that it does not, or neither."""

    input: Floats | None
    proof: Proof | None
    boxes: int
    interrupted: bool
    why: str


def decide(
    network: Mlp | Dag,
    layers: tuple[Layer, ...],
    region: ForbiddenRegion,
    box: tuple[Floats, Floats],
    replay: Replay,
    *,
    seconds: float,
    scheduler: str | None = None,
    threads: int | None = None,
    seed: int = 0,
) -> RegionAnswer:
    """Search a box (of doubles, which contains the region's) until it is decided or time is up."""
    started = time.monotonic()
    deadline = started + seconds
    if not all(region.forbidden):  # a case without conditions: every input of the box is in it
        point = replay(box[0] / 2 + box[1] / 2)
        return RegionAnswer(point, None, 0, False, "the exact box contains no double")
    question = BoxQuestion(layers, *box, cases_of(region.forbidden, len(box[0]), len(layers[-1].weight)))
    with threadpool_limits(limits=1, user_api="blas"):
        # Attacks and the whole box first: many questions need no more, and this certificate is the quickest to check.
        root = search(question, replay, seconds=seconds, seed=seed, most_nodes=len(region.forbidden))
        boxes = root.nodes
        if root.status != "undecided" or root.why == "interrupted":
            return RegionAnswer(root.input, root.tree, boxes, root.why == "interrupted", "")
        mixed = any(any(space.inputs) for case in region.forbidden for space in case)
        if len(box[0]) <= MOST_HALVED and not mixed:
            forbidden = [
                [Forbidden(each.outputs, each.bound, each.strict) for each in case] for case in region.forbidden
            ]
            cluster = scheduler is not None
            share, most = (seconds, np.inf) if cluster else (HALVING_SHARE * seconds, HALVING_BOXES)
            found = check_property(
                network,
                box,
                forbidden,
                seconds=share,
                scheduler=scheduler,
                threads=threads,
                seed=seed,
                most_boxes=most,
            )
            boxes += found.boxes
            point = None if found.input is None else replay(found.input)
            if point is not None or found.status == "holds" or found.interrupted:
                proof = found.tree if found.status == "holds" else None
                return RegionAnswer(point, proof, boxes, found.interrupted, "interrupted" if found.interrupted else "")
        left = max(0.0, deadline - time.monotonic())
        outcome = search(question, replay, seconds=left, seed=seed)
    return RegionAnswer(outcome.input, outcome.tree, boxes + outcome.nodes, outcome.why == "interrupted", outcome.why)
