"""The command line: each verb parses, calls one function, and hands its result to `report`."""

from __future__ import annotations

import os
import sys

import typer

from lawful.cli import (
    audit,
    components,
    convert,
    demo,
    fibers,
    flow,
    laws,
    leaky,
    prune,
    reproduce,
    show,
    sweep,
    truncation,
    verify,
)
from lawful.errors import LawfulError

app = typer.Typer(
    name="lawful",
    help="The exact mechanics of neural-network training, with proofs.\n\n"
    'A NETWORK is a file (.safetensors, .pt, .onnx, .json, .npz), a "module:factory", '
    'or an architecture such as "3-4-2 relu bias". '
    "Exit codes: 0 yes or done, 1 a definite no, 2 bad input, 3 undecided.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
VERBS = (
    show,
    convert,
    laws,
    components,
    prune,
    flow,
    truncation,
    leaky,
    fibers,
    audit,
    demo,
    verify,
    reproduce,
    sweep,
)
for verbs in VERBS:
    verbs.add_to(app)


def _print_version(wanted: bool) -> None:
    if wanted:
        from lawful import __version__

        typer.echo(f"lawful {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: bool = typer.Option(False, "--version", callback=_print_version, is_eager=True, help="Print the version."),
) -> None:
    """Options that stand before the verb."""


def main() -> None:
    """Run the command line; a user's mistake is one line on stderr and exit code 2, never a traceback."""
    try:
        app(prog_name="lawful")
    except LawfulError as error:
        _fail(str(error), 2)
    except KeyboardInterrupt:
        _fail("interrupted", 130)
    except MemoryError:
        _fail("not enough memory for a network of this size", 2)
    except BrokenPipeError:  # the reader (head, less) has left
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except OSError as error:
        _fail(f"{error.filename or 'file'}: {error.strerror or error}", 2)


def _fail(message: str, code: int) -> None:
    print("lawful: " + " ".join(message.split()), file=sys.stderr)
    sys.exit(code)
