"""That two networks of one hidden layer (tanh, sigmoid, GELU) are the same function, or are not, from their files.

The tensors are read as `x → V σ(W x + b) + c`; that they mean this is said, not checked. Everything is a fraction.
Every unit is written with the first number of (w, b) that is not zero above zero, and units with the same (w, b) are
added up. By Sussmann's theorem (for tanh; sigmoid is ½ + ½ tanh(z/2)) and by the independence of polynomials times
`exp(−z²/2)` (second derivatives of GELU) such lists are equal exactly if the functions are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from lawful.errors import CertificateError
from lawful.verify.checkpoints import deep_pair
from lawful.verify.core.checkpoint import Array, tensors_digest
from lawful.verify.core.finding import Finding, short
from lawful.verify.core.schema import integer, items, limit_cost, object_with_keys, require, word

LINEAR = "linear"
Table = dict[tuple[Fraction | str, ...], list[Fraction]]


def check(body: Mapping[str, Any], files: Sequence[Mapping[str, Array]]) -> Finding:
    """Check the verdict against the tensors of two files, given in float64 by their names there."""
    parts = object_with_keys(dict(body), "certificate", "activation layers verdict")
    if len(files) != 2:
        raise CertificateError("it is about the numbers of two checkpoints: give both files, A and then B")
    activation = word(parts["activation"], "activation", "tanh", "sigmoid", "gelu")
    claimed = word(parts["verdict"], "verdict", "equal", "different")
    limit_cost(200.0 * sum(array.size for file in files for array in file.values()))
    layers = items(parts["layers"], "layers", length=2)
    if len(items(layers[0], "layers", most=1000)) > 2:
        return deep_pair.check(activation, claimed, layers, files)
    one, two = (_sums(file, each, activation) for file, each in zip(files, layers, strict=True))
    require(len(one[0][()]) == len(two[0][()]), "the networks have different numbers of outputs")
    require(one[1] == two[1], "the networks have different numbers of inputs")
    keys = {key for key in {*one[0], *two[0]} if one[0].get(key) != two[0].get(key)}
    if claimed == "equal":
        require(not keys, "the networks are different")
    else:
        constant = {key for key in keys if key and key[0] != LINEAR and not any(key[:-1])}
        decided = bool(keys - constant - {()}) or (() in keys and not constant) or activation != "gelu"
        require(bool(keys) and decided, "nothing in which the networks differ decides")
    digests = tuple(tensors_digest(file) for file in files)
    count = sum(bool(key) and key[0] != LINEAR and any(key[:-1]) for key in one[0])
    names = f"{short(digests[0])} and {short(digests[1])}, read as one hidden layer of {activation},"
    statement = f"{names} are {'the same function' if claimed == 'equal' else 'different functions'}: "
    if claimed == "equal":
        statement += f"the same {count} hidden units after equal ones are added up, in fractions"
    else:
        statement += f"{len(keys)} terms differ, and functions of this kind determine their terms"
    return Finding(f"{statement}. Not checked: that this is what the tensors are used for",
                   {"verdict": claimed, "units": count, "terms": len(keys)}, digests)  # fmt: skip


def _sums(file: Mapping[str, Array], layers: object, activation: str) -> tuple[Table, int]:
    """Coefficients by (w, b), those of the coordinates by a unit vector with zero, and the constant by ()."""
    first, second = (object_with_keys(each, "layers", "weight axis bias") for each in items(layers, "layers", length=2))
    named = [each[key] for each in (first, second) for key in ("weight", "bias") if each[key] is not None]
    require(all(isinstance(name, str) and name in file for name in named), "a tensor is not in the file")
    require(len(set(named)) == len(named) == len(file), "a tensor is used twice, or not at all")
    inner, outer = (_matrix(file[each["weight"]], integer(each["axis"], "axis", 0, 1)) for each in (first, second))
    require(inner.shape[0] == outer.shape[1], "the layers do not fit each other")
    shift = _vector(file, first["bias"], inner.shape[0])
    total: Table = {(): [Fraction(value) for value in _vector(file, second["bias"], outer.shape[0]).tolist()]}
    inputs = inner.shape[1]

    def add(key: tuple[Fraction | str, ...], values: list[Fraction]) -> None:
        before = total.get(key, [Fraction(0)] * len(values))
        total[key] = [a + b for a, b in zip(before, values, strict=True)]

    half = Fraction(1, 2) if activation == "sigmoid" else Fraction(1)
    for unit in range(inner.shape[0]):
        argument = [half * Fraction(value) for value in [*inner[unit].tolist(), float(shift[unit])]]
        out = [half * Fraction(value) for value in outer[:, unit].tolist()]
        if activation == "sigmoid":
            add((), out)
        sign = next((1 if value > 0 else -1 for value in argument if value), 0)
        if not sign:
            continue
        if sign < 0 and activation == "gelu":  # GELU(z) = GELU(-z) + z
            for place in range(inputs):
                unit_vector = tuple(Fraction(int(d == place)) for d in range(inputs))
                add((LINEAR, *unit_vector), [argument[place] * value for value in out])
            add((), [argument[-1] * value for value in out])
        key = tuple(sign * value for value in argument)
        add(key, out if activation == "gelu" else [sign * value for value in out])
    return {key: values for key, values in total.items() if not key or any(values)}, inputs


def _matrix(array: Array, axis: int) -> Array:
    require(array.ndim == 2 and bool(np.isfinite(array).all()), "a weight is no matrix of finite numbers")
    return array if axis == 1 else array.T


def _vector(file: Mapping[str, Array], name: str | None, size: int) -> Array:
    found = np.zeros(size) if name is None else np.asarray(file[name])
    require(found.shape == (size,) and bool(np.isfinite(found).all()), "a bias does not fit its layer")
    return found
