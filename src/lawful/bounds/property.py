"""Does a network satisfy a specification: no input of some boxes leads to outputs that are forbidden there."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import numpy as np

from lawful.bounds.decide import decide
from lawful.bounds.exact import exact_outputs
from lawful.bounds.layers import layers_of
from lawful.bounds.split.question import ForbiddenRegion
from lawful.bounds.split.tree import SplitTree
from lawful.errors import LawfulError
from lawful.network import Dag, Mlp
from lawful.result import Shown
from lawful.types import Floats

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

    >>> from lawful.bounds.split.question import ForbiddenHalfSpace
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
