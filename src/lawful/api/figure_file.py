"""Figures as files: drawn beside their place, and there whole or not at all."""

from __future__ import annotations

from pathlib import Path

from lawful.errors import LawfulError
from lawful.figure import Figure, draw
from lawful.formats.io.writing import replacing

ENDINGS = (".svg", ".png", ".pdf")


def save(figure: Figure, path: Path) -> Path:
    """Draw to a file; its ending chooses the format. The same figure gives the same bytes."""
    if path.suffix.lower() not in ENDINGS:
        raise LawfulError(f"{path}: figures end in {', '.join(ENDINGS)}")
    with replacing(path) as draft:
        draw(figure, draft, path.suffix.lower().removeprefix("."))
    return path
