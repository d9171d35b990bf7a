"""What outputs depend on: for every node, which leaves reach it; backwards, which entries of a leaf are ever read."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lawful.program.domains.interpret import AbstractDomain, interpret
from lawful.program.program import Node, Program
from lawful.program.table import OperatorFamily


class Dependence(AbstractDomain[frozenset[str]]):
    """The names of the inputs, parameters and buffers that a value is computed of."""

    def leaf(self, node: Node) -> frozenset[str]:
        """Itself; a constant depends on nothing."""
        return frozenset() if node.op == "constant" else frozenset([node["name"]])

    def other(self, node: Node, *operands: frozenset[str]) -> frozenset[str]:
        """Every operator, known or opaque: what its operands depend on."""
        return frozenset().union(*operands)


def leaves_of_outputs(program: Program) -> list[frozenset[str]]:
    """For every output, the leaves that it is computed of."""
    values = interpret(program, Dependence())
    return [values[output] for output in program.outputs]


def read_entries(program: Program) -> dict[str, NDArray[np.bool_]]:
    """For every parameter and buffer, which entries some output may read.

    Movements are followed entry by entry (a row of a table that no index map names is never read), everything else
    reads whole operands or, where it works entry by entry, the entries that are asked of it.
    """
    asked: dict[Node, NDArray[np.bool_]] = {}

    def ask(node: Node, entries: NDArray[np.bool_]) -> None:
        if node in asked:
            asked[node] |= entries
        else:
            asked[node] = entries.copy()

    for output in program.outputs:
        ask(output, np.ones(output.shape, dtype=bool))
    for node in reversed(program.nodes):
        if node not in asked:
            continue
        wanted = asked[node] if node.family is OperatorFamily.LEAF else asked.pop(node)
        for operand, entries in zip(node.inputs, _asked_of_operands(node, wanted), strict=True):
            ask(operand, entries)
    return {
        name: asked.get(node, np.zeros(node.shape, dtype=bool))
        for name, node in {**program.parameters, **program.buffers}.items()
    }


_BY_ENTRY = frozenset(
    {OperatorFamily.ELEMENTWISE, OperatorFamily.ADDITION, OperatorFamily.PRODUCT, OperatorFamily.COMPARISON}
)


def _asked_of_operands(node: Node, wanted: NDArray[np.bool_]) -> list[NDArray[np.bool_]]:
    if node.family is OperatorFamily.MOVEMENT:
        flat = np.zeros(sum(operand.size for operand in node.inputs), dtype=bool)
        flat[node["map"].positions[wanted]] = True
        ends = np.cumsum([operand.size for operand in node.inputs])[:-1]
        return [part.reshape(operand.shape) for part, operand in zip(np.split(flat, ends), node.inputs, strict=True)]
    if node.family in _BY_ENTRY:
        return [_unbroadcast(wanted, operand.shape) for operand in node.inputs]
    if node.op == "contract":
        return _asked_of_contraction(node, wanted)
    return [np.full(operand.shape, bool(wanted.any())) for operand in node.inputs]


def _unbroadcast(wanted: NDArray[np.bool_], shape: tuple[int, ...]) -> NDArray[np.bool_]:
    axes = tuple(k for k, n in enumerate(shape) if n == 1 and wanted.shape[k] != 1)
    return np.asarray(wanted.any(axis=axes, keepdims=True)) if axes else wanted


def _asked_of_contraction(node: Node, wanted: NDArray[np.bool_]) -> list[NDArray[np.bool_]]:
    """An entry is read if some wanted entry of the result has its indices."""
    operands, out = node["spec"].split("->")
    result = []
    for letters, operand in zip(operands.split(","), node.inputs, strict=True):
        left = [c for c in out if c in letters]
        reduced = np.asarray(wanted.any(axis=tuple(k for k, c in enumerate(out) if c not in letters)))
        aligned = reduced.transpose([left.index(c) for c in letters if c in left])
        spread = aligned[tuple(slice(None) if c in left else None for c in letters)]
        result.append(np.broadcast_to(spread, operand.shape).copy())
    return result
