"""Folders of PEFT: an adapter (LoRA) and the model that it changes become one state dict, `W + s B A`, computed in
float64 and rounded once to the type of the model's weights.

The base is the folder that `adapter_config.json` names, or the adapter's own folder; nothing is downloaded.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lawful.errors import InvalidNetwork, Unsupported
from lawful.formats.io.reading import naming, read_object
from lawful.formats.tensors.shards import WEIGHTS

if TYPE_CHECKING:
    import torch

SETTINGS, STORED = "adapter_config.json", ("adapter_model.safetensors", "adapter_model.bin")
MAX_SETTINGS = 2**20
PREFIX = "base_model.model."
MERGE = "merge it with merge_and_unload of peft"
# What a setting means that is not listed here nobody knows: it may change the function, as use_dora does.
HARMLESS = {
    "alpha_pattern", "auto_mapping", "base_model_name_or_path", "bias", "ensure_weight_tying", "eva_config",
    "exclude_modules", "fan_in_fan_out", "inference_mode", "init_lora_weights", "layers_pattern",
    "layers_to_transform", "lora_alpha", "lora_dropout", "megatron_config", "megatron_core", "peft_type",
    "peft_version", "qalora_group_size", "r", "rank_pattern", "revision", "runtime_config", "target_modules",
    "task_type", "use_rslora",
}  # fmt: skip
PLAIN_STARTS = ("gaussian", "eva", "orthogonal")  # the others subtract their start from the model, which is not stored


def is_adapter(path: Path) -> bool:
    """Whether a folder holds an adapter."""
    return (path / SETTINGS).is_file()


def is_described(path: Path) -> bool:
    """Whether a folder says which module its weights belong to: by settings of Hugging Face, or as an adapter."""
    return (path / "config.json").is_file() or is_adapter(path)


def base_of(folder: Path) -> Path:
    """The folder of the model that an adapter changes."""
    with naming(folder):
        if (folder / "config.json").is_file() and any((folder / name).is_file() for name in WEIGHTS):
            return folder
        named = read_object(folder / SETTINGS, MAX_SETTINGS).get("base_model_name_or_path")
        for place in (Path(str(named)), folder / str(named), folder.parent / Path(str(named)).name):
            if named and (place / "config.json").is_file():
                return place
        if not named:
            raise Unsupported(
                f"is an adapter whose {SETTINGS} does not name its model: add base_model_name_or_path, or {MERGE}"
            )
        raise Unsupported(
            f"is an adapter of {str(named)[:80]!r}, which is no folder here: put that model's folder beside it "
            f"(as {folder.parent / Path(str(named)).name}), or name it in {SETTINGS}"
        )


def merged_state(
    folder: Path, base: Mapping[str, torch.Tensor], read: Callable[[Path], Mapping[str, torch.Tensor]]
) -> dict[str, torch.Tensor]:
    """The weights of the base with the adapter's change in them; `read` gives the tensors of a file."""
    with naming(folder):
        settings = read_object(folder / SETTINGS, MAX_SETTINGS)
        _check(settings)
        file = next((folder / name for name in STORED if (folder / name).is_file()), None)
        if file is None:
            raise InvalidNetwork(f"is an adapter without {' or '.join(STORED)}")
        parts = read(file)
        merged = dict(base)
        for stem, (down, up) in _pairs(parts).items():
            name = _weight_name(stem, base)
            # In float64, so that the one rounding is that to the type of the weights.
            change = _scale(settings, stem, len(down)) * (up.double() @ down.double())
            change = change.t() if settings.get("fan_in_fan_out") else change
            if change.shape != base[name].shape:
                raise InvalidNetwork(
                    f"its change of {name[:80]} is {tuple(change.shape)}, not {tuple(base[name].shape)}"
                )
            merged[name] = (base[name].double() + change).to(base[name].dtype)
        return merged


def _check(settings: Mapping[str, Any]) -> None:
    """Refuse whatever is more than `W + s B A`."""
    if settings.get("peft_type") != "LORA":
        raise Unsupported(f"is an adapter of type {str(settings.get('peft_type'))[:40]}: LORA is read")
    if settings.get("bias", "none") != "none":
        raise Unsupported(f"is an adapter that trains biases too: {MERGE}")
    start = settings.get("init_lora_weights")
    if isinstance(start, str) and start not in PLAIN_STARTS:
        raise Unsupported(f"is an adapter that began as {start[:40]}, which changes the model's own weights: {MERGE}")
    for name, value in settings.items():
        if value and name not in HARMLESS:
            raise Unsupported(f"is an adapter with {name[:40]}, which is not read: {MERGE}")
    for key in ("alpha_pattern", "rank_pattern"):
        patterns = settings.get(key) or {}
        if not isinstance(patterns, dict):
            raise InvalidNetwork(f"its {key} is no map from names to numbers")
        for pattern in patterns:
            if not re.fullmatch(r"\^?[\w.]+", pattern):
                raise Unsupported(f"is an adapter whose pattern {pattern[:60]!r} is an expression, not a name: {MERGE}")


def _pairs(parts: Mapping[str, torch.Tensor]) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    """The two factors of each change, by the name of the layer."""
    factors: dict[str, dict[str, torch.Tensor]] = {}
    for name, tensor in parts.items():
        matched = re.fullmatch(r"(.+)\.lora_([AB])(?:\.default)?\.weight", name)
        if matched is None or tensor.ndim != 2:
            raise Unsupported(f"holds {name[:80]!r}, which is no factor of a linear layer: {MERGE}")
        factors.setdefault(matched[1], {})[matched[2]] = tensor
    alone = next((stem for stem, pair in factors.items() if len(pair) < 2), None)
    if alone is not None:
        raise InvalidNetwork(f"holds one factor of {alone[:80]!r}, not both")
    return {stem: (pair["A"], pair["B"]) for stem, pair in factors.items()}


def _weight_name(stem: str, base: Mapping[str, torch.Tensor]) -> str:
    short = stem.removeprefix(PREFIX)
    wanted = f"{short}.weight"
    if wanted in base:
        return wanted
    # A checkpoint may be of the model alone, and the adapter of the model with its head, or the other way round.
    near = [name for name in base if name.endswith(f".{wanted}") or wanted.endswith(f".{name}")]
    if len(near) != 1:
        raise InvalidNetwork(f"changes {short[:80]!r}, which the model has not")
    return near[0]


def _scale(settings: Mapping[str, Any], stem: str, rank: int) -> float:
    """The factor of a change: alpha over the rank, or over its root; patterns of names may give others."""
    alpha = _by_pattern(settings.get("alpha_pattern"), stem, settings.get("lora_alpha"))
    stated = _by_pattern(settings.get("rank_pattern"), stem, settings.get("r"))
    if type(alpha) not in (int, float) or stated != rank:
        raise InvalidNetwork(f"its rank {str(stated)[:20]} or lora_alpha {str(alpha)[:20]} does not fit {stem[:80]!r}")
    return float(alpha) / (math.sqrt(rank) if settings.get("use_rslora") else rank)


def _by_pattern(patterns: Mapping[str, Any] | None, stem: str, default: Any) -> Any:
    """The value of the first pattern that is a layer's whole name (after ^) or its end; the default if none is."""
    name = stem.removeprefix(PREFIX)
    for pattern, value in dict(patterns or {}).items():
        if f"^{name}" == pattern or f".{name}".endswith(f".{pattern}"):
            return value
    return default
