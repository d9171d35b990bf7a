"""Which subcommand's answers can be re-checked and how they are saved; and why those of the others cannot."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from lawful.errors import Unsupported

OPTIONS = {"bottleneck": "save", "separate": "out"}  # where it is not called --certificate
NONE = {
    "align": "nothing is written down that could be checked again",
    "audit": "a page of many answers: each subcommand saves its own evidence with --certificate",
    "diff": "distances and drifts are measured in floating point",
    "compare": "runs are compared in floating point",
    "drift": "drifts are measured in floating point",
    "fiber": "its dimension and components follow from theorems and exact ranks, and nothing is written down that "
    "could be checked again; `lawful same A SAMPLE --certificate FILE` proves that a sample has the same function",
    "find": "a likeness is a hint, not a proof; `lawful same A B --certificate FILE` proves two checkpoints equal",
    "fingerprint": "a hash is a name, not a proof; `lawful same A B --certificate FILE` proves two networks equal",
    "leaky": "`lawful bottleneck RUN --save FILE` certifies its deepest network",
    "symmetries": "generators are checked in floating point; `lawful laws --certificate` certifies counts",
    "vnncomp": "every answer of the table was re-checked; --certificates FOLDER keeps what `lawful verify` re-checks",
    "truncate": "layers are read in floating point",
    "truncation-flow": "the flow is integrated in floating point; `lawful separate --out FILE` certifies separability",
}
PLAIN = (
    "convert",
    "demo",
    "explore",
    "merge",
    "reproduce",
    "show",
    "sweep",
    "verify",
)  # they state nothing to be proved


def option_of(command: Any) -> str | None:
    """The option with which a subcommand saves a certificate."""
    wanted = OPTIONS.get(str(command.name), "certificate")
    return next((str(each.opts[0]) for each in command.params if each.name == wanted), None)


def evidence_json(command: Any) -> dict[str, Any]:
    """What an answer says of its own evidence: `certified: false` and why, or the option that saves a certificate."""
    option = option_of(command)
    if option is not None:
        return {"evidence": f"{option} FILE saves what `lawful verify FILE` re-checks"}
    if command.name in NONE:
        return {"certified": False, "evidence": f"none: {NONE[command.name]}"}
    return {}


def save_evidence(path: Path | None, make: Callable[[], Mapping[str, Any]]) -> bool:
    """Write a certificate if one is asked for; False, with the reason on stderr, if there is none."""
    from lawful.cli.output import write_certificate

    if path is None:
        return True
    try:
        made = make()
    except Unsupported as error:
        print(f"lawful: {shlex.quote(str(path))} was not written: {error}", file=sys.stderr)
        return False
    write_certificate(path, made)
    return True


def say_evidence(verb: str | None) -> None:
    """For people: that an answer has no certificate."""
    if verb in NONE:
        print(f"not certified: {NONE[verb]}", file=sys.stderr)
