"""Operators that ONNX Runtime contributes (`com.microsoft`): nodes that its optimiser and its exporters fuse."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np

from lawful.program.builder import Builder
from lawful.program.operators.attention import attend, join_heads, split_heads
from lawful.program.operators.contraction import onnx_convolution, onnx_gemm
from lawful.program.operators.elementwise import gelu
from lawful.program.operators.lookup import index_select
from lawful.program.operators.normalisation import affine, normalise
from lawful.program.program import Node
from lawful.program.table import Refused, onnx

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
