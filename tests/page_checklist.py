"""What every page is held against in a browser: sizes, labels, targets, names, contrast, a number and a picture."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

LOOK = (Path(__file__).parent / "page_checklist.js").read_text(encoding="utf-8")
TOKENS = """() => Object.fromEntries("paper card ink soft mark plus minus lock lock-ink good void".split(" ").map(
  (name) => [name, getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim()]))"""


def faults(page: Any, height: int = 844, *, commands: int = 0) -> list[str]:
    """What the page does not meet at its present width; `height` is that of the first screen."""
    seen = page.evaluate(LOOK)
    found = [f"{name}: {seen[name]}" for name in ("small", "labels", "targets", "broken", "unnamed") if seen[name]]
    if seen["sideways"] > 0:
        found.append(f"scrolls sideways by {seen['sideways']} px")
    if not re.search(r"\d", seen["headline"]):
        found.append(f"no number in the headline: {seen['headline']}")
    if seen["picture"] >= height:
        found.append(f"no picture on the first screen: the first one begins at {seen['picture']:.0f} px")
    if seen["commands"] < commands:
        found.append(f"{seen['commands']} commands to copy")
    tokens = {name: _full(value) for name, value in page.evaluate(TOKENS).items()}
    for name, least in [(each, 4.5) for each in ("ink", "soft", "mark", "lock-ink", "good", "void")] + [
        (each, 3.0) for each in ("plus", "minus", "lock")
    ]:
        for ground in ("paper", "card") if least > 4 else ("card",):
            if (ratio := contrast(tokens[name], tokens[ground])) < least:
                found.append(f"--{name} on --{ground}: contrast {ratio:.2f}")
    return found


def _full(colour: str) -> str:
    return "#" + "".join(2 * digit for digit in colour[1:]) if len(colour) == 4 else colour


def contrast(one: str, other: str) -> float:
    """WCAG's ratio of two colours.

    >>> contrast("#000000", "#ffffff")
    21.0
    """
    light, dark = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def _luminance(colour: str) -> float:
    parts = [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
