"""Softmax and attention: what is constant along the keys does not show; heads change places as wholes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from lawful.symmetry.gauges import AttentionLabels
from lawful.symmetry.graphs.motion import GraphMotion, Step
from lawful.symmetry.graphs.rules.contract import contract
from lawful.symmetry.labels import varying


def softmax(step: Step, self: GraphMotion, dim: int, *rest: Any, **options: Any) -> GraphMotion:
    """What is constant along its dimension is not seen; gauges are."""
    x = step.settled(self)
    for field in x.gauges:
        step.gauges.pin(field, step.name, permutes=True)
    step.shifts.unseen(x.shifts, [dim % len(x.shape)], softmax=True)
    return GraphMotion(step.shape, x.gauges)  # pinned, but they still permute


def attention(
    step: Step,
    query: GraphMotion,
    key: GraphMotion,
    value: GraphMotion,
    attn_mask: GraphMotion | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> GraphMotion:
    """`softmax(q kᵀ) v` for each head.

    Queries and keys meet in one contraction (GL(d_head) for each head); values pass, head by head; what is constant
    along the keys does not show in the softmax: the key's bias is dead. Grouped heads repeat keys and values.
    """
    query, key, value = (step.settled(each) for each in (query, key, value))
    rank = len(query.shape)
    if rank > 2 and query.shape[-3] != key.shape[-3]:
        key, value = (_repeated(step, each, query.shape[-3] // each.shape[-3]) for each in (key, value))
    note_heads(step, query, key, value)
    step.shifts.drop(query.shifts)
    step.shifts.unseen(key.shifts, [rank - 2])
    step.shifts.drop(value.shifts)
    scores = contract(step, replace(query, shifts=()), replace(key, shifts=()).turned(), rank - 2)
    for field in scores.gauges:
        step.gauges.pin(field, step.name)
    if attn_mask is not None:
        mask = step.settled(attn_mask)
        for field in mask.gauges:
            step.gauges.pin(field, step.name)
        step.shifts.unseen(mask.shifts, [len(mask.shape) - 1])
    if rank > 2:
        _tie_heads(step, (query, key, value), attn_mask, rank - 3)
    gauges = []
    for field in value.gauges:
        if rank - 2 in varying(field):
            step.gauges.pin(field, step.name)
        else:
            step.gauges.blocks(field, [rank - 1])
            gauges.append(field.narrow(rank - 2, 0, 1).expand(step.shape))
    return GraphMotion(step.shape, tuple(gauges))


def note_heads(step: Step, *values: GraphMotion) -> None:
    """Remember which coordinates of queries, keys and values belong to which head."""
    tables = []
    for value in values:
        rank = len(value.shape)
        if rank < 3 or len(value.gauges) != 1 or not set(varying(value.gauges[0])) <= {rank - 3, rank - 1}:
            return
        lead = (0,) * (rank - 3)
        tables.append(value.gauges[0][lead][:, 0].numpy().copy())
    if len({len(table) for table in tables}) != 1:
        return
    heads = np.unique(np.concatenate(tables, 1), axis=0, return_index=True)[1]  # once, where batches are beside heads
    found = [table[np.sort(heads)] for table in tables]
    step.gauges.attentions.append(AttentionLabels(found[0], found[1], found[2]))


def _tie_heads(step: Step, values: Sequence[GraphMotion], mask: GraphMotion | None, dim: int) -> None:
    """Heads change places as wholes, if all of them can; a mask of their own tells them apart."""
    fields = [[field for field in value.gauges if dim in varying(field)] for value in values]
    place = dim - len(values[0].shape)
    alike = mask is None or len(mask.shape) < -place or mask.shape[place] == 1
    if alike and all(len(each) == 1 for each in fields):
        step.gauges.tie_heads(values[0].shape[dim], [each[0] for each in fields], dim)
    else:
        for each in fields:
            for field in each:
                step.gauges.tell_apart(field, [dim])


def _repeated(step: Step, value: GraphMotion, times: int) -> GraphMotion:
    shape = list(value.shape)
    shape[-3] *= times
    return replace(step, shape=tuple(shape)).regrouped(value, lambda labels: labels.repeat_interleave(times, -3))
