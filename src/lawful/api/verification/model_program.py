"""Whether the program of a copy's certificate is the one that a model exports: by digest."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lawful.checkpoints.compare.certificate import list_program_of_model
from lawful.checkpoints.opening import open_checkpoints
from lawful.errors import CertificateError, Unsupported


def need_model(
    certificate: bytes, facts: Mapping[str, Any], files: tuple[Path, Path], model: str, input_size: str | None
) -> None:
    """Refuse a certificate whose program is not that of the model with these files; PyTorch is asked for its export.

    The program that was checked is the certificate's. Here the model is exported and listed in the same way, with the
    same tensors as parameters; then both have one digest, or the statement is about another function.
    """
    if facts.get("program") is None:
        raise CertificateError(f"the certificate has no program: nothing says that it is about {model}")
    pair = open_checkpoints(*files, model=model, input=input_size)
    program = list_program_of_model(json.loads(certificate), pair)
    if program is None:
        raise Unsupported(f"{model} cannot be exported as a program that certificates list")
    text = json.dumps(program, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    if hashlib.sha256(text.encode()).hexdigest() != facts["program"]:
        raise CertificateError(f"the program in the certificate is not that of {model}, or not for these sizes")
