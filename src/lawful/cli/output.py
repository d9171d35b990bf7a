"""How subcommands speak: one JSON object, or text for people; nothing foreign reaches a terminal as more than text."""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import sys
import textwrap
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from lawful.report.plain import plain, tidy

if TYPE_CHECKING:
    from rich.console import Console

    from lawful.network.reading import Reading
    from lawful.sources.files import Written

UNUSUAL = re.compile(r"[^\n\t -~]")


def harmless(text: str) -> str:
    r"""The text with everything that a terminal would obey (escapes, other directions, half pairs) spelled out.

    >>> print(harmless("θ² \x1b[31mred\u202e"))
    θ² \x1b[31mred\u202e
    """
    return UNUSUAL.sub(lambda found: _escape_letter(found[0]), text)


def fit(text: str, width: int | None) -> str:
    """The text with longer lines broken between words, and what follows indented by two more.

    >>> print(fit("  one two three four", 14))
      one two
        three four
    """
    if width is None or width < 20 or all(len(line) <= width for line in text.split("\n")):
        return text
    lines = []
    for line in text.split("\n"):
        indent = line[: len(line) - len(line.lstrip(" "))]
        parts = textwrap.wrap(
            line, width, subsequent_indent=f"{indent}  ", break_long_words=False, break_on_hyphens=False
        )
        lines += parts if len(line) > width and parts else [line]
    return "\n".join(lines)


def _escape_letter(letter: str) -> str:
    if letter.isprintable() or unicodedata.category(letter) == "Zs":
        return letter
    return letter.encode("unicode_escape").decode()


class Out(io.TextIOBase):
    """Standard output with foreign text made harmless; with `--json` only `answer` reaches it, all else goes to stderr.

    So neither a warning nor a `print` in somebody's module can spoil the one JSON object.
    """

    encoding = "utf-8"
    errors = "backslashreplace"

    def __init__(self, stream: TextIO, as_json: bool) -> None:
        self.stream, self.as_json, self.answered = stream, as_json, False
        self.readings: list[Reading] = []  # of the networks that the command has opened
        self.said = False
        self.verb = ""  # that is speaking
        self.verbose = False  # -v: also how each network was read
        self.evidence: Mapping[str, Any] = {}  # how the command's answer can be re-checked, or why it cannot

    def write(self, text: str, /) -> int:
        """Text for people."""
        if not isinstance(text, str):
            raise TypeError("text is written here, not bytes")
        self.say_assumed()
        (sys.stderr if self.as_json else self.stream).write(fit(tidy(harmless(text)), self.width))
        return len(text)

    def say_assumed(self) -> None:
        """One line before the first answer for people, if anything was assumed."""
        sentences = list(dict.fromkeys(sentence for each in self.readings for sentence in each.assumed))
        if self.said or self.as_json or not (sentences or (self.verbose and self.readings)):
            return
        self.said = True
        if self.verbose:
            from lawful.report.plain import reading_lines

            self.stream.write(harmless("".join(f"{line}\n" for each in self.readings for line in reading_lines(each))))
        if sentences:
            self.stream.write(fit(harmless(f"assumed: {'; '.join(sentences)}\n"), self.width))

    @property
    def width(self) -> int | None:
        """How many letters fit on a line: what COLUMNS says, or the terminal; no limit in a pipe or a file."""
        stated = os.environ.get("COLUMNS", "")
        if stated.isdecimal() and int(stated) > 0:
            return int(stated)
        with suppress(OSError, ValueError):
            return os.get_terminal_size(self.stream.fileno()).columns if self.stream.isatty() else None
        return None

    def answer(self, text: str) -> None:
        """The one JSON object."""
        self.answered = True
        self.stream.write(text)

    def flush(self) -> None:
        """Hand everything over; a reader that has left is noticed here."""
        self.stream.flush()

    def leave(self) -> None:
        """The reader has gone, or the disk is full: what is still buffered goes nowhere."""
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.stream.fileno())

    def isatty(self) -> bool:
        """Whether people are looking."""
        return self.stream.isatty()

    def fileno(self) -> int:
        """The system's number of the stream, for those who ask for its width."""
        return self.stream.fileno()

    def writable(self) -> bool:
        """Yes."""
        return True


@contextmanager
def speaking(as_json: bool) -> Iterator[Out]:
    """Let everything that is printed pass through `Out`; in a real process also what libraries print by themselves."""
    before, own = sys.stdout, None
    stream: TextIO = before if before is not None else io.StringIO()  # closed by the caller
    if as_json and before is not None and before is sys.__stdout__:
        with suppress(OSError, ValueError):
            stream.flush()
            own = stream = os.fdopen(os.dup(1), "w", encoding="utf-8", errors="backslashreplace")
            os.dup2(2, 1)
    elif isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors="backslashreplace")
    sys.stdout = out = Out(stream, as_json)
    try:
        yield out
    finally:
        sys.stdout = before
        if own is not None:
            with suppress(OSError):
                own.flush()
                os.dup2(own.fileno(), 1)
                own.close()


def note_reading(reading: Reading, instead_of: Reading | None = None) -> None:
    """Remember for this command how a network was read; its answer says what was assumed."""
    out = sys.stdout
    if not isinstance(out, Out):
        return
    out.readings = [each for each in out.readings if each != instead_of]
    out.readings.append(reading)


def note_assumed(reading: Reading, sentences: Iterable[str]) -> None:
    """An answer that assumed more than its networks' readings say adds to them (to its own, if there are none)."""
    out = sys.stdout
    if isinstance(out, Out):
        out.readings = [each.assuming(*sentences) for each in out.readings or [reading]]


def note_readings(readings: Iterable[Reading]) -> None:
    """The same of several networks."""
    for each in readings:
        note_reading(each)


def _with_readings(result: Mapping[str, Any]) -> Mapping[str, Any]:
    """The result with `schema`, and with `reading`: how the command's networks were read."""
    out = sys.stdout
    if not isinstance(out, Out) or set(result) == {"error", "hint", "exit"}:
        return result
    from lawful.report.plain import readings_json
    from lawful.report.schema import VERSION

    return {**result, **(readings_json(out.readings) if out.readings else {}), "schema": f"lawful {out.verb} {VERSION}"}


def _with_evidence(result: Mapping[str, Any]) -> Mapping[str, Any]:
    """The result with what is said of its evidence; what it says itself stands."""
    if not isinstance(sys.stdout, Out) or set(result) == {"error", "hint", "exit"}:
        return result
    return {**result, **{key: value for key, value in sys.stdout.evidence.items() if key not in result}}


def will_write(*paths: Path | None) -> None:
    """Refuse places that cannot be written before the work begins."""
    from lawful.formats.io.writing import check_target

    for path in paths:
        if path is not None:
            check_target(path)


def write_json(path: Path, result: Mapping[str, Any]) -> None:
    """One strict JSON object in a file."""
    write_text(path, json.dumps(plain(result), allow_nan=False) + "\n")


def write_certificate(path: Path, certificate: Mapping[str, Any], beside: Iterable[str] = ()) -> None:
    """A certificate in a file; people are told how it is re-checked, `beside` which files it may be about."""
    write_json(path, certificate)
    command = shlex.join(["lawful", "verify", str(path), *files_only(beside)])
    print(f"certificate: {path} (`{command}` re-checks it)", file=sys.stderr)


def files_only(names: Iterable[str]) -> list[str]:
    """The names, if all of them are files: an architecture or a factory has none that a verifier could read."""
    listed = list(names)
    return listed if all(Path(name).is_file() for name in listed) else []


def write_text(path: Path, text: str) -> None:
    """A page, a picture or a table in a file."""
    from lawful.formats.io import writing

    writing.write_text(path, text)


def stored_json(written: Written | None) -> dict[str, Any]:
    """How a network was stored, if it was; `note` says in words what that rounded."""
    return {} if written is None else {"stored": asdict(written) | {"note": str(written) if written.rounding else ""}}


def say_rounding(written: Written | None, certificate: Path | None = None) -> None:
    """Storing as float32 rounds: what was exact before holds to that in the file, and a certificate says less of it."""
    if written is not None and written.rounding:
        print(f"stored as {written.dtype}, as it was read: {written}")
        if certificate is not None:
            print(f"not certified: {written.path}; {certificate} is about the weights before they were rounded")


def print_json(result: Mapping[str, Any]) -> None:
    """One strict JSON object on stdout: arrays become lists, fractions text, infinities and NaN null.

    It also has `reading`: how the command's network was read, and what was assumed; and `evidence`: how the answer can
    be re-checked, or why it cannot.
    """
    text = json.dumps(plain(_with_evidence(_with_readings(result))), allow_nan=False, ensure_ascii=False, indent=1)
    text = UNUSUAL.sub(
        lambda found: found[0] if _escape_letter(found[0]) == found[0] else json.dumps(found[0])[1:-1], text
    )
    if isinstance(sys.stdout, Out):
        sys.stdout.answer(text + "\n")
    else:
        sys.stdout.write(text + "\n")


def say(as_json: bool, result: Mapping[str, Any], text: str) -> None:
    """The answer: one JSON object, or text for people."""
    print_json(result) if as_json else print(text)


def show(result: Any, as_json: bool, more: Mapping[str, Any] | None = None, *lines: str) -> None:
    """A result as its kind is shown, with what only the command line knows: files that were written, say."""
    from lawful.report.views import text, to_dict

    print_json({**to_dict(result), **(more or {})}) if as_json else print("\n".join([text(result), *lines]))


def console(widest: int = 1000) -> Console:
    """Rich's console on standard output, at most so wide: its colours are ours, all text is made harmless."""
    from rich.console import Console
    from rich.segment import Segment

    class Quoting(Console):
        def render(self, renderable: Any, options: Any = None) -> Iterator[Segment]:
            for segment in super().render(renderable, options):
                yield segment if segment.control else Segment(harmless(segment.text), segment.style)

        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

    out = sys.stdout
    if isinstance(out, Out):
        out.say_assumed()
    stream = out.stream if isinstance(out, Out) and not out.as_json else out
    found = Quoting(file=stream, highlight=False, markup=False, emoji=False)
    found.width = min(found.width, widest)
    return found


@contextmanager
def bar(name: str) -> Iterator[Callable[[str, float], None]]:
    """A progress bar: tell it what is being done, and which part of all, from 0 to 1, is finished.

    >>> with bar("flow") as tell:
    ...     tell("loss 0.5", 0.25)
    """
    if not sys.stderr.isatty():
        yield lambda words, part: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(name, total=1.0)
        yield lambda words, part: progress.update(task, completed=part, description=f"{name} {words}")


@contextmanager
def working(words: str) -> Iterator[None]:
    """A spinner, for work whose end is not in sight."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(words):
        yield


@contextmanager
def told(words: str) -> Iterator[Callable[[str], None]]:
    """A spinner that says what is being done."""
    if not sys.stderr.isatty():
        yield lambda more: None
        return
    from rich.console import Console

    with Console(stderr=True).status(words) as status:
        yield lambda more: status.update(f"{words}: {more}")


@contextmanager
def counter(noun: str, total: int | None = None) -> Iterator[Callable[[], None]]:
    """A bar that counts things, of which there may be any number."""
    if not sys.stderr.isatty():
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(noun, total=total)
        yield lambda: progress.update(task, advance=1)
