"""The name of the program that a module is: what a certificate of its laws is about."""

from __future__ import annotations

import hashlib
import json

import torch

from lawful.laws.certificate import program_json
from lawful.laws.lowering import lower
from lawful.laws.module_proof import program_batch
from lawful.laws.probe import probe


def program_digests(module: torch.nn.Module, input_shape: tuple[int, ...] | None = None) -> tuple[str, ...]:
    """The digests of its programs in training and in evaluation mode; weights do not count, buffers do."""
    found = []
    for mode in ("train", "eval"):
        case = probe(module, input_shape, None, "full", mode)
        text = json.dumps(program_json(lower(case, program_batch(case))), sort_keys=True, separators=(",", ":"))
        found.append("program:" + hashlib.sha256(text.encode()).hexdigest())
    return tuple(dict.fromkeys(found))
