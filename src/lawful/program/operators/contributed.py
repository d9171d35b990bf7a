"""Operators of ONNX files beside the standard's plain ones: quantised ones, ONNX Runtime's, and classical models'.

Roundings stand between layers, and stored integers are numbers before a program is read. `com.microsoft` are nodes that
ONNX Runtime's optimiser and its exporters fuse; `ai.onnx.ml` are scalings, linear models, and labels of classes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from lawful.program.builder import Builder
from lawful.program.operators.attention import attend, join_heads, split_heads
from lawful.program.operators.choice import clamp
from lawful.program.operators.contraction import onnx_convolution, onnx_gemm
from lawful.program.operators.elementwise import gelu
from lawful.program.operators.lookup import index_select
from lawful.program.operators.normalisation import affine, normalise
from lawful.program.program import Node
from lawful.program.table import Refused, onnx

# TensorProto.DataType: the least and the largest number of an integer type
RANGES = {
    2: (0, 255), 3: (-128, 127), 4: (0, 65535), 5: (-32768, 32767), 6: (-(2**31), 2**31 - 1), 21: (0, 15), 22: (-8, 7),
}  # fmt: skip
UINT8 = 2


def _along(b: Builder, x: Node, numbers: Node, axis: int, block: int) -> Node:
    """One number for everything, one for each index of an axis, or one for each block of an axis."""
    if block:
        whole = b.move(lambda t: np.repeat(t, block, axis), numbers)
        return b.slice(whole, axis, slice(0, x.shape[axis % x.rank]))
    if numbers.size == 1:
        return b.reshape(numbers, ())
    return b.reshape(numbers, [x.shape[axis % x.rank] if k == axis % x.rank else 1 for k in range(x.rank)])


@onnx("QuantizeLinear")
def _quantize(
    b: Builder,
    x: Node,
    scale: Node,
    zero: Node | None = None,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
    precision: int = 0,
    saturate: int = 1,
    types: Any = (),
) -> Node:
    """round(x / scale) + zero, kept within the integers of its type."""
    kind = output_dtype or (types[2] if zero is not None else UINT8)
    if kind not in RANGES:
        raise Refused(f"QuantizeLinear to type {kind}")
    b.notes["rounds between layers, as quantised networks do"] += 1
    rounded = b.function("round", b.div(b.as_kind(x, "f"), _along(b, x, scale, axis, block_size)))
    if zero is not None:
        rounded = b.add(rounded, b.as_kind(_along(b, x, zero, axis, block_size), "f"))
    return clamp(b, rounded, *map(float, RANGES[kind]))


@onnx("DequantizeLinear")
def _dequantize(
    b: Builder,
    x: Node,
    scale: Node,
    zero: Node | None = None,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
) -> Node:
    """(x - zero) scale."""
    x = b.as_kind(x, "f")
    if zero is not None:
        x = b.sub(x, b.as_kind(_along(b, x, zero, axis, block_size), "f"))
    return b.mul(x, _along(b, x, scale, axis, block_size))


@onnx("DynamicQuantizeLinear")
def _dynamic_quantize(b: Builder, x: Node) -> list[Node]:
    """Eight bits for the range that the values happen to have, 0 among them."""
    b.notes["rounds between layers, as quantised networks do"] += 1
    axes = list(range(x.rank))
    low = b.minimum(b.reduce("amin", x, axes, False), 0.0)
    high = b.maximum(b.reduce("amax", x, axes, False), 0.0)
    scale = b.div(b.sub(high, low), 255.0)
    zero = clamp(b, b.function("round", b.div(b.neg(low), scale)), 0.0, 255.0)
    whole = clamp(b, b.add(b.function("round", b.div(x, scale)), zero), 0.0, 255.0)
    return [whole, scale, zero]


MASKED = -10_000.0  # what the runtime adds to scores that a mask leaves out, where a node does not say
ACTIVATIONS = ("Relu", "Sigmoid", "Tanh")


@onnx("com.microsoft:Gelu")
def _gelu(b: Builder, x: Node) -> Node:
    return gelu(b, x)


@onnx("com.microsoft:BiasGelu", weights=(1,))
def _bias_gelu(b: Builder, x: Node, bias: Node) -> Node:
    return gelu(b, b.add(x, bias))


@onnx("com.microsoft:FastGelu", weights=(1,))
def _fast_gelu(b: Builder, x: Node, bias: Node | None = None) -> Node:
    return gelu(b, x if bias is None else b.add(x, bias), "tanh")


@onnx("com.microsoft:QuickGelu")
def _quick_gelu(b: Builder, x: Node, alpha: float = 1.702) -> Node:
    return b.mul(x, b.function("sigmoid", b.mul(x, alpha)))


@onnx("com.microsoft:FusedMatMul", weights=(0, 1))
def _fused_matmul(
    b: Builder,
    x: Node,
    y: Node,
    alpha: float = 1.0,
    transA: int = 0,
    transB: int = 0,
    transBatchA: int = 0,
    transBatchB: int = 0,
) -> Node:
    if transBatchA or transBatchB:
        raise Refused("FusedMatMul that moves the axis of the batch")

    def turn(t: Node, is_turned: int) -> Node:
        return b.permute(t, (*range(t.rank - 2), t.rank - 1, t.rank - 2)) if is_turned else t

    return b.mul(b.matmul(turn(x, transA), turn(y, transB)), alpha)


def _activate(b: Builder, x: Node, activation: str) -> Node:
    if activation and activation not in ACTIVATIONS:
        raise Refused(f"a fused activation {activation}")
    return b.function(activation.lower(), x) if activation else x


@onnx("com.microsoft:FusedGemm", weights=(0, 1, 2))
def _fused_gemm(
    b: Builder,
    x: Node,
    y: Node,
    c: Node | None = None,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,
    transB: int = 0,
    activation: str = "",
) -> Node:
    return _activate(b, onnx_gemm(b, x, y, c, alpha, beta, transA, transB), activation)


@onnx("com.microsoft:FusedConv", weights=(1, 2))
def _fused_conv(
    b: Builder,
    x: Node,
    weight: Node,
    bias: Node | None = None,
    added: Node | None = None,
    auto_pad: str = "NOTSET",
    dilations: Any = None,
    group: int = 1,
    kernel_shape: Any = None,
    pads: Any = None,
    strides: Any = None,
    activation: str = "",
) -> Node:
    result = onnx_convolution(b, x, weight, bias, auto_pad, dilations, group, kernel_shape, pads, strides)
    return _activate(b, result if added is None else b.add(result, added), activation)


@onnx("SimplifiedLayerNormalization", "com.microsoft:SimplifiedLayerNormalization", weights=(1,))
def _simplified_layer_normalization(
    b: Builder, x: Node, scale: Node, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1, outputs: int = 1
) -> Node:
    if outputs > 1:
        raise Refused("SimplifiedLayerNormalization whose statistics are read")
    return affine(b, normalise(b, x, range(axis % x.rank, x.rank), False, epsilon), scale, None)


def _skip(b: Builder, x: Node, skip: Node, scale: Node, shift: Node | None, bias: Node | None, epsilon: float,
          centre: bool) -> list[Any]:  # fmt: skip
    total = b.add(x, skip) if bias is None else b.add(b.add(x, skip), bias)
    return [affine(b, normalise(b, total, (-1,), centre, epsilon), scale, shift), None, None, total]


@onnx("com.microsoft:SkipLayerNormalization", weights=(2, 3, 4))
def _skip_layer_normalization(
    b: Builder,
    x: Node,
    skip: Node,
    scale: Node,
    shift: Node | None = None,
    bias: Node | None = None,
    epsilon: float = 1e-12,
) -> list[Any]:
    return _skip(b, x, skip, scale, shift, bias, epsilon, True)


@onnx("com.microsoft:SkipSimplifiedLayerNormalization", weights=(2, 3))
def _skip_simplified(
    b: Builder, x: Node, skip: Node, scale: Node, bias: Node | None = None, epsilon: float = 1e-12
) -> list[Any]:
    return _skip(b, x, skip, scale, None, bias, epsilon, False)


@onnx("com.microsoft:EmbedLayerNormalization", weights=(2, 3, 4, 5, 6))
def _embed_layer_normalization(
    b: Builder,
    ids: Node,
    segments: Node | None,
    words: Node,
    positions: Node,
    kinds: Node | None = None,
    scale: Node | None = None,
    shift: Node | None = None,
    mask: Node | None = None,
    places: Node | None = None,
    epsilon: float = 1e-12,
    mask_index_type: int = 1,
) -> list[Any]:
    """Rows of three tables, added and normalised; also how many entries of a mask are set, and the sum itself."""
    if places is None:
        places = b.constant(np.broadcast_to(np.arange(ids.shape[1]), ids.shape))
    total = b.add(index_select(b, words, 0, ids), index_select(b, positions, 0, places))
    if kinds is not None and segments is not None:
        total = b.add(total, index_select(b, kinds, 0, segments))
    count = b.constant(np.zeros(ids.shape[0], dtype=np.int64)) if mask is None else b.sum(mask, 1)
    return [affine(b, normalise(b, total, (-1,), True, epsilon), scale, shift), count, total]


def _added_mask(
    b: Builder, mask: Node | None, value: float, length: int, causal: bool, more: Node | None
) -> Node | None:
    """What is added to the scores: a large negative number where a mask of the keys is 0, and whatever else is."""
    parts = [] if more is None else [more]
    if mask is not None:
        if mask.rank != 2:
            raise Refused(f"attention with a mask of {mask.rank} axes")
        hidden = b.as_kind(b.elementwise("le", mask, 0), "f")
        parts.append(b.mul(b.reshape(hidden, (mask.shape[0], 1, 1, mask.shape[1])), value))
    if causal:
        parts.append(b.constant(np.triu(np.full((length, length), value), 1)))
    total = None
    for part in parts:
        total = part if total is None else b.add(total, part)
    return total


@onnx("com.microsoft:Attention", weights=(1, 2))
def _attention(
    b: Builder,
    x: Node,
    weight: Node,
    bias: Node | None = None,
    mask: Node | None = None,
    past: Node | None = None,
    added: Node | None = None,
    num_heads: int = 1,
    unidirectional: int = 0,
    scale: float = 0.0,
    mask_filter_value: float = MASKED,
    qkv_hidden_sizes: Any = None,
    outputs: int = 1,
) -> Node:
    """Queries, keys and values by one matrix, attention by heads, the heads side by side."""
    if past is not None or outputs > 1:
        raise Refused("Attention with a cache of keys")
    whole = b.matmul(x, weight)
    whole = whole if bias is None else b.add(whole, bias)
    sizes = list(qkv_hidden_sizes or [weight.shape[1] // 3] * 3)
    ends = np.cumsum([0, *sizes])
    parts = [b.slice(whole, 2, slice(int(low), int(high))) for low, high in pairwise(ends)]
    query, key, value = (split_heads(b, part, num_heads) for part in parts)
    bent = _added_mask(b, mask, mask_filter_value, x.shape[1], bool(unidirectional), added)
    return join_heads(b, attend(b, query, key, value, bent, False, scale or None))


@onnx("com.microsoft:MultiHeadAttention", weights=(3,))
def _multi_head_attention(
    b: Builder,
    query: Node,
    key: Node | None = None,
    value: Node | None = None,
    bias: Node | None = None,
    mask: Node | None = None,
    added: Node | None = None,
    past_key: Node | None = None,
    past_value: Node | None = None,
    num_heads: int = 1,
    unidirectional: int = 0,
    scale: float = 0.0,
    mask_filter_value: float = MASKED,
    outputs: int = 1,
) -> Node:
    """Attention of queries, keys and values that are computed before; a bias is for all three."""
    if key is None or value is None or past_key is not None or past_value is not None or outputs > 1 or key.rank != 3:
        raise Refused("MultiHeadAttention of packed operands, or with a cache of keys")
    sizes = [query.shape[2], key.shape[2], value.shape[2]]
    ends = np.cumsum([0, *sizes])
    operands = []
    for part, low, high in zip((query, key, value), ends, ends[1:], strict=False):
        shifted = part if bias is None else b.add(part, b.slice(bias, 0, slice(int(low), int(high))))
        operands.append(split_heads(b, shifted, num_heads))
    bent = _added_mask(b, mask, mask_filter_value, query.shape[1], bool(unidirectional), added)
    return join_heads(b, attend(b, operands[0], operands[1], operands[2], bent, False, scale or None))


def _rotate(b: Builder, x: Node, cosine: Node, sine: Node, interleaved: bool, heads: int, width: int) -> Node:
    """Pairs of entries of each head, turned by the angle of their position; entries beyond `width` stay."""
    is_flat = x.rank == 3
    if is_flat:
        x = split_heads(b, x, heads or x.shape[2] // (width or 2 * cosine.shape[-1]))
    size = width or x.shape[-1]
    cosine, sine = (
        b.reshape(b.slice(t, t.rank - 1, slice(0, size // 2)), (t.shape[0], 1, t.shape[1], size // 2))
        for t in (cosine, sine)
    )
    first = slice(0, size, 2) if interleaved else slice(0, size // 2)
    second = slice(1, size, 2) if interleaved else slice(size // 2, size)
    one, other = b.slice(x, 3, first), b.slice(x, 3, second)
    turned = [
        b.sub(b.mul(one, cosine), b.mul(other, sine)),
        b.add(b.mul(one, sine), b.mul(other, cosine)),
    ]
    if interleaved:
        whole = b.move(lambda left, right: np.stack([left, right], -1).reshape(*left.shape[:-1], -1), *turned)
    else:
        whole = b.concatenate(turned, -1)
    if size < x.shape[-1]:
        whole = b.concatenate([whole, b.slice(x, 3, slice(size, None))], -1)
    return join_heads(b, whole) if is_flat else whole


@onnx("RotaryEmbedding")
def _rotary(
    b: Builder,
    x: Node,
    cosine: Node,
    sine: Node,
    places: Node | None = None,
    interleaved: int = 0,
    num_heads: int = 0,
    rotary_embedding_dim: int = 0,
) -> Node:
    """Angles for each sample and position, or in a table that the positions pick from."""
    if places is not None:
        cosine, sine = (index_select(b, t, 0, places) for t in (cosine, sine))
    return _rotate(b, x, cosine, sine, bool(interleaved), num_heads, rotary_embedding_dim)


@onnx("com.microsoft:RotaryEmbedding")
def _rotary_contributed(
    b: Builder,
    x: Node,
    places: Node,
    cosine: Node,
    sine: Node,
    interleaved: int = 0,
    num_heads: int = 0,
    rotary_embedding_dim: int = 0,
    is_packed_batching: int = 0,
    scale: float = 1.0,
) -> Node:
    """Positions are given one by one, or as that of the first."""
    if is_packed_batching or not math.isclose(scale, 1.0):
        raise Refused("RotaryEmbedding of packed samples, or with a scale")
    length = x.shape[1] if x.rank == 3 else x.shape[2]
    if places.rank == 1:
        places = b.add(b.reshape(places, (1, 1)), b.constant(np.arange(length)[None]))
    return _rotary(b, x, cosine, sine, places, interleaved, num_heads, rotary_embedding_dim)


@onnx("Scaler")
def _scaler(b: Builder, x: Node, offset: Sequence[float] = (0.0,), scale: Sequence[float] = (1.0,)) -> Node:
    """(x - offset) scale."""
    return b.mul(b.sub(b.as_kind(x, "f"), b.constant(np.array(offset))), b.constant(np.array(scale)))


@onnx("LinearRegressor")
def _linear_regressor(
    b: Builder,
    x: Node,
    coefficients: Sequence[float],
    intercepts: Sequence[float] = (),
    post_transform: str = "NONE",
    targets: int = 1,
) -> Node:
    if post_transform != "NONE":
        raise Refused("LinearRegressor with a function of its result")
    weight = b.constant(np.array(coefficients).reshape(targets, -1))
    bias = b.constant(np.array(intercepts)) if len(intercepts) else None
    return b.linear(b.as_kind(x, "f"), weight, bias)


@onnx("ArrayFeatureExtractor")
def _array_feature_extractor(b: Builder, x: Node, indices: Node) -> Node:
    """Columns; of the names of classes, the label of each sample."""
    at = b.value(indices)
    if at is not None:
        return b.pick(x, -1, at.ravel())
    return _label(b, "ArrayFeatureExtractor", (1, indices.size), "", x, indices)


@onnx("ZipMap")
def _zip_map(b: Builder, x: Node, classlabels_int64s: Any = None, classlabels_strings: Any = None) -> Node:
    """Probabilities by the names of their classes."""
    return _label(b, "ZipMap", x.shape, f"{classlabels_int64s}{classlabels_strings}", x)


@onnx("LabelEncoder")
def _label_encoder(
    b: Builder,
    x: Node,
    keys_int64s: Any = None,
    keys_strings: Any = None,
    keys_floats: Any = None,
    values_int64s: Any = None,
    values_strings: Any = None,
    values_floats: Any = None,
    default_int64: int = -1,
    default_string: str = "_Unused",
    default_float: float = -0.0,
) -> Node:
    """Other labels for labels."""
    keys = [keys_int64s, keys_strings, keys_floats, values_int64s, values_strings, values_floats]
    return _label(b, "LabelEncoder", x.shape, f"{keys} {default_int64} {default_string} {default_float}", x)


@onnx("Binarizer")
def _binarizer(b: Builder, x: Node, threshold: float = 0.0) -> Node:
    """Whether x exceeds a number."""
    return b.as_kind(b.elementwise("gt", b.as_kind(x, "f"), threshold), "f")


def _label(b: Builder, name: str, shape: tuple[int, ...], settings: str, *operands: Node) -> Node:
    """Labels that no number stands for: they can be told apart, and not computed."""

    def call(*_: Any) -> Any:
        raise Refused(f"{name} makes labels")

    return b.opaque(name, operands, call, shape, "i", f"{name} {settings} (labels)")
