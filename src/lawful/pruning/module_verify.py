"""A module's pruning as one JSON object, and its replay in fractions by code that shares nothing with the pruner.

Every step is checked against the weights that the step before left: a silent channel is heard nowhere, a constant one
hears nothing and no zero padding spoils its border, a duplicate is a positive multiple of a channel that stays. The
next layer must hold what the evidence asks for, each folded number rounded once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from lawful.errors import CertificateError
from lawful.pruning.module import ModulePruning

KIND = "module-pruning"
LAYERS = ("Linear", "Conv1d", "Conv2d")
POOLS = ("MaxPool1d", "MaxPool2d", "AvgPool1d", "AvgPool2d")
OTHERS = ("ReLU", "LeakyReLU", "Identity", "Dropout", "Flatten")
SETTINGS = ("kernel_size", "stride", "padding", "dilation", "padding_mode", "ceil_mode", "count_include_pad",
            "divisor_override", "negative_slope", "start_dim", "end_dim", "groups")  # fmt: skip
Filter = list[list[Fraction]]  # by channel below, by place
Part = Mapping[str, Any]


def certificate(pruning: ModulePruning) -> dict[str, Any]:
    """The two chains with all their numbers, and the evidence for every channel that went.

    >>> import torch
    >>> from lawful.pruning.module import prune_module
    >>> model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU(), torch.nn.Linear(3, 1))
    >>> with torch.no_grad():
    ...     _ = model[0].weight[1].zero_()
    >>> proof = certificate(prune_module(model))
    >>> proof["statement"]
    '1 of 3 hidden channels removed: the same function up to the rounding of folded weights'
    >>> verify(proof)
    """
    return {
        "kind": KIND,
        "statement": _statement(pruning.channels_before - pruning.channels_after, pruning.channels_before),
        "before": [_written(part) for part in pruning.original],
        "after": [_written(part) for part in pruning.module],
        "steps": [
            {
                "layer": step.layer,
                "evidence": [[channel, *map(_text, why)] for channel, why in step.evidence.items()],
                "muted": step.muted,
                "weight": step.weight.tolist(),
                "bias": step.bias.tolist(),
            }
            for step in pruning.steps
        ],
    }


def _statement(gone: int, channels: int) -> str:
    return f"{gone} of {channels} hidden channels removed: the same function up to the rounding of folded weights"


def _text(value: Any) -> Any:
    return str(value) if isinstance(value, Fraction) else value


def _written(part: Any) -> dict[str, Any]:
    found = {name: getattr(part, name) for name in SETTINGS if hasattr(part, name)}
    found = {name: list(value) if isinstance(value, tuple) else value for name, value in found.items()}
    if type(part).__name__ in LAYERS:
        weight = part.weight.detach().double().numpy()
        found["dtype"] = str(part.weight.dtype).removeprefix("torch.")
        found["weight"] = weight.reshape(*weight.shape[:2], -1).tolist()
        found["bias"] = None if part.bias is None else part.bias.detach().double().tolist()
    return {"type": type(part).__name__, **found}


def verify(proof: Mapping[str, Any]) -> None:
    """Replay a certificate; raises `CertificateError` if it does not show that the two chains are one function."""
    try:
        _verify(proof)
    except CertificateError:
        raise
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError, ZeroDivisionError) as error:
        raise CertificateError(f"not a certificate of a module's pruning: {type(error).__name__} {error}") from None


def _need(condition: bool, complaint: str) -> None:
    if not condition:
        raise CertificateError(complaint)


def _verify(proof: Mapping[str, Any]) -> None:
    before, after = list(proof["before"]), list(proof["after"])
    _need(len(before) == len(after), "the chains differ in length")
    layers = [number for number, part in enumerate(before) if part["type"] in LAYERS]
    _check_axes(before)
    filters = {number: _filters(before[number], lower) for number, lower in _with_lower(before, layers)}
    biases = {n: [Fraction(b) for b in before[n]["bias"] or [0.0] * len(filters[n])] for n in layers}
    channels = sum(len(filters[number]) for number in layers[:-1])
    for count, step in enumerate(proof["steps"], 1):
        layer = step["layer"]
        _need(layer in layers[:-1], f"step {count}: part {layer} is not a hidden layer")
        upper = layers[layers.index(layer) + 1]
        _step(step, before[layer + 1 : upper + 1], filters, biases, (layer, upper), f"step {count}")
    left = sum(len(filters[number]) for number in layers[:-1])
    for number, (old, new) in enumerate(zip(before, after, strict=True)):
        fixed = [{k: v for k, v in part.items() if k not in ("weight", "bias")} for part in (old, new)]
        _need(fixed[0] == fixed[1], f"part {number} is another kind of layer than before")
        if number in layers:
            _check_stored(new, filters[number], biases[number], f"part {number}")
    _need(proof["statement"] == _statement(channels - left, channels), "the statement is not what the steps show")


def _with_lower(parts: Sequence[Part], layers: list[int]) -> list[tuple[int, int | None]]:
    """Each layer and the number of channels below it, None for the first."""
    return list(zip(layers, [None, *(len(parts[number]["weight"]) for number in layers)], strict=False))


def _filters(part: Part, below: int | None) -> list[Filter]:
    """By output, by channel below, by place: a Linear layer behind a Flatten hears a channel at several places."""
    found = []
    for row in part["weight"]:
        numbers = [[Fraction(value) for value in places] for places in row]
        if below is not None and len(numbers) != below:
            _need(part["type"] == "Linear" and len(numbers) % below == 0, "a layer does not fit the one below")
            flat = [value for places in numbers for value in places]
            wide = len(flat) // below
            numbers = [flat[start : start + wide] for start in range(0, len(flat), wide)]
        found.append(numbers)
    return found


def _check_axes(parts: Sequence[Part]) -> None:
    """A channel must stay one: what comes between layers acts on each alone and commutes with positive factors."""
    flat = spatial = False
    for number, part in enumerate(parts):
        kind = part["type"]
        _need(kind in (*LAYERS, *POOLS, *OTHERS), f"part {number}: nothing is known about {str(kind)[:40]}")
        _need(part.get("groups", 1) == 1, f"part {number} has groups")
        if kind == "Flatten":
            _need((part["start_dim"], part["end_dim"]) == (1, -1), f"part {number} flattens some axes only")
            flat, spatial = True, False
        elif kind == "Linear":
            _need(not spatial, f"part {number} works along another axis than the channels")
            flat = True
        elif kind in (*POOLS, *LAYERS):
            _need(not flat, f"part {number} mixes the channels")
            spatial = True


def _step(
    step: Mapping[str, Any],
    between: Sequence[Part],
    filters: dict[int, list[Filter]],
    biases: dict[int, list[Fraction]],
    where: tuple[int, int],
    name: str,
) -> None:
    layer, upper = where
    own, heard = filters[layer], filters[upper]
    expected = [[list(places) for places in row] for row in heard]
    shifted = list(biases[upper])
    evidence = {int(channel): why for channel, *why in step["evidence"]}
    _need(len(evidence) == len(step["evidence"]) and set(evidence) <= set(range(len(own))), f"{name}: no such channel")
    for channel, why in evidence.items():
        about = f"{name}, channel {channel}"
        match why:
            case ["silent"]:
                _need(not any(v for row in heard for v in row[channel]), f"{about} is heard")
            case ["constant", stated]:
                value = _constant(own[channel], biases[layer][channel], between, about)
                _need(value == Fraction(stated), f"{about} has the value {value}, not {stated}")
                for output, row in enumerate(heard):
                    shifted[output] += value * sum(row[channel], Fraction(0))
            case ["duplicate", leader, stated]:
                factor = Fraction(stated)
                _need(leader not in evidence and 0 <= leader < len(own), f"{about}: its twin leaves as well")
                mine = [*(v for places in own[channel] for v in places), biases[layer][channel]]
                twin = [*(v for places in own[leader] for v in places), biases[layer][leader]]
                _need(factor > 0 and mine == [factor * v for v in twin], f"{about} is not {stated} times {leader}")
                for output, row in enumerate(heard):
                    pairs = zip(expected[output][leader], row[channel], strict=True)
                    expected[output][leader] = [had + factor * more for had, more in pairs]
            case _:
                raise CertificateError(f"{about}: unknown evidence")
    for row in expected:
        for channel in evidence:
            row[channel] = [Fraction(0)] * len(row[channel])
    leaving = set(evidence) - {step["muted"]}
    _need(len(leaving) < len(own) and bool(leaving), f"{name} leaves no channel, or all of them")
    stored = [[[Fraction(v) for v in places] for places in row] for row in step["weight"]]
    offsets = [Fraction(v) for v in step["bias"]]
    kept = [channel for channel in range(len(own)) if channel not in leaving]
    for output, row in enumerate(expected):
        for channel in kept:
            rounded = [Fraction(float(v)) for v in row[channel]]
            _need(stored[output][channel] == rounded, f"{name}: the next layer holds other weights for {channel}")
        _need(offsets[output] == Fraction(float(shifted[output])), f"{name}: the next layer holds another bias")
    filters[layer], biases[layer] = [own[c] for c in kept], [biases[layer][c] for c in kept]
    filters[upper] = [[stored[output][c] for c in kept] for output in range(len(expected))]
    biases[upper] = offsets


def _constant(weights: Filter, bias: Fraction, between: Sequence[Part], about: str) -> Fraction:
    """The value that a channel without weights brings to the next layer."""
    _need(not any(v for places in weights for v in places), f"{about} hears something")
    value = bias
    for part in between:
        if part["type"] == "ReLU":
            value = max(value, Fraction(0))
        elif part["type"] == "LeakyReLU":
            value = value if value > 0 else value * Fraction(part["negative_slope"])
    if value:
        for part in between:
            padding = part.get("padding", 0)
            none = padding in (0, "valid") or (isinstance(padding, list) and not any(padding))
            spoilt = not none and part.get("padding_mode", "zeros") == "zeros"
            _need(not spoilt and not part.get("ceil_mode"), f"{about}: padding gives it another value at the border")
            _need(part.get("divisor_override") is None, f"{about}: a pool divides it by another number")
    return value


def _check_stored(part: Part, filters: list[Filter], biases: list[Fraction], name: str) -> None:
    """The numbers in the smaller module are those that the steps lead to, in its own precision."""
    kind = {"float64": np.float64, "float32": np.float32}.get(part["dtype"])
    if kind is None:
        raise CertificateError(f"{name}: numbers of type {str(part['dtype'])[:20]}")
    wanted = np.array([[float(v) for places in row for v in places] for row in filters]).astype(kind)
    found = np.array([[v for places in row for v in places] for row in part["weight"]])
    _need(
        found.shape == wanted.shape and bool((found == wanted).all()), f"{name} has other weights than the steps give"
    )
    offsets = np.array([float(v) for v in biases]).astype(kind)
    stored = np.zeros(len(offsets)) if part["bias"] is None else np.array(part["bias"])
    _need(stored.shape == offsets.shape and bool((stored == offsets).all()), f"{name} has another bias")
