"""Values made of JSON's own types, text as people write it, and how a network was read as both."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from enum import Enum
from fractions import Fraction
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lawful.network.reading import Reading


def plain(value: Any) -> Any:
    """Arrays become lists, fractions text, infinities and NaN null.

    >>> import numpy as np
    >>> plain({"a": np.arange(2), "b": (Fraction(1, 3), float("inf"))})
    {'a': [0, 1], 'b': ['1/3', None]}
    """
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item) for item in value]
    if isinstance(value, Enum):
        return plain(value.value)
    if hasattr(value, "tolist"):  # NumPy arrays and scalars, tensors
        return plain(value.tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Fraction):
        return str(value)
    return value


def pick(source: Any, keys: str) -> dict[str, Any]:
    """The fields of an object under their own names, or under `key=field`: what a result's JSON is mostly made of.

    >>> pick(Fraction(1, 3), "numerator below=denominator")
    {'numerator': 1, 'below': 3}
    """
    pairs = [key.partition("=") for key in keys.split()]
    return {key: getattr(source, field or key) for key, _, field in pairs}


_COUNTED = (
    "balances|biases|blocks|boxes|channels|checkpoints|clusters|components|directions|edges|files|freedoms|gradients|"
    "groups|heads|inputs|instances|kinks|laws|layers|networks|neurons|nodes|numbers|outputs|parameters|parts|pieces|"
    "points|quantities|queries|regions|runs|samples|seconds|signs|spaces|steps|tensors|truncations|units|weights"
)
_KIND = "(?:hidden |independent |random |conserved |locked |other )?"
_ONE = re.compile(rf"(?<![\w.,^·/:=-])(1 {_KIND})({_COUNTED})\b( are| were| have)?")
_ZERO = re.compile(r"(?<![\w.])0(?:\.0+)?e[+-]?0+(?![\w.])")
_VERBS = {" are": " is", " were": " was", " have": " has"}
_SINGULAR = {"biases": "bias", "boxes": "box", "quantities": "quantity", "queries": "query"}


def tidy(text: str) -> str:
    """The text with `1 weights` and `0.0e+00` as people write them, wherever a count was filled in.

    >>> tidy("1 hidden neurons are left, 11 weights, off by 0.0e+00, 1.0e+00")
    '1 hidden neuron is left, 11 weights, off by 0, 1.0e+00'
    """
    return _ZERO.sub("0", _ONE.sub(_as_one, text))


def _as_one(found: re.Match[str]) -> str:
    noun = _SINGULAR.get(found[2], found[2].removesuffix("s"))
    return f"{found[1]}{noun}{_VERBS.get(found[3] or '', '')}"


def few(names: Sequence[str], most: int = 6) -> str:
    """Names, the first few of them, and how many there are.

    >>> few(["a", "b", "c"], 2)
    'a, b, ... (3 in all)'
    """
    return ", ".join(names[:most]) + (f", ... ({len(names)} in all)" if len(names) > most else "")


def reading_json(reading: Reading) -> dict[str, Any]:
    """The part of a reading for people and programs."""
    layers = [{"name": layer.name, "dtype": layer.dtype, "shape": list(layer.shape)} for layer in reading.layers]
    return {
        "format": reading.format,
        "source": reading.source,
        "layers": layers,
        "assumed": list(reading.assumed),
        "ignored": list(reading.ignored),
    }


def readings_json(readings: Sequence[Reading]) -> dict[str, Any]:
    """`reading`; for several networks `readings` has each, and `reading` what was assumed of any."""
    if len(readings) == 1:
        return {"reading": reading_json(readings[0])}
    assumed = list(dict.fromkeys(sentence for reading in readings for sentence in reading.assumed))
    ignored = list(dict.fromkeys(part for reading in readings for part in reading.ignored))
    both = {"format": [reading.format for reading in readings], "assumed": assumed, "ignored": ignored}
    return {"reading": both, "readings": [reading_json(reading) for reading in readings]}


def reading_lines(reading: Reading) -> list[str]:
    """The same for people who asked for more: every tensor with its type, and what was left out."""
    head = f"read: {reading.source or 'a network'} ({reading.format or 'made in Python'})"
    tensors = [f"  {layer.name}  {layer.dtype}  {'×'.join(map(str, layer.shape)) or '1'}" for layer in reading.layers]
    return [head, *tensors, *(f"  ignored: {part}" for part in reading.ignored)]
