"""A few hundred numbers of a checkpoint that no disguise changes, to find its relatives among many.

Two kinds of blocks. *Function*: outputs at fixed random inputs. *Labelled*: a tensor that joins something with names
(tokens, pixels, classes) to hidden units. Which units these are, their scales, signs and rotations do not matter to

    K = Σ_j m_j m_jᵀ / ‖m_j‖²      (units that may change places, be scaled and turn their sign),
    K = M̂ M̂ᵀ, rows of length 1     (coordinates of a rotated stream),
    K = M (MᵀM)⁻¹ Mᵀ               (any linear change of the hidden space),

of which some entries `uᵀKv` along fixed random directions are kept. Trained strangers share what the task demands, so
sketches are compared after the mean over all checkpoints of the architecture is taken away.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

import numpy as np
import torch

from lawful.checkpoints.align.align import shiftless_alone
from lawful.checkpoints.align.lazy_tensors import folded_rows, folded_tensors
from lawful.checkpoints.architecture import CheckpointArchitecture
from lawful.checkpoints.group.spaces import AxisRows, HeadSpace, MatrixBlock, OrbitGroup, members_of
from lawful.types import Floats, Indices

# Kept of each block. The cosine of two unrelated lines of 64 numbers has a standard deviation of 1/√64 = 1/8, and the
# mean over a dozen blocks one of 0.04: far below the likeness of 1 that a copy has.
NUMBERS = 64
PROBES = 16  # times the batch of an example
ENOUGH = 256  # outputs, after which a large module is not run again
OUTPUTS = 2**14  # of more outputs of all probes together, some
LABELS = 1024  # of an axis with more names, some
SEED = 20_240_917


def sketch(architecture: CheckpointArchitecture, state: Mapping[str, torch.Tensor]) -> Floats:
    """Blocks of 64 numbers, a row each, of length 1 (or 0 where a block says nothing).

    >>> from torch import nn
    >>> from lawful.checkpoints.read_architecture import read_architecture
    >>> net = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 3))
    >>> turned = {"0.weight": 3 * net[0].weight.flip(0), "0.bias": 3 * net[0].bias.flip(0),
    ...           "2.weight": net[2].weight.flip(1) / 3, "2.bias": net[2].bias}
    >>> found = read_architecture(net, (5,))
    >>> one, two = sketch(found, found.state()), sketch(found, found.state(turned))
    >>> one.shape, bool(np.abs(one - two).max() < 1e-5)
    ((3, 64), True)
    """
    blocks = [_function(architecture, state)]
    kinds = dict.fromkeys(state, _kind(architecture))
    group = architecture.group
    folded = folded_tensors(state, architecture.folds, kinds)
    shifted = {name for laws in group.shifts for name in laws.parameters}
    for number, (name, (kind, rows)) in enumerate(sorted(_labels_by_tensor(group).items())):
        some = None
        if len(group.shapes[name]) == 2 and name not in shifted:  # of a large table only the rows that are looked at
            axis = 1 - rows.dims[0]
            some = folded_rows(state, architecture.folds, name, axis, _labels(group.shapes[name][axis], number), kinds)
        if some is None:
            some = shiftless_alone(folded[name], name, group.shifts)
        blocks.append(named_numbers(some, kind, rows, number))
    return np.array([_unit(block) for block in blocks], dtype=np.float32).astype(np.float64)


def _kind(architecture: CheckpointArchitecture) -> torch.dtype:
    """Large modules are sketched in float32: a sketch is rounded to five digits."""
    return torch.float32 if architecture.large else torch.float64


def _function(architecture: CheckpointArchitecture, state: Mapping[str, torch.Tensor]) -> Floats:
    def outputs(first: int, last: int) -> Floats:
        probes = [architecture.draw_inputs(SEED + number) for number in range(first, last)]
        runs = architecture.replays(state, probes, _kind(architecture))
        return np.concatenate(
            [torch.cat([output.reshape(len(output), -1) for output in one], dim=1).numpy() for one in runs]
        )

    table = outputs(0, 1)
    probes = min(PROBES, -(-ENOUGH // table.size)) if architecture.large and table.size else PROBES
    if probes > 1:
        table = np.concatenate([table, outputs(1, probes)])
    line = (table - table.mean(axis=0)).ravel()
    if line.size > OUTPUTS:
        line = line[np.random.default_rng((SEED, line.size)).integers(line.size, size=OUTPUTS)]
    return np.asarray(_directions(line.size, 0) @ line)


def _labels_by_tensor(group: OrbitGroup) -> dict[str, tuple[str, AxisRows]]:
    """The tensors of which one axis belongs to one space and all others have names, with the kind of that space."""
    entries: dict[str, list[tuple[str, AxisRows]]] = defaultdict(list)
    for space in group.spaces:
        kind = "heads" if isinstance(space, HeadSpace) else space.kind if isinstance(space, MatrixBlock) else "units"
        for rows in members_of(space):
            entries[rows.tensor].append((kind, rows))
    alone = {name: entries[0] for name, entries in entries.items() if len(entries) == 1}
    return {
        name: (kind, rows)
        for name, (kind, rows) in alone.items()
        if kind in ("units", "O", "O fixing 1", "GL") and len(group.shapes[name]) > len(rows.dims)
    }


def _labels(count: int, number: int) -> Indices:
    """Which names of an axis are looked at."""
    if count <= LABELS:
        return np.arange(count)
    return np.sort(np.random.default_rng((SEED, number, count)).choice(count, LABELS, replace=False))


def named_numbers(tensor: torch.Tensor, kind: str, rows: AxisRows, number: int) -> Floats:
    """Entries of K along random pairs of directions."""
    others = [d for d in range(tensor.ndim) if d not in rows.dims]
    table = tensor.permute(*others, *rows.dims)
    table = table.reshape(int(np.prod([tensor.shape[d] for d in others])), -1)
    if len(table) > LABELS:
        table = table[torch.as_tensor(_labels(len(table), number))]
    matrix = table[:, torch.as_tensor(rows.places.T.reshape(-1))].double().numpy()
    if kind == "units":
        matrix = _normal(matrix.T).T
    elif kind == "turned":  # two coordinates, which one complex number multiplies
        matrix = matrix / (np.linalg.norm(matrix) or 1.0)
    elif kind == "GL":
        if matrix.shape[0] <= matrix.shape[1]:
            return np.zeros(NUMBERS)  # the whole space: K is 1
        matrix = np.linalg.qr(matrix)[0]
    else:
        if kind == "O fixing 1":  # what lies along 1 may be scaled, or shifted, by itself
            matrix = matrix - matrix.mean(axis=1, keepdims=True)
        matrix = _normal(matrix)
    first, second = np.random.default_rng((SEED, number)).normal(size=(2, NUMBERS, len(matrix)))
    second -= first * ((first * second).sum(axis=1) / (first**2).sum(axis=1))[:, None]
    return np.asarray(((first @ matrix) * (second @ matrix)).sum(axis=1))


def _normal(matrix: Floats) -> Floats:
    sizes = np.linalg.norm(matrix, axis=1, keepdims=True)
    return np.asarray(matrix / np.where(sizes > 0, sizes, 1.0))


def _directions(size: int, number: int) -> Floats:
    return np.random.default_rng((SEED, size, number)).normal(size=(NUMBERS, size))


def _unit(block: Floats) -> Floats:
    size = float(np.linalg.norm(block))
    return block / size if np.isfinite(size) and size > 0 else np.zeros(NUMBERS)


def likeness(one: Floats, many: Floats, mean: Floats) -> Floats:
    """Mean over blocks of the cosine between sketches without the mean: about 1 for copies, about 0 for strangers."""
    left, right = one - mean, many - mean
    sizes = np.linalg.norm(left, axis=-1) * np.linalg.norm(right, axis=-1)
    cosines = (left * right).sum(axis=-1) / np.where(sizes > 0, sizes, 1.0)
    both_say = (np.linalg.norm(one, axis=-1) > 0) & (np.linalg.norm(many, axis=-1) > 0)
    return np.asarray((cosines * both_say).sum(axis=-1) / np.maximum(both_say.sum(axis=-1), 1))
