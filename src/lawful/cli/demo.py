"""`lawful demo`: a network that reads handwritten digits, audited, pruned, and proved unchanged."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lawful.cli.output import console, print_json, write_json, write_text
from lawful.cli.source import JsonOption, SeedOption


def add_to(app: typer.Typer) -> None:
    """Register the verb."""
    app.command()(demo)


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the networks, the data and the page.")] = Path("out/demo"),
    seed: SeedOption = 0,
    as_json: JsonOption = False,
) -> None:
    """Train a network that reads handwritten digits, audit it, prune it, and prove that nothing changed."""
    import numpy as np

    from lawful.api.demo import demo as run_demo
    from lawful.api.demo import readings
    from lawful.api.explore import explore
    from lawful.formats.io.reading import read_bytes
    from lawful.formats.io.writing import make_folder, write_bytes
    from lawful.formats.tensors.npz import dump
    from lawful.pruning.neurons.certificate import certificate
    from lawful.report.audit.audit import print_audit, to_json
    from lawful.report.audit.audit_page import audit_page
    from lawful.report.audit.demo import closing, digits_text
    from lawful.report.page.explorer import explorer_html
    from lawful.sources.files import write
    from lawful.verify import verify

    make_folder(out)
    typer.echo("Training 64-32-10 on handwritten digits with the nuclear norm ...", err=True)
    story = run_demo(seed)
    pruning, page = story.pruning, out / "audit.html"
    write(story.trained, out / "trained.safetensors")
    write(pruning.network, out / "pruned.safetensors")
    write_bytes(out / "data.npz", dump({"x": story.data.x, "y": np.asarray(story.data.y)}, None))
    write_text(page, audit_page(story.audit))
    proof, touch = out / "pruned.json", out / "explorer.html"
    write_json(proof, certificate(pruning))
    write_text(touch, explorer_html(explore(story.trained, source="trained.safetensors", data=story.data)))
    checked = verify(read_bytes(proof), story.trained, pruning.network)
    if as_json:
        facts = {"verdict": story.verdict.verdict, "method": story.verdict.method, "accuracy": story.accuracy}
        files = {"page": str(page), "certificate": str(proof), "explorer": str(touch)}
        print_json(facts | {"audit": to_json(story.audit), "verified": checked.statement} | files)
    else:
        read = readings(pruning.network, story.unseen.x[:4]).tolist()
        typer.echo(f"{digits_text(story.unseen.x[:4], read)}\n")
        print_audit(story.audit, console(80))
        typer.echo(f"\nfiles     {out}/trained.safetensors, pruned.safetensors, data.npz, {proof.name}, {page.name}")
        typer.echo(f"accuracy  {story.accuracy[0]:.3f} before, {story.accuracy[1]:.3f} after, on digits never seen\n")
        typer.echo(closing(story, checked.statement, str(proof), str(touch)))
    if not story.proved:
        raise typer.Exit(3)
