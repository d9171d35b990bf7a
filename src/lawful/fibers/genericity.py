"""Is a parameter generic? Ranks of masked products, and bent hyperplanes that meet as they should (P4 B.2)."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np
from scipy.optimize import linprog

from lawful.fibers.cell import Cell
from lawful.fibers.cells import cells
from lawful.fibers.domain import Domain
from lawful.fibers.stack import Stack
from lawful.types import Floats

RANK_FLOOR = 1e-9  # singular values below this share of the largest one count as zero
MASKS = 4096  # up to this many sequences of masks all are tried, beyond it that many random ones


@dataclass(frozen=True)
class Genericity:
    """`holds` is None where a test was not run; `tested` says how much was tried."""

    holds: bool | None
    reason: str
    tested: str


def genericity(stack: Stack, *, regions: bool = False, most: int = MASKS, seed: int = 0) -> Genericity:
    """Test P4 Definition 8: maximal ranks of all masked products, and with `regions` supertransversality.

    >>> from lawful.network import Mlp
    >>> genericity(Stack.of(Mlp([[[1.0, 0.0], [1.0, 2.0]], [[3.0, 1.0]]]))).reason
    'the weight from input 1 to neuron 0 of layer 1 is zero'
    """
    stack = stack.floating()
    for layer, weight in enumerate(stack.weights, 1):
        if (weight == 0).any():
            neuron, source = (int(k) for k in np.argwhere(weight == 0)[0])
            below = f"input {source}" if layer == 1 else f"neuron {source} of layer {layer - 1}"
            return Genericity(False, f"the weight from {below} to neuron {neuron} of layer {layer} is zero", "zeros")
    masks, complete = _masks(stack.widths, most, seed)
    if words := _rank_failure(stack, masks):
        return Genericity(False, words, f"{len(masks[0])} masks")
    tested = f"{'all' if complete else 'random'} {len(masks[0])} masks"
    if not regions:
        return Genericity(True, "masked products have full rank", tested)
    found, seen = None, 0
    for cell in cells(stack):
        seen += 1
        if found := _crowded_face(stack, cell):
            return Genericity(False, found, f"{tested}, {seen} regions")
    return Genericity(
        True, "masked products have full rank and bent hyperplanes meet transversally", f"{tested}, {seen} regions"
    )


def _masks(widths: tuple[int, ...], most: int, seed: int) -> tuple[list[Floats], bool]:
    """0-1 vectors for every layer, inputs and outputs included, many at once; and whether these are all there are."""
    total = sum(widths)
    if 2**total <= most:
        bits = (np.arange(2**total)[:, None] >> np.arange(total)) & 1
        return np.split(bits.astype(np.float64), np.cumsum(widths)[:-1], axis=1), True
    rng = np.random.default_rng(seed)
    count = int(np.clip(3e9 / max(widths) ** 3, 2, most))  # ranks of wide products are slow
    share = np.where(np.arange(count) % 2, 0.5, rng.uniform(0.1, 0.9, size=count))[:, None]
    return [(rng.random((count, width)) < share).astype(np.float64) for width in widths], False


def _rank_failure(stack: Stack, masks: list[Floats]) -> str:
    """Where a product of masked matrices has less than the largest possible rank."""
    values = masks[0][:, None, :] * np.eye(stack.widths[0])
    largest = masks[0].sum(axis=1)
    for layer, weight in enumerate(stack.weights, 1):
        values = masks[layer][:, :, None] * (weight @ values)
        largest = np.minimum(largest, masks[layer].sum(axis=1))
        sizes = np.linalg.svd(values, compute_uv=False)
        ranks = (sizes > RANK_FLOOR * np.maximum(sizes[:, :1], 1e-300)).sum(axis=1)
        if (ranks < largest).any():
            return f"a masked product up to layer {layer} has rank below {int(largest[ranks < largest][0])}"
    return ""


def _crowded_face(stack: Stack, cell: Cell) -> str:
    """Neurons whose zero sets meet inside a region's boundary in more than the expected dimension."""
    dimension = len(cell.point)
    space = Domain.space(dimension)
    for size in range(2, min(dimension + 1, len(cell.rows)) + 1):
        for chosen in combinations(range(len(cell.rows)), size):
            normals = cell.rows[list(chosen), :-1]
            values = np.linalg.svd(normals, compute_uv=False)
            rank = int((values > RANK_FLOOR).sum())
            if rank == size:
                continue
            whole = np.linalg.svd(cell.rows[list(chosen)], compute_uv=False)
            if int((whole > RANK_FLOOR).sum()) > rank:
                continue  # parallel, without a common point
            if _meets(cell, chosen, space):
                names = ", ".join(
                    f"{neuron} of layer {layer + 1}" for layer, neuron in (cell.neurons[k] for k in chosen)
                )
                return f"the bent hyperplanes of neurons {names} meet in too large a face"
    return ""


def _meets(cell: Cell, chosen: tuple[int, ...], space: Domain) -> bool:
    """Whether the closed region contains a point where all the chosen rows vanish."""
    equal = cell.rows[list(chosen)]
    found = linprog(
        np.zeros(len(cell.point)), A_ub=-cell.rows[:, :-1], b_ub=cell.rows[:, -1], A_eq=equal[:, :-1],
        b_eq=-equal[:, -1], bounds=list(zip(space.low, space.high, strict=True)),
    )  # fmt: skip
    return bool(found.status == 0)
