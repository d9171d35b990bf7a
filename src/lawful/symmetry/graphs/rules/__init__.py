"""One rule for each operation: what it leaves of the gauges and shifts of its arguments.

A rule is a function of a `Step` and the operation's arguments by ATen's names. It states its demands to `step.gauges`
and `step.shifts` and returns how its result moves. Every rule keeps to a subgroup of the true one: what it does not
understand it pins.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lawful.symmetry.graphs.rules import (
    arithmetic,
    attention,
    choice,
    contract,
    convolve,
    elementwise,
    lookup,
    normalise,
    pool,
    recurrent,
    regroup,
)
from lawful.symmetry.graphs.rules.elementwise import other_elementwise

Rule = Callable[..., Any]


def _named(rule: Rule, names: str) -> dict[str, Rule]:
    return dict.fromkeys(names.split(), rule)


RULES: dict[str, Rule] = {
    "linear": contract.linear,
    "matmul": contract.matmul,
    **_named(contract.grouped_product, "_grouped_mm grouped_mm_fallback"),
    "addmm": contract.addmm,
    "baddbmm": contract.baddbmm,
    "embedding": lookup.embedding,
    "convolution": convolve.general_convolution,
    **_named(contract.mm, "mm bmm"),
    **_named(convolve.convolution, "conv1d conv2d conv3d"),
    **_named(convolve.transposed_convolution, "conv_transpose1d conv_transpose2d conv_transpose3d"),
    "add": arithmetic.add,
    "sub": arithmetic.sub,
    "rsub": arithmetic.rsub,
    "mul": arithmetic.mul,
    "div": arithmetic.div,
    "pow": arithmetic.power,
    "square": arithmetic.square,
    "relu": elementwise.relu,
    "leaky_relu": elementwise.leaky_relu,
    "abs": elementwise.absolute,
    "sqrt": elementwise.sqrt,
    "rsqrt": elementwise.rsqrt,
    "reciprocal": elementwise.reciprocal,
    "prelu": elementwise.prelu,
    "neg": elementwise.negate,
    "addcmul": arithmetic.addcmul,
    "where": choice.where,
    "masked_fill": choice.masked_fill,
    "dropout": elementwise.dropout,
    "feature_dropout": elementwise.dropout,
    "native_dropout": elementwise.native_dropout,
    **_named(
        elementwise.made_anew,
        "empty_like ones_like full_like rand_like randn_like new_empty new_ones new_full empty ones full rand randn "
        "bernoulli randint arange",
    ),
    **_named(recurrent.gated, "lstm gru rnn_tanh"),
    "rnn_relu": recurrent.rectified,
    **_named(elementwise.same, "contiguous clone alias to _to_copy type_as lift_fresh lift_fresh_copy positive"),
    **_named(elementwise.detach, "detach"),
    **_named(
        other_elementwise,
        "gelu silu tanh sigmoid softplus exp expm1 log log1p sin cos erf elu selu celu mish hardswish hardsigmoid "
        "relu6 hardtanh log_sigmoid logical_and logical_or logical_not "
        "bitwise_and bitwise_or bitwise_not floor ceil round atan asinh softsign hardshrink softshrink tanhshrink "
        "isfinite isnan",
    ),
    "sign": elementwise.sign,
    **_named(choice.clamp, "clamp clamp_min"),
    "clamp_max": choice.clamp_max,
    "threshold": choice.threshold,
    **_named(choice.extreme_of_two, "maximum minimum"),
    **_named(choice.extreme, "max min amax amin"),
    **_named(choice.compared, "gt lt ge le eq ne"),
    "cumsum": choice.running_sum,
    **_named(choice.transformed, "fft_fft fft_ifft fft_rfft fft_irfft"),
    "view_as_complex": choice.as_complex,
    "view_as_real": choice.as_real,
    **_named(choice.seen, "cumprod sort topk argmax argmin any all"),
    **_named(regroup.reshape, "view reshape _unsafe_view flatten unflatten squeeze unsqueeze view_as reshape_as"),
    **_named(regroup.expand, "expand expand_as broadcast_to"),
    **_named(
        regroup.move,
        "permute transpose t numpy_T mT movedim slice select narrow flip roll repeat repeat_interleave tile "
        "pixel_shuffle pixel_unshuffle unfold diagonal swapaxes",
    ),
    **_named(
        regroup.divide,
        "split split_with_sizes chunk unbind tensor_split unsafe_split unsafe_chunk unsafe_split_with_sizes",
    ),
    **_named(regroup.cat, "cat concat concatenate"),
    "stack": regroup.stack,
    "index": regroup.index,
    "index_select": regroup.index_select,
    "getitem": regroup.getitem,
    **_named(regroup.zeros, "zeros zeros_like new_zeros"),
    "mean": normalise.mean,
    "sum": normalise.total,
    "linalg_vector_norm": normalise.norm_along,
    "std": normalise.deviation,
    "var": normalise.variance,
    "layer_norm": normalise.layer_norm,
    "native_layer_norm": normalise.native_layer_norm,
    "rms_norm": normalise.rms_norm,
    "batch_norm": normalise.batch_norm,
    **_named(
        normalise.native_batch_norm, "native_batch_norm _native_batch_norm_legit _native_batch_norm_legit_functional"
    ),
    "_batch_norm_with_update_functional": normalise.training_batch_norm,
    "group_norm": normalise.group_norm,
    "instance_norm": normalise.instance_norm,
    "_weight_norm": normalise.weight_norm,
    **_named(attention.softmax, "softmax _softmax log_softmax _log_softmax _safe_softmax"),
    "scaled_dot_product_attention": attention.attention,
    **_named(
        pool.pool,
        "avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d "
        "_adaptive_avg_pool2d _adaptive_avg_pool3d upsample_nearest1d upsample_nearest2d upsample_bilinear2d "
        "upsample_bicubic2d upsample_linear1d",
    ),
    **_named(
        pool.max_pool,
        "max_pool1d max_pool2d max_pool3d adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d "
        "max_pool2d_with_indices max_pool1d_with_indices",
    ),
    **_named(pool.pad, "pad constant_pad_nd"),
}
KEEPS_SQUARES = {"mean", "sum", "linalg_vector_norm"}  # rules that may be given an open x²
