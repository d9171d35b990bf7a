"""That two networks of several hidden layers (tanh, sigmoid) are the same function, or are not, from their files.

Units that are equal up to their sign are one, and those that nobody hears are none. A unit that is left is named by
the absolute value of its bias, which has to be positive and its own in that layer, and turned so that its bias is
positive. Then a network is a table: the weight between two units, by their names. Equal tables are equal functions.
Where no weight is zero, other tables are other functions, of whatever widths (Vlačić and Bölcskei 2021). A network
of sigmoids is first written as the one of tanh that computes the same. Everything is a fraction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from lawful.verify.core.checkpoint import Array, tensors_digest
from lawful.verify.core.finding import Finding, short
from lawful.verify.core.schema import integer, items, object_with_keys, require

HALF = Fraction(1, 2)
Layer = tuple[list[list[Fraction]], list[Fraction]]  # rows and biases


def check(activation: str, claimed: str, layers: Sequence[Any], files: Sequence[Mapping[str, Array]]) -> Finding:
    """Check the verdict against the tensors of two files."""
    require(activation in ("tanh", "sigmoid"), "there is no theorem about deep networks of this activation")
    tables, sizes = zip(
        *(_table(file, each, activation) for file, each in zip(files, layers, strict=True)), strict=True
    )
    require(sizes[0][0] == sizes[1][0] and sizes[0][-1] == sizes[1][-1], "inputs or outputs are of different numbers")
    require(len(sizes[0]) == len(sizes[1]), "the networks have different depths")
    apart = sum(tables[0].get(key) != tables[1].get(key) for key in {*tables[0], *tables[1]})
    if claimed == "equal":
        require(not apart, "the networks are different")
    else:
        require(apart > 0, "the networks are the same")
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
    network = _without_repetition(_network(file, layers, activation))
    found: dict[tuple[object, ...], Fraction] = {}
    names: list[object] = list(range(len(network[0][0][0])))
    turned = [1] * len(names)
    widths = [len(names)]
    for depth, (rows, biases) in enumerate(network):
        last = depth == len(network) - 1
        require(all(all(row) for row in rows), "a weight is zero, and the theorem says nothing then")
        require(last or all(biases), "a bias is zero, and the theorem says nothing then")
        own = list(range(len(rows))) if last else [abs(bias) for bias in biases]
        require(len(set(own)) == len(own), "two biases of a layer have the same absolute value")
        signs = [1 if last or bias > 0 else -1 for bias in biases]
        for name, sign, row, bias in zip(own, signs, rows, biases, strict=True):
            for other, flip, weight in zip(names, turned, row, strict=True):
                found[depth, name, other] = sign * flip * weight
            if last:
                found["bias", name] = bias
        widths.append(len(rows))
        names, turned = list(own), signs
    return found, tuple(widths)


def _network(file: Mapping[str, Array], layers: Any, activation: str) -> list[Layer]:
    """The layers of the network of tanh that these tensors make, in fractions."""
    parts = [object_with_keys(each, "layers", "weight axis bias") for each in items(layers, "layers", most=1000)]
    named = [part[key] for part in parts for key in ("weight", "bias") if part[key] is not None]
    require(all(isinstance(name, str) and name in file for name in named), "a tensor is not in the file")
    require(len(set(named)) == len(named) == len(file), "a tensor is used twice, or not at all")
    found: list[Layer] = []
    for depth, part in enumerate(parts):
        array = file[part["weight"]]
        require(array.ndim == 2 and bool(np.isfinite(array).all()), "a weight is no matrix of finite numbers")
        matrix = array if integer(part["axis"], "axis", 0, 1) == 1 else array.T
        require(matrix.size > 0, "a weight is empty")
        require(not found or matrix.shape[1] == len(found[-1][0]), "the layers do not fit each other")
        given = np.zeros(len(matrix)) if part["bias"] is None else np.asarray(file[part["bias"]])
        require(given.shape == (len(matrix),) and bool(np.isfinite(given).all()), "a bias does not fit its layer")
        found.append(_as_tanh(matrix, given, activation, first=not depth, last=depth == len(parts) - 1))
    return found


def _without_repetition(network: Sequence[Layer]) -> list[Layer]:
    """One unit for all that are equal up to sign, with the sum of what they say; none for those that say nothing."""
    merged: list[Layer] = []
    groups: dict[tuple[Fraction, ...], list[tuple[int, int]]] | None = None
    for rows, biases in network:
        if groups is not None:
            rows = [[sum((s * row[u] for u, s in group), Fraction(0)) for group in groups.values()] for row in rows]
        merged.append((rows, biases))
        groups = {}
        for unit, (row, bias) in enumerate(zip(rows, biases, strict=True)):
            sign = next((1 if value > 0 else -1 for value in [*row, bias] if value), 0)
            if sign:
                groups.setdefault(tuple(sign * value for value in [*row, bias]), []).append((unit, sign))
        if len(merged) < len(network):
            merged[-1] = ([list(key[:-1]) for key in groups], [key[-1] for key in groups])
    for depth in range(len(merged) - 2, -1, -1):
        (rows, biases), (after, shift) = merged[depth], merged[depth + 1]
        heard = [unit for unit in range(len(rows)) if any(row[unit] for row in after)]
        require(bool(heard), "a layer says nothing, and the theorem says nothing then")
        merged[depth] = [rows[unit] for unit in heard], [biases[unit] for unit in heard]
        merged[depth + 1] = [[row[unit] for unit in heard] for row in after], shift
    return merged


def _as_tanh(matrix: Array, biases: Array, activation: str, *, first: bool, last: bool) -> Layer:
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
