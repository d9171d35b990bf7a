"""How a pruned model of Hugging Face is loaded again: by a config with its new sizes, if its class has one for them."""

from __future__ import annotations

import copy
from collections.abc import Collection, Sequence
from typing import Any

import torch
from torch import nn

HEADS = {"num_attention_heads": 0, "n_head": 0, "num_heads": 0, "num_key_value_heads": 1, "head_dim": 2}
WIDTHS = ("intermediate_size", "n_inner", "ffn_dim", "d_ff", "encoder_ffn_dim")


Sizes = tuple[int, int, int]  # heads, groups of heads, inner size


def config_that_loads(original: nn.Module, small: nn.Module, attentions: Sequence[Sizes]) -> dict[str, int] | None:
    """Entries of the config to change such that the class has the new sizes; None if it has no config for them.

    Tried out: the class is made anew (without weights), and all sizes must agree.
    """
    config = getattr(small, "config", None)
    if not hasattr(config, "to_dict") or type(original) is not type(small):
        return None
    shapes = [{name: tuple(part.shape) for name, part in each.state_dict().items()} for each in (original, small)]
    changed: dict[str, int] = {}
    for entry, which in HEADS.items():
        values = {sizes[which] for sizes in attentions}
        if len(values) == 1 and getattr(config, entry, None) not in (None, *values):
            changed[entry] = values.pop()
    for entry in WIDTHS:
        if hasattr(config, entry):
            before = getattr(config, entry) or 4 * getattr(config, "hidden_size", 0)
            after = {
                new for name, shape in shapes[0].items()
                for old, new in zip(shape, shapes[1].get(name, shape), strict=True) if old == before != new
            }  # fmt: skip
            if len(after) == 1:
                changed[entry] = after.pop()
    return changed if changed and _fits(small, changed, shapes[1]) else None


def _fits(small: Any, changed: dict[str, int], wanted: dict[str, tuple[int, ...]]) -> bool:
    config = copy.deepcopy(small.config)
    for entry, value in changed.items():
        setattr(config, entry, value)
    try:
        with torch.device("meta"):
            made = type(small)(config)
    except Exception:  # whatever a library makes of sizes that it does not expect
        return False
    shapes = {name: tuple(part.shape) for name, part in made.state_dict().items()}
    return wanted.items() <= shapes.items()


def how_to_load(original: nn.Module, small: nn.Module, attentions: Sequence[Sizes]) -> str | None:
    """The same in words; None for what has no config, or the same sizes as before."""
    if not hasattr(getattr(small, "config", None), "to_dict") or type(original) is not type(small):
        return None
    before, after = ({name: part.shape for name, part in each.state_dict().items()} for each in (original, small))
    if before == after:
        return None
    found, name = config_that_loads(original, small, attentions), type(small).__name__
    if found is None:
        return f"no config of {name} has these sizes in every layer: write .pt2 or .onnx to run it without its class"
    missing = " and strict=False: biases that no output sees are missing" if before.keys() - after.keys() else ""
    config = ", ".join(f"{entry}={value}" for entry, value in found.items())
    return f"loads into {name} with config {config}{missing}"


def without_caches(module: nn.Module) -> list[str]:
    """Let models of transformers return no keys and values that they have seen; the parts that did."""
    changed = []
    for name, part in module.named_modules():
        config: Any = getattr(part, "config", None)
        if getattr(config, "use_cache", False) is True:
            config.use_cache = False
            changed.append(name)
    return changed


def with_caches(module: nn.Module, names: Collection[str]) -> None:
    """Let these parts return them again: an encoder of the same model may refuse to."""
    for name, part in module.named_modules():
        if name in names and hasattr(part, "config"):
            part.config.use_cache = True
