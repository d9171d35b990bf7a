"""The known laws of a module, proposed by shapes and kept if they are orthogonal to every sampled field.

No graph is traced: any two weights that could be the incoming and outgoing weights of one set of channels are tried.
A proposal that is not a law is orthogonal to random fields with probability zero.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import torch
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]
TOLERANCE = 1e-9
FILTER = 32  # fields that reject most proposals before all fields are asked


@dataclass(frozen=True, eq=False)
class Side:
    """A parameter seen as one vector per channel: `rows[j]` are the flat positions of channel j's weights."""

    name: str
    rows: Indices


class Laws:
    """Gradients of the laws found so far, as an orthonormal basis: a law that depends on them is not new."""

    def __init__(self, fields: Floats) -> None:
        self.fields = fields
        self.basis = np.zeros((0, fields.shape[1]))
        self.words: list[str] = []

    def keep(self, proposals: Iterable[Floats]) -> int:
        """Add the proposals that are conserved and new; how many there were."""
        kept = 0
        for gradient in proposals:
            size = np.linalg.norm(gradient)
            if size == 0 or not self._conserved(gradient / size):
                continue
            fresh = gradient / size
            for _ in range(2):  # twice is enough for orthogonality to rounding
                fresh = fresh - self.basis.T @ (self.basis @ fresh)
            rest = np.linalg.norm(fresh)
            if rest > 1e-7:
                self.basis = np.concatenate([self.basis, fresh[None] / rest])
                kept += 1
        return kept

    def _conserved(self, unit: Floats) -> bool:
        first = np.abs(self.fields[:FILTER] @ unit).max(initial=0.0)
        return bool(first < TOLERANCE and np.abs(self.fields @ unit).max(initial=0.0) < TOLERANCE)


def module_laws(module: torch.nn.Module, theta: Mapping[str, torch.Tensor], fields: Floats) -> tuple[list[str], int]:
    """Known laws in words, and how many are independent at θ.

    Parameters that never move, and sums of them; balanced channels `‖in_j‖² − ‖out_j‖²` and, where they hold, the full
    matrices `in inᵀ − outᵀ out` (linear neurons, queries with keys, values with outputs).
    """
    weights = np.concatenate([value.detach().numpy().ravel() for value in theta.values()])
    laws = Laws(fields)
    sides = list(_sides(module, theta))
    for name, where in _positions(theta).items():
        resting = [int(position) for position in where if np.abs(fields[:, position]).max() < TOLERANCE]
        if count := laws.keep(_unit(position, len(weights)) for position in resting):
            laws.words.append(f"{count} entries of {name} never move")
    for left, right in combinations(sides, 2):
        grouped = ((left, _grouped(right, len(left.rows))), (_grouped(left, len(right.rows)), right))
        for first, second in ((left, right), *grouped):
            if len(first.rows) == len(second.rows):
                _balance(first, second, weights, laws)
    for side in sides:
        sums = (np.bincount(row, minlength=len(weights)).astype(np.float64) for row in side.rows)
        if count := laws.keep(sums):
            laws.words.append(f"sums over the rows of {side.name}: {count} laws")
    return laws.words, len(laws.basis)


def _grouped(side: Side, channels: int) -> Side:
    """Columns of a layer after a flattening, gathered by the channel they came from."""
    count = len(side.rows)
    if not side.name.endswith("ᵀ") or count % channels or count == channels or channels == 1:
        return Side(side.name, side.rows[:0])
    return Side(f"{side.name} by channel", side.rows.reshape(channels, -1))


def _balance(left: Side, right: Side, weights: Floats, laws: Laws) -> None:
    """Keep the balances of two sides that are conserved, and the products of pairs of channels that are."""
    channels = range(len(left.rows))
    alone = laws.keep(_product(left, right, j, j, weights) for j in channels)
    if not alone:
        return
    pairs = laws.keep(_product(left, right, *pair, weights) for pair in combinations(channels, 2))
    matrix = f", and {pairs} products of two channels" if pairs else ""
    laws.words.append(f"‖{left.name}[j]‖² − ‖{right.name}[j]‖²: {alone} channels j{matrix}")


def _product(left: Side, right: Side, first: int, second: int, weights: Floats) -> Floats:
    """The gradient of `⟨left_i, left_j⟩ − ⟨right_i, right_j⟩`."""
    gradient = np.zeros(len(weights))
    for side, factor in ((left, 1.0), (right, -1.0)):
        np.add.at(gradient, side.rows[first], factor * weights[side.rows[second]])
        np.add.at(gradient, side.rows[second], factor * weights[side.rows[first]])
    return gradient


def _unit(position: int, size: int) -> Floats:
    found = np.zeros(size)
    found[position] = 1.0
    return found


def _positions(theta: Mapping[str, torch.Tensor]) -> dict[str, Indices]:
    found, start = {}, 0
    for name, value in theta.items():
        found[name] = np.arange(start, start + value.numel())
        start += value.numel()
    return found


def _sides(module: torch.nn.Module, theta: Mapping[str, torch.Tensor]) -> Iterator[Side]:
    """Every way to see a weight as incoming (rows, with or without its bias) or outgoing (columns) channels."""
    positions = _positions(theta)
    for prefix, part in module.named_modules():
        dot = f"{prefix}." if prefix else ""
        if isinstance(part, torch.nn.MultiheadAttention) and f"{dot}in_proj_weight" in positions:
            yield from _attention(part, dot, positions)
    for name, where in positions.items():
        shape = theta[name].shape
        bias = positions.get(name.removesuffix("weight") + "bias") if name.endswith("weight") else None
        table = where.reshape(shape)
        incoming = table.reshape(shape[0], -1) if shape else where[None]
        if bias is not None and len(bias) == len(incoming):
            yield Side(f"({name}, bias)", np.column_stack([incoming, bias]))
        yield Side(name, incoming)
        if len(shape) == 1:
            yield Side(name, where[None])
        if len(shape) > 1:
            yield Side(f"{name}ᵀ", np.moveaxis(table, 1, 0).reshape(shape[1], -1))


def _attention(part: torch.nn.MultiheadAttention, dot: str, positions: Mapping[str, Indices]) -> Iterator[Side]:
    """Queries, keys, values (with their biases) and outputs of each head."""
    width, heads = part.embed_dim, part.num_heads
    inner = width // heads
    table = positions[f"{dot}in_proj_weight"].reshape(3 * width, width)
    bias = positions.get(f"{dot}in_proj_bias")
    output = positions[f"{dot}out_proj.weight"].reshape(width, width)
    for head in range(heads):
        for number, letter in enumerate("QKV"):
            rows = slice(number * width + head * inner, number * width + (head + 1) * inner)
            yield Side(f"{dot}{letter}{head}", table[rows])
            if bias is not None:
                yield Side(f"({dot}{letter}{head}, bias)", np.column_stack([table[rows], bias[rows]]))
        yield Side(f"{dot}O{head}ᵀ", output[:, head * inner : (head + 1) * inner].T)
