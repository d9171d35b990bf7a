"""GGUF files under the names of `transformers`: what `convert_hf_to_gguf.py` of llama.cpp does, undone.

It renames tensors, and for the family `llama` reorders the rows of queries and keys, since its rotary embedding pairs
neighbouring rows where that of `transformers` pairs the two halves of a head.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from lawful.errors import InvalidNetwork, Unsupported
from lawful.formats.tensors.gguf import GgufTensors

FAMILIES = ("llama", "qwen2", "qwen3")  # as `general.architecture` names them; Mistral is a llama there
REORDERED = ("llama",)
BLOCK = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
ENDS = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
UNUSED = ("rope_freqs.weight",)  # frequencies that `transformers` computes from its settings


def is_named_by_llama_cpp(names: Any) -> bool:
    """Whether tensors have the names that llama.cpp gives them."""
    return any(name.startswith(("blk.", "token_embd.")) for name in names)


def translated_name(name: str) -> str:
    """The name in `transformers` of a tensor of a GGUF file.

    >>> translated_name("blk.3.attn_q.weight"), translated_name("output.weight")
    ('model.layers.3.self_attn.q_proj.weight', 'lm_head.weight')
    """
    stem, _, last = name.rpartition(".")
    if stem in ENDS:
        return f"{ENDS[stem]}.{last}"
    matched = re.fullmatch(r"blk\.(\d+)\.(\w+)", stem)
    if matched is None or matched[2] not in BLOCK:
        raise Unsupported(f"its tensor {name[:80]!r} has no name in transformers that is known here")
    return f"model.layers.{matched[1]}.{BLOCK[matched[2]]}.{last}"


def translated_state(tensors: GgufTensors) -> dict[str, torch.Tensor]:
    """The tensors under the names and in the order of `transformers`."""
    return {name: in_order(tensors[old], old, tensors.facts) for old, name in translated_names(tensors).items()}


def translated_names(tensors: GgufTensors) -> dict[str, str]:
    """Each tensor's name in `transformers`."""
    family = tensors.facts.get("general.architecture")
    if family not in FAMILIES:
        raise Unsupported(
            f"is a GGUF file of the family {str(family)[:40]!r}: names are known of {', '.join(FAMILIES)}"
        )
    return {name: translated_name(name) for name in tensors if name not in UNUSED}


def in_order(tensor: torch.Tensor, name: str, facts: Mapping[str, Any]) -> torch.Tensor:
    """The rows of a tensor in the order of `transformers`."""
    part = name.split(".")[-2]
    if facts.get("general.architecture") not in REORDERED or part not in ("attn_q", "attn_k"):
        return tensor
    heads = facts.get("llama.attention.head_count")
    if part == "attn_k":
        heads = facts.get("llama.attention.head_count_kv", heads)
    if not isinstance(heads, int) or heads < 1 or len(tensor) % (2 * heads):
        raise InvalidNetwork(f"its number of heads ({str(heads)[:20]}) does not fit {name[:80]!r}")
    return tensor.reshape(heads, -1, 2, *tensor.shape[1:]).transpose(1, 2).reshape(tensor.shape)


def named_state(path: Path) -> dict[str, torch.Tensor]:
    """The tensors of a GGUF file: those of a language model under the names of `transformers`."""
    tensors = GgufTensors(path)
    return translated_state(tensors) if is_named_by_llama_cpp(tensors) else dict(tensors)
