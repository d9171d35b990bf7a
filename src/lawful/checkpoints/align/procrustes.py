"""The matrices that bring blocks of B nearest to those of A: rotations, GL, rotary phases; and the order of heads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
from scipy.linalg import solve_sylvester
from scipy.optimize import linear_sum_assignment

from lawful.checkpoints.group.axis_actions import as_rows
from lawful.checkpoints.group.spaces import AxisRows, HeadsMove, HeadSpace, MatrixBlock, turning
from lawful.types import Floats, Indices

# The entries that units of A and of B have in the tensors of a space, as rows of numbers.

Tensors = Mapping[str, torch.Tensor]
BATCH = 256  # rows that are widened together
COLUMNS, MANY_ENTRIES = 16, 2**23  # columns for each unit that suffice, where there are many entries


def unit_rows(rows: AxisRows, tensors: Tensors) -> torch.Tensor:
    """For each unit all entries of its rows."""
    table = as_rows(tensors[rows.tensor], rows.dims)
    count, copies = rows.places.shape
    if copies == 1 and np.array_equal(rows.places[:, 0], np.arange(len(table))):
        return table
    if copies == 1 and np.array_equal(rows.places[:, 0], np.arange(count) + rows.places[0, 0]):
        return table[int(rows.places[0, 0]) :][:count]
    return table[torch.as_tensor(rows.places)].reshape(count, -1)


def columns_of(members: Sequence[AxisRows], a: Tensors, b: Tensors) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """The rows of units in A and B, member by member; of very many columns, as many as tell units apart."""
    size, seen = len(members[0].places), 0
    for rows in members:
        if seen >= COLUMNS * size and seen * size > MANY_ENTRIES:
            break
        left, right = unit_rows(rows, a), unit_rows(rows, b)
        if left.dtype != right.dtype:
            left, right = left.double(), right.double()
        seen += left.shape[1]
        if left.numel() > MANY_ENTRIES and (step := left.shape[1] // (COLUMNS * size)) > 1:
            left, right = left[:, ::step], right[:, ::step]
        yield left, right


def row_lengths(rows: torch.Tensor) -> Floats:
    """The length of each row, of any size."""
    largest = rows.abs().amax(1).double()
    safe = torch.where(largest > 0, largest, 1.0)
    norms = [(rows[k : k + BATCH].double() / safe[k : k + BATCH, None]).norm(dim=1) for k in range(0, len(rows), BATCH)]
    return np.asarray((safe * torch.cat(norms) * (largest > 0)).numpy())


TINY = 1e-300  # in place of a length of 0 that is divided by: no stored number is so small
# Rows weigh by 1/distance, which would give those that agree exactly all the weight; float32 agrees to 1e-7.
SURE = 1e-6


def _stack_rows(members: Sequence[AxisRows], tensors: Tensors) -> torch.Tensor:
    """The rows of a block, in float64: size × all columns of all copies."""
    return torch.cat([unit_rows(rows, tensors) for rows in members], 1).double()


def nearest_matrix(
    block: MatrixBlock, a: Tensors, b: Tensors, members: Sequence[AxisRows], *, near: bool = False
) -> Floats:
    """The matrix of one block, found from some of its members; of a B that is `near`, the nearest weigh most."""
    if block.kind in ("O", "O fixing 1"):
        return _orthogonal(block, a, b, members, near)
    sides = [[rows for rows in members if rows.powers[0] * sign > 0] for sign in (1, -1)]
    pairs = [(_stack_rows(side, a), _stack_rows(side, b)) if side else None for side in sides]
    if block.kind == "rotary":
        return _rotary(block, pairs)
    return _general(block, pairs)


def _orthogonal(block: MatrixBlock, a: Tensors, b: Tensors, members: Sequence[AxisRows], near: bool) -> Floats:
    """Procrustes: the orthogonal M that maximises `⟨A, M B⟩`; those that fix 1 act on its complement.

    Before B is near, distances say nothing: a tensor that nobody turned would hold all others back.
    """
    product = torch.zeros(block.size, block.size, dtype=torch.float64)
    for left, right in columns_of(members, a, b):
        product += (trust(left, right) if near else 1.0) * (left @ right.T)
    if block.kind == "O fixing 1":
        ones = torch.full((block.size, 1), block.size**-0.5, dtype=torch.float64)
        basis = torch.linalg.qr(torch.cat([ones, torch.eye(block.size, dtype=torch.float64)[:, 1:]], 1))[0][:, 1:]
        left, _, right = torch.linalg.svd(basis.T @ product @ basis)
        return np.asarray((ones @ ones.T + basis @ (left @ right) @ basis.T).numpy())
    left, _, right = torch.linalg.svd(product)
    return np.asarray((left @ right).numpy())


def trust(one: torch.Tensor, two: torch.Tensor) -> float:
    """How much a part of B that lies so near to A's says about the rest: one over the square of the distance.

    Of a child some tensors are those of A: these tell where they have to lie, and the others what was changed.
    """
    size = float(torch.linalg.vector_norm(one, dtype=torch.float64)) or 1.0
    return 1.0 / ((float(torch.linalg.vector_norm(one - two, dtype=torch.float64)) / size) ** 2 + SURE**2)


Pair = tuple[torch.Tensor, torch.Tensor] | None


def _general(block: MatrixBlock, pairs: Sequence[Pair]) -> Floats:
    """`A₊ = M B₊` and `A₋ = M⁻ᵀ B₋`: solved on the side that determines M better."""
    best, least = np.eye(block.size), np.inf
    for number, pair in enumerate(pairs):
        if pair is None:
            continue
        one, two = pair
        solved = torch.linalg.lstsq(two.T, one.T, driver="gelsd").solution.T.numpy()
        if not np.isfinite(solved).all() or np.linalg.matrix_rank(solved) < block.size:
            continue
        matrix = solved if number == 0 else np.linalg.inv(solved).T
        off = _residual(matrix, pairs)
        if off < least:
            best, least = matrix, off
    if None in pairs or not np.isfinite(least):
        return best
    polished = _polish(best, pairs)
    return polished if _residual(polished, pairs) < least else best


def _polish(matrix: Floats, pairs: Sequence[Pair]) -> Floats:
    """One Gauss-Newton step `M → (1 + X) M` on both sides at once: a Sylvester equation for X."""
    (one, two), (other, another) = ((pair[0], pair[1]) for pair in pairs if pair is not None)
    moved, turned = torch.as_tensor(matrix) @ two, torch.as_tensor(np.linalg.inv(matrix).T) @ another
    weights = [trust(*sides) / (float(sides[0].square().sum()) or 1.0) for sides in ((one, moved), (other, turned))]
    left = weights[1] * turned @ turned.T
    right = weights[0] * moved @ moved.T
    rest = weights[0] * (one - moved) @ moved.T - weights[1] * turned @ (other - turned).T
    try:
        step = solve_sylvester(left.numpy(), right.numpy(), rest.numpy())
    except np.linalg.LinAlgError:
        return matrix
    improved = matrix + step @ matrix
    return improved if np.isfinite(improved).all() and np.linalg.matrix_rank(improved) == len(improved) else matrix


def _residual(matrix: Floats, pairs: Sequence[Pair]) -> float:
    total = 0.0
    for pair, acting in zip(pairs, (matrix, np.linalg.inv(matrix).T), strict=True):
        if pair is not None:
            one, two = pair
            total += float((one - torch.as_tensor(acting) @ two).norm()) / (float(one.norm()) or 1.0)
    return total


def _rotary(block: MatrixBlock, pairs: Sequence[Pair]) -> Floats:
    """A complex number for each pair: `q_A = z q_B` and `k_A = k_B / z̄`."""
    first = np.array([a for a, _ in block.pairs])
    second = np.array([b for _, b in block.pairs])
    phase, logarithm, known = np.zeros(len(first), dtype=complex), np.zeros(len(first)), np.zeros(len(first))
    for pair, sign in zip(pairs, (1, -1), strict=True):
        if pair is None:
            continue
        one, two = (torch.complex(table[first], table[second]) for table in pair)
        product = (one * two.conj()).sum(1).numpy()
        lengths = [row_lengths(torch.view_as_real(table).flatten(1)) for table in (one, two)]
        good = (lengths[0] > 0) & (lengths[1] > 0) & (np.abs(product) > 0)
        cosine = product[good] / (lengths[0] * lengths[1])[good]
        weight = 1.0 / (np.maximum(1 - np.abs(cosine) ** 2, 0.0) + SURE**2)
        phase[good] += weight * cosine
        logarithm[good] += weight * sign * (np.log(lengths[0][good]) - np.log(lengths[1][good]))
        known[good] += weight
    modulus = np.exp(np.divide(logarithm, known, out=np.zeros_like(logarithm), where=known > 0))
    size = np.abs(phase)
    return turning(block, modulus * np.where(size > TINY, phase / np.where(size > TINY, size, 1.0), 1.0))


# Heads


def nearest_heads(space: HeadSpace, a: Tensors, b: Tensors) -> HeadsMove:
    """Which head of B is which of A, and a matrix for each pair of queries and keys, values and outputs."""
    count, copies = len(space.heads), space.copies
    likeness = np.zeros((count, copies, count, copies))
    for slot, block in enumerate(space.heads[0]):
        likeness += (_still_likeness if block.kind == "still" else _slot_likeness)(space, slot, a, b)
    inner = np.zeros((count, count, copies), dtype=np.intp)
    total = np.zeros((count, count))
    for i in range(count):
        for j in range(count):
            table = likeness[i, :, j]
            rows, columns = linear_sum_assignment(-table) if copies > 1 else (np.zeros(1, int), np.zeros(1, int))
            inner[i, j, rows] = columns
            total[i, j] = table[rows, columns].sum()
    order = linear_sum_assignment(-total)[1] if space.permutes else np.arange(count)
    chosen = np.stack([inner[i, j] if space.permutes else np.arange(copies) for i, j in enumerate(order)])
    matrices = []
    for i, j in enumerate(order.tolist()):
        head_matrices = []
        for block, twin in zip(space.heads[i], space.heads[j], strict=True):
            if block.kind == "still":
                head_matrices.append(np.eye(block.size))
                continue
            pairs: list[Pair] = []
            for sign in (1, -1):
                mine = [rows for rows in block.members if rows.powers[0] * sign > 0]
                others = [
                    _reorder_copies(rows, chosen[i], copies) for rows in twin.members if rows.powers[0] * sign > 0
                ]
                pairs.append((_stack_rows(mine, a), _stack_rows(others, b)) if mine else None)
            head_matrices.append(_rotary(block, pairs) if block.kind == "rotary" else _general(block, pairs))
        matrices.append(tuple(head_matrices))
    return HeadsMove(np.asarray(order, dtype=np.intp), chosen, tuple(matrices))


def _reorder_copies(rows: AxisRows, copies: Indices, count: int) -> AxisRows:
    if rows.places.shape[1] != count:
        return rows
    return AxisRows(rows.tensor, rows.dims, rows.places[:, copies], rows.powers)


def _slot_likeness(space: HeadSpace, slot: int, a: Tensors, b: Tensors) -> Floats:
    """Cosines of `X Yᵀ` between query heads of A and B: what no matrix of the block can change.

    `⟨X_A Y_Aᵀ, X_B Y_Bᵀ⟩ = Σ (X_Aᵀ X_B) ∘ (Y_Aᵀ Y_B)`, summed over the coordinates of the block.
    """
    sides = []
    for tensors in (a, b):
        one = [_sides(head[slot], tensors, space.copies) for head in space.heads]
        sides.append(([copy for copies_of_head, _ in one for copy in copies_of_head], [shared for _, shared in one]))
    (left, left_shared), (right, right_shared) = sides
    count, copies, block = len(space.heads), space.copies, space.heads[0][slot]
    size = block.size
    own_products = torch.cat(left) @ torch.cat(right).T
    shared = torch.cat(left_shared) @ torch.cat(right_shared).T
    own_products = own_products.reshape(count, copies, size, count, copies, size)
    shared = shared.reshape(count, 1, size, count, 1, size)
    norms = [
        np.array([_product_norm(block, x, ys[n // copies]) for n, x in enumerate(xs)]).reshape(count, copies)
        for xs, ys in sides
    ]
    turned = block.kind == "rotary"
    value = _complex_products(block, own_products, shared) if turned else (own_products * shared).sum((2, 5)).numpy()
    scale = norms[0][:, :, None, None] * norms[1][None, None]
    return np.asarray(np.divide(value, scale, out=np.zeros_like(value), where=scale > 0))


def _still_likeness(space: HeadSpace, slot: int, a: Tensors, b: Tensors) -> Floats:
    """Cosines of rows that no matrix acts on."""
    count, copies = len(space.heads), space.copies
    lines = []
    for tensors in (a, b):
        vectors = []
        for head in space.heads:
            for copy in range(copies):
                picked = [replace(rows, places=rows.places[:, [copy if rows.places.shape[1] == copies else 0]])
                          for rows in head[slot].members]  # fmt: skip
                vectors.append(_stack_rows(picked, tensors).reshape(-1))
        line = torch.stack(vectors)
        lines.append(line / torch.as_tensor(np.maximum(row_lengths(line), TINY))[:, None])
    return np.asarray((lines[0] @ lines[1].T).numpy().reshape(count, copies, count, copies))


def _sides(block: MatrixBlock, tensors: Tensors, copies: int) -> tuple[list[torch.Tensor], torch.Tensor]:
    """The rows that each query head has to itself (one matrix for each), and those that the group shares."""
    signs = sorted({rows.powers[0] for rows in block.members}, reverse=True)
    copied = next(
        (
            sign
            for sign in signs
            if copies > 1 and any(r.powers[0] == sign and r.places.shape[1] == copies for r in block.members)
        ),
        signs[0],
    )
    mine = [rows for rows in block.members if rows.powers[0] == copied]
    others = [rows for rows in block.members if rows.powers[0] != copied]
    own_rows = []
    for copy in range(copies):
        picked = [
            AxisRows(rows.tensor, rows.dims, rows.places[:, copy : copy + 1], rows.powers)
            if rows.places.shape[1] == copies
            else rows
            for rows in mine
        ]
        own_rows.append(_stack_rows(picked, tensors))
    return own_rows, _stack_rows(others, tensors)


def _product_norm(block: MatrixBlock, x: torch.Tensor, y: torch.Tensor) -> float:
    if block.kind == "rotary":
        first, second = (torch.tensor([pair[k] for pair in block.pairs]) for k in (0, 1))
        lengths = [table[first].square().sum(1) + table[second].square().sum(1) for table in (x, y)]
        return float((lengths[0] * lengths[1]).sum().sqrt())
    return float(((x @ x.T) * (y @ y.T)).sum().clamp_min(0).sqrt())


def _complex_products(block: MatrixBlock, own_products: torch.Tensor, shared: torch.Tensor) -> Floats:
    """`Re Σ ⟨q_A, q_B⟩ conj⟨k_A, k_B⟩`, pair by pair."""
    first, second = (torch.tensor([pair[k] for pair in block.pairs]) for k in (0, 1))

    def inner(table: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        turned = table.permute(0, 1, 3, 4, 2, 5)
        real = turned[..., first, first] + turned[..., second, second]
        imaginary = turned[..., second, first] - turned[..., first, second]
        return real, imaginary

    (real, imaginary), (other, turned) = inner(own_products), inner(shared)
    return np.asarray((real * other + imaginary * turned).sum(-1).numpy())
