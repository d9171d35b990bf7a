"""Which constants of an ONNX graph are weights: the file does not say, but the operators that read them do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

PLACES = {
    "Gemm": (0, 1, 2),
    "MatMul": (0, 1),
    "Conv": (1, 2),
    "ConvTranspose": (1, 2),
    "Gather": (0,),
    "BatchNormalization": (1, 2),
    "LayerNormalization": (1, 2),
    "RMSNormalization": (1,),
    "InstanceNormalization": (1, 2),
    "PRelu": (1,),
}  # which operands of a layer are trained
SUMS = ("Add", "Mul", "Concat")  # biases, gains, tokens: trained unless they act on the bare input
MAPS = ("MatMul", "Gemm", "Conv", "ConvTranspose")
MOVES = (
    "Transpose",
    "Reshape",
    "Squeeze",
    "Unsqueeze",
    "Identity",
    "Cast",
    "Expand",
    "Flatten",
    "Slice",
    "Concat",
    "Tile",
)


@dataclass(frozen=True)
class WeightNames:
    """Constants that are trained, those kept beside them (statistics, scalers), and those that several nodes read."""

    trained: tuple[str, ...]
    kept: tuple[str, ...]
    shared: tuple[str, ...]


def weights_of(nodes: Sequence[Any], held: Mapping[str, NDArray[Any]], inputs: set[str]) -> WeightNames:
    """The weights among the constants, in the order of use.

    A constant is a weight if a layer reads it, itself or moved: a matrix, a kernel, a table, a bias, a gain, a slope. A
    single number beside a value is a setting (the half of GELU, an epsilon) unless it is the bias of a map with one
    output; what scales or shifts the bare input is a scaler, and not trained, and neither are the ones and zeros with
    which tools write a normalisation of groups.
    """
    live, touched, mapped = set(inputs), set[str](), set[str]()
    origins: dict[str, tuple[str, ...]] = {name: (name,) for name in held if held[name].dtype.kind == "f"}
    makers = {name: node.op_type for node in nodes for name in node.output}
    trained: Counter[str] = Counter()
    kept: dict[str, None] = {}
    for node in nodes:
        operands = [name for name in node.input if name]
        sources = [name for name in operands if name in live]
        if not sources and node.op_type not in ("Shape", "Size"):
            if node.op_type in MOVES and operands:
                parts = operands if node.op_type == "Concat" else operands[:1]
                for name in node.output:
                    origins[name] = tuple(origin for part in parts for origin in origins.get(part, ()))
            if not any(name in live for name in operands):
                continue
        for place, name in enumerate(node.input):
            for origin in origins.get(name, ()):
                array = held[origin]
                grouped = node.op_type == "InstanceNormalization" and makers.get(node.input[0]) == "Reshape"
                if not grouped and _is_weight(node.op_type, place, array, sources, touched, mapped):
                    trained[origin] += 1
                elif array.size > 1:
                    kept[origin] = None
        live |= set(node.output)
        if node.op_type in ("Shape", "Size"):
            live -= set(node.output)
            continue
        if set(sources) & touched or any(origin in trained for name in operands for origin in origins.get(name, ())):
            touched |= set(node.output)
        if node.op_type in MAPS or (node.op_type in MOVES and set(sources) & mapped):
            mapped |= set(node.output)
    twice = tuple(name for name, times in trained.items() if times > 1)
    return WeightNames(tuple(trained), tuple(name for name in kept if name not in trained), twice)


def _is_weight(
    kind: str, place: int, array: NDArray[Any], sources: list[str], touched: set[str], mapped: set[str]
) -> bool:
    if kind in PLACES:
        return place in PLACES[kind]
    if kind not in SUMS or not set(sources) & touched:
        return False
    return array.size > 1 or (kind == "Add" and np.ndim(array) > 0 and bool(set(sources) & mapped))
