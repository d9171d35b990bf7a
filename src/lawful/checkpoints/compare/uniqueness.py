"""Hidden layers of tanh, sigmoid or GELU: the function determines the weights, so that *different* is decided too.

One hidden layer is here, more of them in `deep_uniqueness`.
`1` and `tanh(w·x + b)`, for different `±(w, b)` with w ≠ 0, are linearly independent (Sussmann 1992), and sigmoid is
tanh: `σ(z) = ½ + ½ tanh(z/2)`. For GELU, `z Φ(z)`: its second derivative along a line is a polynomial times
`exp(−z²/2)`, and these are independent for different `±(w, b)`; `GELU(−z) = GELU(z) − z`. Units with the same `±(w, b)`
are added up, units with w = 0 are constants: `1` and `tanh b` for different rational b > 0 are independent over the
rationals, because they are rational functions of one transcendental `e^{1/q}` with different poles. All in fractions.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Literal

import torch

from lawful.program.passes.fold import ContractionLayer, LayerReader
from lawful.program.passes.patterns import gelu_operand
from lawful.program.program import Node, Program

Vector = tuple[Fraction, ...]
Layer = tuple[Sequence[Vector], Sequence[Fraction]]  # rows and biases
DEEP = (
    "a network of tanh without zero weights, whose biases differ in absolute value and are not zero in each hidden "
    "layer, is determined by its function (Vlačić and Bölcskei 2021)"
)


def deep_form(layers: Sequence[Layer], activation: str) -> tuple[tuple[tuple[Vector, ...], Vector], ...] | None:
    """The one member of the orbit whose hidden biases are positive and ascending; None if the conditions fail.

    >>> first = [(Fraction(1), Fraction(2)), (Fraction(3), Fraction(4))], [Fraction(-2), Fraction(1)]
    >>> second = [(Fraction(5), Fraction(6))], [Fraction(7)]
    >>> (rows, biases), (out, _) = deep_form([first, second], "tanh")
    >>> [int(b) for b in biases], [int(w) for w in rows[1]], [int(v) for v in out[0]]
    ([1, 2], [-1, -2], [6, -5])
    """
    plain = irreducible(layers if activation == "tanh" else as_tanh(layers))
    standard: list[tuple[tuple[Vector, ...], Vector]] = []
    if not all(rows for rows, _ in plain):
        return None
    order, signs = list(range(len(plain[0][0][0]))), [1] * len(plain[0][0][0])
    for place, (rows, biases) in enumerate(plain):
        moved = [tuple(sign * row[unit] for unit, sign in zip(order, signs, strict=True)) for row in rows]
        if not all(all(row) for row in moved):
            return None
        if place == len(plain) - 1:
            return (*standard, (tuple(moved), tuple(biases)))
        if not all(biases) or len({abs(bias) for bias in biases}) < len(biases):
            return None
        order = sorted(range(len(biases)), key=lambda unit: abs(biases[unit]))
        signs = [1 if biases[unit] > 0 else -1 for unit in order]
        turned = tuple(tuple(sign * w for w in moved[unit]) for unit, sign in zip(order, signs, strict=True))
        standard.append((turned, tuple(abs(biases[unit]) for unit in order)))
    return None


def irreducible(layers: Sequence[Layer]) -> list[Layer]:
    """The same network of tanh, without units that repeat another up to sign and units that nobody hears.

    >>> first = [(Fraction(1),), (Fraction(-1),), (Fraction(3),)], [Fraction(2), Fraction(-2), Fraction(5)]
    >>> second = [(Fraction(4), Fraction(1), Fraction(0))], [Fraction(7)]
    >>> (rows, biases), (out, _) = irreducible([first, second])
    >>> [int(w) for w, in rows], [int(b) for b in biases], [int(v) for v in out[0]]
    ([1], [2], [3])
    """
    reduced = [(list(rows), list(biases)) for rows, biases in layers]
    for (rows, biases), (after, _) in pairwise(reduced):  # a unit that repeats another is added to it
        first: dict[Vector, int] = {}
        for unit, (row, bias) in enumerate(zip(rows, biases, strict=True)):
            sign = next((1 if value > 0 else -1 for value in (*row, bias) if value), 0)
            known = first.setdefault(tuple(sign * value for value in (*row, bias)), unit)
            if not sign:  # tanh 0
                after[:] = [(*r[:unit], Fraction(0), *r[unit + 1 :]) for r in after]
            elif known != unit:
                turn = sign * next(1 if value > 0 else -1 for value in (*rows[known], biases[known]) if value)
                for place, r in enumerate(after):
                    summed = list(r)
                    summed[known], summed[unit] = r[known] + turn * r[unit], Fraction(0)
                    after[place] = tuple(summed)
    for (rows, biases), (after, _) in reversed(list(pairwise(reduced))):
        heard = [unit for unit in range(len(rows)) if any(r[unit] for r in after)]
        rows[:], biases[:] = [rows[unit] for unit in heard], [biases[unit] for unit in heard]
        after[:] = [tuple(r[unit] for unit in heard) for r in after]
    return list(reduced)


def as_tanh(layers: Sequence[Layer]) -> list[Layer]:
    """The network of tanh that computes what this one of sigmoids does."""
    half, rewritten = Fraction(1, 2), list[Layer]()
    for place, (rows, biases) in enumerate(layers):
        if place:  # what arrives is ½ + ½ tanh
            biases = [bias + half * sum(row, Fraction(0)) for row, bias in zip(rows, biases, strict=True)]
            rows = [tuple(half * w for w in row) for row in rows]
        if place < len(layers) - 1:
            rows, biases = [tuple(half * w for w in row) for row in rows], [half * bias for bias in biases]
        rewritten.append((rows, biases))
    return rewritten


LARGEST = 200_000  # weights
Smooth = Literal["tanh", "sigmoid", "gelu"]
THEOREMS = {
    "tanh": "Sussmann 1992",
    "sigmoid": "Sussmann 1992, sigmoid being tanh",
    "gelu": "independence of Gaussians",
}


@dataclass(frozen=True)
class SmoothLayer:
    """The names of a linear layer's tensors, and the axis along which the weight reads."""

    weight: str
    axis: int
    bias: str | None


@dataclass(frozen=True)
class SmoothShape:
    """`x → V σ(W x + b) + c`, or deeper: which tensors, which σ."""

    activation: Smooth
    layers: tuple[SmoothLayer, ...]


@dataclass(frozen=True)
class UniqueForm:
    """The unique data of a function: coefficients by `±(w, b)`, constants by |b|, an affine part."""

    units: Mapping[Vector, Vector]
    constants: Mapping[Fraction, Vector]
    matrix: tuple[Vector, ...]  # one row for each input
    offset: Vector


@dataclass(frozen=True)
class UniquenessVerdict:
    """What the theorem decides, and in words why."""

    shape: SmoothShape
    equal: bool
    words: str


def smooth_shape(program: Program) -> SmoothShape | None:
    """A program of linear layers with one smooth activation between them, or None."""
    if len(program.inputs) != 1 or len(program.outputs) != 1:
        return None
    reader, layers, names = LayerReader(program), list[SmoothLayer](), set[str]()
    node: Node = program.outputs[0]
    while True:
        layer = next(
            (
                candidate
                for candidate in map(reader.layer, (node, *node.inputs))
                if candidate and candidate.result is node
            ),
            None,
        )
        if layer is None or layer.is_convolution or not _along_last(layer):
            return None
        layers.append(SmoothLayer(layer.weight["name"], layer.axis, None if layer.bias is None else layer.bias["name"]))
        if layer.value is program.inputs[0]:
            break
        activation = _activation(layer.value)
        if activation is None:
            return None
        names.add(activation[0])
        node = activation[1]
    tensors = [tensor for layer in layers for tensor in (layer.weight, layer.bias) if tensor]
    if len(names) != 1 or len(set(tensors)) != len(tensors):
        return None
    return SmoothShape(names.pop(), tuple(reversed(layers)))  # type: ignore[arg-type]


def _along_last(layer: ContractionLayer) -> bool:
    return layer.value_axis == layer.value.rank - 1 and layer.result_axis == layer.result.rank - 1


def _activation(node: Node) -> tuple[str, Node] | None:
    """The name of an activation that the theorem knows, and what it is applied to."""
    inner = gelu_operand(node)
    if inner is not None:
        return "gelu", inner
    return (node.op, node.inputs[0]) if node.op in ("tanh", "sigmoid") else None


def decide_by_uniqueness(
    shape: SmoothShape, first: Mapping[str, torch.Tensor], second: Mapping[str, torch.Tensor]
) -> UniquenessVerdict | None:
    """Equal or different by the theorem; None where its conditions fail, or nobody can compare the constants left."""
    if sum(first[layer.weight].numel() for layer in shape.layers) > LARGEST:
        return None
    if len(shape.layers) > 2:
        return _decide_deep(shape, first, second)
    one, two = (unique_form(shape, state) for state in (first, second))
    because = THEOREMS[shape.activation]
    if one == two:
        words = f"after equal units are added up, both have the same {len(one.units)} hidden units ({because})"
        return UniquenessVerdict(shape, True, words)
    apart = [key for key in {*one.units, *two.units} if one.units.get(key) != two.units.get(key)]
    if apart:
        lost = sum(key not in two.units for key in one.units)
        words = (
            f"{len(apart)} hidden units have no partner with the same weights" if lost else "outgoing weights differ"
        )
        return UniquenessVerdict(shape, False, f"{words}: such a function determines its weights ({because})")
    if one.constants != two.constants and shape.activation == "gelu":
        return None
    return UniquenessVerdict(shape, False, f"hidden units are the same, and the affine parts differ ({because})")


def _decide_deep(
    shape: SmoothShape, first: Mapping[str, torch.Tensor], second: Mapping[str, torch.Tensor]
) -> UniquenessVerdict | None:
    if shape.activation == "gelu":
        return None
    one, two = (
        deep_form([_fractions(layer, state) for layer in shape.layers], shape.activation) for state in (first, second)
    )
    if one is None or two is None:
        return None
    if one == two:
        return UniquenessVerdict(shape, True, "every hidden unit has a partner with the same weights up to its sign")
    unlike = next(place for place, pair in enumerate(zip(one, two, strict=True)) if pair[0] != pair[1])
    words = f"layer {unlike + 1} has other weights, whatever the order and signs of hidden units: {DEEP}"
    return UniquenessVerdict(shape, False, words)


def unique_form(shape: SmoothShape, state: Mapping[str, torch.Tensor]) -> UniqueForm:
    """The unique data of one checkpoint."""
    weights, biases = _fractions(shape.layers[0], state)
    outgoing, offset = _fractions(shape.layers[1], state)
    columns = [tuple(row[unit] for row in outgoing) for unit in range(len(weights))]
    units: dict[Vector, list[Fraction]] = defaultdict(lambda: [Fraction(0)] * len(offset))
    constants: dict[Fraction, list[Fraction]] = defaultdict(lambda: [Fraction(0)] * len(offset))
    matrix = [[Fraction(0)] * len(offset) for _ in weights[0]] if weights else []
    rest = list(offset)
    for row, bias, out in zip(weights, biases, columns, strict=True):
        if shape.activation == "sigmoid":
            row, bias, out = tuple(w / 2 for w in row), bias / 2, tuple(v / 2 for v in out)
            rest = [c + v for c, v in zip(rest, out, strict=True)]
        lead = next((w for w in (*row, bias) if w), Fraction(0))
        if not lead:
            continue
        if lead < 0:
            row, bias = tuple(-w for w in row), -bias
            if shape.activation == "gelu":
                rest = [c - v * bias for c, v in zip(rest, out, strict=True)]
                for line, w in zip(matrix, row, strict=True):
                    line[:] = [a - v * w for a, v in zip(line, out, strict=True)]
            else:
                out = tuple(-v for v in out)
        target = units[(*row, bias)] if any(row) else constants[bias]
        target[:] = [a + v for a, v in zip(target, out, strict=True)]
    return UniqueForm(
        {key: tuple(value) for key, value in units.items() if any(value)},
        {key: tuple(value) for key, value in constants.items() if any(value)},
        tuple(tuple(line) for line in matrix),
        tuple(rest),
    )


def _fractions(layer: SmoothLayer, state: Mapping[str, torch.Tensor]) -> tuple[list[Vector], list[Fraction]]:
    """The rows of a layer, one for each output, and its bias."""
    weight = state[layer.weight].detach().double()
    rows = (weight if layer.axis == 1 else weight.T).tolist()
    bias = [0.0] * len(rows) if layer.bias is None else state[layer.bias].detach().double().tolist()
    return [tuple(map(Fraction, row)) for row in rows], list(map(Fraction, bias))
