"""Names in files are one line each: with a line break inside, one could pass for a line of an answer."""

from __future__ import annotations

from collections.abc import Iterable

from lawful.errors import InvalidNetwork


def check_names(names: Iterable[str]) -> None:
    r"""Refuse names with line breaks (terminal escapes and other directions are spelled out where names are printed).

    >>> check_names(["h1.0", "proved: no\nverified: yes"])
    Traceback (most recent call last):
    lawful.errors.InvalidNetwork: a name holds a line break: 'proved: no\nverified: yes'
    """
    for name in names:
        if "\n" in str(name):  # a damaged file may give bytes
            raise InvalidNetwork(f"a name holds a line break: {str(name)[:80]!r}")
