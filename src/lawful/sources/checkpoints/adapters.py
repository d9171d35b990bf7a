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
from lawful.formats.io.reading import naming, read_json
from lawful.formats.tensors.shards import WEIGHTS

if TYPE_CHECKING:
    import torch

SETTINGS, STORED = "adapter_config.json", ("adapter_model.safetensors", "adapter_model.bin")
MAX_SETTINGS = 2**20
PREFIX = "base_model.model."


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
        named = read_json(folder / SETTINGS, MAX_SETTINGS).get("base_model_name_or_path")
        for place in (Path(str(named)), folder / str(named), folder.parent / Path(str(named)).name):
            if named and (place / "config.json").is_file():
                return place
        if not named:
            raise Unsupported(
                f"is an adapter whose {SETTINGS} does not name its model: add base_model_name_or_path, or merge it "
                "with merge_and_unload of peft"
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
        settings = read_json(folder / SETTINGS, MAX_SETTINGS)
        _check(settings)
        file = next((folder / name for name in STORED if (folder / name).is_file()), None)
        if file is None:
            raise InvalidNetwork(f"is an adapter without {' or '.join(STORED)}")
        parts = read(file)
        merged = dict(base)
        for stem, (down, up) in _pairs(parts).items():
            name = _weight_name(stem, base)
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
    more = ("use_dora", "modules_to_save", "layer_replication", "lora_bias", "trainable_token_indices", "use_qalora")
    for name in more:
        if settings.get(name):
            raise Unsupported(f"is an adapter with {name}, which is not read: merge it with merge_and_unload of peft")
    if settings.get("bias", "none") != "none":
        raise Unsupported("is an adapter that trains biases too: merge it with merge_and_unload of peft")


def _pairs(parts: Mapping[str, torch.Tensor]) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    """The two factors of each change, by the name of the layer."""
    factors: dict[str, dict[str, torch.Tensor]] = {}
    for name, tensor in parts.items():
        matched = re.fullmatch(r"(.+)\.lora_([AB])(?:\.default)?\.weight", name)
        if matched is None or tensor.ndim != 2:
            raise Unsupported(f"holds {name[:80]!r}, which is no factor of a linear layer: merge it with peft")
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
    alpha, stated = settings.get("lora_alpha"), settings.get("r")
    for pattern, value in dict(settings.get("alpha_pattern") or {}).items():
        alpha = value if _fits(pattern, stem) else alpha
    for pattern, value in dict(settings.get("rank_pattern") or {}).items():
        stated = value if _fits(pattern, stem) else stated
    if not isinstance(alpha, (int, float)) or stated != rank:
        raise InvalidNetwork(f"its rank {str(stated)[:20]} or lora_alpha {str(alpha)[:20]} does not fit {stem[:80]!r}")
    return float(alpha) / (math.sqrt(rank) if settings.get("use_rslora") else rank)


def _fits(pattern: str, stem: str) -> bool:
    """Whether a pattern, taken as a name and no expression, is the end of a layer's name."""
    return stem == pattern or stem.endswith(f".{pattern.removeprefix('^')}")
