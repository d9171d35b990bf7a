"""Rank of `J = 2 B̃ diag θ` from who is connected to whom (P0 Theorem 2), quick when nothing is disconnected."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from lawful.network.topology import groups_cut_off

if TYPE_CHECKING:
    import torch

    from lawful.training.monitor.parts import Joint


def jacobian_rank(
    sides: Sequence[tuple[Joint, torch.Tensor, torch.Tensor]], chains: Sequence[tuple[str, ...]]
) -> int | None:
    """Sum of the ranks of the chains: hidden units less the groups cut off from inputs and outputs.

    If every unit has a nonzero weight into it, each is joined to the inputs, and the rank is full.
    """
    if not sides:
        return None
    by_name = {joint.name: (joint, into) for joint, into, _ in sides}
    return sum(_chain_rank([by_name[name] for name in chain[:-1]]) for chain in chains)


def _chain_rank(joints: Sequence[tuple[Joint, torch.Tensor]]) -> int:
    units = sum(joint.units for joint, _ in joints)
    if all(bool((into > 0).all()) for _, into in joints):
        return units
    rows, columns, start = [], [], 1  # node 0 is the inputs, outputs and constant, glued together
    for number, (joint, _) in enumerate(joints):
        weight = _nonzero(joint.below.weight).reshape(joint.units, -1)
        here = start + np.arange(joint.units)
        if number == 0:
            linked = np.flatnonzero(weight.any(axis=1))
            rows.append(here[linked])
            columns.append(np.zeros(len(linked), dtype=np.intp))
        else:
            below = joints[number - 1][0]
            entries = weight.reshape(joint.units, len(below.columns), -1)
            unit, column = np.nonzero(entries.any(axis=2))
            rows.append(here[unit])
            columns.append(start - below.units + below.columns[column])
        if joint.below.bias is not None:
            linked = np.flatnonzero(_nonzero(joint.below.bias))
            rows.append(here[linked])
            columns.append(np.zeros(len(linked), dtype=np.intp))
        if number == len(joints) - 1:
            weights = _nonzero(joint.above.weight)
            read = weights.reshape(len(weights), len(joint.columns), -1).any(axis=(0, 2))
            linked = np.unique(joint.columns[read])
            rows.append(here[linked])
            columns.append(np.zeros(len(linked), dtype=np.intp))
        start += joint.units
    left, right = np.concatenate(rows), np.concatenate(columns)
    return units - len(groups_cut_off(units, left, right))


def _nonzero(tensor: torch.Tensor) -> NDArray[np.bool_]:
    return np.asarray((tensor.detach() != 0).cpu())  # NumPy has no bfloat16
