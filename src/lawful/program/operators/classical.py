"""The operators of classical models in ONNX files (`ai.onnx.ml`): scalings, linear models, and labels of classes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lawful.program.builder import Builder
from lawful.program.program import Node
from lawful.program.table import Refused, onnx


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
