"""The name of the program that a module is: what a certificate of its laws is about."""

from __future__ import annotations

from contextlib import suppress

import torch

from lawful.errors import LawfulError
from lawful.laws.certificate import program_name
from lawful.laws.lowering import lower
from lawful.laws.module_proof import program_batch
from lawful.laws.probe import probe


def program_digests(module: torch.nn.Module, input_shape: tuple[int, ...] | None = None) -> tuple[str, ...]:
    """The digests of its programs in both modes; weights do not count, buffers do.

    Where an output has several axes the classes of cross-entropy may stand on any of them.
    """
    found: list[str] = []
    for mode in ("train", "eval"):
        try:
            case = probe(module, input_shape, None, "full", mode)
        except LawfulError:  # train mode may be random in a way that is not read
            if mode == "eval" and not found:
                raise
            continue
        found.append(program_name(lower(case, program_batch(case))))
        for axis in range(1, len(case.output_shape)):
            with suppress(LawfulError):  # an output that has no classes
                case = probe(module, input_shape, None, "cross-entropy", mode, axis)
                found.append(program_name(lower(case, program_batch(case))))
    return tuple(dict.fromkeys(found))
