"""What a verification found, in words and as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lawful.errors import CertificateError
from lawful.report.plain import pick
from lawful.verify import Verified


def verified_text(
    found: Verified, names: Sequence[str], questions: Mapping[str, bool] | None = None, model: str | None = None
) -> str:
    """The statement, and which networks it is about."""
    lines = [f"verified: {found.statement}"]
    for place, digest in enumerate(found.networks):
        owners = [name for name, where in zip(names, found.given, strict=True) if where == place]
        lines.append(f"  {digest}" + (f" is {owners[0]}" if owners else ""))
    # Of other kinds often only the box was compared: what a file says of outputs is another question.
    for question, answers in (questions or {}).items():
        lines.append(f"  {'it answers' if answers else 'its box is that of'} {question}")
    if model is not None:
        lines.append(f"  its program is the one that {model} exports")
    if found.networks and not names:
        lines.append("  (give the networks and data after the file to see whether it is about them)")
    return "\n".join(lines)


def verified_json(found: Verified) -> dict[str, Any]:
    """The documented keys."""
    return {
        "valid": True,
        **pick(found, "kind statement facts networks given"),
        "reason": None,
    }


def rejected_text(error: CertificateError) -> str:
    """The first fact that fails."""
    return f"REJECTED: {error}"


def rejected_json(error: CertificateError) -> dict[str, Any]:
    """The documented keys."""
    return {"valid": False, "kind": error.kind, "statement": None, "reason": str(error)}
