"""What is said when there is no answer: one line on stderr, one JSON object with `--json`, and an exit code."""

from __future__ import annotations

import sys
import traceback
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lawful.cli.help import hint_for
from lawful.cli.output import Out, harmless, print_json
from lawful.errors import LawfulError
from lawful.extras import missing
from lawful.report.plain import tidy

HERE = Path(__file__).parents[1]
MEMORY = "not enough memory for a network of this size"
REPORT = "a defect of lawful: please report this line with the command, its files and what `lawful --version` says"


@dataclass(frozen=True)
class Failure:
    """Why there is no answer, and what to do about it; `usage` is Click's own longer way to say it."""

    message: str
    code: int
    hint: str = ""
    usage: Any = None

    def tell(self, out: Out) -> int:
        """Say it where it belongs; the exit code."""
        line = tidy(harmless(" ".join(self.message.split())))
        with suppress(OSError, AttributeError):  # stderr may be closed
            if self.usage is not None and not out.as_json:
                sys.stderr.write(harmless(self.usage))
            else:
                sys.stderr.write(f"lawful: {line}{f' ({REPORT})' if self.code == 4 else ''}\n")
            sys.stderr.flush()
        try:
            if out.as_json and not out.answered:
                print_json({"error": line, "hint": self.hint, "exit": self.code})
            out.flush()
        except OSError:
            out.leave()
        return self.code


def failure_of(error: Exception, arguments: list[str]) -> Failure:
    """What an exception means for the user."""
    verb = next((word for word in arguments if not word.startswith("-")), "")
    hint = f"see: lawful {verb[:40]} --help" if verb else "see: lawful --help"
    if isinstance(error, LawfulError):
        return Failure(str(error), 2, hint)
    if hasattr(error, "format_message"):  # Click's: a wrong option
        return Failure(error.format_message(), 2, hint, _usage(error))
    if isinstance(error, ModuleNotFoundError) and (absent := missing(error.name or "")) is not None:
        return Failure(str(absent), 2, str(absent).partition(": ")[2])
    if isinstance(error, MemoryError) or "can't allocate memory" in str(error):  # the latter is PyTorch's
        return Failure(MEMORY, 2, "try a smaller network, fewer samples or fewer snapshots")
    if isinstance(error, OSError):
        return Failure(f"{error.filename or 'standard output'}: {(error.strerror or str(error)).lower()}", 2, hint)
    return Failure(f"{_place(error)}: {type(error).__name__}: {str(error)[:200]}", 4, REPORT)


def _usage(error: Any) -> str:
    """The usage line, where to find help, and the mistake."""
    import io

    text = io.StringIO()
    error.show(file=text)
    command = getattr(getattr(error, "ctx", None), "command", None)
    hint = "" if command is None else hint_for(error.format_message(), command)
    return f"{text.getvalue()}{hint}\n" if hint else text.getvalue()


def _place(error: Exception) -> str:
    """The last line of ours that ran."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if Path(frame.filename).is_relative_to(HERE)]
    return f"{Path(ours[-1].filename).relative_to(HERE).as_posix()}:{ours[-1].lineno}" if ours else "lawful"
