"""`.nnet`: the text format of the ACAS Xu networks, ReLU layers between a fixed scaling of inputs and outputs."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np

from lawful.errors import InvalidNetwork
from lawful.formats.io.limits import check_bytes, check_numbers
from lawful.formats.io.reading import read_text
from lawful.network.mlp import Mlp
from lawful.network.reading import Reading, TensorReading
from lawful.types import Floats

MAX_TEXT = 256 * 2**20


def load(path: Path) -> Mlp:
    """The network between scaled inputs and scaled outputs, which is what the weights in the file are about.

    The file's scaling (means, ranges) and clipping of raw inputs is not part of it; the reading says so.
    """
    check_bytes("the file", path.stat().st_size, MAX_TEXT)
    lines = [line for line in read_text(path, MAX_TEXT).splitlines() if line.strip() and not line.startswith("//")]
    try:
        layers, inputs, outputs, _ = (int(word) for word in _words(lines[0])[:4])
        widths = [int(word) for word in _words(lines[1])]
        scaling = [[float(word) for word in _words(line)] for line in lines[3:7]]
    except (ValueError, IndexError):
        raise InvalidNetwork("not a .nnet file: its header of seven lines cannot be read") from None
    if len(widths) != layers + 1 or widths[0] != inputs or widths[-1] != outputs or min(widths) < 1:
        raise InvalidNetwork(
            f"a .nnet file of {layers} layers with widths {widths[:8]}, {inputs} inputs, {outputs} outputs"
        )
    weights: list[Floats] = []
    biases: list[Floats] = []
    at = 7
    for below, above in itertools.pairwise(widths):
        check_numbers("a layer", (above, below))
        weights.append(_rows(lines, at, above, below))
        biases.append(_rows(lines, at + above, above, 1)[:, 0])
        at += 2 * above
    if at != len(lines):
        raise InvalidNetwork(f"{len(lines) - at} lines follow the last layer")
    tensors = []
    for number, weight in enumerate(weights, 1):
        tensors += [
            TensorReading(f"W{number}", "decimal", weight.shape),
            TensorReading(f"b{number}", "decimal", (len(weight),)),
        ]
    plain = scaling[2:] == [[0.0] * len(scaling[2]), [1.0] * len(scaling[3])] if len(scaling) == 4 else True
    assumed = (
        ()
        if plain
        else ("inputs are scaled already, (x - mean) / range as in the file's header, and outputs stay scaled",)
    )
    return Mlp(weights, biases, 0.0, Reading("nnet", tuple(tensors), assumed))


def _words(line: str) -> list[str]:
    return [word for word in line.replace(",", " ").split() if word]


def _rows(lines: list[str], at: int, rows: int, columns: int) -> Floats:
    if at + rows > len(lines):
        raise InvalidNetwork(f"ends within a layer: {rows} lines of {columns} numbers were expected")
    matrix = np.empty((rows, columns))
    for row in range(rows):
        words = _words(lines[at + row])
        try:
            matrix[row] = [float(word) for word in words]
        except ValueError:
            raise InvalidNetwork(f"line {at + row + 1} has {len(words)} entries, not {columns} numbers") from None
    return matrix
