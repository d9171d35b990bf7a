"""Attention: two contractions with a softmax between them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from lawful.program.builder import Builder
from lawful.program.operators.normalisation import safe_softmax, softmax
from lawful.program.program import Node
from lawful.program.table import Refused, aten, onnx


def attend(
    b: Builder,
    query: Node,
    key: Node,
    value: Node,
    mask: Node | None,
    causal: bool,
    scale: float | None,
    share: float = 0.0,
) -> Node:
    """softmax(q kᵀ scale + mask) v; a mask of truth values leaves out what is false, dropout a share of the weights.

    A row of which a mask leaves nothing is 0 in PyTorch. That needs a case only where a mask is data.
    """
    if key.rank > 2 and query.rank > 2 and key.shape[-3] != query.shape[-3] and key.shape[-3] != 1:
        times = query.shape[-3] // key.shape[-3]  # each key serves several neighbouring heads
        key, value = (_repeat(b, each, times) for each in (key, value))
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores = b.mul(b.matmul(query, b.permute(key, (*range(key.rank - 2), key.rank - 1, key.rank - 2))), factor)
    if causal:
        if mask is not None:
            raise Refused("attention with a mask that is also causal")
        mask = b.constant(np.tril(np.ones(scores.shape[-2:], dtype=bool)))

    def ended(weights: Node) -> Node:
        dropped = b.mul(weights, b.gates("dropout", weights.shape, share)) if share else weights
        return b.matmul(dropped, value)

    if mask is None:
        return ended(softmax(b, scores, -1))
    known = b.value(mask)
    scores = b.where(mask, scores, -math.inf) if mask.kind == "b" else b.add(scores, mask)
    if known is not None:
        open_ = known if mask.kind == "b" else known > -math.inf
        if bool(open_.any(-1).all()):
            return ended(softmax(b, scores, -1))
    return ended(safe_softmax(b, scores, -1))


def _repeat(b: Builder, x: Node, times: int) -> Node:
    return b.move(lambda t: np.repeat(t, times, axis=-3), x)


@aten("scaled_dot_product_attention")
def attention(
    b: Builder,
    query: Node,
    key: Node,
    value: Node,
    attn_mask: Node | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Node:
    """Attention as PyTorch has it."""
    return attend(b, query, key, value, attn_mask, is_causal, scale, float(dropout_p))


@aten("_scaled_dot_product_flash_attention_for_cpu")
def _flash_attention(
    b: Builder,
    query: Node,
    key: Node,
    value: Node,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    attn_mask: Node | None = None,
    scale: float | None = None,
) -> list[Any]:
    return [attention(b, query, key, value, attn_mask, dropout_p, is_causal, scale), None]


@onnx("Attention")
def _attention(
    b: Builder,
    query: Node,
    key: Node,
    value: Node,
    mask: Node | None = None,
    past_key: Node | None = None,
    past_value: Node | None = None,
    nonpad: Node | None = None,
    is_causal: int = 0,
    kv_num_heads: int = 0,
    q_num_heads: int = 0,
    scale: float | None = None,
    outputs: int = 1,
) -> Node:
    """Heads are axis 1 of four, or are cut out of the last of three."""
    if outputs > 1 or past_key is not None or past_value is not None or nonpad is not None:
        raise Refused("Attention with a cache of keys")
    if query.rank == 4:
        return attend(b, query, key, value, mask, bool(is_causal), scale)

    def heads(x: Node, count: int) -> Node:
        return b.permute(b.reshape(x, (x.shape[0], x.shape[1], count, x.shape[2] // count)), (0, 2, 1, 3))

    whole = attend(
        b, heads(query, q_num_heads), heads(key, kv_num_heads), heads(value, kv_num_heads), mask, bool(is_causal), scale
    )
    turned = b.permute(whole, (0, 2, 1, 3))
    return b.reshape(turned, (*turned.shape[:2], turned.shape[2] * turned.shape[3]))
