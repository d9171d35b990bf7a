"""The evidence that a checkpoint is a copy: folds, the group element axis by axis, shifts; for `lawful verify`."""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from collections.abc import Collection, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lawful.checkpoints.align.lazy_tensors import COARSE, rounding_unit
from lawful.checkpoints.compare.decide import CheckpointVerdict
from lawful.checkpoints.compare.exact_element import Cayley, ExactElement, make_exact
from lawful.checkpoints.compare.uniqueness import UniquenessVerdict
from lawful.checkpoints.group.axis_actions import AxisFrame, disjoint
from lawful.checkpoints.group.spaces import AxisPlace
from lawful.checkpoints.opening import CheckpointPair, OpenCheckpoint
from lawful.checkpoints.rewrite.folds import (
    CentreFold,
    DropFold,
    Fold,
    GainFold,
    MoveFold,
    StatisticsFold,
    ValueFold,
    names_in,
)
from lawful.errors import Unsupported
from lawful.formats.io.reading import read_json
from lawful.program.arrays import NumpyArrays
from lawful.program.index_map import IndexMap
from lawful.program.program import Node, Program
from lawful.program.table import OperatorFamily
from lawful.types import Floats, Indices

# A program as a certificate lists it: numbered nodes, with what depends on no input or weight worked out.

MOST_CONSTANTS = 4_000_000  # numbers of constants and index maps that a certificate may hold


def list_program(
    program: Program, named: Collection[str], still: Collection[str], shared: Mapping[str, torch.Tensor]
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
            attributes = {"kind": node.kind, "values": _pack(values, "<f8" if node.kind == "f" else "<i8")}
            places[node] = add("constant", [], attributes, node.shape)
        return places[node]

    for node in program.nodes:
        if node.kind == "c" or 0 in node.shape:
            return None
        leaf = node.family is OperatorFamily.LEAF
        if leaf and "value" in node.attributes:
            constants[node] = arrays.cast(np.asarray(node["value"]), node.kind)
        elif leaf and node not in program.inputs and node["name"] not in named:
            if node["name"] not in shared:
                return None
            tensor = shared[node["name"]].detach()
            constants[node] = arrays.cast(
                np.asarray(tensor.double() if tensor.is_floating_point() else tensor), node.kind
            )
        elif leaf:
            op = "input" if node in program.inputs else "held" if node["name"] in still else "parameter"
            places[node] = add(op, [], {"name": node["name"]}, node.shape)
        elif node.family is OperatorFamily.OPAQUE:
            return None
        elif all(operand in constants for operand in node.inputs):
            with np.errstate(all="ignore"):
                values = node.operator.meaning(
                    arrays, node.attributes, *(constants[operand] for operand in node.inputs)
                )
            constants[node] = arrays.cast(values, node.kind)
        else:
            attributes = {key: _attribute(value) for key, value in node.attributes.items()}
            index = node.attributes.get("map")
            if isinstance(index, IndexMap):
                attributes = _map(index)
                room -= index.size if index.strides is None else 0
            places[node] = add(node.op, [place(operand) for operand in node.inputs], attributes, node.shape)
        if room < 0:
            return None
    return {"nodes": nodes, "outputs": [place(output) for output in program.outputs]}


def _map(index: IndexMap) -> dict[str, Any]:
    if index.strides is not None:
        return {"offset": index.offset, "strides": list(index.strides)}
    return {"positions": _pack(index.positions, "<i8")}


def _attribute(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


BATCH = 2**22  # numbers that are widened together
STILL_INVERSE = 1e-3  # what rounding may do to the product of a matrix and its inverse
KIND, SMOOTH, VERSION = "checkpoint-copy", "smooth-pair", 2
FOLD_WORDS: dict[type, str] = {
    GainFold: "gain", StatisticsFold: "statistics", MoveFold: "move", DropFold: "drop", CentreFold: "centre"
}  # fmt: skip


def copy_certificate(pair: CheckpointPair, verdict: CheckpointVerdict) -> dict[str, Any]:
    """What a separate program needs to find B's numbers in A's."""
    if verdict.theorem is not None:
        return _smooth_certificate(pair, verdict.theorem)
    if not verdict.is_copy:
        raise Unsupported("only a copy has a certificate of its weights")
    comparison = verdict.comparison
    shapes = {name: tuple(tensor.shape) for name, tensor in pair.first.state.items()}
    named = [
        name
        for name, tensor in pair.first.state.items()
        if all(name in checkpoint.keys or name in checkpoint.sources for checkpoint in (pair.first, pair.second))
        and tensor.is_floating_point()
    ]
    program, element = _claim(pair, verdict, named)
    narrow = _coarse(pair, {place[0] for place, frame in comparison.frames.items() if frame.blocks})
    matrices = _Matrices(element, narrow=narrow)
    acting = disjoint(element.frames if element else comparison.frames, shapes)
    axes = [
        _frame_json(place, frame, matrices, element.divisors.get(place) if element else None)
        for place, frame in acting.items()
    ]
    return {
        "kind": KIND,
        "version": VERSION,
        "about": [digest(pair.first), digest(pair.second)],
        "settings": [settings_digest(checkpoint) for checkpoint in (pair.first, pair.second)],
        "tensors": sources_json(pair, named),
        "folds": [_fold_json(step) for step in comparison.architecture.folds],
        "matrices": matrices.json(),
        "frames": axes,
        "shifts": [
            {"tensor": name, "shape": list(piece.shape), "values": _pack(piece.numpy())}
            for name, pieces in comparison.shifts.items()
            for piece in pieces
        ],
        "moved": sorted(
            {distance.tensor for distance in comparison.distances if distance.moved_only and distance.exact}
            & set(named)
        ),
    } | ({} if program is None else {"program": program})


def _claim(
    pair: CheckpointPair, verdict: CheckpointVerdict, named: list[str]
) -> tuple[dict[str, Any] | None, ExactElement | None]:
    """The program, and an element in exact numbers that leaves its function alone; None where that is not known."""
    comparison = verdict.comparison
    architecture = comparison.architecture
    if architecture.program is None or architecture.virtual or architecture.unread:
        return None, None
    places = [(name, d) for name, dims in comparison.frames for d in dims]
    if len(set(places)) < len(places):  # frames that share dimensions are joined, and their factors multiplied
        return None, None
    element = make_exact(architecture.group, comparison.alignment.moves, comparison.frames)
    if element is None:
        return None, None
    moved = (
        {name for name, _ in comparison.frames}
        | set(comparison.shifts)
        | {name for step in architecture.folds for name in names_in(step)}
    )
    shared = _shared_tensors(pair)
    still = {name for name in architecture.program.buffers if name in shared and name not in moved}
    program = list_program(architecture.program, named, still, shared)
    return (program, element) if program is not None else (None, None)


def list_program_of_model(certificate: Mapping[str, Any], pair: CheckpointPair) -> dict[str, Any] | None:
    """The program of two checkpoints' model, listed as in a certificate about them; None where it cannot be."""
    if pair.architecture.program is None:
        return None
    named = [name for name, *_ in certificate["tensors"]]
    still = {attributes["name"] for op, _, attributes, _ in certificate["program"]["nodes"] if op == "held"}
    return list_program(pair.architecture.program, named, still, _shared_tensors(pair))


def _shared_tensors(pair: CheckpointPair) -> dict[str, torch.Tensor]:
    """Tensors that both have."""
    return {name: tensor for name, tensor in pair.first.state.items() if _is_shared(pair, name)}


def _is_shared(pair: CheckpointPair, name: str) -> bool:
    """Whether both have one tensor: then it is a constant of the program."""
    one, two = pair.first.state[name], pair.second.state.get(name)
    return two is not None and one.shape == two.shape and torch.equal(one, two)


def _smooth_certificate(pair: CheckpointPair, theorem: UniquenessVerdict) -> dict[str, Any]:
    """Which tensors are which layer; numbers are taken from the files."""
    layers = [
        [
            {
                "weight": checkpoint.keys[layer.weight],
                "axis": layer.axis,
                "bias": None if layer.bias is None else checkpoint.keys[layer.bias],
            }
            for layer in theorem.shape.layers
        ]
        for checkpoint in (pair.first, pair.second)
    ]
    return {
        "kind": SMOOTH,
        "version": VERSION,
        "about": [digest(pair.first), digest(pair.second)],
        "activation": theorem.shape.activation,
        "layers": layers,
        "verdict": "equal" if theorem.equal else "different",
    }


def digest(checkpoint: OpenCheckpoint) -> str:
    """Names a checkpoint by its numbers: SHA-256 of names in the file, shapes and values in float64."""
    return tensors_digest({key: tensor for key, tensor in checkpoint.tensors.items() if tensor.is_floating_point()})


def settings_digest(checkpoint: OpenCheckpoint) -> str | None:
    """Names the settings of a folder: SHA-256 of its `config.json` with sorted keys; None for a file."""
    config = Path(checkpoint.source) / "config.json"
    if not config.is_file():
        return None
    text = json.dumps(read_json(config), sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return f"settings:{hashlib.sha256(text.encode()).hexdigest()}"


def sources_json(pair: CheckpointPair, named: list[str]) -> list[list[object]]:
    """Each tensor of the common form, with the tensor of each file that it is, or how it is made of some."""
    return [[name, *(_source_json(checkpoint, name) for checkpoint in (pair.first, pair.second))] for name in named]


def _source_json(checkpoint: OpenCheckpoint, name: str) -> object:
    """The name of a tensor in its file, or how it is made of what is there."""
    if name in checkpoint.keys:
        return checkpoint.keys[name]
    source = checkpoint.sources[name]
    if source.constant is not None:
        return {"constant": source.constant, "shape": list(source.shape)}
    return {"parts": list(source.parts), "axis": source.axis, "transposed": source.transposed,
            "rows": None if source.rows is None else list(source.rows)}  # fmt: skip


def tensors_digest(tensors: Mapping[str, torch.Tensor]) -> str:
    """The digest of tensors by name."""
    total = hashlib.sha256(b"lawful checkpoint 2\n")
    for key in sorted(tensors):
        tensor = tensors[key]
        total.update(f"{json.dumps([key, list(tensor.shape)])}\n".encode())
        line = tensor.detach().cpu().reshape(-1)
        for start in range(0, len(line), BATCH):
            total.update(np.ascontiguousarray(line[start : start + BATCH].double().numpy(), dtype="<f8").data)
    return f"checkpoint:{total.hexdigest()}"


def _coarse(pair: CheckpointPair, names: set[str]) -> bool:
    """Whether all that matrices act on is stored in 16 bits in one of the files: then float32 holds a matrix."""
    states = pair.first.state, pair.second.state
    return all(max(rounding_unit(state[name].dtype) for state in states) >= COARSE for name in names)


def _pack(values: np.ndarray[Any, Any], kind: str = "<f8") -> str:
    """Numbers as bytes, without those that zlib can do without, as text."""
    raw = np.ascontiguousarray(values, dtype=kind).tobytes()
    return "z:" + base64.b64encode(zlib.compress(raw, 1)).decode()


class _Matrices:
    """Each matrix once, with the number of its inverse transposed (orthogonal ones are their own)."""

    def __init__(self, element: ExactElement | None, *, narrow: bool) -> None:
        self.rotations: Mapping[bytes, Cayley] = element.rotations if element else {}
        self.primary: Collection[bytes] = element.primary if element else ()
        self.matrices: list[Floats] = []
        self.partners: list[int] = []
        self.narrow = narrow
        self._places: dict[bytes, int] = {}

    def place(self, matrix: Floats, partner: Floats) -> int:
        """The number of a matrix; its partner is listed too."""
        number = self._number(matrix)
        self.partners[number] = number if np.array_equal(matrix, partner) else self._number(partner)
        self.partners[self.partners[number]] = number
        return number

    def _number(self, matrix: Floats) -> int:
        key = hashlib.sha256(np.ascontiguousarray(matrix).tobytes()).digest()
        if key not in self._places:
            self._places[key] = len(self.matrices)
            self.matrices.append(matrix)
            self.partners.append(-1)
        return self._places[key]

    def json(self) -> list[dict[str, Any]]:
        """All of them; in fewer bits only if they are still inverse to each other then.

        A rotation of an exact element is listed by its skew matrix, and the inverse of another matrix by its number.
        """
        return [self._list_matrix(number) for number in range(len(self.matrices))]

    def _list_matrix(self, number: int) -> dict[str, Any]:
        matrix, partner = self.matrices[number], self.partners[number]
        rotation = self.rotations.get(matrix.tobytes())
        record: dict[str, Any] = {"size": len(matrix), "partner": partner}
        if rotation is not None:
            return record | {"skew": _pack(rotation.skew[np.triu_indices(len(matrix), 1)]),
                            "order": rotation.order.tolist(), "signs": rotation.signs.astype(int).tolist()}  # fmt: skip
        if partner != number and self._is_primary(partner, number):
            return record | {"dual": partner}
        return record | {"values": _pack(matrix, self._kind(matrix, self.matrices[partner]))}

    def _is_primary(self, one: int, other: int) -> bool:
        """Whether the second is listed as the inverse of the first.

        Which of them is given has to be remembered: the numbers do not tell, for rounding an inverse twice may lead
        back to the matrix although its inverse is, say, no rotation of pairs any more, and the proof needs that it is.
        """
        first, second = (self.matrices[number].tobytes() in self.primary for number in (one, other))
        return first if first != second else one < other

    def _kind(self, matrix: Floats, partner: Floats) -> str:
        still = self.narrow and (np.abs(matrix) @ np.abs(partner).T).max() < STILL_INVERSE * 2.0**23
        return "<f4" if still else "<f8"


def _frame_json(place: AxisPlace, frame: AxisFrame, matrices: _Matrices, divisor: Floats | None) -> dict[str, Any]:
    blocks = zip(frame.blocks, frame.inverses, strict=True)
    extra = {} if divisor is None or bool((divisor == 1).all()) else {"divisor": _pack(divisor)}
    return extra | {
        "tensor": place[0],
        "dims": list(place[1]),
        "source": frame.source.tolist(),
        "factor": _pack(frame.factor),
        "blocks": [
            {"rows": [_line(line) for line in rows], "matrix": matrices.place(matrix, inverse.T)}
            for (rows, matrix), inverse in blocks
        ],
    }


def _line(rows: Indices) -> int | list[int]:
    """Rows of a block: the first if they follow one another."""
    start = int(rows[0])
    return start if np.array_equal(rows, np.arange(start, start + len(rows))) else rows.tolist()


def _fold_json(step: Fold) -> dict[str, Any]:
    if isinstance(step, ValueFold):
        return {"fold": "value", "bias": step.bias, "rows": list(step.rows),
                "columns": [list(copy) for copy in step.columns], "reader": asdict(step.reader)}  # fmt: skip
    return {"fold": FOLD_WORDS[type(step)], **asdict(step)}
