"""Normalisations: `x / √(mean x² + ε)`, centred or not, and softmax; scale and shift are a product and a sum after.

BatchNorm in evaluation is no normalisation: its statistics are fixed, so it is a product and a sum.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from lawful.program.builder import Builder
from lawful.program.operators.reduction import logsumexp
from lawful.program.program import Node
from lawful.program.table import INFINITY, OperatorFamily, Traits, aten, define, onnx


def _normalise(arrays: Any, a: Any, x: Any) -> Any:
    count = math.prod(x.shape[axis] for axis in a["axes"])
    if a["centre"]:
        x = x - arrays.sum(x, a["axes"]) / count
    return x / arrays.sqrt(arrays.sum(x * x, a["axes"]) / count + a["epsilon"])


def _normalise_traits(a: Any) -> Traits:
    return Traits(
        degree=0 if a["epsilon"] == 0 else None,
        odd=True,
        zero=a["epsilon"] > 0,
        shift=0 if a["centre"] else None,
    )


define(
    "normalise",
    OperatorFamily.NORMALISATION,
    "x / √(mean x² + ε) along axes, after x - mean x if centred",
    _normalise,
    _normalise_traits,
    shape=lambda a, s: s,
    attributes=("axes", "centre", "epsilon"),
)
define(
    "softmax",
    OperatorFamily.NORMALISATION,
    "eˣ / Σ eˣ along an axis",
    lambda arrays, a, x: arrays.softmax(x, a["axis"]),
    Traits(range=(0.0, 1.0), shift=0),
    shape=lambda a, s: s,
    attributes=("axis",),
)

RMS_EPSILON = 2.0**-23  # where PyTorch's rms_norm is given none: the machine epsilon of float32


def affine(b: Builder, x: Node, scale: Node | None, shift: Node | None) -> Node:
    """γ x + β."""
    x = x if scale is None else b.mul(x, scale)
    return x if shift is None else b.add(x, shift)


def normalise(b: Builder, x: Node, axes: Sequence[int], centre: bool, epsilon: float) -> Node:
    """x / √(mean x² + ε) along axes."""
    return b.apply("normalise", (b.as_kind(x, "f"),), axes=b.axes(x, axes), centre=centre, epsilon=float(epsilon))


@aten("layer_norm")
def layer_norm(
    b: Builder,
    x: Node,
    normalized_shape: Sequence[int],
    weight: Node | None = None,
    bias: Node | None = None,
    eps: float = 1e-5,
) -> Node:
    """Centred, along the last axes."""
    return affine(b, normalise(b, x, range(-len(normalized_shape), 0), True, eps), weight, bias)


@aten("native_layer_norm")
def _native_layer_norm(
    b: Builder, x: Node, normalized_shape: Sequence[int], weight: Node | None, bias: Node | None, eps: float
) -> list[Node]:
    axes = range(-len(normalized_shape), 0)
    mean = b.mean(x, axes, True)
    variance = b.mean(b.power(b.sub(x, mean), 2), axes, True)
    return [layer_norm(b, x, normalized_shape, weight, bias, eps), mean, b.power(b.add(variance, eps), -0.5)]


@onnx("LayerNormalization", weights=(1, 2))
def _layer_normalization(
    b: Builder,
    x: Node,
    scale: Node,
    shift: Node | None = None,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
    outputs: int = 1,
) -> list[Node]:
    axes = range(axis % x.rank, x.rank)
    whole = affine(b, normalise(b, x, axes, True, epsilon), scale, shift)
    if outputs == 1:
        return [whole]
    mean = b.mean(x, axes, True)
    variance = b.mean(b.power(b.sub(x, mean), 2), axes, True)
    return [whole, mean, b.power(b.add(variance, epsilon), -0.5)]


@aten("rms_norm")
def rms_norm(
    b: Builder, x: Node, normalized_shape: Sequence[int], weight: Node | None = None, eps: float | None = None
) -> Node:
    """Not centred, along the last axes."""
    epsilon = RMS_EPSILON if eps is None else eps
    return affine(b, normalise(b, x, range(-len(normalized_shape), 0), False, epsilon), weight, None)


@onnx("RMSNormalization", weights=(1,))
def _rms_normalization(
    b: Builder, x: Node, scale: Node, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
) -> Node:
    return affine(b, normalise(b, x, range(axis % x.rank, x.rank), False, epsilon), scale, None)


def _by_channel(b: Builder, x: Node, entries: Node | None) -> Node | None:
    return None if entries is None else b.reshape(entries, (x.shape[1], *(1,) * (x.rank - 2)))


@aten("group_norm")
def group_norm(
    b: Builder, x: Node, num_groups: int, weight: Node | None = None, bias: Node | None = None, eps: float = 1e-5
) -> Node:
    """Centred, along each group of channels and all places."""
    parts = b.reshape(x, (x.shape[0], num_groups, math.prod(x.shape[1:]) // num_groups))
    whole = b.reshape(normalise(b, parts, (2,), True, eps), x.shape)
    return affine(b, whole, _by_channel(b, x, weight), _by_channel(b, x, bias))


@onnx("GroupNormalization", weights=(1, 2))
def _group_normalization(
    b: Builder,
    x: Node,
    scale: Node,
    shift: Node,
    num_groups: int,
    epsilon: float = 1e-5,
    stash_type: int = 1,
    opset: int = 21,
) -> Node:
    if opset < 21:  # one number for each group
        group_size = x.shape[1] // num_groups
        scale, shift = (
            b.reshape(b.expand(b.reshape(t, (num_groups, 1)), (num_groups, group_size)), (x.shape[1],))
            for t in (scale, shift)
        )
    return group_norm(b, x, num_groups, scale, shift, epsilon)


@aten("instance_norm")
def instance_norm(
    b: Builder,
    x: Node,
    weight: Node | None,
    bias: Node | None,
    running_mean: Node | None,
    running_var: Node | None,
    use_input_stats: bool,
    momentum: float,
    eps: float,
) -> Node:
    """Each channel of each sample by itself, or by fixed statistics."""
    if not use_input_stats:
        return batch_norm(b, x, weight, bias, running_mean, running_var, False, momentum, eps)
    return group_norm(b, x, x.shape[1], weight, bias, eps)


@onnx("InstanceNormalization", weights=(1, 2), regrouped=True)
def _instance_normalization(b: Builder, x: Node, scale: Node, shift: Node, epsilon: float = 1e-5) -> Node:
    return group_norm(b, x, x.shape[1], scale, shift, epsilon)


@aten("batch_norm")
def batch_norm(
    b: Builder,
    x: Node,
    weight: Node | None,
    bias: Node | None,
    running_mean: Node | None,
    running_var: Node | None,
    training: bool,
    momentum: float,
    eps: float,
) -> Node:
    """(x - mean) γ / √(variance + ε) + β with fixed statistics; in training with those of the batch."""
    if training or running_mean is None or running_var is None:
        whole = normalise(b, x, [axis for axis in range(x.rank) if axis != 1], True, eps)
        return affine(b, whole, _by_channel(b, x, weight), _by_channel(b, x, bias))
    root = b.power(b.add(running_var, eps), -0.5)
    scale = root if weight is None else b.mul(weight, root)
    centred = b.sub(x, _by_channel(b, x, running_mean))  # type: ignore[arg-type]
    return affine(b, centred, _by_channel(b, x, scale), _by_channel(b, x, bias))


def _register_batch_norm(name: str, others: int, training: bool = False) -> None:
    """The calls with statistics among their results, which hardly anybody reads; some say no mode."""
    mode = training

    @aten(name)
    def build(b: Builder, x: Node, weight: Node | None = None, bias: Node | None = None,
              running_mean: Node | None = None, running_var: Node | None = None, training: bool = mode,
              momentum: float = 0.1, eps: float = 1e-5) -> list[Any]:  # fmt: skip
        normalised = batch_norm(b, x, weight, bias, running_mean, running_var, training, momentum, eps)
        return [normalised, *[None] * others]


_register_batch_norm("native_batch_norm", 2)
_register_batch_norm("_native_batch_norm_legit", 2)
_register_batch_norm("_native_batch_norm_legit_no_training", 2)
_register_batch_norm("_native_batch_norm_legit_functional", 4)
_register_batch_norm("_batch_norm_with_update_functional", 5, training=True)


@onnx("BatchNormalization", weights=(1, 2), statistics=(3, 4))
def _batch_normalization(
    b: Builder,
    x: Node,
    scale: Node,
    shift: Node,
    mean: Node,
    variance: Node,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    training_mode: int = 0,
    outputs: int = 1,
) -> list[Node]:
    normalization = [batch_norm(b, x, scale, shift, mean, variance, bool(training_mode), momentum, epsilon)]
    if training_mode and outputs > 1:
        axes = [axis for axis in range(x.rank) if axis != 1]
        batch = b.mean(x, axes, keep=True)
        spread = b.sub(x, batch)
        for running, new in ((mean, batch), (variance, b.mean(b.mul(spread, spread), axes))):
            normalization.append(b.add(b.mul(running, momentum), b.mul(b.reshape(new, running.shape), 1 - momentum)))
    return normalization


@aten("softmax", "_softmax", "special_softmax")
def softmax(b: Builder, x: Node, dim: int) -> Node:
    """eˣ / Σ eˣ along an axis."""
    if not x.rank:
        return b.reshape(softmax(b, b.reshape(x, (1,)), 0), ())
    return b.apply("softmax", (b.as_kind(x, "f"),), axis=dim % x.rank)


@aten("_safe_softmax")
def safe_softmax(b: Builder, x: Node, dim: int) -> Node:
    """Softmax that is 0 along an axis of -∞ alone."""
    dead = b.elementwise("eq", b.reduce("amax", x, dim, True), -INFINITY)
    return b.where(dead, 0.0, softmax(b, x, dim))


@aten("log_softmax", "_log_softmax", "special_log_softmax")
def log_softmax(b: Builder, x: Node, dim: int) -> Node:
    """x - log Σ eˣ."""
    return b.sub(x, logsumexp(b, x, [dim], True))


@onnx("Softmax")
def _softmax(b: Builder, x: Node, axis: int | None = None, opset: int = 13) -> Node:
    return _flatten_axes(b, softmax, x, axis, opset)


@onnx("LogSoftmax")
def _log_softmax(b: Builder, x: Node, axis: int | None = None, opset: int = 13) -> Node:
    return _flatten_axes(b, log_softmax, x, axis, opset)


@onnx("Hardmax")
def _hardmax(b: Builder, x: Node, axis: int | None = None, opset: int = 13) -> Node:
    def of_axis(b: Builder, x: Node, dim: int) -> Node:
        at = b.constant(list(range(x.shape[dim])))
        at = b.reshape(at, (x.shape[dim], *(1,) * (x.rank - dim % x.rank - 1)))
        return b.as_kind(b.elementwise("eq", b.reduce("argmax", x, dim, True), at), "f")

    return _flatten_axes(b, of_axis, x, axis, opset)


def _flatten_axes(
    b: Builder, function: Callable[[Builder, Node, int], Node], x: Node, axis: int | None, opset: int
) -> Node:
    """Before version 13, softmax was of all axes from one on, as one."""
    if opset >= 13:
        return function(b, x, -1 if axis is None else axis)
    start = (1 if axis is None else axis) % x.rank
    flat = b.reshape(x, (math.prod(x.shape[:start]), math.prod(x.shape[start:])))
    return b.reshape(function(b, flat, 1), x.shape)


@onnx("LpNormalization")
def _lp_normalization(b: Builder, x: Node, axis: int = -1, p: int = 2) -> Node:
    size = b.power(b.sum(b.power(x, 2), axis, True), 0.5) if p == 2 else b.sum(b.function("abs", x), axis, True)
    return b.where(b.elementwise("eq", size, 0.0), 0.0, b.div(x, size))


@onnx("Normalizer")
def _normalizer(b: Builder, x: Node, norm: str = "MAX") -> Node:
    """Rows of length one, as scikit-learn has them; rows of zeros stay."""
    size = b.function("abs", x)
    if norm == "MAX":
        length = b.reduce("amax", size, -1, True)
    else:
        length = b.sum(size, -1, True) if norm == "L1" else b.power(b.sum(b.power(x, 2), -1, True), 0.5)
    return b.div(x, b.where(b.elementwise("eq", length, 0.0), 1.0, length))


@onnx("MeanVarianceNormalization")
def _mean_variance_normalization(b: Builder, x: Node, axes: Sequence[int] = (0, 2, 3)) -> Node:
    """(x - mean) / (deviation + 1e-9), by its definition as a function of ONNX."""
    centred = b.sub(x, b.mean(x, axes, True))
    square = b.sub(b.mean(b.power(x, 2), axes, True), b.power(b.mean(x, axes, True), 2))
    return b.div(centred, b.add(b.power(square, 0.5), 1e-9))


@onnx("LRN")
def _lrn(b: Builder, x: Node, size: int, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0) -> Node:
    """x / (bias + α/n Σ x²)^β, summed over n neighbouring channels."""
    channels = np.arange(x.shape[1])
    low, high = (size - 1) // 2, size - 1 - (size - 1) // 2
    near = (channels[None] >= channels[:, None] - low) & (channels[None] <= channels[:, None] + high)
    total = b.along(b.power(x, 2), 1, near.astype(float))
    return b.div(x, b.power(b.add(b.mul(total, alpha / size), bias), beta))


@aten("cosine_similarity")
def cosine_similarity(b: Builder, x1: Node, x2: Node, dim: int = 1, eps: float = 1e-8) -> Node:
    """Σ x y / (max(|x|, ε) max(|y|, ε))."""
    shape = np.broadcast_shapes(x1.shape, x2.shape)
    one, two = b.expand(x1, shape), b.expand(x2, shape)
    norms = [b.maximum(b.power(b.sum(b.power(t, 2), dim, True), 0.5), eps) for t in (one, two)]
    return b.sum(b.mul(b.div(one, norms[0]), b.div(two, norms[1])), dim)


@aten("_weight_norm")
def weight_norm(b: Builder, x: Node, g: Node, dim: int = 0) -> Node:
    """g v / |v|, with one length for each index along an axis, or one for all (-1)."""
    return _weight_norm_interface(b, x, g, dim)[0]


@aten("_weight_norm_interface")
def _weight_norm_interface(b: Builder, x: Node, g: Node, dim: int = 0) -> list[Node]:
    axes = [axis for axis in range(x.rank) if axis != dim]
    length = b.power(b.sum(b.power(x, 2), axes, True), 0.5)
    return [b.mul(b.mul(x, b.power(length, -1.0)), g), b.reshape(length, g.shape)]
