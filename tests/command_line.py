"""The command line for tests: in this process, or in one of its own."""

from __future__ import annotations

import io
import json
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from lawful.cli import main


@dataclass(frozen=True)
class Run:
    """What the command line said, and how it ended."""

    stdout: str
    stderr: str
    returncode: int = 0

    @property
    def json(self) -> dict[str, Any]:
        return dict(json.loads(self.stdout))


def in_process(*arguments: object, cwd: Path | None = None) -> Run:
    """Run the command line in this process; an exception that escapes is the test's failure."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    code: object = 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["lawful", *map(str, arguments)])
        for name, stream in (("stdin", io.TextIOWrapper(io.BytesIO())), ("stdout", out), ("stderr", err)):
            patch.setattr(sys, name, stream)
        if cwd is not None:
            patch.chdir(cwd)
        before, path = set(sys.modules), sys.path.copy()
        heard = signal.getsignal(signal.SIGINT)
        try:
            main()
        except SystemExit as stop:
            code = stop.code or 0
        finally:  # a factory's module belongs to this run alone
            signal.signal(signal.SIGINT, heard)
            sys.path[:] = path
            for name in set(sys.modules) - before:
                if str(getattr(sys.modules[name], "__file__", None)).startswith(str(cwd or Path.cwd())):
                    del sys.modules[name]
    said, errors = (stream.buffer.getvalue().decode() for stream in (out, err))  # type: ignore[attr-defined]
    assert "Traceback" not in errors, errors
    assert isinstance(code, int), code
    return Run(said, errors, code)


def in_a_process(*arguments: object, cwd: Path | None = None) -> Run:
    """Run the installed command in a process of its own."""
    command = [str(Path(sys.executable).with_name("lawful")), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=600, stdin=subprocess.DEVNULL)
    assert "Traceback" not in done.stderr, done.stderr
    return Run(done.stdout, done.stderr, done.returncode)


def ended(run: Run, code: int) -> Run:
    """The run, if it ended with this exit code."""
    assert run.returncode == code, f"exit {run.returncode}: {run.stderr or run.stdout}"
    return run
