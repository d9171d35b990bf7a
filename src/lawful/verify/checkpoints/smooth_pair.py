"""That two networks of smooth units (tanh, sigmoid, GELU) are the same function, or are not, from their files.

The tensors are read as `x -> V σ(W x + b) + c`, with more hidden layers between for tanh and sigmoid; that they mean
this is said, not checked. Everything is a fraction. A network of sigmoids is first written as the one of tanh that
computes the same, `σ(z) = 1/2 + tanh(z/2)/2`.

One hidden layer: every unit is written with the first number of (w, b) that is not zero above zero, and units with the
same (w, b) are added up. By Sussmann's theorem (1992, for tanh) and by the independence of polynomials times
`exp(-z²/2)` (second derivatives of GELU) such lists are equal exactly if the functions are.

Several: units that are equal up to their sign are one, and those that nothing reads are none. A unit that is left is
named by the absolute value of its bias, which has to be positive and its own in that layer, and turned so that its bias
is positive. Then a network is a table: the weight between two units, by their names. Equal tables are equal functions.
Where no weight is zero, other tables are other functions, of whatever widths (Vlačić and Bölcskei 2021).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from lawful.errors import CertificateError
from lawful.verify.core.checkpoint import Array, tensors_digest
from lawful.verify.core.finding import Finding
from lawful.verify.core.schema import integer, items, limit_cost, object_with_keys, require, word

ZERO, HALF = Fraction(0), Fraction(1, 2)
LINEAR = "linear"
Layer = tuple[list[list[Fraction]], list[Fraction]]  # rows and biases
Table = dict[tuple[object, ...], Any]


class LayerNames(NamedTuple):
    """The tensors of a layer in a file; its inputs lie along `axis` of the weight."""

    weight: str
    axis: int
    bias: str | None


def check(body: Mapping[str, Any], files: Sequence[Mapping[str, Array]]) -> Finding:
    """Check the verdict against the tensors of two files, given in float64 by their names there."""
    parts = object_with_keys(dict(body), "certificate", "activation layers verdict")
    if len(files) != 2:
        raise CertificateError("it is about the numbers of two checkpoints: give both files, A and then B")
    activation = word(parts["activation"], "activation", "tanh", "sigmoid", "gelu")
    claimed = word(parts["verdict"], "verdict", "equal", "different")
    limit_cost(200.0 * sum(array.size for file in files for array in file.values()))
    readings = [
        [_layer_names(item) for item in items(layers, "layers", most=1000)]
        for layers in items(parts["layers"], "layers", length=2)
    ]
    depth = len(readings[0])
    require(depth >= 2 and len(readings[1]) == depth, "the networks have different depths, or no hidden layer")
    networks = [_network(file, reading, activation) for file, reading in zip(files, readings, strict=True)]
    _need_one_reading(readings, files)
    ends = [(len(network[0][0][0]), len(network[-1][0])) for network in networks]
    require(ends[0] == ends[1], "inputs or outputs are of different numbers")
    if depth > 2:
        require(activation != "gelu", "there is no theorem about deep networks of this activation")
    one, two = (_sums(network, activation) if depth == 2 else _named_weights(network) for network in networks)
    apart = {key for key in {*one, *two} if one.get(key) != two.get(key)}
    if claimed == "equal":
        require(not apart, "the networks are different")
    else:
        # GELU of a number is a number of which nothing is known: a constant unit may make up for another bias.
        constant = {key for key in apart if depth == 2 and key and key[0] != LINEAR and not any(key[:-1])}
        decided = bool(apart - constant - {()}) or (() in apart and not constant) or activation != "gelu"
        require(bool(apart) and decided, "the networks are the same, or nothing in which they differ decides")
    digests = tuple(tensors_digest(file) for file in files)
    units = len({key for key in one if key and key[0] != LINEAR and any(key[:-1])}) if depth == 2 else sum(
        len({key[1] for key in one if key[0] == layer}) for layer in range(depth - 1)
    )  # fmt: skip
    facts = {"verdict": claimed, "units": units, "terms": len(apart), "activation": activation, "layers": readings}
    return Finding(facts, digests)


def _layer_names(value: object) -> LayerNames:
    parts = object_with_keys(value, "layers", "weight axis bias")
    require(isinstance(parts["weight"], str) and isinstance(parts["bias"], str | None), "a layer names no tensor")
    return LayerNames(parts["weight"], integer(parts["axis"], "axis", 0, 1), parts["bias"])


def _need_one_reading(readings: Sequence[Sequence[LayerNames]], files: Sequence[Mapping[str, Array]]) -> None:
    """A tensor that both files have is the same one of the same layer: read otherwise, a file differs from itself."""
    for one, two in zip(*readings, strict=True):
        shared = {one.weight, two.weight} & set(files[0]) & set(files[1])
        require(not shared or (one.weight, one.axis) == (two.weight, two.axis), "a weight is read in two ways")
        shared = {one.bias, two.bias} & set(files[0]) & set(files[1])
        require(not shared or one.bias == two.bias, "a bias is read in two ways")


def _network(file: Mapping[str, Array], reading: Sequence[LayerNames], activation: str) -> list[Layer]:
    """The layers that these tensors make, those of sigmoids as they stand in the network of tanh, in fractions."""
    named = [name for layer in reading for name in (layer.weight, layer.bias) if name is not None]
    require(all(name in file for name in named), "a tensor is not in the file")
    require(len(set(named)) == len(named) == len(file), "a tensor is used twice, or not at all")
    network: list[Layer] = []
    for depth, layer in enumerate(reading):
        stored = np.asarray(file[layer.weight])
        require(stored.ndim == 2 and stored.size > 0, "a weight is no matrix")
        matrix = stored if layer.axis == 1 else stored.T
        require(not network or matrix.shape[1] == len(network[-1][0]), "the layers do not fit each other")
        biases = np.zeros(len(matrix)) if layer.bias is None else np.asarray(file[layer.bias])
        require(biases.shape == (len(matrix),), "a bias does not fit its layer")
        require(bool(np.isfinite(matrix).all() and np.isfinite(biases).all()), "a number of the files is not finite")
        rows = [[Fraction(value) for value in row] for row in matrix.tolist()]
        shift = [Fraction(value) for value in biases.tolist()]
        if activation == "sigmoid":
            read = HALF if depth else Fraction(1)
            write = HALF if depth < len(reading) - 1 else Fraction(1)
            if depth:
                shift = [bias + HALF * sum(row, ZERO) for row, bias in zip(rows, shift, strict=True)]
            rows = [[read * write * weight for weight in row] for row in rows]
            shift = [write * bias for bias in shift]
        network.append((rows, shift))
    return network


def _sign(values: Sequence[Fraction]) -> int:
    """Of the first number that is not zero."""
    return next((1 if value > 0 else -1 for value in values if value), 0)


def _sums(network: Sequence[Layer], activation: str) -> Table:
    """Coefficients by (w, b), those of the coordinates by a unit vector, and the constant by ()."""
    (inner, shift), (outer, constant) = network
    total: Table = {(): list(constant)}

    def add(key: tuple[object, ...], values: Sequence[Fraction]) -> None:
        before = total.get(key, [ZERO] * len(values))
        total[key] = [a + b for a, b in zip(before, values, strict=True)]

    for unit, (row, bias) in enumerate(zip(inner, shift, strict=True)):
        argument, out = [*row, bias], [line[unit] for line in outer]
        sign = _sign(argument)
        if not sign:
            continue  # tanh and GELU are 0 at 0
        if sign < 0 and activation == "gelu":  # GELU(z) = GELU(-z) + z
            for place, weight in enumerate(row):
                add((LINEAR, place), [weight * value for value in out])
            add((), [bias * value for value in out])
        key = tuple(sign * value for value in argument)
        add(key, out if activation == "gelu" else [sign * value for value in out])
    return {key: values for key, values in total.items() if not key or any(values)}


def _named_weights(network: Sequence[Layer]) -> Table:
    """Weights by layer and the names of both units, biases of outputs by their place."""
    table: Table = {}
    reduced = _without_repetition(network)
    names: list[object] = list(range(len(reduced[0][0][0])))
    flips = [1] * len(names)
    for depth, (rows, biases) in enumerate(reduced):
        last = depth == len(reduced) - 1
        require(all(all(row) for row in rows), "a weight is zero, and the theorem says nothing then")
        require(last or all(biases), "a bias is zero, and the theorem says nothing then")
        unit_names: list[object] = list(range(len(rows))) if last else [abs(bias) for bias in biases]
        require(len(set(unit_names)) == len(unit_names), "two biases of a layer have the same absolute value")
        signs = [1 if last or bias > 0 else -1 for bias in biases]
        for name, sign, row, bias in zip(unit_names, signs, rows, biases, strict=True):
            for other, flip, weight in zip(names, flips, row, strict=True):
                table[depth, name, other] = sign * flip * weight
            if last:
                table["bias", name] = bias
        names, flips = unit_names, signs
    return table


def _without_repetition(network: Sequence[Layer]) -> list[Layer]:
    """One unit for all that are equal up to sign, with the sum of what they say; none for those that say nothing."""
    merged: list[Layer] = []
    groups: dict[tuple[Fraction, ...], list[tuple[int, int]]] | None = None
    for rows, biases in network:
        if groups is not None:
            rows = [[sum((s * row[u] for u, s in group), ZERO) for group in groups.values()] for row in rows]
        merged.append((rows, biases))
        groups = {}
        for unit, (row, bias) in enumerate(zip(rows, biases, strict=True)):
            if sign := _sign([*row, bias]):
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
