"""What a check found, and what it lets one say."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import MAX_EMAX, MIN_EMIN, ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from types import MappingProxyType
from typing import Any


@dataclass(frozen=True)
class Finding:
    """The facts that one kind of certificate was shown to prove, in words and as numbers, and the networks' digests."""

    statement: str
    facts: Mapping[str, Any]
    networks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Verified:
    """A statement made of checked facts; `given[k]` says which of `networks` the k-th network handed in is."""

    kind: str
    statement: str
    facts: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    networks: tuple[str, ...] = ()
    given: tuple[int, ...] = ()


def fingerprint(value: Any) -> str:
    """Names numbers that are too many to print: the beginning of the SHA-256 of their JSON.

    >>> fingerprint([[1.0, 2.0]])
    'sha256 935c0ff3ac50'
    """
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return "sha256 " + hashlib.sha256(text.encode()).hexdigest()[:12]


def at_most(value: Fraction, digits: int = 4) -> str:
    """A rational in few digits, rounded upwards: what is true of it as an upper bound stays true.

    >>> at_most(Fraction(1, 3)), at_least(Fraction(1, 3)), at_most(Fraction(1, 2)), at_most(Fraction(10) ** 30)
    ('0.3334', '0.3333', '0.5', '1e+30')
    """
    return _decimal(value, digits, ROUND_CEILING)


def at_least(value: Fraction, digits: int = 4) -> str:
    """A rational in few digits, rounded downwards."""
    return _decimal(value, digits, ROUND_FLOOR)


def _decimal(value: Fraction, digits: int, rounding: str) -> str:
    context = Context(prec=digits, rounding=rounding, Emax=MAX_EMAX, Emin=MIN_EMIN)
    found = context.divide(Decimal(value.numerator), Decimal(value.denominator))
    return f"{found.normalize(context):g}".lower()


def short(digest: str) -> str:
    """A digest as people quote it.

    >>> short("network:0123456789abcdef0123456789abcdef")
    'network 0123456789ab'
    """
    what, _, code = digest.partition(":")
    return f"{what} {code[:12]}"
