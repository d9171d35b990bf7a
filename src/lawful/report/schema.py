"""JSON Schemas of what subcommands print with `--json`, made from the table of their keys in `json_keys.txt`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

VERSION = 1  # of the table: keys are only added to it
COMMON, ERROR = "every subcommand", "an error"
_SECTIONS = re.split(r"^\[(.+)\]\n", Path(__file__).with_name("json_keys.txt").read_text(encoding="utf-8"), flags=re.M)
KEYS = dict(zip(_SECTIONS[1::2], _SECTIONS[2::2], strict=True))  # section -> its lines
TABLE = {name: lines for name, lines in KEYS.items() if name not in (COMMON, ERROR)}


def lines_of(verb: str) -> list[tuple[str, str, bool, str]]:
    """The table of a subcommand: key, type, whether it is always there, meaning."""
    return _lines(KEYS[COMMON]) + _lines(KEYS[verb])


def json_schema(verb: str) -> dict[str, Any]:
    """The JSON Schema (2020-12) of what `lawful VERB --json` prints: an answer, or an error.

    >>> made = json_schema("laws")
    >>> made["anyOf"][0]["properties"]["gap"]["type"], "laws" in made["anyOf"][0]["required"]
    (['number', 'null'], True)
    """
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"lawful {verb} --json, version {VERSION}",
        "anyOf": [_object(lines_of(verb)), {"$ref": "#/$defs/error"}],
        "$defs": {"error": _object(_lines(KEYS[ERROR]))},
    }


def _lines(section: str) -> list[tuple[str, str, bool, str]]:
    rows = []
    for line in filter(str.strip, section.splitlines()):
        key, _, rest = line.partition(": ")
        kind, _, meaning = rest.partition(", ")
        rows.append((key.removesuffix("?"), kind, not key.endswith("?"), meaning))
    return rows


def _object(lines: list[tuple[str, str, bool, str]]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {key: _type_schema(kind) | {"description": meaning} for key, kind, _, meaning in lines},
        "required": [key for key, _, always, _ in lines if always],
    }


def _type_schema(kind: str) -> dict[str, Any]:
    if kind == "any":
        return {}
    if kind.startswith("array"):
        inner = kind.removesuffix("?").partition(" of ")[2]
        items = {"items": {"type": inner}} if inner else {}
        return {"type": ["array", "null"] if kind.endswith("?") else "array", **items}
    return {"type": [kind[:-1], "null"]} if kind.endswith("?") else {"type": kind}
