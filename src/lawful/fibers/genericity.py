"""Is a parameter generic? Ranks of masked products, and bent hyperplanes that meet as they should (P4 B.2)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, product

import numpy as np

from lawful.fibers.cells import Cell, cells
from lawful.fibers.domain import Domain
from lawful.fibers.stack import Floats, Stack

RANK_FLOOR = 1e-9  # singular values below this share of the largest one count as zero
ALL_MASKS = 4096  # up to this many sequences of masks all are tried, beyond it that many random ones


@dataclass(frozen=True)
class Genericity:
    """`holds` is None where a test was not run; `tested` says how much was tried."""

    holds: bool | None
    reason: str
    tested: str


def genericity(stack: Stack, *, regions: bool = False, seed: int = 0) -> Genericity:
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
    count, words = 0, ""
    for masks in _masks(stack.widths, seed):
        count += 1
        if words := _rank_failure(stack, masks):
            return Genericity(False, words, f"{count} masks")
    complete = count < ALL_MASKS
    tested = f"{'all' if complete else 'random'} {count} masks"
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


def _masks(widths: tuple[int, ...], seed: int) -> Iterator[tuple[Floats, ...]]:
    """One 0-1 vector per layer, inputs and outputs included: rows and columns may be masked as well."""
    total = sum(widths)
    if 2**total < ALL_MASKS:
        for bits in product((0.0, 1.0), repeat=total):
            yield tuple(np.split(np.array(bits), np.cumsum(widths)[:-1]))
        return
    rng = np.random.default_rng(seed)
    most = ALL_MASKS if total <= 64 else int(np.clip(1e9 / max(widths) ** 3, 2, 64))  # wide products are slow
    for number in range(most):
        share = 0.5 if number % 2 else rng.uniform(0.1, 0.9)
        yield tuple((rng.random(width) < share).astype(np.float64) for width in widths)


def _rank_failure(stack: Stack, masks: tuple[Floats, ...]) -> str:
    """Where the product of masked matrices, from any layer on, has less than the largest possible rank."""
    values = np.diag(masks[0])[:, masks[0] > 0]
    largest = int(masks[0].sum())
    for layer, weight in enumerate(stack.weights, 1):
        values = masks[layer][:, None] * (weight @ values)
        largest = min(largest, int(masks[layer].sum()))
        if largest == 0:
            return ""
        sizes = np.linalg.svd(values, compute_uv=False)
        if int((sizes > RANK_FLOOR * sizes[0]).sum()) < largest:
            return f"a masked product up to layer {layer} has rank below {largest}"
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
    from scipy.optimize import linprog

    equal = cell.rows[list(chosen)]
    found = linprog(
        np.zeros(len(cell.point)), A_ub=-cell.rows[:, :-1], b_ub=cell.rows[:, -1], A_eq=equal[:, :-1],
        b_eq=-equal[:, -1], bounds=list(zip(space.low, space.high, strict=True)),
    )  # fmt: skip
    return bool(found.status == 0)
