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
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import torch

from lawful.checkpoints.compare.deep_uniqueness import DEEP, Vector, deep_form
from lawful.program.passes.fold import ContractionLayer, LayerReader
from lawful.program.passes.patterns import gelu_operand
from lawful.program.program import Node, Program

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
        layer = next((each for each in map(reader.layer, (node, *node.inputs)) if each and each.result is node), None)
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
    tensors = [each for layer in layers for each in (layer.weight, layer.bias) if each]
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
