"""A chain of layers and the smaller one that replaces it, replayed in rationals channel by channel.

A silent channel is heard nowhere, a constant one hears nothing and no zero padding spoils its border, a duplicate is a
positive multiple of a channel that stays. The next layer must hold what the evidence asks for, each folded number
rounded to the nearest double once, and at the end to the type that the layer stores.
"""

from __future__ import annotations

import hashlib
import json
import math
import struct
from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Any

from lawful.errors import CertificateError, NotACertificate
from lawful.verify.finding import Finding, short
from lawful.verify.schema import (
    afford,
    exactly,
    listed,
    need,
    number,
    numbers,
    rational,
    record,
    truth,
    whole,
    wholes,
    word,
)

LAYERS = ("Linear", "Conv1d", "Conv2d", "Conv3d")
WINDOW = "kernel_size stride padding"
SETTINGS = {
    "Linear": "",
    **{f"Conv{axes}d": f"{WINDOW} dilation padding_mode groups" for axes in (1, 2, 3)},
    **{f"MaxPool{axes}d": f"{WINDOW} dilation ceil_mode" for axes in (1, 2, 3)},
    "AvgPool1d": f"{WINDOW} ceil_mode count_include_pad",
    **{f"AvgPool{axes}d": f"{WINDOW} ceil_mode count_include_pad divisor_override" for axes in (2, 3)},
    "ReLU": "",
    "LeakyReLU": "negative_slope",
    "Identity": "",
    "Dropout": "",
    "Flatten": "start_dim end_dim",
}
POOLS = tuple(kind for kind in SETTINGS if "Pool" in kind)
Filter = list[list[Fraction]]  # by channel below, by place
Part = Mapping[str, Any]


def check(body: dict[str, Any]) -> Finding:
    """How many channels went while the function stayed, up to the rounding of folded weights."""
    given = record(body, "certificate", "before after steps")
    before, after = ([_part(part) for part in listed(given[key], key, most=1000)] for key in ("before", "after"))
    steps = listed(given["steps"], "steps", most=10_000)
    need(len(before) == len(after), "the chains differ in length")
    layers = [place for place, part in enumerate(before) if part["type"] in LAYERS]
    need(len(layers) > 0, "there is no layer with weights")
    _check_axes(before)
    for layer, upper in pairwise(layers):
        folds = len(before[upper]["weight"][0]) != len(before[layer]["weight"])
        need(not folds or before[layer]["type"] in LAYERS[1:], f"part {upper} hears another axis than the channels")
    lowers = [None, *(len(before[place]["weight"]) for place in layers)]
    filters = {place: _filters(before[place], lower) for place, lower in zip(layers, lowers, strict=False)}
    biases = {place: exactly(before[place]["bias"] or [0.0] * len(filters[place])) for place in layers}
    size = sum(len(row) * len(row[0]) for place in layers for row in filters[place] if row)
    afford(20.0 * (len(steps) + 1) * size)
    channels = sum(len(filters[place]) for place in layers[:-1])
    for count, item in enumerate(steps, 1):
        step = record(item, "steps", "layer evidence muted weight bias")
        layer = whole(step["layer"], "steps.layer")
        need(layer in layers[:-1], f"step {count}: part {layer} is not a hidden layer")
        upper = layers[layers.index(layer) + 1]
        _step(step, before[layer + 1 : upper + 1], filters, biases, (layer, upper), f"step {count}")
    left = sum(len(filters[place]) for place in layers[:-1])
    for place, (old, new) in enumerate(zip(before, after, strict=True)):
        fixed = [{key: value for key, value in part.items() if key not in ("weight", "bias")} for part in (old, new)]
        need(fixed[0] == fixed[1], f"part {place} is another kind of layer than before")
        if place in layers:
            _check_stored(new, filters[place], biases[place], f"part {place}")
    digests = _digest(before), _digest(after)
    words = (
        f"{channels - left} of {channels} hidden channels of {short(digests[0])} are gone in {short(digests[1])}: "
        "the same function of batches, in evaluation mode, up to rounding each folded weight to the nearest double and "
        "to the layer's own type"
    )
    return Finding(words, {"channels_before": channels, "channels_after": left}, digests)


def _part(value: object) -> Part:
    """One layer, with the settings that its kind has and no others."""
    kind = word(value.get("type") if isinstance(value, dict) else None, "type", *SETTINGS)
    keys = f"type {SETTINGS[kind]}" + (" dtype weight bias" if kind in LAYERS else "")
    part = record(value, kind, keys)
    if kind in LAYERS:
        rows = [
            [numbers(places, "weight") for places in listed(row, "weight")] for row in listed(part["weight"], "weight")
        ]
        need(bool(rows) and bool(rows[0]) and bool(rows[0][0]), f"a {kind} layer without weights")
        shapes = {tuple(len(places) for places in row) for row in rows}
        need(len(shapes) == 1 and len(set(next(iter(shapes)))) == 1, f"a {kind} layer with ragged weights")
        bias = None if part["bias"] is None else numbers(part["bias"], "bias", length=len(rows))
        word(part["dtype"], "dtype", "float32", "float64")
        part = {**part, "weight": rows, "bias": bias}
    for key in ("kernel_size", "stride", "padding", "dilation"):
        if key in part and part[key] not in ("same", "valid"):
            given = part[key] if isinstance(part[key], list) else [part[key]]
            need(0 < len(wholes(given, key, 0)) <= 3, f"a {kind} layer with another {key}")
    if kind in LAYERS[1:]:
        window = part["kernel_size"] if isinstance(part["kernel_size"], list) else [part["kernel_size"]]
        need(math.prod(window) == len(part["weight"][0][0]), f"a {kind} layer whose weights do not fit its kernel")
        word(part["padding_mode"], "padding_mode", "zeros", "reflect", "replicate", "circular")
    for key in ("ceil_mode", "count_include_pad"):
        if key in part:
            truth(part[key], key)
    if "negative_slope" in part:
        number(part["negative_slope"], "negative_slope")
    if part.get("divisor_override") is not None:
        whole(part["divisor_override"], "divisor_override", 1)
    return part


def _filters(part: Part, below: int | None) -> list[Filter]:
    """By output, by channel below, by place: a Linear layer behind a Flatten hears a channel at several places."""
    found = []
    for row in part["weight"]:
        rows = [exactly(places) for places in row]
        if below is not None and len(rows) != below:
            need(part["type"] == "Linear" and len(rows) % below == 0, "a layer does not fit the one below")
            flat = [value for places in rows for value in places]
            wide = len(flat) // below
            rows = [flat[start : start + wide] for start in range(0, len(flat), wide)]
        found.append(rows)
    return found


def _check_axes(parts: Sequence[Part]) -> None:
    """A channel must stay one: what comes between layers acts on each alone and commutes with positive factors."""
    flat = spatial = False
    dimensions = {part["type"][-2] for part in parts if part["type"] in (*POOLS, *LAYERS[1:])}
    need(len(dimensions) < 2, "convolutions and pools of different dimensions: a batch of images is one volume to some")
    for place, part in enumerate(parts):
        kind = part["type"]
        if kind in LAYERS[1:]:
            need(whole(part["groups"], "groups") == 1, f"part {place} has groups")
        if kind == "Flatten":
            ends = whole(part["start_dim"], "start_dim"), whole(part["end_dim"], "end_dim")
            need(ends == (1, -1), f"part {place} flattens some axes only")
            flat, spatial = True, False
        elif kind == "Linear":
            need(not spatial, f"part {place} works along another axis than the channels")
            flat = True
        elif kind in (*POOLS, *LAYERS):
            need(not flat, f"part {place} mixes the channels")
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
    evidence: dict[int, list[Any]] = {}
    for item in listed(step["evidence"], "steps.evidence"):
        need(isinstance(item, list) and len(item) > 1, f"{name}: evidence without a reason")
        channel = whole(item[0], "steps.evidence", 0, len(own) - 1)
        need(channel not in evidence, f"{name}: channel {channel} appears twice")
        evidence[channel] = item[1:]
    for channel, why in evidence.items():
        about = f"{name}, channel {channel}"
        match why:
            case ["silent"]:
                need(not any(v for row in heard for v in row[channel]), f"{about} is heard")
            case ["constant", stated]:
                value = _constant(own[channel], biases[layer][channel], between, about)
                need(value == rational(stated, "steps.evidence"), f"{about} has another value than stated")
                for output, row in enumerate(heard):
                    shifted[output] += value * sum(row[channel], Fraction(0))
            case ["duplicate", leader, stated]:
                factor = rational(stated, "steps.evidence")
                twin_of = whole(leader, "steps.evidence", 0, len(own) - 1)
                need(twin_of not in evidence, f"{about}: its twin leaves as well")
                mine = [*(v for places in own[channel] for v in places), biases[layer][channel]]
                twin = [*(v for places in own[twin_of] for v in places), biases[layer][twin_of]]
                need(factor > 0 and mine == [factor * v for v in twin], f"{about} is not its twin times the factor")
                for output, row in enumerate(heard):
                    pairs = zip(expected[output][twin_of], row[channel], strict=True)
                    expected[output][twin_of] = [had + factor * more for had, more in pairs]
            case _:
                raise CertificateError(f"{about}: unknown evidence")
    for row in expected:
        for channel in evidence:
            row[channel] = [Fraction(0)] * len(row[channel])
    muted = None if step["muted"] is None else whole(step["muted"], "steps.muted", 0, len(own) - 1)
    leaving = set(evidence) - {muted}
    need(0 < len(leaving) < len(own), f"{name} leaves no channel, or all of them")
    stored = [
        [exactly(numbers(places, "steps.weight")) for places in listed(row, "steps.weight", length=len(own))]
        for row in listed(step["weight"], "steps.weight", length=len(heard))
    ]
    offsets = exactly(numbers(step["bias"], "steps.bias", length=len(heard)))
    kept = [channel for channel in range(len(own)) if channel not in leaving]
    for output, row in enumerate(expected):
        for channel in kept:
            rounded = [Fraction(float(v)) for v in row[channel]]
            need(stored[output][channel] == rounded, f"{name}: the next layer holds other weights for {channel}")
        need(offsets[output] == Fraction(float(shifted[output])), f"{name}: the next layer holds another bias")
    filters[layer], biases[layer] = [own[c] for c in kept], [biases[layer][c] for c in kept]
    filters[upper] = [[stored[output][c] for c in kept] for output in range(len(expected))]
    biases[upper] = offsets


def _constant(weights: Filter, bias: Fraction, between: Sequence[Part], about: str) -> Fraction:
    """The value that a channel without weights brings to the next layer."""
    need(not any(v for places in weights for v in places), f"{about} hears something")
    value = bias
    for part in between:
        if part["type"] == "ReLU":
            value = max(value, Fraction(0))
        elif part["type"] == "LeakyReLU":
            value = value if value > 0 else value * Fraction(number(part["negative_slope"], "negative_slope"))
    if value:
        for part in between:
            padding = part.get("padding", 0)
            none = padding in (0, "valid") or (isinstance(padding, list) and not any(padding))
            spoilt = not none and part.get("padding_mode", "zeros") == "zeros"
            ceiling = "ceil_mode" in part and truth(part["ceil_mode"], "ceil_mode")
            need(not spoilt and not ceiling, f"{about}: padding gives it another value at the border")
            need(part.get("divisor_override") is None, f"{about}: a pool divides it by another number")
    return value


def _check_stored(part: Part, filters: list[Filter], biases: list[Fraction], name: str) -> None:
    """The numbers in the smaller chain are those that the steps lead to, in its own precision."""
    single = part["dtype"] == "float32"
    wanted = [[_stored(v, single) for places in row for v in places] for row in filters]
    found = [[v for places in row for v in places] for row in part["weight"]]
    need(found == wanted, f"{name} has other weights than the steps give")
    offsets = part["bias"] or [0.0] * len(biases)
    need(offsets == [_stored(v, single) for v in biases], f"{name} has another bias")


def _stored(value: Fraction, single: bool) -> float:
    found = float(value)
    return float(struct.unpack("<f", struct.pack("<f", found))[0]) if single else found


def digest_of(module: Any) -> str | None:
    """The digest of a chain given in Python, such as a `torch.nn.Sequential`; None if it is none."""
    try:
        parts = [_part(_described(part)) for part in _flattened(module)]
    except (NotACertificate, CertificateError, AttributeError, TypeError, ValueError):
        return None
    return _digest(parts) if parts else None


def _flattened(module: Any) -> list[Any]:
    if type(module).__name__ != "Sequential":
        return [module]
    return [part for inner in module for part in _flattened(inner)]


def _described(part: Any) -> dict[str, Any]:
    kind = type(part).__name__
    found = {name: getattr(part, name) for name in SETTINGS.get(kind, "").split()}
    found = {name: list(value) if isinstance(value, tuple) else value for name, value in found.items()}
    if kind in LAYERS:
        weight, bias = part.weight.detach().double(), part.bias
        found["dtype"] = str(part.weight.dtype).removeprefix("torch.")
        found["weight"] = weight.reshape(weight.shape[0], weight.shape[1], -1).tolist()
        found["bias"] = None if bias is None else bias.detach().double().tolist()
    return {"type": kind, **found}


def _digest(parts: Sequence[Part]) -> str:
    """A name for the chain: SHA-256 of its parts as JSON with sorted keys."""
    text = json.dumps([dict(part) for part in parts], sort_keys=True, separators=(",", ":"))
    return "chain:" + hashlib.sha256(text.encode()).hexdigest()
