"""Folders of PEFT: an adapter (LoRA) and the model that it changes become one state dict, `W + s B A`, computed in
float64 and rounded once to the type of the model's weights.

DoRA gives each row of that the length that is stored for it. Biases and whole modules that were trained beside stand
in the adapter under their own names, and replace those of the model. The base is the folder that `adapter_config.json`
names, or the adapter's own folder; nothing is downloaded.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
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
    "layers_to_transform", "lora_alpha", "lora_dropout", "megatron_config", "megatron_core", "modules_to_save",
    "peft_type", "peft_version", "qalora_group_size", "r", "rank_pattern", "revision", "runtime_config",
    "target_modules", "task_type", "use_dora", "use_rslora",
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
        changes, replaced = _split(read(file), settings)
        merged = dict(base)
        for stem, tensor in replaced.items():
            name = _stored_name(stem, base)
            _check_size(name, tensor, base)
            merged[name] = tensor.to(base[name].dtype)
        turned = bool(settings.get("fan_in_fan_out"))  # stored with the inputs first
        for stem, change in changes.items():
            name = _stored_name(f"{stem}.weight", base)
            # In float64, so that the one rounding is that to the type of the weights.
            moved = _scale(settings, stem, len(change.down)) * (change.up.double() @ change.down.double())
            moved = moved.t() if turned else moved
            _check_size(name, moved, base)
            weight = base[name].double() + moved
            if change.lengths is not None:
                inputs = 0 if turned else 1
                lengths = change.lengths.double().unsqueeze(inputs)
                weight = weight * (lengths / weight.norm(dim=inputs, keepdim=True))
            merged[name] = weight.to(base[name].dtype)
        return merged


def _check(settings: Mapping[str, Any]) -> None:
    """Refuse what changes the function otherwise."""
    if settings.get("peft_type") != "LORA":
        raise Unsupported(f"is an adapter of type {str(settings.get('peft_type'))[:40]}: LORA is read")
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


@dataclass(frozen=True, eq=False)
class _Change:
    """Of a linear layer: the factors `A` and `B`, and with DoRA the lengths of the rows that come out."""

    down: torch.Tensor
    up: torch.Tensor
    lengths: torch.Tensor | None


def _split(
    parts: Mapping[str, torch.Tensor], settings: Mapping[str, Any]
) -> tuple[dict[str, _Change], dict[str, torch.Tensor]]:
    """The change of each layer by its name, and the tensors that take the place of the model's."""
    factors: dict[str, dict[str, torch.Tensor]] = {}
    replaced: dict[str, torch.Tensor] = {}
    saved = settings.get("modules_to_save") or []
    for name, tensor in parts.items():
        matched = re.fullmatch(r"(.+)\.lora_(A|B|magnitude_vector)(?:\.default)?(?:\.weight)?", name)
        if matched is not None and tensor.ndim == (1 if matched[2] == "magnitude_vector" else 2):
            factors.setdefault(matched[1], {})[matched[2]] = tensor
        elif (
            ".lora_" not in name
            and name.startswith(PREFIX)
            and (
                (settings.get("bias", "none") != "none" and name.endswith(".bias"))
                or any(module in name.split(".") for module in saved)
            )
        ):
            replaced[name.replace(".modules_to_save.default", "")] = tensor
        else:
            raise Unsupported(f"holds {name[:80]!r}, which is no factor of a linear layer: {MERGE}")
    for stem, stored in factors.items():
        if not {"A", "B"} <= stored.keys() or bool(settings.get("use_dora")) != ("magnitude_vector" in stored):
            raise InvalidNetwork(
                f"holds {', '.join(sorted(stored))} of {stem[:80]!r}: it needs A and B, and a magnitude_vector if and "
                "only if use_dora is set"
            )
    changes = {stem: _Change(own["A"], own["B"], own.get("magnitude_vector")) for stem, own in factors.items()}
    return changes, replaced


def _check_size(name: str, tensor: torch.Tensor, base: Mapping[str, torch.Tensor]) -> None:
    if tensor.shape != base[name].shape:
        raise InvalidNetwork(f"its change of {name[:80]} is {tuple(tensor.shape)}, not {tuple(base[name].shape)}")


def _stored_name(name: str, base: Mapping[str, torch.Tensor]) -> str:
    """The name that the model gives a tensor of the adapter."""
    wanted = name.removeprefix(PREFIX)
    if wanted in base:
        return wanted
    # A checkpoint may be of the model alone, and the adapter of the model with its head, or the other way round.
    near = [name for name in base if name.endswith(f".{wanted}") or wanted.endswith(f".{name}")]
    if len(near) != 1:
        raise InvalidNetwork(f"changes {wanted[:80]!r}, which the model has not")
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
