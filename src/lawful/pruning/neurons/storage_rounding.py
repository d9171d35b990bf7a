"""A pruning whose result is stored in fewer bits: one more stage, which removes nothing and rounds."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np

from lawful.network.reading import carrying
from lawful.pruning.neurons.bounds import defect_bound, make_box
from lawful.pruning.neurons.prune import UNIT_BOX, Pruning, Stage
from lawful.pruning.neurons.rebuild import rounding_defects
from lawful.sources.files import stored_as


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
