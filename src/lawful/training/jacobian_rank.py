"""Rank of `J = 2 B̃ diag θ` from who is connected to whom (P0 Theorem 2), quick when nothing is disconnected."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

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
    rows, columns, start, before = [], [], 1, None  # node 0 is the inputs, outputs and constant, glued together
    for number, (joint, _) in enumerate(joints):
        weight = _array(joint.below.weight).reshape(joint.units, -1) != 0
        here = start + np.arange(joint.units)
        if before is None:
            linked = np.flatnonzero(weight.any(axis=1))
            rows.append(here[linked])
            columns.append(np.zeros(len(linked), dtype=np.intp))
        else:
            unit, other = np.nonzero(weight.reshape(joint.units, len(before), -1).any(axis=2))
            rows.append(here[unit])
            columns.append(before[other])
        if joint.below.bias is not None:
            linked = np.flatnonzero(_array(joint.below.bias))
            rows.append(here[linked])
            columns.append(np.zeros(len(linked), dtype=np.intp))
        if number == len(joints) - 1:
            reads = _array(joint.above.weight).reshape(len(_array(joint.above.weight)), joint.units, -1)
            linked = np.flatnonzero((reads != 0).any(axis=(0, 2)))
            rows.append(here[linked])
            columns.append(np.zeros(len(linked), dtype=np.intp))
        start, before = start + joint.units, here
    left, right = np.concatenate(rows), np.concatenate(columns)
    return units - len(groups_cut_off(units, left, right))


def _array(tensor: Any) -> NDArray[Any]:
    return np.asarray(tensor.detach().cpu())
