"""The atlas in Markdown: which architectures were counted, how many laws they have, where the closed form fails."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from lawful.errors import LawfulError

Row = Any  # a finished call of the job `count_laws`
VERDICTS = ("architectures", "somewhere", "nowhere", "open", "usual")
FACTS = ("architecture", "parameters", "laws", "predicted")
MOST_LISTED = 100
NAME = re.compile(r"[0-9]{1,9}(-[0-9]{1,9})+( .*)?")


@dataclass
class AtlasCell:
    """What is known of a group of architectures."""

    architectures: int = 0
    laws: list[int] = field(default_factory=list)  # the fewest and the most
    proved: int = 0
    agree: int = 0
    exceptions: int = 0

    def add(self, outputs: dict[str, Any]) -> None:
        """One more architecture."""
        self.architectures += 1
        self.laws = [min([*self.laws, outputs["laws"]]), max([*self.laws, outputs["laws"]])]
        self.proved += outputs["status"] == "proved"
        self.agree += outputs["matches"] is True
        self.exceptions += outputs["matches"] is False

    @property
    def range(self) -> str:
        """The fewest and the most laws."""
        return "–".join(str(laws) for laws in dict.fromkeys(self.laws))


def _check(row: Row) -> None:
    """Refuse a row of a damaged store."""
    name, outputs = row.inputs.get("architecture"), row.outputs
    counts = all(type(outputs.get(key)) is int for key in ("parameters", "laws"))
    if not (counts and {"status", "matches", "predicted"} <= set(outputs) and NAME.fullmatch(str(name))):
        raise LawfulError(f"the store is damaged: the call {row.key[:40]!r} is not a count of laws")


def atlas(rows: Iterable[Row], planned: int) -> str:
    """The summary as a Markdown page; `planned` is the number of rows of the whole sweep."""
    by_depth: dict[tuple[str, int], AtlasCell] = defaultdict(AtlasCell)
    by_size: dict[int, dict[str, AtlasCell]] = defaultdict(lambda: defaultdict(AtlasCell))
    exceptions: list[tuple[Any, ...]] = []
    unproved: list[tuple[Any, ...]] = []
    versions, halved = set(), True
    for row in rows:
        if row.status != "ok":
            continue
        _check(row)
        name = row.inputs["architecture"]
        widths, _, kind = name.partition(" ")
        versions.add(row.version)
        numbers = [int(width) for width in widths.split("-")]
        halved &= kind.endswith("bias") or numbers <= numbers[::-1]
        by_depth[kind, widths.count("-")].add(row.outputs)
        by_size[row.outputs["parameters"]][kind].add(row.outputs)
        facts = (f"`{name}`", row.outputs["parameters"], row.outputs["laws"], row.outputs["predicted"])
        if row.outputs["matches"] is False:
            exceptions.append((*facts, row.outputs["status"]))
        elif row.outputs["status"] != "proved":
            unproved = sorted([*unproved, facts], key=lambda found: found[1])[:10]
    kinds = list(dict.fromkeys(kind for kind, _ in by_depth))
    total = sum(cell.architectures for cell in by_depth.values())
    words = [
        f"The laws of {total:,} architectures, counted and compared with the closed form "
        "(`lawful.conservation.theorems`).",
        f"{len(exceptions)} exceptions." if exceptions else "No exception.",
        f"**Unfinished: {planned - total:,} are missing.**" if total < planned else "",
        "Of a network without biases and its transpose, which have the same laws, only one is here." if halved else "",
        f"Made by `lawful sweep report DIR --markdown FILE`, version {', '.join(sorted(versions))}.",
    ]
    parts = [
        "# Atlas",
        " ".join(filter(None, words)),
        "*Proved*: explicit laws, and those of parts that pass one number on (flow box theorem), meet the bound that "
        "brackets give. For ReLU networks these are the laws of φ: whether training near given weights has more is "
        "another question ([laws](laws.md)).",
        _table(
            ("networks", "depth", "architectures", "laws", "proved", "as predicted", "exceptions"),
            [
                (kind, depth, cell.architectures, cell.range, cell.proved, cell.agree, cell.exceptions)
                for (kind, depth), cell in by_depth.items()
            ],
        ),
    ]
    if exceptions:
        parts += ["## Exceptions", _table((*FACTS, "status"), exceptions[:MOST_LISTED])]
    if unproved:
        parts += ["## The smallest that are not proved", _table(FACTS, unproved)]
    lines = [
        (size, *(text for kind in kinds for text in (cells[kind].architectures, cells[kind].range)))
        for size, cells in sorted(by_size.items())
    ]
    heads = [text for kind in kinds for text in (kind, "laws")]
    return "\n\n".join([*parts, "## By number of parameters", _table(("parameters", *heads), lines)]) + "\n"


def training_atlas(rows: Iterable[Row], planned: int) -> str:
    """Where the laws of φ are all laws of training: a Markdown page of a sweep of `training_laws`."""
    groups: dict[tuple[str, int], list[dict[str, Any]]] = defaultdict(list)
    open_: list[tuple[Any, ...]] = []
    largest, versions = 0, set()
    for row in rows:
        if row.status != "ok":
            continue
        name, outputs = str(row.inputs.get("architecture")), row.outputs
        if type(outputs.get("laws")) is not int or not {"witness", "least"} <= set(outputs) or not NAME.fullmatch(name):
            raise LawfulError(f"the store is damaged: the call {row.key[:40]!r} is not a count of laws of training")
        widths, _, kind = name.partition(" ")
        groups[kind, widths.count("-")].append(outputs)
        largest = max(largest, outputs["parameters"])
        versions.add(row.version)
        if not outputs["witness"] and not _nowhere(outputs):
            open_.append((f"`{name}`", outputs["parameters"], outputs["laws"], outputs["fewest"]))
    total = sum(map(len, groups.values()))
    missing = f" **Unfinished: {planned - total:,} are missing.**" if total < planned else ""
    parts = [
        "# Do the laws of φ suffice?",
        f"{total:,} ReLU networks of up to {largest} parameters.{missing} *Somewhere*: rational weights were found "
        "near which exactly the laws of φ are left, which proves them complete on an open set. *Nowhere*: near almost "
        "every weight vector there are more. *Open*: no such weights were found by the search, which proves nothing. "
        "*Usual*: the share of PyTorch's default initialisations near which exactly the laws of φ are left. "
        "Made by `lawful sweep report DIR --markdown FILE` of a sweep of `training_laws`, version "
        f"{', '.join(sorted(versions))}.",
        _table(
            ("networks", "depth", *VERDICTS),
            [(kind, depth, *_verdicts(found)) for (kind, depth), found in sorted(groups.items())],
        ),
        "Where the answer is *nowhere*, gates are bound whatever the weights: there is one input and no bias, or a "
        "ReLU layer of width 1 with no biases after it ([laws](laws.md)).",
    ]
    if open_:
        parts += ["## Open", _table(("architecture", "parameters", "laws of φ", "fewest seen"), open_[:MOST_LISTED])]
    by_size: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for outputs in (outputs for found in groups.values() for outputs in found):
        by_size[outputs["parameters"]].append(outputs)
    lines = [(size, *_verdicts(found)) for size, found in sorted(by_size.items())]
    parts += ["## By number of parameters", _table(("parameters", *VERDICTS), lines)]
    return "\n\n".join(parts) + "\n"


def _verdicts(found: list[dict[str, Any]]) -> tuple[Any, ...]:
    """How many there are, how many of them are decided which way, and how often the laws of φ usually suffice."""
    yes, no = sum(bool(one["witness"]) for one in found), sum(_nowhere(one) for one in found)
    usual = sum(one["usual"] or 0.0 for one in found) / len(found)
    return len(found), yes, no, len(found) - yes - no, f"{usual:.0%}"


def _nowhere(outputs: dict[str, Any]) -> bool:
    """Whether explicit laws prove that near all weights there are more than those of φ."""
    return outputs["least"] is not None and outputs["least"] > outputs["laws"]


def _table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)
