"""That two networks of several hidden layers (tanh, sigmoid) are the same function, or are not, from their files.

A unit of a hidden layer is named by the absolute value of its bias, which has to be positive and its own in that
layer, and turned so that its bias is positive. Then a network is a table: the weight between two units, by their names.
Equal tables are equal functions. Where no weight is zero, other tables are other functions (Vlačić and Bölcskei 2021).
A network of sigmoids is first written as the one of tanh that computes the same. Everything is a fraction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from lawful.verify.checkpoint_files import tensors_digest
from lawful.verify.checkpoint_folds import Array
from lawful.verify.finding import Finding, short
from lawful.verify.schema import listed, need, record, whole

HALF = Fraction(1, 2)


def check(activation: str, claimed: str, layers: Sequence[Any], files: Sequence[Mapping[str, Array]]) -> Finding:
    """Check the verdict against the tensors of two files."""
    need(activation in ("tanh", "sigmoid"), "there is no theorem about deep networks of this activation")
    tables, sizes = zip(
        *(_table(file, each, activation) for file, each in zip(files, layers, strict=True)), strict=True
    )
    need(sizes[0][0] == sizes[1][0] and sizes[0][-1] == sizes[1][-1], "inputs or outputs are of different numbers")
    need(sizes[0] == sizes[1], "the networks have different widths")
    apart = sum(tables[0].get(key) != tables[1].get(key) for key in {*tables[0], *tables[1]})
    if claimed == "equal":
        need(not apart, "the networks are different")
    else:
        need(apart > 0, "the networks are the same")
    digests = tuple(tensors_digest(file) for file in files)
    depth = len(sizes[0]) - 2
    words = f"{short(digests[0])} and {short(digests[1])}, read as {depth} hidden layers of {activation}, are "
    if claimed == "equal":
        words += "the same function: units that are named by their biases have the same weights, in fractions"
    else:
        words += f"different functions: {apart} weights between units that are named by their biases differ, and "
        words += "without zero weights and with biases of different absolute values a function determines them"
    return Finding(f"{words}. Not checked: that this is what the tensors are used for",
                   {"verdict": claimed, "units": sum(sizes[0][1:-1]), "terms": apart}, digests)  # fmt: skip


def _table(
    file: Mapping[str, Array], layers: Any, activation: str
) -> tuple[dict[tuple[object, ...], Fraction], tuple[int, ...]]:
    """Weights by layer and the names of both units, biases of outputs by their place; and the widths."""
    parts = [record(each, "layers", "weight axis bias") for each in listed(layers, "layers", most=1000)]
    named = [part[key] for part in parts for key in ("weight", "bias") if part[key] is not None]
    need(all(isinstance(name, str) and name in file for name in named), "a tensor is not in the file")
    need(len(set(named)) == len(named) == len(file), "a tensor is used twice, or not at all")
    found: dict[tuple[object, ...], Fraction] = {}
    widths: list[int] = []
    names: list[object] = []
    turned: list[int] = []
    for depth, part in enumerate(parts):
        array = file[part["weight"]]
        need(array.ndim == 2 and bool(np.isfinite(array).all()), "a weight is no matrix of finite numbers")
        matrix = array if whole(part["axis"], "axis", 0, 1) == 1 else array.T
        need(matrix.size > 0 and bool((matrix != 0).all()), "a weight is zero, and the theorem says nothing then")
        if not depth:
            widths.append(matrix.shape[1])
            names, turned = list(range(matrix.shape[1])), [1] * matrix.shape[1]
        need(matrix.shape[1] == widths[-1], "the layers do not fit each other")
        last = depth == len(parts) - 1
        given = np.zeros(len(matrix)) if part["bias"] is None else np.asarray(file[part["bias"]])
        need(given.shape == (len(matrix),) and bool(np.isfinite(given).all()), "a bias does not fit its layer")
        rows, biases = _as_tanh(matrix, given, activation, first=not depth, last=last)
        widths.append(len(rows))
        own = list(range(len(rows))) if last else [abs(bias) for bias in biases]
        signs = [1 if last or bias > 0 else -1 for bias in biases]
        need(last or all(biases), "a bias is zero, and the theorem says nothing then")
        need(len(set(own)) == len(own), "two biases of a layer have the same absolute value")
        for name, sign, row, bias in zip(own, signs, rows, biases, strict=True):
            for other, flip, weight in zip(names, turned, row, strict=True):
                found[depth, name, other] = sign * flip * weight
            if last:
                found["bias", name] = bias
        names, turned = list(own), signs
    return found, tuple(widths)


def _as_tanh(
    matrix: Array, biases: Array, activation: str, *, first: bool, last: bool
) -> tuple[list[list[Fraction]], list[Fraction]]:
    """A layer in fractions; of sigmoids, as it stands in the network of tanh: `σ(z) = ½ + ½ tanh(z/2)`."""
    rows = [[Fraction(value) for value in row] for row in matrix.tolist()]
    shift = [Fraction(value) for value in biases.tolist()]
    if activation == "sigmoid":
        read = Fraction(1) if first else HALF
        written = Fraction(1) if last else HALF
        if not first:
            shift = [bias + HALF * sum(row, Fraction(0)) for row, bias in zip(rows, shift, strict=True)]
        rows = [[read * written * weight for weight in row] for row in rows]
        shift = [written * bias for bias in shift]
    return rows, shift
