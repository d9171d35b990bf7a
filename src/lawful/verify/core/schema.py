"""Read a certificate with suspicion: strict JSON, known keys only, finite numbers, bounded sizes and a bounded cost."""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from fractions import Fraction
from typing import Any

from lawful.errors import CertificateError, NotACertificate, Unsupported

# Parsed JSON takes up to 20 times its bytes (an empty list 3 and 64): 1 GB. Larger networks are held by digests.
MOST_BYTES = 50_000_000
MOST_DEPTH = 12  # lists and objects inside each other
MOST_LISTS = 5_000_000  # lists and objects in all: an empty one takes 3 bytes of a file and 64 of memory
MOST_STEPS = 1_000_000_000  # elementary operations that a re-check may take: minutes, not hours
MOST_SECONDS = 300.0  # of processor time, should an estimate fall short
# Of an integer, below the 4,300 at which Python refuses to read one, so that no platform's setting decides.
MOST_DIGITS = 4_000
MOST_SUM_BITS = 300_000  # adding two such fractions takes 0.06 s
FRACTION = re.compile(r"-?[0-9]{1,4000}(/[1-9][0-9]{0,3999})?")
_END: ContextVar[float] = ContextVar("end", default=math.inf)  # of the check that runs, on the processor's clock
_SPENT: ContextVar[float] = ContextVar("spent", default=0.0)  # steps of the check that runs


def parse(certificate: Mapping[str, Any] | str | bytes) -> dict[str, Any]:
    """The JSON object, or `NotACertificate`: duplicate keys, NaN, infinities and numbers like 1e400 are refused.

    >>> parse('{"kind": "laws", "version": 1}')
    {'kind': 'laws', 'version': 1}
    """
    if isinstance(certificate, Mapping):
        try:
            certificate = json.dumps(certificate, allow_nan=False)
        except (TypeError, ValueError, RecursionError) as error:
            raise NotACertificate(f"not a JSON object: {_short(str(error))}") from None
    if len(certificate) > MOST_BYTES:
        raise NotACertificate(f"larger than {MOST_BYTES:,} bytes, not a certificate")
    text = certificate if isinstance(certificate, bytes) else certificate.encode(errors="replace")
    if text.count(b"[") + text.count(b"{") > MOST_LISTS:
        raise NotACertificate(f"more than {MOST_LISTS:,} lists and objects, not a certificate")
    try:
        value = json.loads(
            certificate, object_pairs_hook=unique_keys, parse_constant=_finite, parse_float=_finite, parse_int=_integer
        )
    except RecursionError:
        raise NotACertificate("not a certificate: nested too deeply") from None
    except UnicodeError:
        raise NotACertificate("not a certificate: a certificate is text, and this file is not") from None
    except ValueError as error:
        raise NotACertificate(f"not a certificate: {_short(str(error))}") from None
    if not isinstance(value, dict):
        raise NotACertificate("not a certificate: a certificate is a JSON object")
    _check_depth(value)
    return value


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The object of JSON that has these keys; readers differ in which of two equal ones they believe."""
    values = dict(pairs)
    if len(values) < len(pairs):
        raise ValueError("a key appears twice in an object")
    return values


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError("a number is infinite, too large for a double, or not a number")
    return value


def _integer(text: str) -> int:
    if len(text) > MOST_DIGITS:
        raise ValueError("an integer has too many digits")
    return int(text)


def _check_depth(value: Any) -> None:
    level = [value]
    for _ in range(MOST_DEPTH):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, (dict, list))
        ]
    if level:
        raise NotACertificate("not a certificate: nested too deeply")


def printable(text: str) -> str:
    """Words on one line, without control characters: names out of files may hold anything, a forged line too.

    >>> printable("w\\nverified: anything")
    'w verified: anything'
    """
    return "".join(letter if letter.isprintable() else " " for letter in text)


def _short(text: str) -> str:
    return printable(text)[:120]


def json_type(value: object) -> str:
    """What a JSON value is, in words; its content is never repeated."""
    kinds = {dict: "an object", list: "a list", str: "a text", bool: "a truth value", type(None): "null"}
    return kinds.get(type(value), "a number")


# Each reader takes a value and where it stands, and gives what it must be or says what came instead


def object_with_keys(value: object, where: str, keys: str, optional: str = "") -> dict[str, Any]:
    """An object with exactly these keys."""
    if not isinstance(value, dict):
        raise NotACertificate(f"{where}: expected an object, found {json_type(value)}")
    needed = set(keys.split())
    missing, extra = needed - set(value), set(value) - needed - set(optional.split())
    if missing:
        raise NotACertificate(f"{where}: {sorted(missing)[0]!r} is missing")
    if extra:
        raise NotACertificate(f"{where}: unknown key {_short(sorted(extra)[0])[:40]!r}")
    return value


def items(value: object, where: str, *, length: int | None = None, most: int = 5_000_000) -> list[Any]:
    """A list, of this length if one is given."""
    if not isinstance(value, list):
        raise NotACertificate(f"{where}: expected a list, found {json_type(value)}")
    if length is not None and len(value) != length:
        raise NotACertificate(f"{where}: expected {length} entries, found {len(value)}")
    if len(value) > most:
        raise NotACertificate(f"{where}: {len(value)} entries are more than {most}")
    return value


def integer(value: object, where: str, low: int | None = None, high: int | None = None) -> int:
    """An integer between two ends (a truth value is none)."""
    if type(value) is not int:
        raise NotACertificate(f"{where}: expected an integer, found {json_type(value)}")
    if (low is not None and value < low) or (high is not None and value > high):
        raise NotACertificate(f"{where}: an integer is out of range")
    return value


def integers(value: object, where: str, low: int | None = None, high: int | None = None, **sizes: Any) -> list[int]:
    """A list of integers."""
    return [integer(item, where, low, high) for item in items(value, where, **sizes)]


def number(value: object, where: str) -> float:
    """A double; an integer counts if a double holds it exactly."""
    if type(value) is float and math.isfinite(value):
        return value + 0.0  # -0.0 becomes 0.0
    if type(value) is int and abs(value) <= 2**1023 and int(float(value)) == value:
        return float(value)
    raise NotACertificate(f"{where}: expected a finite number, found {json_type(value)}")


def numbers(value: object, where: str, **sizes: Any) -> list[float]:
    """A list of doubles."""
    return [number(item, where) for item in items(value, where, **sizes)]


def matrix(value: object, where: str, *, rows: int | None = None, columns: int | None = None) -> list[list[float]]:
    """A rectangle of doubles."""
    rows_read = [numbers(row, where, length=columns) for row in items(value, where, length=rows)]
    if len({len(row) for row in rows_read}) > 1:
        raise NotACertificate(f"{where}: rows of different lengths")
    return rows_read


def exactly(values: Sequence[float]) -> list[Fraction]:
    """Doubles as the rationals that they are."""
    return [Fraction(value) for value in values]


def rational(value: object, where: str) -> Fraction:
    """A fraction written as text, such as "-3/7"."""
    if not isinstance(value, str) or not FRACTION.fullmatch(value):
        raise NotACertificate(f"{where}: expected a fraction such as '-3/7'")
    return Fraction(value)


def word(value: object, where: str, *choices: str) -> str:
    """One of a few words."""
    if not isinstance(value, str) or value not in choices:
        raise NotACertificate(f"{where}: expected one of {', '.join(choices)}")
    return value


def truth(value: object, where: str) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise NotACertificate(f"{where}: expected true or false, found {json_type(value)}")
    return value


# What the checkers say


@contextmanager
def time_limit() -> Iterator[None]:
    """Inside, every fact that is needed also asks how late it is, and steps are counted from 0."""
    before, spent = _END.set(time.process_time() + MOST_SECONDS), _SPENT.set(0.0)
    try:
        yield
    finally:
        _END.reset(before)
        _SPENT.reset(spent)


def extend_time_limit(seconds: float) -> None:
    """Give the check that runs more time: for what its user chose, and not the certificate."""
    _END.set(_END.get() + seconds)


def require(condition: bool, otherwise: str) -> None:
    """Reject the certificate unless a fact holds."""
    if not condition:
        raise CertificateError(otherwise)
    check_clock()


def check_clock() -> None:
    """Refuse to go on when the processor time of a check is over."""
    if time.process_time() > _END.get():
        raise Unsupported("checking this certificate takes more processor time than is allowed")


def limit_cost(steps: float) -> None:
    """Refuse before starting what would take too long."""
    if steps > MOST_STEPS:
        raise Unsupported(
            f"checking this certificate would take about {steps:.1e} steps, more than the {MOST_STEPS:.0e} allowed"
        )
    check_clock()


def spend(steps: float) -> None:
    """Count steps that are about to be taken, together with those before, and refuse what would take too long."""
    total = _SPENT.get() + steps
    if _END.get() < math.inf:  # inside a check
        _SPENT.set(total)
    limit_cost(total)


def limit_sums(values: Iterable[Any], terms: float) -> None:
    """Refuse fractions whose sums would be too long, before `terms` of them are added or multiplied by doubles.

    Every partial sum has a denominator that divides the common one of all. Fractions of 4,000 digits each that share no
    factor have sums of millions of digits: a file of 2 MB would take hours.
    """
    common, longest = 1, 0
    for value in values:
        longest = max(longest, int(value.numerator).bit_length())
        common = math.lcm(common, int(value.denominator))
        if common.bit_length() > MOST_SUM_BITS:
            raise Unsupported(f"the common denominator of some fractions has more than {MOST_SUM_BITS:,} bits")
    spend(terms * (1 + (common.bit_length() + longest) / 64) ** 1.5)
