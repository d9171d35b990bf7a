"""The core: a program without convolutions, normalisations and softmax, which are made of smaller operators.

What is left is movements, sums, products, Einstein sums, sums along axes, functions of one number, choices, comparisons
and lookups: the language of proofs. Domains that want tight answers read the whole program instead: an interval of a
softmax that is taken apart is infinite.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lawful.program.builder import Builder
from lawful.program.operators.movement import constant_pad
from lawful.program.operators.window import cut_windows
from lawful.program.passes.rebuild import rebuild
from lawful.program.program import Node, Program


def lower(program: Program, exact: bool = False) -> Program:
    """The same function in core operators alone.

    For exact arithmetic (`exact`) nothing is shifted to keep floats small, and functions are made of exponentials,
    logarithms, error functions, sines, cosines, powers and choices where they can be.
    """
    return rebuild(program, _rule, exact)


def _rule(b: Builder, node: Node, operands: tuple[Node, ...]) -> Node | None:
    if b.exact and node.operator.elementary is not None:
        core: Node | None = node.operator.elementary(b, *operands)
        return core
    if node.op == "conv":
        return lower_convolution(b, node, *operands)
    if node.op == "normalise":
        return _normalise(b, node, operands[0])
    if node.op == "softmax":
        return _softmax(b, node, operands[0])
    return None


def _normalise(b: Builder, node: Node, x: Node) -> Node:
    if node["centre"]:
        x = b.sub(x, b.mean(x, node["axes"], True))
    return b.mul(x, b.power(b.add(b.mean(b.power(x, 2), node["axes"], True), node["epsilon"]), -0.5))


def _softmax(b: Builder, node: Node, x: Node) -> Node:
    """Shifted by the maximum along the axis: the same reals, and no overflow where the core is run in floats."""
    shifted = x if b.exact else b.sub(x, b.reduce("amax", x, node["axis"], True))
    weights = b.function("exp", shifted)
    return b.mul(weights, b.power(b.sum(weights, node["axis"], True), -1.0))


def lower_convolution(b: Builder, node: Node, x: Node, weight: Node) -> Node:
    """Windows are a movement, the rest is an Einstein sum.

    A transposed convolution is one of the spread input (zeros between its entries) with the turned kernel.
    """
    rank, groups, kernel = node.rank - 2, node["groups"], weight.shape[2:]
    stride, padding = node["stride"], [(p, p) for p in node["padding"]]
    if node["transposed"]:
        x = b.move(lambda t: _spread(t, stride), x)
        weight = _turn(b, weight, groups)
        # The result at i is Σ x[j] w[t] over i = s j - p + d t. In the spread input, read with the kernel reversed,
        # this is a window that starts at i + p - d (k - 1): so many entries of padding come first, d (k - 1) - p.
        reach = [d * (k - 1) for d, k in zip(node["dilation"], kernel, strict=True)]
        padding = [
            (r - p, r - p + more) for r, p, more in zip(reach, node["padding"], node["output_padding"], strict=True)
        ]
        if any(low < 0 or high < 0 for low, high in padding):  # windows start inside: cut first
            # In the order of PyTorch's `pad`: the last axis first.
            flat = [min(n, 0) for pair in reversed(padding) for n in pair]
            x = constant_pad(b, x, flat)
            padding = [(max(low, 0), max(high, 0)) for low, high in padding]
        stride = (1,) * rank
    windows = cut_windows(b, x, kernel, stride, padding, node["dilation"])
    batch, channels, *rest = windows.shape
    windows = b.reshape(windows, (batch, groups, channels // groups, *rest))
    weight = b.reshape(weight, (groups, weight.shape[0] // groups, *weight.shape[1:]))
    places, inside = "uvw"[:rank], "xyz"[:rank]
    spec = f"ngc{places}{inside},goc{inside}->ngo{places}"
    if groups == 1:  # no letter for one group: a plain convolution has no batch of products
        windows, weight = b.reshape(windows, (batch, channels, *rest)), b.reshape(weight, weight.shape[1:])
        spec = spec.replace("g", "")
    return b.reshape(b.contract(spec, windows, weight), node.shape)


def _spread(x: NDArray[np.int64], stride: tuple[int, ...]) -> NDArray[np.int64]:
    sizes = [(n - 1) * s + 1 for n, s in zip(x.shape[2:], stride, strict=True)]
    spread = np.zeros((*x.shape[:2], *sizes), dtype=x.dtype)
    spread[(slice(None), slice(None), *(slice(None, None, s) for s in stride))] = x
    return spread


def _turn(b: Builder, weight: Node, groups: int) -> Node:
    """The kernel of a transposed convolution as that of a plain one: channels exchanged, places reversed."""
    inner, outer, *kernel = weight.shape

    def turn(t: NDArray[np.int64]) -> NDArray[np.int64]:
        parts = t.reshape(groups, inner // groups, outer, *kernel).swapaxes(1, 2)
        turned = np.flip(parts, tuple(range(3, 3 + len(kernel))))
        return turned.reshape(groups * outer, inner // groups, *kernel)

    return b.move(turn, weight)
