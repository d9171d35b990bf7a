"""JSON Schemas of what verbs print with `--json`, made from the table of their keys."""

from __future__ import annotations

from typing import Any

from lawful.report.schema.keys import COMMON, ERROR, TABLE, VERSION


def lines_of(verb: str) -> list[tuple[str, str, bool, str]]:
    """The table of a verb: key, type, whether it is always there, meaning."""
    found = []
    for line in filter(str.strip, (COMMON + TABLE[verb]).splitlines()):
        key, _, rest = line.strip().partition(": ")
        kind, _, meaning = rest.partition(", ")
        found.append((key.removesuffix("?"), kind, not key.endswith("?"), meaning))
    return found


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
        "$defs": {"error": _object([(k, t, True, m) for k, t, _, m in _lines(ERROR)])},
    }


def _lines(text: str) -> list[tuple[str, str, bool, str]]:
    parts = [line.partition(": ") for line in text.strip().splitlines()]
    return [(key, rest.partition(", ")[0], True, rest.partition(", ")[2]) for key, _, rest in parts]


def _object(lines: list[tuple[str, str, bool, str]]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {key: _typed(kind) | {"description": meaning} for key, kind, _, meaning in lines},
        "required": [key for key, _, always, _ in lines if always],
    }


def _typed(kind: str) -> dict[str, Any]:
    if kind == "any":
        return {}
    if kind.startswith("array"):
        inner = kind.removesuffix("?").partition(" of ")[2]
        items = {"items": {"type": inner}} if inner else {}
        return {"type": ["array", "null"] if kind.endswith("?") else "array", **items}
    return {"type": [kind[:-1], "null"]} if kind.endswith("?") else {"type": kind}
