"""`lawful rebalance --objective` and `lawful canonical` for modules."""

from __future__ import annotations

from pathlib import Path

import typer

from lawful.cli.evidence import save_evidence
from lawful.cli.output import print_json, will_write
from lawful.cli.source import Named


def represent(
    named: Named, purpose: str, data: Path | None, out: Path | None, certificate: Path | None, as_json: bool
) -> None:
    """Choose another member of the orbit, say what it is worth, write it. Exit 3 if its function is undecided."""
    from lawful.api.checkpoints.orbits import representative
    from lawful.checkpoints.compare.certificate import copy_certificate
    from lawful.report.checkpoints.relatives import representative_json, representative_text
    from lawful.sources.checkpoints.save import write_weights

    will_write(out, certificate)
    found = representative(
        named.text, purpose, data=data, model=named.model, input=named.input_text, seed=named.seed,
        activation=named.activation, order=named.order,
    )  # fmt: skip
    written = None if out is None else str(out)
    if out is not None:
        write_weights(found.weights, out, like=Path(named.text))
    print_json(representative_json(found, written)) if as_json else typer.echo(representative_text(found, written))
    saved = save_evidence(certificate, lambda: copy_certificate(found.pair, found.verdict))
    if not saved or not found.verdict.is_copy:
        raise typer.Exit(3)
