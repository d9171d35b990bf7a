"""The jobs that a sweep can run: each is one call of a public function, scalars in, a flat row out."""

from __future__ import annotations

import importlib
import inspect
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from lawful.errors import LawfulError
from lawful.study.sweep.plan import Task

Row = Mapping[str, Any]


def claim(id: str, full: bool = False, figures: str = "") -> Row:
    """Run one claim of the papers; its figure goes to the folder `figures`, if given."""
    from lawful.report.figure import save
    from lawful.study.claims import find

    found = find(id)
    outcome = found.run(full)
    if figures and outcome.figure is not None:
        save(outcome.figure, Path(figures) / f"{id}.svg")
    return {
        "paper": found.paper,
        "reference": found.reference,
        "verdict": found.verdict(outcome).value,
        **{f"measured.{name}": value for name, value in outcome.measured.items()},
    }


JOBS: dict[str, Callable[..., Row]] = {"claim": claim}


def find_job(name: str) -> Callable[..., Row]:
    """A job of ours by name, or a user's own as `module:function` (the current folder counts)."""
    if name in JOBS:
        return JOBS[name]
    where, _, function = name.partition(":")
    if not function:
        raise LawfulError(f"no job is called {name[:60]!r}: choose from {', '.join(JOBS)}, or give module:function")
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        found = getattr(importlib.import_module(where), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise LawfulError(f"cannot import the job {name[:60]}: {error}") from None
    if not callable(found):
        raise LawfulError(f"{name[:60]} is not a function")
    return found  # type: ignore[no-any-return]


def check_inputs(job: str, names: Sequence[str]) -> None:
    """Refuse a sweep whose parameters the job does not take, before anything runs."""
    signature = inspect.signature(find_job(job))
    try:
        signature.bind(**dict.fromkeys(names))
    except TypeError as error:
        raise LawfulError(f"job {job} takes {', '.join(signature.parameters)}: {error}") from None


def run_task(task: Task) -> dict[str, Any]:
    """Call the job; its row holds JSON's own types, so that it is the same wherever it ran."""
    row = find_job(task.job)(**task.inputs)
    if not isinstance(row, Mapping):
        raise LawfulError(f"job {task.job} returned a {type(row).__name__}, not a mapping of names to values")
    return {str(name): _plain(value) for name, value in row.items()}


def _plain(value: Any) -> Any:
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, (bool, int, str)) else str(value)
