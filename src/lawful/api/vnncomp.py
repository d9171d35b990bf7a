"""Instances files of VNN-COMP: which network, which specification, how many seconds; and what was found of each."""

from __future__ import annotations

import ast
import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

from lawful.errors import LawfulError
from lawful.formats.io.reading import read_text

if TYPE_CHECKING:
    from lawful.bounds.property import PropertyCheck
    from lawful.formats.queries.joint_specification import JointSpecification

COLUMNS = "network, specification and seconds"
ANSWERS = ("sat", "unsat", "timeout", "error")


@dataclass(frozen=True)
class CompetitionInstance:
    """One line of an instances file; paths as written there, and the files that they name."""

    network: str
    specification: str
    seconds: float
    folder: Path

    @property
    def networks(self) -> list[tuple[str | None, str]]:
        """Names and paths: a line about several networks lists them as `[('f', 'a.onnx'), ('g', 'b.onnx')]`."""
        if not self.network.startswith("["):
            return [(None, self.network)]
        try:
            listed = ast.literal_eval(self.network)
            return [(str(name), str(path)) for name, path in listed]
        except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
            raise LawfulError(f"{self.network[:60]!r} is no list such as [('f', 'a.onnx'), ('g', 'b.onnx')]") from None

    def file(self, name: str) -> Path:
        """The file that a path names, or the same with `.gz`: the repositories pack theirs."""
        path = self.folder / name
        packed = path.with_name(path.name + ".gz")
        return path if path.exists() or not packed.exists() else packed


@dataclass(frozen=True)
class InstanceResult:
    """What was found of an instance; `recheck_seconds` is −1 where there was no certificate to re-check."""

    network: str
    specification: str
    result: str
    seconds: float
    boxes: int
    certificate_bytes: int = 0
    recheck_seconds: float = -1.0
    note: str = ""

    @property
    def key(self) -> tuple[str, str]:
        """Which instance it is about."""
        return self.network, self.specification


def read_instances(path: Path) -> list[CompetitionInstance]:
    """The lines of an instances file."""
    instances = []
    for number, row in enumerate(csv.reader(io.StringIO(read_text(path))), 1):
        if not row or not any(cell.strip() for cell in row):
            continue
        if len(row) != 3:
            raise LawfulError(f"{path}: line {number} has {len(row)} columns: an instances file has {COLUMNS}")
        network, specification, limit = (cell.strip() for cell in row)
        try:
            seconds = float(limit)
        except ValueError:
            seconds = -1.0
        if not 0 < seconds < 1e7:
            raise LawfulError(f"{path}: line {number} gives {limit[:20]!r} seconds")
        instances.append(CompetitionInstance(network, specification, seconds, path.parent))
    if not instances:
        raise LawfulError(f"{path}: no instances: each line has {COLUMNS}")
    return instances


def read_results(path: Path) -> list[InstanceResult]:
    """What an earlier run has found; nothing if there was none."""
    if not path.exists():
        return []
    names = [field.name for field in fields(InstanceResult)]
    rows = list(csv.reader(io.StringIO(read_text(path))))
    if not rows or rows[0] != names:
        raise LawfulError(f"{path}: exists, and is no table of results: give another --out")
    results = []
    for row in rows[1:]:
        if len(row) == len(names) and row[2] in ANSWERS:
            network, specification, result, seconds, boxes, size, recheck, note = row
            results.append(
                InstanceResult(
                    network, specification, result, float(seconds), int(boxes), int(size), float(recheck), note
                )
            )
    return results


def results_text(results: Iterable[InstanceResult]) -> str:
    """The table of results as CSV."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([field.name for field in fields(InstanceResult)])
    writer.writerows(asdict(result).values() for result in results)
    return out.getvalue()


def summary(instances: Sequence[CompetitionInstance], results: Sequence[InstanceResult]) -> dict[str, int | float]:
    """Counts over all instances of a file."""
    count = {word: sum(result.result == word for result in results) for word in ANSWERS}
    rechecked = [result for result in results if result.recheck_seconds >= 0]
    return {
        "instances": len(instances),
        **count,
        "open": len(instances) - len(results),
        "certified": len(rechecked),
        "seconds": sum(result.seconds for result in results),
        "recheck_seconds": sum(result.recheck_seconds for result in rechecked),
    }


def competition_text(found: PropertyCheck, question: JointSpecification | None = None) -> str:
    """The result as VNN-COMP wants it: a word, and the input and its outputs if it is *sat*.

    Of several networks every tensor is written with its own name.
    """
    word = {"holds": "unsat", "violated": "sat", "undecided": "timeout"}[found.status]
    if found.input is None or found.outputs is None:
        return f"{word}\n"
    if question is None:
        values = {f"X_{place}": float(value) for place, value in enumerate(found.input)}
        values |= {f"Y_{place}": float(value) for place, value in enumerate(found.outputs)}
    else:
        values = {
            str(variable): float((found.input if variable in question.input_places else found.outputs)[place])
            for variable, place in question.places.items()
        }
    pairs = [f"({name} {value!r})" for name, value in values.items()]
    return f"{word}\n(" + "\n ".join(pairs) + ")\n"
