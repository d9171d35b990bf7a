"""`lawful demo`: train a small network on real data, audit it, prune it, prove that nothing changed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lawful.cli.output import console, print_json, write_text
from lawful.cli.source import JsonOption, SeedOption


def add_to(app: typer.Typer) -> None:
    """Register the verb."""
    app.command()(demo)


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the networks, the data and the page.")] = Path("out/demo"),
    seed: SeedOption = 0,
    as_json: JsonOption = False,
) -> None:
    """Train a small network on real data, audit it, prune it, and prove that nothing changed."""
    import numpy as np

    from lawful.network.formats.files import write
    from lawful.network.formats.npz import dump
    from lawful.network.formats.writing import make_folder, write_bytes
    from lawful.report.audit import html, print_audit, to_json
    from lawful.study.demo import run_demo

    make_folder(out)
    typer.echo("Training 30-20-1 on the breast-cancer data with the nuclear norm ...", err=True)
    story = run_demo(seed)
    pruning, page = story.pruning, out / "audit.html"
    write(story.trained, out / "trained.safetensors")
    write(pruning.network, out / "pruned.safetensors")
    write_bytes(out / "data.npz", dump({"x": story.data.x, "y": np.asarray(story.data.y)}, None))
    write_text(page, html(story.audit))
    if as_json:
        facts = {"verdict": story.verdict.verdict, "method": story.verdict.method, "accuracy": story.accuracy}
        print_json(facts | {"audit": to_json(story.audit), "page": str(page)})
    else:
        print_audit(story.audit, console(80))
        typer.echo("")
        typer.echo(f"pruned   {pruning.neurons_before} -> {pruning.neurons_after} hidden neurons, "
                   f"{story.trained.parameters} -> {pruning.network.parameters} parameters")  # fmt: skip
        typer.echo(f"proof    {story.verdict.verdict}, by {story.verdict.method}")
        typer.echo(f"accuracy {story.accuracy[0]:.3f} before, {story.accuracy[1]:.3f} after (samples not trained on)")
        typer.echo(f"files    {out}/trained.safetensors, pruned.safetensors, data.npz")
        typer.echo(f"page     {page}")
    if not story.proved:
        raise typer.Exit(3)
