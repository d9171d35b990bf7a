"""Ends of an ONNX graph that are cut off, and whether two of them are one."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lawful.errors import Unsupported
from lawful.network.assemble import Value
from lawful.network.formats.onnx_operands import Operand, Options, Reader

TAILS = ("Softmax", "LogSoftmax", "Sigmoid", "ArgMax", "ArgMin", "Hardmax", "TopK")
AFTER = (
    "Identity",
    "Cast",
    "Reshape",
    "Flatten",
    "Squeeze",
    "Unsqueeze",
    "ArgMax",
    "ArgMin",
    "TopK",
    "Sub",
    "Concat",
    "ArrayFeatureExtractor",
    "Binarizer",
    "ZipMap",
    "LabelEncoder",
    "Greater",
    "GreaterOrEqual",
    "Less",
    "LessOrEqual",
    "Equal",
    "Where",
    "Not",
)  # what makes labels and tables of probabilities
MATRICES = 13  # before this version Softmax and its relatives took every axis from theirs on as one


@dataclass(frozen=True, eq=False)
class CutOff:
    """What a tail such as Softmax makes of a pending tensor: not followed further.

    `trail` is all that was done to it since, names apart: two tails are one if their trails are. It is empty for the
    operator alone, along the last axis.
    """

    value: Value
    operator: str
    trail: str = ""


def begin(
    reader: Reader, node: Any, options: Options, operands: Sequence[Operand | CutOff], value: Value
) -> list[CutOff]:
    """What is left of a tail: the tensor that it reads.

    Softmax along the only axis that a sample has is told by its name alone; along one of several it is another function
    for another shape.
    """
    sample = _sample(reader, value)
    along = options.get("axis", -1) in (-1, len(value.shape) + bool(reader.batch) - 1)
    alone = along and math.prod(sample[:-1]) == 1 and node.op_type in ("Softmax", "LogSoftmax")
    usual = alone or node.op_type == "Sigmoid"
    return [
        CutOff(value, node.op_type, "" if usual else _trail(reader, node, operands, place))
        for place in range(len(node.output))
    ]


def follow(reader: Reader, node: Any, operands: Sequence[Operand | CutOff]) -> list[CutOff]:
    """What is left of an operation after a tail: it makes labels and tables of one tensor, and nothing else."""
    cuts = [operand for operand in operands if isinstance(operand, CutOff)]
    shifted = node.op_type == "Sub" and not isinstance(operands[0], np.ndarray)  # but 1 - p is a probability too
    mixed = any(isinstance(operand, Value) for operand in operands) or any(
        each.value is not cuts[0].value for each in cuts
    )
    if mixed or shifted or node.op_type not in AFTER:
        raise Unsupported(f"follows {cuts[0].operator}, which is no piecewise linear function")
    return [replace(cuts[0], trail=_trail(reader, node, operands, place)) for place in range(len(node.output))]


def _sample(reader: Reader, value: Value) -> tuple[int, ...]:
    """The sizes of one sample, whether or not the file leaves room for several."""
    return value.shape[1:] if not reader.batch and value.shape[:1] == (1,) else value.shape


def _trail(reader: Reader, node: Any, operands: Sequence[Operand | CutOff], place: int) -> str:
    """An operation of an end, with its settings, constants and the shape of what it reads; names do not count."""
    older = reader.opset < MATRICES and node.op_type.endswith("max")
    told = hashlib.sha256(f"{node.op_type}|{place}{'|older' if older else ''}".encode())
    for entry in sorted(node.attribute, key=lambda each: str(each.name)):
        told.update(entry.SerializeToString(deterministic=True))
    for operand in operands:
        if isinstance(operand, CutOff):
            told.update(f"|{operand.operator}:{operand.trail}{_sample(reader, operand.value)}".encode())
        elif isinstance(operand, Value):
            told.update(f"|value{_sample(reader, operand)}".encode())
        elif operand is not None:
            told.update(f"|{operand.dtype.kind}{operand.shape}{operand.tolist()}".encode())
        else:
            told.update(b"|none")
    return told.hexdigest()
