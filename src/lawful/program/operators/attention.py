"""Attention: two contractions with a softmax between them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from lawful.program.builder import Builder
from lawful.program.operators.movement import constant_pad
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
    cap: float = 0.0,
    past: int = 0,
) -> Node:
    """softmax(q kᵀ scale + mask) v; a mask of truth values leaves out what is false, dropout a share of the weights.

    A row of which a mask leaves nothing is 0 in PyTorch. That needs a case only where a mask is data. Scores are kept
    below a `cap` by tanh; so many keys are `past`, before those of the first query.
    """
    if key.rank > 2 and query.rank > 2 and key.shape[-3] != query.shape[-3] and key.shape[-3] != 1:
        times = query.shape[-3] // key.shape[-3]  # each key serves several neighbouring heads
        key, value = (_repeat(b, states, times) for states in (key, value))
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores = b.mul(b.matmul(query, b.permute(key, (*range(key.rank - 2), key.rank - 1, key.rank - 2))), factor)
    if cap:
        scores = b.mul(b.function("tanh", b.div(scores, cap)), cap)
    if causal:
        earlier = b.constant(np.tril(np.ones(scores.shape[-2:], dtype=bool), past))
        if mask is None:
            mask = earlier
        elif mask.kind == "b":
            mask = b.elementwise("and", mask, earlier, commutes=True)
        else:
            mask = b.where(earlier, mask, -math.inf)

    def end(weights: Node) -> Node:
        dropped = b.mul(weights, b.gates("dropout", weights.shape, share)) if share else weights
        return b.matmul(dropped, value)

    if mask is None:
        return end(softmax(b, scores, -1))
    known = b.value(mask)
    scores = b.where(mask, scores, -math.inf) if mask.kind == "b" else b.add(scores, mask)
    if known is not None:
        open_ = known if mask.kind == "b" else known > -math.inf
        if bool(open_.any(-1).all()):
            return end(softmax(b, scores, -1))
    return end(safe_softmax(b, scores, -1))


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


def split_heads(b: Builder, x: Node, count: int) -> Node:
    """Heads are axis 1 of four, or are cut out of the last of three."""
    if x.rank == 4:
        return x
    return b.permute(b.reshape(x, (x.shape[0], x.shape[1], count, x.shape[2] // count)), (0, 2, 1, 3))


def join_heads(b: Builder, x: Node) -> Node:
    """The heads, axis 1 of four, side by side."""
    turned = b.permute(x, (0, 2, 1, 3))
    return b.reshape(turned, (*turned.shape[:2], turned.shape[2] * turned.shape[3]))


@onnx("Attention")
def _attention(b: Builder, query: Node, key: Node, value: Node, mask: Node | None = None, past_key: Node | None = None,
               past_value: Node | None = None, nonpad: Node | None = None, is_causal: int = 0, kv_num_heads: int = 0,
               q_num_heads: int = 0, scale: float | None = None, softcap: float = 0.0, outputs: int = 1,
               opset: int = 23) -> list[Node]:  # fmt: skip
    """Attention as ONNX has it, with what was kept of earlier keys and values in front of the new ones."""
    if outputs > 3 or nonpad is not None:
        raise Refused("Attention with lengths of its keys, or with its scores")
    if softcap and mask is not None and opset < 24:
        raise Refused("Attention that caps its scores after a mask")
    queries, keys, values = (
        split_heads(b, x, count) for x, count in ((query, q_num_heads), (key, kv_num_heads), (value, kv_num_heads))
    )
    past = 0
    if past_key is not None and past_value is not None:
        past = past_key.shape[2]
        keys, values = b.concatenate([past_key, keys], 2), b.concatenate([past_value, values], 2)
    if mask is not None and mask.shape[-1] < keys.shape[2]:
        missing = [0, keys.shape[2] - mask.shape[-1]]
        mask = constant_pad(b, mask, missing, False if mask.kind == "b" else -math.inf)
    attended = attend(b, queries, keys, values, mask, bool(is_causal), scale, cap=softcap, past=past)
    return [attended if query.rank == 4 else join_heads(b, attended), keys, values][:outputs]
