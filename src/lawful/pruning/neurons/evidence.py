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

from lawful.bounds.certificate import certificate as distance_certificate
from lawful.bounds.distance import distance
from lawful.bounds.layers import layers_of
from lawful.bounds.pair import align
from lawful.errors import LawfulError
from lawful.network.digest import digest, with_layers
from lawful.pruning.neurons.certificate import certificate
from lawful.pruning.neurons.prune import Pruning, prune
from lawful.pruning.neurons.storage_rounding import stored
from lawful.sources.opening import Source, open_graph

ROOM = 2.0**-16  # relative: the two networks are bounded as a whole, not step by step


def prune_with_certificate(
    network: Source,
    *,
    tolerance: Any = 0.0,
    keep: int | None = None,
    around: float | None = None,
    seconds: float = 60.0,
    tick: Callable[[str], None] = lambda words: None,
    dtype: str | None = None,
    **options: Any,
) -> tuple[Pruning, dict[str, Any]]:
    """The smaller network, and what `lawful verify` needs to re-check its bound.

    Where stand-ins and linear relaxations remove more than a replay can follow, the bound is that of the two networks'
    distance, found within `seconds`; if it is not, what a replay follows is the answer. A bound `around` samples is
    re-checked on the box around each of them. With a `dtype` all of this is about the network as it is stored then.

    >>> from lawful.network import Architecture
    >>> found, proof = prune_with_certificate(Architecture.parse("2-6-1 relu bias").initialise(seed=0), tolerance=0.2)
    >>> proof["kind"], found.bound <= 0.2
    ('distance', True)
    """
    opened = open_graph(network)
    if around is not None:
        found = prune(opened, tolerance=np.asarray(tolerance) / (1 + 2 * ROOM), keep=keep, around=around,
                      seconds=seconds, tick=tick, **options)  # fmt: skip
        if found.around is not None:
            return _near_samples(stored(found, dtype))
    exact = None
    if keep is None:
        exact = stored(prune(opened, tolerance=tolerance, **options, replayable=True), dtype)
    if exact is not None and exact.box is None:
        return exact, certificate(exact)
    allowed = np.asarray(tolerance) / (1 + 2 * ROOM)
    found = stored(prune(opened, tolerance=allowed, keep=keep, seconds=seconds, tick=tick, **options), dtype)
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


def _near_samples(found: Pruning) -> tuple[Pruning, dict[str, Any]]:
    """The certificate of a bound around samples: both networks, and every sample with how far from it."""
    if found.box is None or found.near is None or found.around is None:
        raise AssertionError("a bound around samples has samples")
    stated = tuple(float(np.nextafter(each * (1 + ROOM), np.inf)) for each in found.bounds)
    low, high = found.box
    shape = [layers_of(each) for each in (found.original, found.network)]
    proof = {
        "kind": "distance",
        "version": 1,
        "about": [digest(each) for each in (found.original, found.network)],
        "networks": [with_layers(each) for each in (found.original, found.network)],
        "box": [[str(Fraction(float(end))) for end in side] for side in zip(low, high, strict=True)],
        "outputs": list(range(len(stated))),
        "norm": "inf",
        "upper": str(Fraction(max(stated))),
        "lower": None,
        "matching": [
            {"first": each.first.tolist(), "second": each.second.tolist(), "scale": each.scale.tolist()}
            for each in align(*shape).matches
        ],
        "tree": [],
        "spectral": None,
        "near": {"samples": found.near.tolist(), "radius": str(Fraction(found.around))},
    }
    return replace(found, compared=stated), proof
