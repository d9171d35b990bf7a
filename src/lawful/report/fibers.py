"""Answers about fibers as text; computes nothing."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

WIDTH = 80


def verdict_text(result: Mapping[str, Any]) -> str:
    """The answer of `same` for people: verdict first, then the evidence."""
    where = f" on {result['domain']}" if result["domain"] else ""
    lines = [f"{result['verdict'].upper()}{where}: by {result['method']} ({result['seconds']:.2f} s)"]
    if result["witness"] is not None:
        lines += _witness_lines(result["witness"])
    if result["counterexample"] is not None:
        found = result["counterexample"]
        lines += [
            f"  input    {_numbers(found['input'])}",
            f"  A gives  {_numbers(found['outputs'][0])}",
            f"  B gives  {_numbers(found['outputs'][1])}",
            f"  They differ by {found['gap']:.3g}; rounding would excuse {found['allowed']:.1e}.",
        ]
    elif result["reason"]:
        lines += textwrap.wrap(result["reason"] + ".", WIDTH, initial_indent="  ", subsequent_indent="  ")
    exact = result["tolerance"] == 0
    lines.append("  Arithmetic: exact rationals." if exact else f"  Tolerance: {result['tolerance']:g}, relative.")
    return "\n".join(lines)


def _witness_lines(witness: Mapping[str, Any]) -> list[str]:
    if "regions" in witness:
        return [f"  The affine maps agree on all {witness['regions']:,} common regions."]
    chains = [f"{name}: {_chain(witness[key])}" for name, key in (("A", "first"), ("B", "second"))]
    ending = "weight by weight" if witness["ending"] == "weights" else "in normal form"
    lines = [f"  {line}" for chain in chains for line in textwrap.wrap(chain, WIDTH - 2)]
    return [*lines, f"  Then they agree {ending}; largest relative difference {witness['residual']:.1e}."]


def _chain(steps: Sequence[Mapping[str, Any]]) -> str:
    names = [f"{step['do']} layer {step['layer']}" for step in steps]
    counted = [f"{name} x{names.count(name)}" if names.count(name) > 1 else name for name in dict.fromkeys(names)]
    return ", ".join(counted) or "as it is"


def _numbers(values: Sequence[float], most: int = 6) -> str:
    shown = ", ".join(f"{value:.6g}" for value in values[:most])
    return f"[{shown}{', ...' if len(values) > most else ''}]"
