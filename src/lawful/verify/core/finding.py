"""What a check found, and what it lets one say."""

from __future__ import annotations

import hashlib
import sys
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from html import escape
from types import MappingProxyType
from typing import Any


@dataclass(frozen=True)
class Finding:
    """The facts that a certificate was shown to prove, and the networks' digests.

    `verify/sentences.py` words the facts; it is no part of what is trusted with the check. `others` are digests worked
    out here of data and of networks that are no graphs; a certificate does not state them.
    """

    facts: Mapping[str, Any]
    networks: tuple[str, ...] = ()
    others: tuple[str, ...] = ()


@dataclass(frozen=True)
class Verified:
    """A statement made of checked facts; `given[k]` says which of `networks` the k-th network handed in is."""

    kind: str
    statement: str
    facts: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    networks: tuple[str, ...] = ()
    given: tuple[int, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The same as plain values, fractions as text."""
        facts = {key: str(value) if isinstance(value, Fraction) else value for key, value in self.facts.items()}
        return {"kind": self.kind, "statement": self.statement, "facts": facts, "networks": list(self.networks)}

    def _repr_html_(self) -> str:
        about = "".join(f"<br><code>{escape(digest)}</code>" for digest in self.networks)
        return f"<div><strong>verified</strong>: {escape(self.statement)}{about}</div>"


def digest_of(what: str, *tables: Sequence[Sequence[float]]) -> str:
    """A name for tables of numbers: SHA-256 of their sizes and entries as little-endian doubles, whatever the file.

    >>> digest_of("data", [[1.0, 2.0]]) == digest_of("data", [[1, 2]]), digest_of("data", [[1.0, 2.0]])[:13]
    (True, 'data:4bd0e023')
    """
    total = hashlib.sha256(b"lawful numbers 1\n")
    for table in tables:
        total.update(little_endian("q", (len(table), len(table[0]) if len(table) else 0)))
        for row in table:
            total.update(little_endian("d", (float(value) + 0.0 for value in row)))
    return f"{what}:{total.hexdigest()}"


def little_endian(code: str, values: Iterable[Any]) -> bytes:
    """Numbers as bytes: 64-bit integers (code q) or doubles (d)."""
    numbers = array(code, values)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers.tobytes()


def short(digest: str) -> str:
    """A digest as people quote it.

    >>> short("network:0123456789abcdef0123456789abcdef")
    'network 0123456789ab'
    """
    what, _, code = digest.partition(":")
    return f"{what} {code[:12]}"
