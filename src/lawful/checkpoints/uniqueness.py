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
from torch import fx

from lawful.checkpoints.deep_uniqueness import DEEP, Vector, deep_form
from lawful.network.modules.export import ExportedModule, operator_name

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


def smooth_shape(exported: ExportedModule) -> SmoothShape | None:
    """A graph of linear layers with one smooth activation between them, or None."""
    calls = exported.calls
    if len(calls) < 3 or len(calls) % 2 == 0 or len(exported.inputs) != 1 or len(exported.results) != 1:
        return None
    name = operator_name(calls[1].target)
    if name not in ("tanh", "sigmoid", "gelu") or exported.results[0] is not calls[-1]:
        return None
    layers: list[SmoothLayer] = []
    for place, node in enumerate(calls):
        if place % 2:
            plain = not node.kwargs or dict(node.kwargs) == {"approximate": "none"}
            if operator_name(node.target) != name or not plain or node.args[0] is not calls[place - 1]:
                return None
            continue
        layer, read = _layer(exported, node), _value(node)
        given = (
            isinstance(read, fx.Node) and read.name == exported.inputs[0] if place == 0 else read is calls[place - 1]
        )
        if layer is None or not given:
            return None
        layers.append(layer)
    names = [each for layer in layers for each in (layer.weight, layer.bias) if each]
    return SmoothShape(name, tuple(layers)) if len(set(names)) == len(names) else None  # type: ignore[arg-type]


def _value(node: fx.Node) -> object:
    return node.args[1] if operator_name(node.target) == "addmm" else node.args[0]


def _layer(exported: ExportedModule, node: fx.Node) -> SmoothLayer | None:
    name = operator_name(node.target)
    if name == "linear":
        weight, axis, bias = node.args[1], 1, node.args[2] if len(node.args) > 2 else node.kwargs.get("bias")
    elif name == "addmm" and not node.kwargs:
        weight, axis, bias = node.args[2], 0, node.args[0]
    else:
        return None
    names = [exported.names.get(each.name) if isinstance(each, fx.Node) else None for each in (weight, bias)]
    if names[0] is None or (bias is not None and names[1] is None):
        return None
    return SmoothLayer(names[0], axis, names[1])


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
