"""A program as a certificate lists it: numbered nodes, with what depends on no input or weight worked out."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import torch

from lawful.program.arrays import NumpyArrays
from lawful.program.index_map import IndexMap
from lawful.program.program import Node, Program
from lawful.program.table import OperatorFamily

MOST_CONSTANTS = 4_000_000  # numbers of constants and index maps that a certificate may hold


def list_program(
    program: Program, named: Collection[str], still: Collection[str], held: Mapping[str, torch.Tensor]
) -> dict[str, Any] | None:
    """Parameters and buffers among `named` are leaves, other buffers are constants; None where one cannot be listed.

    Those that nothing moves (`still`) are held: their numbers are those of the files.
    """
    arrays = NumpyArrays()
    constants: dict[Node, np.ndarray[Any, Any]] = {}
    places: dict[Node, int] = {}
    nodes: list[list[Any]] = []
    room = MOST_CONSTANTS

    def add(op: str, operands: list[int], attributes: dict[str, Any], shape: tuple[int, ...]) -> int:
        nodes.append([op, operands, attributes, list(shape)])
        return len(nodes) - 1

    def place(node: Node) -> int:
        nonlocal room
        if node not in places:
            values = constants[node]
            room -= values.size
            attributes = {"kind": node.kind, "values": _packed(values, "<f8" if node.kind == "f" else "<i8")}
            places[node] = add("constant", [], attributes, node.shape)
        return places[node]

    for node in program.nodes:
        if node.kind == "c" or 0 in node.shape:
            return None
        leaf = node.family is OperatorFamily.LEAF
        if leaf and "value" in node.attributes:
            constants[node] = arrays.cast(np.asarray(node["value"]), node.kind)
        elif leaf and node not in program.inputs and node["name"] not in named:
            if node["name"] not in held:
                return None
            tensor = held[node["name"]].detach()
            constants[node] = arrays.cast(
                np.asarray(tensor.double() if tensor.is_floating_point() else tensor), node.kind
            )
        elif leaf:
            op = "input" if node in program.inputs else "held" if node["name"] in still else "parameter"
            places[node] = add(op, [], {"name": node["name"]}, node.shape)
        elif node.family is OperatorFamily.OPAQUE:
            return None
        elif all(each in constants for each in node.inputs):
            with np.errstate(all="ignore"):
                made = node.operator.meaning(arrays, node.attributes, *(constants[each] for each in node.inputs))
            constants[node] = arrays.cast(made, node.kind)
        else:
            attributes = {key: _attribute(value) for key, value in node.attributes.items()}
            index = node.attributes.get("map")
            if isinstance(index, IndexMap):
                attributes = _map(index)
                room -= index.size if index.strides is None else 0
            places[node] = add(node.op, [place(each) for each in node.inputs], attributes, node.shape)
        if room < 0:
            return None
    return {"nodes": nodes, "outputs": [place(each) for each in program.outputs]}


def _map(index: IndexMap) -> dict[str, Any]:
    if index.strides is not None:
        return {"offset": index.offset, "strides": list(index.strides)}
    return {"positions": _packed(index.positions, "<i8")}


def _attribute(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _packed(values: np.ndarray[Any, Any], kind: str) -> str:
    return "z:" + base64.b64encode(zlib.compress(np.ascontiguousarray(values, dtype=kind).tobytes(), 6)).decode()
