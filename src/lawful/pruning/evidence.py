"""A pruning together with a certificate of all that is claimed of it.

Steps that are exact, or bounded by intervals, are replayed (`certificate`). What goes further rests on linear
relaxations of both networks together: its certificate is that of their distance on the box, which the verifier bounds
anew with lines of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from lawful.errors import LawfulError
from lawful.fibers.distance import distance
from lawful.fibers.distance.certificate import certificate as distance_certificate
from lawful.network.opening import Source, open_graph
from lawful.pruning.certificate import certificate
from lawful.pruning.prune import Pruning, prune

ROOM = 2.0**-16  # relative: the two networks are bounded as a whole, not step by step


def prune_with_certificate(
    network: Source,
    *,
    tolerance: Any = 0.0,
    keep: int | None = None,
    around: float | None = None,
    seconds: float = 60.0,
    tick: Callable[[str], None] = lambda words: None,
    **options: Any,
) -> tuple[Pruning, dict[str, Any]]:
    """The smaller network, and what `lawful verify` needs to re-check its bound.

    Where stand-ins and linear relaxations remove more than a replay can follow, the bound is that of the two networks'
    distance, found within `seconds`; if it is not, what a replay follows is the answer.

    >>> from lawful.network import Architecture
    >>> found, proof = prune_with_certificate(Architecture.parse("2-6-1 relu bias").initialise(seed=0), tolerance=0.2)
    >>> proof["kind"], found.bound <= 0.2
    ('distance', True)
    """
    if around is not None:
        raise LawfulError("a certificate is about one box, not about many around samples: leave --around out")
    opened = open_graph(network)
    exact = None if keep is not None else prune(opened, tolerance=tolerance, **options, replayable=True)
    if exact is not None and exact.box is None:
        return exact, certificate(exact)
    allowed = np.asarray(tolerance) / (1 + 2 * ROOM)
    found = prune(opened, tolerance=allowed, keep=keep, seconds=seconds, tick=tick, **options)
    if exact is not None and found.neurons_after >= exact.neurons_after:
        return exact, certificate(exact)
    if found.box is None:
        raise AssertionError("what is approximate has a box")
    tick("bounding both networks together")
    asked = Fraction(found.bound + found.rounding) * Fraction(1 + ROOM)
    measured = distance(found.original, found.network, found.box, within=asked, seconds=seconds)
    if measured.status == "proved":
        stated = np.minimum(np.asarray(found.bounds) * (1 + ROOM), float(np.nextafter(float(asked), np.inf)))
    elif exact is None and np.isfinite(measured.upper):
        stated = np.full(len(found.bounds), measured.upper)
    elif exact is not None:
        return exact, certificate(exact)
    else:
        raise LawfulError("the two networks could not be bounded as a whole: give more time, or keep more neurons")
    proof = distance_certificate(measured, found.original, found.network)
    return replace(found, compared=tuple(stated.tolist())), proof
