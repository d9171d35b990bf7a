"""The order in which units leave, as a file: a job that was stopped, or is asked for another size, goes on from it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lawful.errors import LawfulError
from lawful.formats.io.reading import naming, read_json
from lawful.formats.io.writing import write_bytes
from lawful.pruning.job.network import RunnableProgram
from lawful.pruning.job.score import Removal
from lawful.pruning.job.units import Sites
from lawful.types import Floats

KIND = "pruning plan"


@dataclass(frozen=True)
class RemovalPlan:
    """What an order is about: it holds for this network, these samples, this score and this cost only."""

    network: str
    data: str
    cost: str
    criterion: str
    units: tuple[str, ...]

    @classmethod
    def of(cls, network: RunnableProgram, sites: Sites, x: Floats, cost: str, criterion: str, seed: int) -> RemovalPlan:
        """Digests of the program and its numbers, and of the samples in their order."""
        whole = hashlib.sha256(network.program.digest().encode())
        for name in sorted(network.tensors):
            whole.update(name.encode() + network.tensors[name].numpy().tobytes())
        data = hashlib.sha256(np.ascontiguousarray(x).tobytes() + str(seed).encode())
        return cls(whole.hexdigest(), data.hexdigest(), cost, criterion, tuple(unit.name for unit in sites.units))


def write_plan(path: Path, plan: RemovalPlan, order: Sequence[Removal]) -> None:
    """Every removal: its unit by number and name, its score, and the share of the cost that is left after it."""
    content = {
        "kind": KIND, "network": plan.network, "data": plan.data, "cost": plan.cost, "criterion": plan.criterion,
        "order": [
            {"unit": each.unit, "name": plan.units[each.unit], "score": each.score, "left": each.left} for each in order
        ],
    }  # fmt: skip
    write_bytes(path, (json.dumps(content, indent=1) + "\n").encode())


def read_plan(path: Path, plan: RemovalPlan, until: float) -> list[Removal] | None:
    """The order of a plan about the same question, None without a file; it must reach the share that is wanted."""
    if not path.exists():
        return None
    with naming(path):
        content: Any = read_json(path)
        if not isinstance(content, dict) or content.get("kind") != KIND:
            raise LawfulError("is no plan of a pruning")
        for name in ("network", "data", "cost", "criterion"):
            if content.get(name) != getattr(plan, name):
                raise LawfulError(f"is a plan for another {name}: remove it, or name another file")
        return _removals(content.get("order"), plan, until)


def _removals(entries: Any, plan: RemovalPlan, until: float) -> list[Removal]:
    found: list[Removal] = []
    try:
        for entry in entries:
            unit, score, left = entry["unit"], float(entry["score"]), float(entry["left"])
            if not isinstance(unit, int) or not 0 <= unit < len(plan.units) or plan.units[unit] != entry["name"]:
                raise ValueError
            found.append(Removal(unit, score, left))
    except (TypeError, KeyError, ValueError):
        raise LawfulError("has a removal that is no unit of this network") from None
    if len({each.unit for each in found}) != len(found):
        raise LawfulError("removes a unit twice")
    if found and found[-1].left > until and len(found) < len(plan.units) // 2:
        raise LawfulError("ends before the size that is asked for: remove it, or name another file")
    return found
