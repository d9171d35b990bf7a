"""The known laws of a module, proposed by shapes and kept if they are orthogonal to every sampled field.

No graph is traced: any two weights that could be the incoming and outgoing weights of one set of channels are tried.
A proposal that is not a law is orthogonal to random fields with probability zero.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations

import numpy as np
import torch

from lawful.conservation.known.law import Law, Monomial
from lawful.types import Floats, Indices

ONE = Fraction(1)
TOLERANCE = 1e-9
FILTER = 32  # fields that reject most proposals before all fields are asked


@dataclass(frozen=True, eq=False)
class ChannelSide:
    """A parameter seen as one vector per channel: `rows[j]` are the flat positions of channel j's weights."""

    name: str
    rows: Indices


class Found:
    """The laws found so far, with their gradients as an orthonormal basis: a law that depends on them is not new."""

    def __init__(self, weights: Floats, fields: Floats) -> None:
        self.weights, self.fields = weights, fields
        self.basis = np.zeros((0, len(weights)))
        self.laws: list[Law] = []
        self.words: list[str] = []

    def keep(self, proposals: Iterable[Law]) -> int:
        """Add the proposals that are conserved and new; how many there were."""
        before = len(self.laws)
        for law in proposals:
            gradient = law.gradient(self.weights)
            size = np.linalg.norm(gradient)
            if size == 0 or not self._conserved(gradient / size):
                continue
            fresh = gradient / size
            for _ in range(2):  # twice is enough for orthogonality to rounding
                fresh = fresh - self.basis.T @ (self.basis @ fresh)
            rest = np.linalg.norm(fresh)
            if rest > 1e-7:
                self.basis = np.concatenate([self.basis, fresh[None] / rest])
                self.laws.append(law)
        return len(self.laws) - before

    def _conserved(self, unit: Floats) -> bool:
        first = np.abs(self.fields[:FILTER] @ unit).max(initial=0.0)
        return bool(first < TOLERANCE and np.abs(self.fields @ unit).max(initial=0.0) < TOLERANCE)


def conserved_laws(
    module: torch.nn.Module, theta: Mapping[str, torch.Tensor], fields: Floats, structural: Iterable[Law] = ()
) -> Found:
    """Known laws that are orthogonal to all fields at θ, independent of each other.

    Parameters that never move, and sums of them; balanced channels `‖in_j‖² − ‖out_j‖²` and, where they hold, the full
    matrices `in inᵀ − outᵀ out` (linear neurons, queries with keys, values with outputs).
    """
    weights = np.concatenate([value.detach().numpy().ravel() for value in theta.values()])
    found = Found(weights, fields)
    _structural(found, structural, theta)
    sides = list(_sides(module, theta))
    for name, where in _positions(theta).items():
        resting = [int(position) for position in where if np.abs(fields[:, position]).max() < TOLERANCE]
        if count := found.keep(Law("weight", (), {(position,): ONE}) for position in resting):
            found.words.append(f"{count} entries of {name} never move")
    for left, right in combinations(sides, 2):
        grouped = ((left, _group_by_channel(right, len(left.rows))), (_group_by_channel(left, len(right.rows)), right))
        for first, second in ((left, right), *grouped):
            if len(first.rows) == len(second.rows):
                _balance(first, second, found)
    for side in sides:
        sums = (Law("sum", (), {(int(edge),): ONE for edge in row}) for row in side.rows)
        if count := found.keep(sums):
            found.words.append(f"sums over the rows of {side.name}: {count} laws")
    return found


def _structural(found: Found, laws: Iterable[Law], theta: Mapping[str, torch.Tensor]) -> None:
    """Keep the laws that were read from the graph, with a line for each set of parameters that they speak of."""
    owner = np.array([name for name, where in _positions(theta).items() for _ in where])
    counts: dict[tuple[str, tuple[str, ...]], int] = {}
    for law in laws:
        if found.keep([law]):
            names = tuple(sorted({str(owner[edge]) for edges in law.terms for edge in edges}))
            words = {"neuron": "squares", "pair": "products", "sum": "sums"}.get(law.kind, "entries")
            if law.kind == "sum" and len(law.terms) == 1:
                words = "entries that never move"
            counts[words, names] = counts.get((words, names), 0) + 1
    found.words += [f"{words} of {', '.join(names)}: {count} laws" for (words, names), count in counts.items()]


def _group_by_channel(side: ChannelSide, channels: int) -> ChannelSide:
    """Columns of a layer after a flattening, gathered by the channel they came from."""
    count = len(side.rows)
    if not side.name.endswith("ᵀ") or count % channels or count == channels or channels == 1:
        return ChannelSide(side.name, side.rows[:0])
    return ChannelSide(f"{side.name} by channel", side.rows.reshape(channels, -1))


def _balance(left: ChannelSide, right: ChannelSide, found: Found) -> None:
    """Keep the balances of two sides that are conserved, and the products of pairs of channels that are."""
    channels = range(len(left.rows))
    alone = found.keep(_product("neuron", left, right, j, j) for j in channels)
    if not alone:
        return
    pairs = found.keep(_product("pair", left, right, *pair) for pair in combinations(channels, 2))
    matrix = f", and {pairs} products of two channels" if pairs else ""
    found.words.append(f"‖{left.name}[j]‖² − ‖{right.name}[j]‖²: {alone} channels j{matrix}")


def _product(kind: str, left: ChannelSide, right: ChannelSide, first: int, second: int) -> Law:
    """`⟨left_i, left_j⟩ − ⟨right_i, right_j⟩`."""
    terms: dict[Monomial, Fraction] = {}
    for side, sign in ((left, ONE), (right, -ONE)):
        for a, b in zip(side.rows[first].tolist(), side.rows[second].tolist(), strict=True):
            place = (a, b) if a <= b else (b, a)
            terms[place] = terms.get(place, Fraction(0)) + sign
    return Law(kind, (first, second), {place: factor for place, factor in terms.items() if factor})


def _positions(theta: Mapping[str, torch.Tensor]) -> dict[str, Indices]:
    found, start = {}, 0
    for name, value in theta.items():
        found[name] = np.arange(start, start + value.numel())
        start += value.numel()
    return found


def _sides(module: torch.nn.Module, theta: Mapping[str, torch.Tensor]) -> Iterator[ChannelSide]:
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
            yield ChannelSide(f"({name}, bias)", np.column_stack([incoming, bias]))
        yield ChannelSide(name, incoming)
        if len(shape) == 1:
            yield ChannelSide(name, where[None])
        if len(shape) > 1:
            yield ChannelSide(f"{name}ᵀ", np.moveaxis(table, 1, 0).reshape(shape[1], -1))


def _attention(part: torch.nn.MultiheadAttention, dot: str, positions: Mapping[str, Indices]) -> Iterator[ChannelSide]:
    """Queries, keys, values (with their biases) and outputs of each head."""
    width, heads = part.embed_dim, part.num_heads
    inner = width // heads
    table = positions[f"{dot}in_proj_weight"].reshape(3 * width, width)
    bias = positions.get(f"{dot}in_proj_bias")
    output = positions[f"{dot}out_proj.weight"].reshape(width, width)
    for head in range(heads):
        for number, letter in enumerate("QKV"):
            rows = slice(number * width + head * inner, number * width + (head + 1) * inner)
            yield ChannelSide(f"{dot}{letter}{head}", table[rows])
            if bias is not None:
                yield ChannelSide(f"({dot}{letter}{head}, bias)", np.column_stack([table[rows], bias[rows]]))
        yield ChannelSide(f"{dot}O{head}ᵀ", output[:, head * inner : (head + 1) * inner].T)
