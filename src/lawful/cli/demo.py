"""`lawful demo`: a digits network through a conversion of which one step is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lawful.cli.output import say, write_text
from lawful.cli.subcommand import JsonOption, SeedOption


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the networks, the certificates and the pages.")] = Path(
        "out/demo"
    ),
    seed: SeedOption = 0,
    as_json: JsonOption = False,
) -> None:
    """Train a network that reads digits, convert it with a mistake in one step, find that step, prove the others."""
    import numpy as np

    from lawful.api.demo import demo as run_demo
    from lawful.formats.io.writing import make_folder, write_bytes
    from lawful.formats.tensors.npz import dump
    from lawful.report.audit.audit_page import audit_page
    from lawful.report.audit.demo import demo_json, demo_page, demo_text
    from lawful.verify import verify

    make_folder(out)
    typer.echo("Training a convolutional network on handwritten digits, then converting it ...", err=True)
    story = run_demo(seed, out)
    proved = {step.certificate: verify(out / step.certificate).statement for step in story.steps if step.certificate}
    write_bytes(out / "data.npz", dump({"x": story.data.x, "y": np.asarray(story.data.y)}, None))
    write_text(out / "audit.html", audit_page(story.audit))
    write_text(out / "conversion.html", demo_page(story, proved))
    say(as_json, demo_json(story, proved), demo_text(story, proved))
    if not story.proved:
        raise typer.Exit(3)
