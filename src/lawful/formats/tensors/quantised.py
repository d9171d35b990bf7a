"""Weights that were quantised one group at a time (GPTQ, AWQ, bitsandbytes, fp8): the numbers that their runtime
multiplies with, in its own order of operations and types.

A scheme stores several tensors instead of one; they are found by their names. Layouts: `qlinear_*.py` of AutoGPTQ,
`packing_utils.py` and `gemm.py` of AutoAWQ, `functional.py` of bitsandbytes, and the scales beside float8 weights as
DeepSeek and compressed-tensors write them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from lawful.errors import InvalidNetwork, Unsupported

State = Mapping[str, torch.Tensor]
AWQ_ORDER = (0, 4, 1, 5, 2, 6, 3, 7)  # where each of eight neighbouring columns lies in a packed number
EIGHTH = 7.874015718698502e-3  # 1/127 as bitsandbytes writes it
FLOAT8 = (torch.float8_e4m3fn, torch.float8_e5m2)
STATE = "quant_state.bitsandbytes__"
SQUARE = 128  # side of the blocks of float8 where no settings say another: that of DeepSeek, which all others took over
BOUNDS = (2, 3, 4, 8)  # bits of GPTQ; 3 of them are packed across the borders of numbers, and are not read


@dataclass(frozen=True, eq=False)
class QuantisedWeight:
    """A weight as its runtime has it: the scheme, the numbers, and the distance of neighbouring values at each."""

    scheme: str
    weight: torch.Tensor
    step: torch.Tensor


def is_quantised(state: State) -> bool:
    """Whether some weights are stored by a scheme that is read here."""
    return any(True for _ in _find_schemes(state))


def dequantise(state: State, settings: Mapping[str, Any] | None = None) -> dict[str, torch.Tensor]:
    """The state dict with one weight in place of the tensors that store it."""
    weights = dict(state)
    for name, scheme, parts in list(_find_schemes(state)):
        weight = read_weight(state, name, scheme, settings).weight
        for part in parts:
            weights.pop(part, None)
        weights[name] = weight
    return weights


def read_schemes(state: State, settings: Mapping[str, Any] | None = None) -> Iterator[tuple[str, QuantisedWeight]]:
    """Each quantised weight by the name that it would have, one at a time."""
    for name, scheme, _ in list(_find_schemes(state)):
        yield name, read_weight(state, name, scheme, settings)


def _find_schemes(state: State) -> Iterator[tuple[str, str, list[str]]]:
    """Name of the weight, scheme, and the tensors that store it."""
    for name, tensor in state.items():
        stem = name.rpartition(".")[0]
        if name.endswith(".qweight") and f"{stem}.scales" in state:
            parts = [f"{stem}.{part}" for part in ("qweight", "qzeros", "scales", "g_idx")]
            columns = state[f"{stem}.scales"].shape[-1]
            yield f"{stem}.weight", "GPTQ" if tensor.shape[-1] == columns else "AWQ", parts
        elif f"{stem}.SCB" in state and name.endswith(".weight"):
            yield name, "LLM.int8", [f"{stem}.SCB", f"{stem}.weight_format"]
        elif name.endswith(tuple(f".{STATE}{kind}" for kind in ("nf4", "fp4"))):
            weight = name.partition(f".{STATE}")[0]
            beside = ("absmax", "quant_map", "nested_absmax", "nested_quant_map", name.removeprefix(f"{weight}."))
            yield weight, name[-3:].upper(), [f"{weight}.{part}" for part in beside]
        elif tensor.dtype in FLOAT8 and (scales := _float8_scales(state, name)):
            yield name, "FP8", scales


def _float8_scales(state: State, name: str) -> list[str]:
    return [candidate for candidate in (f"{name}_scale_inv", f"{name}_scale") if candidate in state]


def read_weight(state: State, name: str, scheme: str, settings: Mapping[str, Any] | None) -> QuantisedWeight:
    """One weight, as its runtime computes it."""
    try:
        if scheme in ("GPTQ", "AWQ"):
            stated = dict((settings or {}).get("quantization_config") or {})
            return _gptq(state, name, stated) if scheme == "GPTQ" else _awq(state, name, stated)
        if scheme == "LLM.int8":
            return _int8(state, name)
        return _float8(state, name, settings) if scheme == "FP8" else _four_bits(state, name, scheme)
    except (RuntimeError, LookupError, ValueError, TypeError, ArithmeticError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:120]
        raise InvalidNetwork(f"{name[:80]} is not stored as {scheme} stores it ({reason})") from None


def _unpack(packed: torch.Tensor, bits: int) -> torch.Tensor:
    """The small whole numbers of each 32-bit one along a new last axis, the lowest bits first."""
    shifts = torch.arange(0, 32, bits, dtype=torch.int32)
    return torch.bitwise_and(packed.to(torch.int32)[..., None] >> shifts, 2**bits - 1)


def _check_sizes(whole: torch.Tensor, zeros: torch.Tensor, scales: torch.Tensor) -> None:
    """A zero and a scale for each group and output: others could be broadcast in silence."""
    if zeros.shape != scales.shape or scales.shape[1:] != whole.shape[1:]:
        raise ValueError(f"zeros {tuple(zeros.shape)} and scales {tuple(scales.shape)} for {tuple(whole.shape)}")


def _group_of_inputs(name: str, inputs: int, count: int, stated: Mapping[str, Any]) -> torch.Tensor:
    """The group of each input, where the inputs of a group are neighbours and the last group may be cut."""
    size = stated.get("group_size")
    size = inputs if size == -1 else size if type(size) is int else inputs // count
    if size < 1 or -(-inputs // size) != count:
        raise Unsupported(
            f"{name[:80]} has {count} groups of {inputs} inputs, and nothing says how they share them: "
            "group_size in the quantization_config of config.json does"
        )
    return torch.arange(inputs) // size


def _gptq(state: State, name: str, stated: Mapping[str, Any]) -> QuantisedWeight:
    """Packed along the inputs; zeros along the outputs, and one less than they are in the first version of it."""
    stem = name.removesuffix(".weight")
    packed, scales, groups = state[f"{stem}.qweight"], state[f"{stem}.scales"], state.get(f"{stem}.g_idx")
    inputs = packed.shape[0] * 32 // int(stated.get("bits", 4)) if groups is None else len(groups)
    bits = packed.shape[0] * 32 // inputs
    if bits not in BOUNDS or bits == 3 or packed.shape[0] * 32 != bits * inputs:
        raise Unsupported(f"{name[:80]} is stored by GPTQ in {bits} bits, which are not read")
    if groups is None:
        groups = _group_of_inputs(name, inputs, len(scales), stated)
    elif bool(((groups < 0) | (groups >= len(scales))).any()):
        raise ValueError(f"a group outside the {len(scales)} that it has")
    whole = _unpack(packed, bits).movedim(-1, 1).reshape(inputs, -1)
    zeros = _unpack(state[f"{stem}.qzeros"], bits).reshape(len(scales), -1)
    _check_sizes(whole, zeros, scales)
    if stated.get("checkpoint_format", "gptq") == "gptq":
        zeros = zeros + 1
        if bool((zeros == 2**bits).any()):  # some runtimes wrap it around to 0, others do not
            raise Unsupported(f"{name[:80]} has a zero point of GPTQ on which runtimes disagree: save it as gptq_v2")
    # In the type of the scales, as the kernel multiplies: float64 would be more precise than the network is.
    chosen = groups.long()
    weight = scales[chosen] * (whole - zeros[chosen])
    return QuantisedWeight(f"GPTQ, {bits} bits", weight.t().contiguous(), scales[chosen].abs().t().contiguous())


def _awq(state: State, name: str, stated: Mapping[str, Any]) -> QuantisedWeight:
    """Packed along the outputs, weights and zeros alike."""
    stem = name.removesuffix(".weight")
    packed, scales = state[f"{stem}.qweight"], state[f"{stem}.scales"]
    if str(stated.get("version", "gemm")).lower() != "gemm":
        raise Unsupported(f"{name[:80]} is packed for {str(stated['version'])[:20]}: save it again with version gemm")
    whole, zeros = (
        _unpack(numbers, 4)[..., AWQ_ORDER].reshape(numbers.shape[0], -1)
        for numbers in (packed, state[f"{stem}.qzeros"])
    )
    _check_sizes(whole, zeros, scales)
    groups = _group_of_inputs(name, len(packed), len(scales), stated)
    step = scales[groups]
    weight = (whole - zeros[groups]) * step
    return QuantisedWeight("AWQ, 4 bits", weight.t().contiguous(), step.abs().t().contiguous())


def _int8(state: State, name: str) -> QuantisedWeight:
    stem = name.removesuffix(".weight")
    layout = state.get(f"{stem}.weight_format")
    if layout is not None and int(layout):  # tiles of one kind of graphics card, which nothing says how to undo
        raise Unsupported(f"{name[:80]} is stored by LLM.int8 in tiles of a graphics card: save it again, row by row")
    largest = state[f"{stem}.SCB"].float().reshape(-1, 1)
    whole = state[name].float()
    return QuantisedWeight("LLM.int8", whole * largest * EIGHTH, (largest * EIGHTH).expand_as(whole))


def _four_bits(state: State, name: str, scheme: str) -> QuantisedWeight:
    """Blocks of a table of 16 numbers times the largest of the block, which may itself be quantised."""
    facts = json.loads(bytes(state[f"{name}.{STATE}{scheme.lower()}"].to(torch.uint8).tolist()))
    packed, table = state[name].flatten(), state[f"{name}.quant_map"].float()
    largest = state[f"{name}.absmax"]
    shape = [int(size) for size in facts["shape"]]
    count = torch.Size(shape).numel()
    if len(packed) != -(-count // 2):
        raise ValueError(f"{len(packed):,} bytes for the shape {shape[:8]}")
    if f"{name}.nested_absmax" in state:
        inner = _spread(state[f"{name}.nested_absmax"], int(facts["nested_blocksize"]), len(largest))
        largest = state[f"{name}.nested_quant_map"].float()[largest.long()] * inner
        largest = largest + float(facts["nested_offset"])
    whole = torch.stack([packed >> 4, packed & 15], dim=-1).flatten()[:count].long()  # the upper half comes first
    scale = _spread(largest, int(facts["blocksize"]), count)
    gaps = table.sort().values.diff().max()  # neighbouring values are no further apart than that
    kind = getattr(torch, str(facts["dtype"]))
    weight = (table[whole] * scale).to(kind)
    return QuantisedWeight(f"{scheme}, 4 bits", weight.reshape(shape), (gaps * scale).reshape(shape))


def _spread(scales: torch.Tensor, block: int, count: int) -> torch.Tensor:
    """The scale of each of so many numbers, of which a block shares one; refused before memory is taken for others."""
    if block < 1 or len(scales) != -(-count // block):
        raise ValueError(f"{len(scales):,} scales for {count:,} numbers in blocks of {block:,}")
    return scales.float().repeat_interleave(min(block, count))[:count]


def _float8(state: State, name: str, settings: Mapping[str, Any] | None) -> QuantisedWeight:
    """Values of eight bits times a scale: of all, of each row, or of each square block."""
    stored, scale = state[name], state[_float8_scales(state, name)[0]].float()
    wide = stored.float()
    if scale.ndim == wide.ndim > 1:
        stated = dict((settings or {}).get("quantization_config") or {}).get("weight_block_size") or (None, None)
        blocks = [None] * (wide.ndim - 2) + list(stated)
        for axis, (size, count, block) in enumerate(zip(wide.shape, scale.shape, blocks, strict=True)):
            scale = scale.repeat_interleave(_block_length(name, size, count, block), axis).narrow(axis, 0, size)
    elif scale.numel() > 1:
        scale = scale.reshape(-1, *[1] * (wide.ndim - 1))
    bits = 3 if stored.dtype == torch.float8_e4m3fn else 2
    # Neighbours of a number with so many bits are a power of two apart; below the smallest normal number they all are.
    least = -5 if bits == 3 else -13
    exponent = torch.where(wide == 0, least, torch.frexp(wide).exponent.clamp(min=least)) - 1 - bits
    step = torch.ldexp(torch.ones_like(wide), exponent) * scale
    return QuantisedWeight("FP8", wide * scale, step.abs())


def _block_length(name: str, size: int, count: int, stated: int | None) -> int:
    """How many neighbours along an axis share a scale, if the axis has so many scales.

    The last block may be cut, so the quotient does not say it: 5 scales of 576 rows belong to blocks of 128.
    """
    if count in (1, size):
        return size // count
    for block in (SQUARE,) if stated is None else (stated,):
        if -(-size // block) == count:
            return block
    if stated is None and size % count == 0 and (size // count).bit_count() == 1:  # groups of 32 or 64
        return size // count
    raise Unsupported(
        f"{name[:80]} has {count} scales for {size} numbers, and nothing says how they share them: "
        "weight_block_size in the quantization_config of config.json does"
    )
