"""The command line: each subcommand parses, calls one function, and hands its result to `report`."""

from __future__ import annotations

import os
import signal
import sys
import warnings
from functools import cache
from typing import Any

import typer

from lawful.cli import (
    audit,
    bounds,
    checkpoints,
    components,
    conservation,
    demo,
    fibers,
    flow,
    leaky,
    prune,
    show,
    sweep,
    truncation,
    verify,
)
from lawful.cli.evidence import evidence_json, say_evidence
from lawful.cli.failure import Failure, failure_of
from lawful.cli.help import ABOUT, ALL, Verbs, arguments_of_help, without_verbose
from lawful.cli.output import Out, speaking

app = typer.Typer(
    name="lawful",
    cls=Verbs,
    help=ABOUT,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
SUBCOMMANDS = (
    show.show,
    show.convert,
    conservation.laws,
    conservation.symmetries,
    components.components,
    components.path,
    components.rebalance,
    components.singular,
    prune.prune,
    flow.flow,
    flow.drift,
    flow.compare,
    truncation.truncate,
    truncation.truncation_flow,
    truncation.separate,
    leaky.leaky,
    leaky.bottleneck,
    fibers.same,
    fibers.fiber,
    fibers.identifiable,
    fibers.regions,
    fibers.canonical,
    fibers.fingerprint,
    bounds.distance,
    bounds.check,
    bounds.vnncomp,
    checkpoints.align,
    checkpoints.find,
    checkpoints.merge,
    audit.explore,
    audit.audit,
    audit.diff,
    demo.demo,
    verify.verify,
    sweep.reproduce,
    sweep.sweep,
)
SEVERAL_THINGS = (bounds.vnncomp, sweep.reproduce, sweep.sweep)  # without a word, help says what they can do
for subcommand in SUBCOMMANDS:
    app.command(no_args_is_help=subcommand in SEVERAL_THINGS)(subcommand)


def _print_version(wanted: bool) -> None:
    if wanted:
        from lawful.version import __version__

        typer.echo(f"lawful {__version__}")
        raise typer.Exit


def _print_all(context: typer.Context, wanted: bool) -> None:
    if wanted:
        context.meta[ALL] = True
        typer.echo(context.get_help())
        raise typer.Exit


@app.callback()
def options(
    version: bool = typer.Option(False, "--version", callback=_print_version, is_eager=True, help="Print the version."),
    every: bool = typer.Option(
        False, "--help-all", callback=_print_all, is_eager=True, help="List every subcommand, as lawful help all."
    ),
) -> None:
    """Options that stand before the subcommand."""


def main() -> None:
    """Run the command line: an answer, or one line and an exit code, never a traceback."""
    if "_LAWFUL_COMPLETE" in os.environ:
        app(prog_name="lawful")
    arguments, verbose = without_verbose(arguments_of_help(sys.argv[1:]))
    with speaking(_wants_json(arguments)) as out, warnings.catch_warnings():
        if not sys.warnoptions:
            warnings.simplefilter("ignore")
        out.verbose = verbose
        out.verb = next((word for word in arguments if not word.startswith("-")), "")
        code = _run(arguments, out)
    sys.exit(code)


def _wants_json(arguments: list[str]) -> bool:
    return "--json" in arguments or "-j" in arguments


def _run(arguments: list[str], out: Out) -> int:
    try:
        code = _invoke(arguments, out)
        out.flush()
        return code
    except BrokenPipeError:  # the reader (head, less) has left
        out.leave()
        return 141
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second one would only spoil the way out
        failure = Failure("interrupted", 130, "what is finished is kept: the same command goes on or starts again")
    except SystemExit as stop:
        failure = Failure(f"the module ended the program (exit {stop.code})", 2)
    except Exception as error:
        failure = failure_of(error, arguments)
    return failure.tell(out)


@cache
def _command() -> Any:
    return typer.main.get_command(app)


def _invoke(arguments: list[str], out: Out) -> int:
    """Run a subcommand without Click's own frame, in which a closed pipe would be a definite no."""
    command = _command()
    verb = next((word for word in arguments if word in command.commands), None)
    out.evidence = {} if verb is None else evidence_json(command.commands[verb])
    try:
        with command.make_context("lawful", list(arguments)) as context:
            command.invoke(context)
            if not _wants_json(arguments):
                say_evidence(verb)
    except typer.Exit as stop:
        return int(stop.exit_code)
    return 0
