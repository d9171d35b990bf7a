"""`lawful reproduce`: run the papers' claims and say what was measured."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from lawful.cli.output import plain, print_json
from lawful.cli.source import JsonOption
from lawful.errors import LawfulError


def add_to(app: typer.Typer) -> None:
    """Register the verb."""
    app.command()(reproduce)


def reproduce(
    ids: Annotated[list[str] | None, typer.Argument(help="Claims to run, such as p0-rescaling.")] = None,
    list_them: Annotated[bool, typer.Option("--list", help="List all claims.")] = False,
    out: Annotated[Path | None, typer.Option(help="Folder for ID.json and ID.svg.")] = None,
    full: Annotated[
        bool, typer.Option("--full", help="The paper's own size instead of one that runs in seconds.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Run claims of the papers; exit 1 if one is refuted."""
    from lawful.study.claims import all_claims, find

    if list_them:
        _list(all_claims(), as_json)
        return
    if not ids:
        raise LawfulError("name claims to run, or use --list")
    chosen = [find(id) for id in ids]
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
    results = [_run(claim, full, out) for claim in chosen]
    if as_json:
        print_json({"claims": results})
    else:
        for result in results:
            typer.echo(f"{result['verdict']:10} {result['id']}: {result['statement']}")
            for name, value in result["measured"].items():
                typer.echo(f"           {name} = {value}")
    if any(result["verdict"] == "refuted" for result in results):
        raise typer.Exit(1)


def _run(claim: Any, full: bool, out: Path | None) -> dict[str, Any]:
    import json

    from lawful.report.figure import save

    start = time.perf_counter()
    outcome = claim.run(full)
    result: dict[str, Any] = _described(claim) | {
        "verdict": claim.verdict(outcome).value,
        "measured": plain(outcome.measured),
        "full": full,
        "seconds": round(time.perf_counter() - start, 3),
    }
    if out is not None:
        if outcome.figure is not None:
            result["figure"] = save(outcome.figure, out / f"{claim.id}.svg").name
            result["caption"] = outcome.figure.caption
        (out / f"{claim.id}.json").write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return result


def _described(claim: Any) -> dict[str, Any]:
    return {
        "id": claim.id,
        "paper": claim.paper,
        "reference": claim.reference,
        "statement": claim.statement,
        "erratum": None if claim.erratum is None else vars(claim.erratum),
    }


def _list(claims: Any, as_json: bool) -> None:
    if as_json:
        print_json({"claims": [_described(claim) for claim in claims]})
        return
    for claim in claims:
        typer.echo(f"{claim.id:28} {claim.reference:24} {claim.statement}")
