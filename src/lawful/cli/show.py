"""`lawful show`: what a network is, at a glance."""

from __future__ import annotations

import typer


def add_to(app: typer.Typer) -> None:
    """Register the verb."""
