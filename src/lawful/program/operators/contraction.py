"""Contractions: Einstein sums of two operands, and convolutions, which are Einstein sums over windows.

A convolution stays a node although it could be windows (a movement) and an Einstein sum: domains want its channels.
`passes.core` takes it apart for those that do not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from lawful.program.builder import Builder, Operand
from lawful.program.index_map import Shape
from lawful.program.operators.movement import constant_pad
from lawful.program.program import Node
from lawful.program.table import OperatorFamily, Refused, TooShort, Traits, aten, define, onnx

_BILINEAR = Traits(degree=2, even=True, zero=True, linear="in each")


def _einsum_shape(a: Any, *shapes: Shape) -> Shape:
    operands, out = a["spec"].split("->")
    sizes: dict[str, int] = {}
    for letters, shape in zip(operands.split(","), shapes, strict=True):
        for letter, size in zip(letters, shape, strict=True):
            if sizes.setdefault(letter, size) != size:
                raise Refused(f"a contraction {a['spec']} of sizes {shapes}")
    return tuple(sizes[letter] for letter in out)


def _convolution_shape(a: Any, x: Shape, weight: Shape) -> Shape:
    spatial = []
    for k, size in enumerate(x[2:]):
        reach = a["dilation"][k] * (weight[2 + k] - 1) + 1
        if a["transposed"]:
            spatial.append((size - 1) * a["stride"][k] - 2 * a["padding"][k] + reach + a["output_padding"][k])
        else:
            spatial.append((size + 2 * a["padding"][k] - reach) // a["stride"][k] + 1)
    return (x[0], weight[1] * a["groups"] if a["transposed"] else weight[0], *spatial)


define(
    "contract",
    OperatorFamily.CONTRACTION,
    "an Einstein sum of two operands",
    lambda arrays, a, x, y: arrays.einsum(a["spec"], x, y),
    _BILINEAR,
    shape=_einsum_shape,
    attributes=("spec",),
)
define(
    "conv",
    OperatorFamily.CONTRACTION,
    "a convolution, transposed or not, of one to three axes",
    lambda arrays, a, x, w: arrays.convolve(x, w, a),
    _BILINEAR,
    shape=_convolution_shape,
    attributes=("stride", "padding", "dilation", "groups", "transposed", "output_padding"),
)


@aten("linear")
def linear(b: Builder, x: Node, weight: Node, bias: Node | None = None) -> Node:
    """x Wᵀ + b."""
    return b.linear(x, weight, bias)


@aten("matmul", "linalg_matmul", "vdot")
@onnx("MatMul", weights=(0, 1))
def matmul(b: Builder, x: Node, other: Node) -> Node:
    """The product of matrices, of stacks of them, and of vectors."""
    return b.matmul(x, other)


@aten("mm", "bmm")
def _mm(b: Builder, x: Node, mat2: Node) -> Node:
    return b.matmul(x, mat2)


@aten("mv")
def _mv(b: Builder, x: Node, vec: Node) -> Node:
    return b.matmul(x, vec)


@aten("dot")
def _dot(b: Builder, x: Node, tensor: Node) -> Node:
    return b.matmul(x, tensor)


@aten("inner")
def inner(b: Builder, x: Node, other: Node) -> Node:
    """The sum of products along the last axes."""
    if not x.rank or not other.rank:
        return b.mul(x, other)
    one, two = "ABCDEFG"[: x.rank - 1], "HIJKLMN"[: other.rank - 1]
    return b.contract(f"{one}z,{two}z->{one}{two}", x, other)


@aten("outer", "ger")
def outer(b: Builder, x: Node, vec2: Node) -> Node:
    """x yᵀ."""
    return b.contract("i,j->ij", x, vec2)


@aten("_trilinear")
def _trilinear(
    b: Builder,
    i1: Node,
    i2: Node,
    i3: Node,
    expand1: Sequence[int],
    expand2: Sequence[int],
    expand3: Sequence[int],
    sumdim: Sequence[int],
    unroll_dim: int = 1,
) -> Node:
    """A product of three operands, each with new axes of size 1, summed over some axes: bilinear layers."""
    letters = "abcdefghijklmnop"[: i1.rank + len(expand1)]
    factors = ["".join(c for k, c in enumerate(letters) if k not in new) for new in (expand1, expand2, expand3)]
    out = "".join(c for k, c in enumerate(letters) if k not in sumdim)
    return b.contract(f"{','.join(factors)}->{out}", i1, i2, i3)


def _blend(b: Builder, c: Node, product: Node, beta: Operand, alpha: Operand) -> Node:
    """β c + α (x y); β = 0 leaves c out, whatever it holds."""
    product = product if alpha == 1 else b.mul(product, alpha)
    if beta == 0:
        return product
    return b.add(c if beta == 1 else b.mul(c, beta), product)


@aten("addmm")
def addmm(b: Builder, x: Node, mat1: Node, mat2: Node, beta: Operand = 1, alpha: Operand = 1) -> Node:
    """β c + α x y."""
    return _blend(b, x, b.matmul(mat1, mat2), beta, alpha)


@aten("baddbmm")
def baddbmm(b: Builder, x: Node, batch1: Node, batch2: Node, beta: Operand = 1, alpha: Operand = 1) -> Node:
    """β c + α x y, for stacks."""
    return _blend(b, x, b.matmul(batch1, batch2), beta, alpha)


@aten("addmv")
def addmv(b: Builder, x: Node, mat: Node, vec: Node, beta: Operand = 1, alpha: Operand = 1) -> Node:
    """β c + α x v."""
    return _blend(b, x, b.matmul(mat, vec), beta, alpha)


@aten("addr")
def addr(b: Builder, x: Node, vec1: Node, vec2: Node, beta: Operand = 1, alpha: Operand = 1) -> Node:
    """β c + α u vᵀ."""
    return _blend(b, x, outer(b, vec1, vec2), beta, alpha)


@aten("addbmm")
def addbmm(b: Builder, x: Node, batch1: Node, batch2: Node, beta: Operand = 1, alpha: Operand = 1) -> Node:
    """β c + α Σ xᵢ yᵢ."""
    return _blend(b, x, b.contract("kij,kjl->il", batch1, batch2), beta, alpha)


@aten("bilinear")
def bilinear(b: Builder, input1: Node, input2: Node, weight: Node, bias: Node | None = None) -> Node:
    """xᵀ W y + b."""
    batch = "ABCDEFG"[: input1.rank - 1]
    total = b.contract(f"{batch}i,oij,{batch}j->{batch}o", input1, weight, input2)
    return total if bias is None else b.add(total, bias)


@aten("einsum")
def einsum(b: Builder, equation: str, tensors: Sequence[Node], path: Any = None) -> Node:
    """An Einstein sum as it is written."""
    spec = equation.replace(" ", "")
    operands, _, out = spec.partition("->")
    parts = operands.split(",")
    if "." in spec:
        spare = [c for c in "ABCDEFGHIJKLMNOPQRSTUVWXYZ" if c not in spec]
        ranks = [tensor.rank - len(part.replace("...", "")) for tensor, part in zip(tensors, parts, strict=True)]
        most = max(ranks)
        shapes = {tensor.shape[: max(ranks)] for tensor, rank in zip(tensors, ranks, strict=True) if rank}
        if len({rank for rank in ranks if rank}) > 1 or (any(1 in shape for shape in shapes) and len(tensors) > 1):
            raise Refused("einsum with an ellipsis that broadcasts")
        parts = [p.replace("...", "".join(spare[most - rank : most])) for p, rank in zip(parts, ranks, strict=True)]
        whole = "".join(spare[:most])
        out = (
            out.replace("...", whole)
            if "->" in spec
            else whole + "".join(sorted(c for c in set("".join(parts)) - set(whole) if "".join(parts).count(c) == 1))
        )
        return b.contract(f"{','.join(parts)}->{out}", *tensors)
    if "->" not in spec:
        out = "".join(sorted(c for c in set(operands) - {","} if operands.count(c) == 1))
    return b.contract(f"{operands}->{out}", *tensors)


@onnx("Einsum", weights=(0, 1, 2, 3))
def _einsum(b: Builder, *tensors: Node, equation: str) -> Node:
    return einsum(b, equation, tensors)


@onnx("Gemm", weights=(0, 1, 2))
def onnx_gemm(b: Builder, x: Node, y: Node, c: Node | None = None, alpha: float = 1.0, beta: float = 1.0,
          transA: int = 0, transB: int = 0) -> Node:  # fmt: skip
    """`alpha A B + beta C`, in the words of ONNX."""
    product = b.contract(("ki" if transA else "ik") + "," + ("jk" if transB else "kj") + "->ij", x, y)
    if c is None:
        return product if alpha == 1 else b.mul(product, alpha)
    return _blend(b, c, product, beta, alpha)


# Convolutions


def per_axis(value: Any, rank: int) -> tuple[int, ...]:
    """One number for all axes, or one each."""
    numbers = (value,) if isinstance(value, int) else tuple(int(n) for n in value)
    return numbers * rank if len(numbers) == 1 else numbers


def convolve(
    b: Builder,
    x: Node,
    weight: Node,
    bias: Node | None,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: int,
    transposed: bool = False,
    output_padding: Any = 0,
) -> Node:
    """A convolution; `padding` is a number, one for each axis, or pairs. An input without a batch gets one."""
    rank = weight.rank - 2
    single = x.rank == rank + 1
    x = b.reshape(x, (1, *x.shape)) if single else x
    steps, spread = per_axis(stride, rank), per_axis(dilation, rank)
    pads = padding if _has_pairs(padding) else [(p, p) for p in per_axis(padding, rank)]
    if any(low != high for low, high in pads):
        if transposed:
            raise Refused("a transposed convolution with uneven padding")
        x = constant_pad(b, x, [n for pair in reversed(pads) for n in pair])
        pads = [(0, 0)] * rank
    result = b.apply(
        "conv",
        (b.as_kind(x, "f"), b.as_kind(weight, "f")),
        stride=steps,
        padding=tuple(low for low, _ in pads),
        dilation=spread,
        groups=int(groups),
        transposed=bool(transposed),
        output_padding=per_axis(output_padding, rank) if transposed else (0,) * rank,
    )
    if min(result.shape[2:], default=1) <= 0:
        raise TooShort
    if bias is not None:
        result = b.add(result, b.reshape(bias, (bias.shape[0], *(1,) * rank)))
    return b.reshape(result, result.shape[1:]) if single else result


def _has_pairs(padding: Any) -> bool:
    return isinstance(padding, (list, tuple)) and bool(padding) and isinstance(padding[0], tuple)


@aten("conv1d", "conv2d", "conv3d")
def conv(
    b: Builder,
    x: Node,
    weight: Node,
    bias: Node | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Node:
    """A convolution; padding is also `same` or `valid`."""
    rank = weight.rank - 2
    if isinstance(padding, str):
        reach = [d * (k - 1) for d, k in zip(per_axis(dilation, rank), weight.shape[2:], strict=True)]
        padding = [(r // 2, r - r // 2) if padding == "same" else (0, 0) for r in reach]
    return convolve(b, x, weight, bias, stride, padding, dilation, groups)


@aten("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
def conv_transpose(
    b: Builder,
    x: Node,
    weight: Node,
    bias: Node | None = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> Node:
    """A transposed convolution."""
    return convolve(b, x, weight, bias, stride, padding, dilation, groups, True, output_padding)


@aten("convolution")
def convolution(
    b: Builder,
    x: Node,
    weight: Node,
    bias: Node | None,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
) -> Node:
    """Either."""
    return convolve(b, x, weight, bias, stride, padding, dilation, groups, transposed, output_padding)


def onnx_padding(
    x: Node, kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int], pads: Any, auto: str
) -> list[tuple[int, int]]:
    """Padding in pairs: written out, or such that the result has `size / stride` entries, rounded up."""
    if not len(kernel) == len(stride) == len(dilation) == x.rank - 2:
        raise Refused(f"a window of sizes {list(kernel)}, {list(stride)}, {list(dilation)} on {x.rank - 2} axes")
    rank = len(kernel)
    if auto in ("SAME_UPPER", "SAME_LOWER"):
        pairs = []
        for k, size in enumerate(x.shape[2:]):
            reach = dilation[k] * (kernel[k] - 1) + 1
            total = max((math.ceil(size / stride[k]) - 1) * stride[k] + reach - size, 0)
            half = total // 2
            pairs.append((half, total - half) if auto == "SAME_UPPER" else (total - half, half))
        return pairs
    written = list(pads) if pads and auto != "VALID" else [0] * 2 * rank
    return list(zip(written[:rank], written[rank:], strict=True))


@onnx("Conv", weights=(1, 2))
def onnx_convolution(
    b: Builder,
    x: Node,
    weight: Node,
    bias: Node | None = None,
    auto_pad: str = "NOTSET",
    dilations: Any = None,
    group: int = 1,
    kernel_shape: Any = None,
    pads: Any = None,
    strides: Any = None,
) -> Node:
    """A convolution in the words of ONNX."""
    rank = weight.rank - 2
    stride, dilation = strides or [1] * rank, dilations or [1] * rank
    pairs = onnx_padding(x, weight.shape[2:], stride, dilation, pads, auto_pad)
    return convolve(b, x, weight, bias, stride, pairs, dilation, group)


@onnx("ConvTranspose", weights=(1, 2))
def _conv_transpose(
    b: Builder,
    x: Node,
    weight: Node,
    bias: Node | None = None,
    auto_pad: str = "NOTSET",
    dilations: Any = None,
    group: int = 1,
    kernel_shape: Any = None,
    output_padding: Any = None,
    output_shape: Any = None,
    pads: Any = None,
    strides: Any = None,
) -> Node:
    """The whole result, of which padding cuts entries off: uneven padding is a slice."""
    rank = weight.rank - 2
    stride, dilation = strides or [1] * rank, dilations or [1] * rank
    extra = output_padding or [0] * rank
    automatic = output_shape is not None or auto_pad in ("SAME_UPPER", "SAME_LOWER")
    even = list(pads or [0] * 2 * rank)
    if not automatic and even[:rank] == even[rank:] and min(even) >= 0:
        return convolve(b, x, weight, bias, stride, even[:rank], dilation, group, True, extra)
    whole = convolve(b, x, weight, None, stride, 0, dilation, group, True, extra)
    written = list(pads) if pads else [0] * 2 * rank
    for k in range(rank):
        low, high = written[k], written[rank + k]
        if automatic:
            wanted = output_shape[-rank:][k] if output_shape is not None else x.shape[2 + k] * stride[k]
            total = whole.shape[2 + k] - wanted
            low = total // 2 if auto_pad == "SAME_UPPER" else total - total // 2
            high = total - low
        if low < 0 or high < 0:
            whole = constant_pad(b, whole, [0, 0] * (rank - 1 - k) + [-low, -high])
        else:
            whole = b.slice(whole, 2 + k, slice(low, whole.shape[2 + k] - high))
    return whole if bias is None else b.add(whole, b.reshape(bias, (bias.shape[0], *(1,) * rank)))


@aten("_grouped_mm", "grouped_mm_fallback")
def grouped_mm(b: Builder, x: Node, weight: Node, offs: Node | None = None, bias: Node | None = None) -> Node:
    """Row i of x times the matrix of its group, whose number is how many ends are at or before i."""
    if offs is None or weight.rank != 3 or x.rank != 2 or bias is not None:
        raise Refused("a grouped product of another form")
    rows = b.constant(list(range(x.shape[0])))
    before = b.elementwise("le", b.reshape(offs, (1, offs.shape[0])), b.reshape(rows, (x.shape[0], 1)))
    group = b.minimum(b.sum(before, 1), weight.shape[0] - 1)
    return b.contract("nk,nkm->nm", x, b.lookup(weight, group, 0))
