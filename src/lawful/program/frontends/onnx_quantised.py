"""Quantised operators of ONNX files, written out: numbers for stored integers, real operators between roundings.

A quantised operator is a real one between a `DequantizeLinear` and a `QuantizeLinear` (ONNX defines it so, up to the
rounding of the sum). So each becomes just that, and of `DequantizeLinear` of stored integers the very numbers remain:
weights are then weights, whichever of the many operators read them, and the table has three roundings and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lawful.extras import needed
from lawful.program.table import Refused

Array = NDArray[Any]
MICROSOFT = "com.microsoft"
PACKED = {4: 2, 8: 1}  # numbers in a byte of MatMulNBits, by their bits


def lower_quantised(model: Any, load: Callable[[Any], Any]) -> Any:
    """The model without quantised operators; it is changed in place. `load` gives the numbers of a tensor."""
    lowering = _Lowering(needed("onnx"), load, {tensor.name: tensor for tensor in model.graph.initializer})
    before = {node.output[0] for node in model.graph.node if node.op_type == "Constant"}
    if before and any(_is_quantised(node) for node in model.graph.node):
        for node in model.graph.node:  # some tools write tensors as nodes
            if node.op_type == "Constant" and node.attribute[0].name == "value":
                lowering.tensors[node.output[0]] = node.attribute[0].t
    nodes: list[Any] = []
    for node in model.graph.node:
        nodes += lowering.lower(node) if _is_quantised(node) else [node]
    if not lowering.replaced:
        return model
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    names = [name for node in nodes for name in node.input] + [output.name for output in model.graph.output]
    read = {*names, *(name for node in nodes for name in _names_inside(node))}
    left = [tensor for tensor in model.graph.initializer if tensor.name in read or tensor.name not in lowering.replaced]
    del model.graph.initializer[:]
    model.graph.initializer.extend((*left, *lowering.made))
    del model.graph.value_info[:]  # types of values between the nodes have changed
    return model


def _is_quantised(node: Any) -> bool:
    return node.op_type in LOWERED


def _names_inside(node: Any) -> Iterator[str]:
    """What graphs inside a node read."""
    for attribute in node.attribute:
        for inner in attribute.g.node if attribute.HasField("g") else ():
            yield from inner.input
            yield from _names_inside(inner)


@dataclass
class _Lowering:
    """Nodes written out one after the other, and the tensors that they are given."""

    onnx: Any
    load: Callable[[Any], Any]
    tensors: dict[str, Any]
    made: list[Any] = field(default_factory=list)
    replaced: set[str] = field(default_factory=set)
    names: dict[Any, str] = field(default_factory=dict)

    def lower(self, node: Any) -> list[Any]:
        """The nodes that compute what this one does."""
        nodes = LOWERED[node.op_type](self, node)
        if nodes is None:
            return [node]
        self.replaced.update(name for name in node.input if name)
        return list(nodes)

    def array(self, name: str) -> Array | None:
        """The numbers of a stored tensor; None for anything else."""
        return np.asarray(self.load(self.tensors[name])) if name in self.tensors else None

    def tensor(self, name: str, numbers: Array) -> str:
        """A new tensor of the file."""
        self.made.append(self.onnx.numpy_helper.from_array(np.ascontiguousarray(numbers), name))
        return name

    def real(self, nodes: list[Any], triple: Sequence[str], name: str, axis: int = 1) -> str:
        """The name of a value in real numbers: of a stored one the numbers, else a node that makes them."""
        value, scale, zero = (*triple, "", "")[:3]
        stored = [self.array(operand) if operand else None for operand in (value, scale, zero)]
        if stored[0] is not None and stored[1] is not None and (not zero or stored[2] is not None):
            key = (value, scale, zero, axis)
            if key not in self.names:  # weights that several nodes read stay one tensor
                self.names[key] = self.tensor(name, dequantise(stored[0], stored[1], stored[2], axis))
            return self.names[key]
        nodes.append(self.node("DequantizeLinear", triple, name, axis=axis))
        return name

    def node(self, kind: str, inputs: Sequence[str], output: str, domain: str = "", **attributes: Any) -> Any:
        return self.onnx.helper.make_node(kind, list(inputs), [output], output, domain=domain, **attributes)

    def attributes(self, node: Any) -> dict[str, Any]:
        return {attribute.name: self.onnx.helper.get_attribute_value(attribute) for attribute in node.attribute}


def dequantise(numbers: Array, scale: Array, zero: Array | None, axis: int, block: int = 0) -> Array:
    """(numbers - zero) scale, the latter two along an axis if they are no single numbers, or for blocks of entries.

    >>> dequantise(np.array([[1, 2], [3, 4]]), np.array([1.0, 10.0], np.float32), np.array([1, 1]), 0).tolist()
    [[0.0, 1.0], [20.0, 30.0]]
    """

    def spread(x: Array) -> Array:
        if block:
            return np.repeat(x, block, axis)[tuple(slice(n) for n in numbers.shape)]
        return x.reshape([-1 if k == axis % numbers.ndim else 1 for k in range(numbers.ndim)]) if x.ndim == 1 else x

    kind = np.float64 if scale.dtype == np.float64 else np.float32
    real = numbers.astype(kind) if zero is None else numbers.astype(kind) - spread(zero.astype(kind))
    return np.asarray(real * spread(scale.astype(kind)))


def _dequantize(self: _Lowering, node: Any) -> list[Any] | None:
    stored = [self.array(name) if name else None for name in node.input]
    if any(array is None for name, array in zip(node.input, stored, strict=True) if name):
        return None
    options = self.attributes(node)
    numbers, scale, zero = (*stored, None)[:3]
    if numbers is None or scale is None:
        return None
    self.tensor(node.output[0], dequantise(numbers, scale, zero, options.get("axis", 1), options.get("block_size", 0)))
    return []


def _between(
    self: _Lowering, node: Any, operands: Sequence[Sequence[str]], out: Sequence[str], kind: str = ""
) -> list[Any]:
    """An operator on real numbers whose operands are dequantised, and whose result is quantised."""
    nodes: list[Any] = []
    name = node.output[0]
    settings = {key: value for key, value in self.attributes(node).items() if key != "channels_last"}
    # Scales of weights belong to what they make: rows of a kernel or of a turned matrix, columns of any other.
    # In a product of matrices those of the first operand belong to its rows.
    axis = 0 if "Conv" in node.op_type or settings.get("transB") else -1
    axes = [-2 if axis == -1 and "MatMul" in node.op_type and k == 0 else axis for k in range(len(operands))]
    inputs = [self.real(nodes, triple, f"{name}.{k}", axes[k]) for k, triple in enumerate(operands)]
    kind = kind or node.op_type.removeprefix("QLinear")
    nodes += [self.node(kind, inputs, f"{name}.real", **settings)]
    nodes += [self.node("QuantizeLinear", [f"{name}.real", *out], name)]
    return nodes


def _q_conv(self: _Lowering, node: Any) -> list[Any] | None:
    (x, xs, xz, w, ws, wz, ys, yz), bias = node.input[:8], node.input[8:]
    nodes = _between(self, node, [(x, xs, xz), (w, ws, wz)], (ys, yz))
    if bias:
        nodes[-2].input.append(_bias(self, node, (bias[0], xs, ws)))
    return nodes


def _bias(self: _Lowering, node: Any, operands: Sequence[str], factor: float = 1.0) -> str:
    """A bias that is counted in products of the two scales (and of the factor of the product)."""
    numbers, one, other = (self.array(operand) for operand in operands)
    if numbers is None or one is None or other is None:
        raise Refused(f"{node.op_type} with a bias that is computed")
    scale = (np.float32(factor) * one * other).astype(np.float32).ravel()
    return self.tensor(f"{node.output[0]}.bias", numbers.astype(np.float32) * scale)


def _q_matmul(self: _Lowering, node: Any) -> list[Any] | None:
    a = node.input
    return _between(self, node, [a[:3], a[3:6]], a[6:8])


def _q_unary(self: _Lowering, node: Any) -> list[Any] | None:
    a = node.input
    if self.attributes(node).get("channels_last"):
        raise Refused(f"{node.op_type} with the channels last")
    return _between(self, node, [a[:3]], a[3:5])


def _q_gemm(self: _Lowering, node: Any) -> list[Any] | None:
    (a, sa, za, b, sb, zb), rest = node.input[:6], [*node.input[6:], "", "", ""]
    nodes = _between(self, node, [(a, sa, za), (b, sb, zb)], rest[1:3], "Gemm")
    if rest[0]:
        nodes[-2].input.append(_bias(self, node, (rest[0], sa, sb), self.attributes(node).get("alpha", 1.0)))
    if not rest[1]:  # the result stays real
        nodes.pop()
        nodes[-1].output[0] = node.output[0]
    return nodes


def _q_concat(self: _Lowering, node: Any) -> list[Any] | None:
    scale, zero, *rest = node.input
    return _between(self, node, [rest[k : k + 3] for k in range(0, len(rest), 3)], (scale, zero))


def _integer(self: _Lowering, node: Any) -> list[Any] | None:
    """Products of integers without scales: those of the real numbers that the integers are."""
    a, b, za, zb = (*node.input, "", "")[:4]
    nodes: list[Any] = []
    one = self.tensor(f"{node.output[0]}.one", np.array(1, np.float32))
    self.tensors[one] = self.made[-1]
    convolves = node.op_type == "ConvInteger"
    inputs = [
        self.real(
            nodes, (factor, one, zero) if zero else (factor, one), f"{node.output[0]}.{k}", 0 if convolves else k - 2
        )
        for k, (factor, zero) in enumerate(((a, za), (b, zb)))
    ]
    nodes.append(self.node("Conv" if convolves else "MatMul", inputs, node.output[0], **self.attributes(node)))
    return nodes


def _dynamic_matmul(self: _Lowering, node: Any) -> list[Any] | None:
    """A product with a quantised matrix; the other operand is quantised as it comes, or was (with `a_scale`)."""
    name, quantises = node.output[0], node.op_type == "DynamicQuantizeMatMul"
    nodes: list[Any] = []
    if quantises:
        a, b, scale, zero, bias = (*node.input, "", "")[:5]
        parts = [f"{name}.quantised", f"{name}.scale", f"{name}.zero"]
        nodes.append(self.onnx.helper.make_node("DynamicQuantizeLinear", [a], parts, f"{name}.dynamic"))
    else:
        a, b, one, scale, first, zero, bias = (*node.input, "", "", "")[:7]
        parts = [a, one, first]
    inputs = [self.real(nodes, [part for part in parts if part], f"{name}.0", -1)]
    inputs.append(self.real(nodes, [operand for operand in (b, scale, zero) if operand], f"{name}.1", -1))
    nodes.append(self.node("MatMul", inputs, f"{name}.product" if bias else name))
    if bias:
        nodes.append(self.node("Add", [f"{name}.product", bias], name))
    return nodes


def _dynamic_lstm(self: _Lowering, node: Any) -> list[Any] | None:
    """A recurrent network with quantised matrices; the runtime rounds what is multiplied by them as well."""
    x, w, r, bias, lengths, hidden, cell, peepholes, *scales = (*node.input, *[""] * 12)[:12]
    stored = [self.array(operand) if operand else None for operand in (w, r, *scales)]
    if stored[0] is None or stored[1] is None or stored[2] is None or stored[4] is None:
        return None
    matrices = []
    for part, numbers, scale, zero in ((1, stored[0], stored[2], stored[3]), (2, stored[1], stored[4], stored[5])):

        def spread(per_column: Array) -> Array:  # a number for each direction, or for each of its columns
            return per_column.reshape(len(per_column), 1, -1)

        real = numbers.astype(np.float32) - (0 if zero is None else spread(zero.astype(np.float32)))
        turned = np.swapaxes(real * spread(scale.astype(np.float32)), 1, 2)  # stored the other way round
        matrices.append(self.tensor(f"{node.output[0] or node.name}.{part}", turned))
    network = self.onnx.helper.make_node(
        "LSTM", [x, *matrices, bias, lengths, hidden, cell, peepholes], list(node.output), node.name
    )
    network.attribute.extend(node.attribute)
    return [network]


def _n_bits(self: _Lowering, node: Any) -> list[Any] | None:
    """x Wᵀ, the rows of W in blocks of few bits with a scale and a zero point each (com.microsoft.MatMulNBits)."""
    x, packed, scales, zeros, groups, bias = (*node.input, "", "", "")[:6]
    options = self.attributes(node)
    rows, columns, bits, block = options["N"], options["K"], options.get("bits", 4), options["block_size"]
    stored, scale = self.array(packed), self.array(scales)
    if stored is None or scale is None or groups or bits not in PACKED:
        raise Refused(f"MatMulNBits of {bits} bits, or with weights that are computed")
    numbers = _unpack(stored.reshape(rows, -1), bits).reshape(rows, -1, block)
    blocks = numbers.shape[1]
    zero: Array | float = 2.0 ** (bits - 1)
    points = self.array(zeros) if zeros else None
    if points is not None:
        is_packed = points.dtype == np.uint8
        zero = (_unpack(points.reshape(rows, -1), bits) if is_packed else points.reshape(rows, -1))[:, :blocks, None]
    real = (numbers.astype(np.float32) - zero) * scale.reshape(rows, blocks, 1).astype(np.float32)
    name = node.output[0]
    matrix = self.tensor(f"{name}.matrix", real.reshape(rows, -1)[:, :columns].T.astype(np.float32))
    nodes = [self.node("MatMul", [x, matrix], f"{name}.product" if bias else name)]
    return [*nodes, self.node("Add", [f"{name}.product", bias], name)] if bias else nodes


def _unpack(stored: Array, bits: int) -> Array:
    """Numbers of a few bits, the lowest of a byte first."""
    shifts = np.arange(PACKED[bits], dtype=np.uint8) * bits
    return np.asarray((stored[..., None] >> shifts) & (2**bits - 1)).reshape(*stored.shape[:-1], -1)


LOWERED: dict[str, Callable[[_Lowering, Any], list[Any] | None]] = {
    "DequantizeLinear": _dequantize,
    "QLinearConv": _q_conv,
    "QLinearMatMul": _q_matmul,
    "QLinearAdd": _q_matmul,
    "QLinearMul": _q_matmul,
    "QLinearSigmoid": _q_unary,
    "QLinearSoftmax": _q_unary,
    "QLinearLeakyRelu": _q_unary,
    "QLinearGlobalAveragePool": _q_unary,
    "QLinearAveragePool": _q_unary,
    "QLinearConcat": _q_concat,
    "QGemm": _q_gemm,
    "MatMulInteger": _integer,
    "ConvInteger": _integer,
    "DynamicQuantizeMatMul": _dynamic_matmul,
    "MatMulIntegerToFloat": _dynamic_matmul,
    "DynamicQuantizeLSTM": _dynamic_lstm,
    "MatMulNBits": _n_bits,
}
