"""No bound is printed with digits rounded to nearest: every one goes through `lawful.outward`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import lawful

SOURCE = Path(lawful.__file__).parent
BEFORE = re.compile(
    r"(within|at most|at least|up to|(no )?(more|less|larger|smaller) than|below|above|by less than|reached( it)? to|"
    r"(?<=\s)(<=|>=|≤|≥|<|>))( an?| the| relative| residual| of| sum| total)*\s*[-±]?$"
)
AFTER = re.compile(r"^\s*(at most|at least|or (more|less)|of .{0,20}at most)")
DIGITS = re.compile(r"\.\d+[geGE%]|\.\d+f")

# What looks like a bound and is none
ALLOWED = {
    ("api/training/leaky_runs.py", "below {:.4g}"): "a limit on an option, in the message that refuses it",
    ("checkpoints/identity/orbit_hash.py", "more than {:.0e}"): "a constant",
    ("conservation/known/polynomial.py", "more than {:.0f}"): "a limit on a size, in the message that refuses more",
    ("verify/core/schema.py", "than the {:.0e}"): "a constant",
    (
        "reproduction/claims/fibers_composition.py",
        "<= {:.4f}",
    ): "three numbers in a table, compared as fractions before",
}


def texts(tree: ast.AST) -> Iterator[tuple[str, str, str]]:
    """Of every number with digits in an f-string: the text before it, its format, the text after it."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.JoinedStr):
            continue
        parts = node.values
        for place, part in enumerate(parts):
            if not isinstance(part, ast.FormattedValue) or part.format_spec is None:
                continue
            spec = "".join(str(each.value) for each in part.format_spec.values if isinstance(each, ast.Constant))  # type: ignore[attr-defined]
            before, after = (
                str(parts[near].value) if 0 <= near < len(parts) and isinstance(parts[near], ast.Constant) else ""  # type: ignore[attr-defined]
                for near in (place - 1, place + 1)
            )
            yield before, spec, after


def bounds_to_nearest(source: str) -> list[str]:
    """Bounds in a source whose digits are rounded to nearest."""
    return [
        f"{' '.join(before.split()[-2:])} {{:{spec}}}{after[:12]}"
        for before, spec, after in texts(ast.parse(source))
        if DIGITS.search(spec) and (BEFORE.search(before) or AFTER.search(after))
    ]


def test_the_scan_sees_bounds() -> None:
    assert bounds_to_nearest('f"off by {x:.1e} at most"')
    assert bounds_to_nearest('f"{n} outputs stay within {bound:.3g} there"')
    assert not bounds_to_nearest('f"within {at_most(bound)} in {seconds:.2f} s"')


def test_bounds_are_rounded_outward() -> None:
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        name, source = path.relative_to(SOURCE).as_posix(), path.read_text(encoding="utf-8")
        for words in bounds_to_nearest(source) if DIGITS.search(source) else ():
            if not any(name == file and text in words for file, text in ALLOWED):
                found.append(f"{name}: {words}")
    assert not found, "\n".join(found)
