"""Embeddings: rows of a table, picked by ids."""

from __future__ import annotations

from dataclasses import replace

import torch

from lawful.symmetry.graphs.motion import GraphMotion, Step
from lawful.symmetry.labels import flat, varying
from lawful.symmetry.shifts import LARGEST, Shift


def embedding(
    step: Step,
    weight: GraphMotion,
    indices: GraphMotion,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> GraphMotion:
    """`z[s] = W[ids[s]]`: anything acts on the width, the vocabulary is pinned.

    If every row of W moves by one vector, so does z, for all data; other shifts of W depend on the ids.
    """
    width = weight.shape[-1]
    gauges = []
    for field in weight.gauges:
        if 0 in varying(field):
            step.gauges.pin(field, step.name)
        else:
            gauges.append(field[0].expand(*indices.shape, width))
    shifts: tuple[Shift, ...] = ()
    if weight.raw is not None and padding_idx < 0:
        shifts = _embedding_shifts(step, weight, indices)
    else:
        step.pin(replace(weight, gauges=()))
    return GraphMotion(step.shape, tuple(gauges), shifts)


def _embedding_shifts(step: Step, weight: GraphMotion, indices: GraphMotion) -> tuple[Shift, ...]:
    shape, name = step.shape, str(weight.raw)
    last = len(shape) - 1
    fixed = indices.known
    if fixed is not None and weight.shape[0] * weight.shape[1] <= LARGEST:
        found = step.shifts.parameter(name, weight.shape, (False, 0, 1), [0, 1])
        if found is None:
            return ()
        rows = found[0].labels.reshape(weight.shape)[fixed]
        step.shifts.read.append(flat(rows))
        return (Shift(rows.expand(shape), torch.zeros((), dtype=torch.int64).expand(shape)),)
    found = step.shifts.parameter(name, weight.shape, "rows", [1])
    if found is None:
        return ()
    if len(found) == 1:
        rest = found[0]  # (a vector over the ids that are not known, so that two tables read by one of them can part)
        step.shifts.directions[name] = [rest, step.shifts.common(rest, [1], weight.shape)]
    rest, mean = step.shifts.directions[name]
    still = torch.zeros((), dtype=torch.int64).expand(shape)
    return (
        Shift(mean.labels[0].expand(shape), still),
        Shift(rest.labels[0].expand(shape), step.shifts.phase_of((indices, "ids"), shape, range(last))),
    )
