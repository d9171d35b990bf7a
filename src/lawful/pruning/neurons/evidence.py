"""A pruning together with a certificate of all that is claimed of it.

Steps that are exact, or bounded by intervals, are replayed (`certificate`). What goes further rests on linear
relaxations of both networks together: its certificate is that of their distance on the box, which the verifier bounds
anew with lines of its own. A result that is stored in fewer bits is one more stage, which removes nothing and rounds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from lawful.bounds.certificate import certificate as distance_certificate
from lawful.bounds.distance import distance
from lawful.bounds.layers import layers_of
from lawful.bounds.pair import NetworkPair, align
from lawful.errors import LawfulError
from lawful.network import Dag, Mlp
from lawful.network.digest import digest, with_layers
from lawful.network.reading import carrying
from lawful.pruning.neurons.bounds import defect_bound, make_box
from lawful.pruning.neurons.certificate import certificate
from lawful.pruning.neurons.prune import UNIT_BOX, Pruning, Stage, prune
from lawful.pruning.neurons.rules import rounding_defects
from lawful.sources.files import stored_as
from lawful.sources.opening import Source, open_graph
from lawful.types import Floats

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
    if found.box is None or found.near is None or found.around is None:
        raise AssertionError("a bound around samples has samples")
    stated = tuple(float(np.nextafter(each * (1 + ROOM), np.inf)) for each in found.bounds)
    networks = found.original, found.network
    pair = align(*(layers_of(each) for each in networks))
    return replace(found, compared=stated), near_certificate(
        networks, pair, stated, found.box, found.near, found.around
    )


def near_certificate(
    networks: tuple[Mlp | Dag, Mlp | Dag],
    pair: NetworkPair,
    bounds: Sequence[float],
    box: tuple[Floats, Floats],
    samples: Floats,
    radius: float,
) -> dict[str, Any]:
    """Evidence of bounds around samples, of the kind `distance`: both networks, every sample, how far from it."""
    return {
        "kind": "distance",
        "version": 1,
        "about": [digest(each) for each in networks],
        "networks": [with_layers(each) for each in networks],
        "box": [[str(Fraction(float(end))) for end in side] for side in zip(*box, strict=True)],
        "outputs": list(range(len(bounds))),
        "norm": "inf",
        "upper": str(Fraction(max(bounds))),
        "lower": None,
        "matching": [
            {"first": each.first.tolist(), "second": each.second.tolist(), "scale": each.scale.tolist()}
            for each in pair.matches
        ],
        "tree": [],
        "spectral": None,
        "near": {"samples": samples.tolist(), "radius": str(Fraction(radius))},
    }


def stored(pruning: Pruning, dtype: str | None) -> Pruning:
    """The same with the numbers that a file of this type gives back, so that its certificate is about that file.

    >>> from lawful.network import Mlp
    >>> from lawful.pruning.neurons.prune import prune
    >>> found = prune(Mlp([[[1.0], [3.0]], [[0.1, 0.2]]], [[0.0, 0.0], [0.0]]))
    >>> half = stored(found, "float16")
    >>> half.network.weights[1], 0 < half.rounding < 1e-3
    (array([[0.70019531]]), True)
    """
    if dtype is None:
        return pruning
    before = pruning.stages[-1].after if pruning.stages else pruning.original.to_dag()
    after = before.with_theta(stored_as(before.theta, dtype))
    changed = np.flatnonzero(after.theta != before.theta)
    if not len(changed):
        return pruning
    errors = {
        before.edge_name(int(edge)): Fraction(after.theta[edge]) - Fraction(before.theta[edge]) for edge in changed
    }
    box = make_box(before, UNIT_BOX) if pruning.box is None else pruning.box
    rounding = defect_bound(after, rounding_defects(before, after, errors, box))
    small = pruning.network.with_theta(stored_as(pruning.network.theta, dtype))
    compared = pruning.compared
    if compared is not None:
        compared = tuple(float(np.nextafter(each + rounding, np.inf)) for each in compared)
    stage = Stage("stored", before, after, {}, 0.0, rounding)
    network = carrying(small, pruning.network.reading)
    return replace(pruning, network=network, stages=(*pruning.stages, stage), compared=compared)
