"""The page of the table of operators, made from the table."""

from __future__ import annotations

import inspect
from pathlib import Path

import lawful.program  # noqa: F401  # fills the table
from lawful.program.table import (
    ATEN,
    ATEN_CASTS,
    ATEN_FACTORIES,
    ATEN_MOVEMENTS,
    INFINITY,
    ONNX,
    OPERATORS,
    Entry,
    Operator,
    OperatorFamily,
    Traits,
)


def write_operators(folder: Path) -> None:
    """Operators by family with what holds of them; then the calls that are written in them."""
    calls = len({*ATEN, *ATEN_MOVEMENTS, *ATEN_FACTORIES, *ATEN_CASTS})
    lines = [
        "# Operators",
        "",
        f"A network is read as a program of {len(OPERATORS)} operators ([how](../architecture.md)); {calls} calls of "
        f"PyTorch and {len(ONNX)} operators of ONNX are written in them. Whatever is missing here is *opaque*: it can "
        "be run, and results name it. Degree d means f(sx) = sᵈ f(x) for s > 0; shift k means f(x + c) = f(x) + kc.",
        "",
    ]
    for family in OperatorFamily:
        members = [each for each in OPERATORS.values() if each.family is family]
        lines += [
            f"## {family.value.capitalize()}",
            "",
            "| operator | meaning | attributes | holds |",
            "|---|---|---|---|",
        ]
        lines += [f"| `{o.name}` | {_cell(o.formula)} | {_attributes(o)} | {_traits(o)} |" for o in members] + [""]
    for title, table in (("Calls of PyTorch", ATEN), ("Operators of ONNX", ONNX)):
        lines += [f"## {title}", "", "| name | arguments known |", "|---|---|"]
        lines += [f"| `{name}` | {_known(entry)} |" for name, entry in sorted(table.items())] + [""]
    lines += ["## Calls of PyTorch that only move entries", "", _names(ATEN_MOVEMENTS), ""]
    lines += ["## Calls of PyTorch that make constants", "", _names(ATEN_FACTORIES), ""]
    (folder / "operators.md").write_text("\n".join(lines), encoding="utf-8")


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _names(names: set[str]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(names))


def _attributes(operator: Operator) -> str:
    return ", ".join(f"`{name}`" for name in operator.attributes if name != "call")


def _known(entry: Entry) -> str:
    return ", ".join(
        f"`{name}`" for name, each in entry.parameters.items() if each.kind is not inspect.Parameter.VAR_POSITIONAL
    )


def _traits(operator: Operator) -> str:
    if callable(operator.traits):
        return "by its attributes"
    t: Traits = operator.traits
    words = [] if t.degree is None else [f"degree {t.degree:g}"]
    words += [word for word, holds in (("odd", t.odd), ("even", t.even), ("0 at 0", t.zero)) if holds]
    words += {1: ["rises"], -1: ["falls"], 0: []}[t.monotone]
    words += [f"linear {t.linear}"] if t.linear else []
    words += [f"shift {t.shift:g}"] if t.shift is not None else []
    words += [f"kink at {kink:g}" for kink in t.kinks]
    if t.range != (-INFINITY, INFINITY):
        low, high = t.range
        words.append(f"in [{low:g}, {'∞' if high == INFINITY else format(high, 'g')}]")
    return ", ".join(words)
