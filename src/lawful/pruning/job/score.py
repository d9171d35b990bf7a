"""In which order units leave.

`replaced`: the change of the outputs that is left *after* the units that stay have taken over what they can (block
optimal brain surgeon): `s_j = tr(A W_j [(G⁻¹)_jj]⁻¹ W_j')`, summed over readers, divided by what the removal saves. The
others (`magnitude`, `taylor`) are there to be compared with.

Invariant: after every removal `M = L' W` and `G⁻¹` of each reader are those of the network without the units that left,
so that a score is always about the units that stay. Cost: a removal is one rank-k update per reader (k columns of the
unit), O(n² k) with n features, and one small inverse for each unit that is left. Reference: Hassibi and Stork 1993 for
one weight, here for blocks of columns.

An order can be kept as a file, the *plan*: a job that was stopped, or is asked for another size, goes on from it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch

from lawful.errors import LawfulError
from lawful.formats.io.reading import naming, read_json
from lawful.formats.io.writing import write_bytes
from lawful.pruning.channels.weights import ChannelWeights
from lawful.pruning.job.least_squares import LayerStatistics
from lawful.pruning.job.network import RunnableProgram
from lawful.pruning.job.units import Costs, Sites
from lawful.types import Floats

Criterion = Literal["replaced", "magnitude", "taylor"]
# On the diagonal of G, relative to its mean: features that are sums of others on the calibration data are no sums of
# them elsewhere. The value that the comparison in the docs was run with; no other was tried.
RIDGE = 1e-4


@dataclass(frozen=True)
class Removal:
    """A unit in the order of removal, with its score per cost saved, and the share of the cost that is left after."""

    unit: int
    score: float
    left: float


def order_removals(
    sites: Sites,
    costs: Costs,
    state: ChannelWeights,
    statistics: Mapping[str, LayerStatistics],
    criterion: Criterion,
    until: float,
    taylor: Mapping[int, float] | None = None,
    tick: Callable[[str], None] = lambda said: None,
) -> list[Removal]:
    """Units from the least needed on, until a share of the cost is left; a site keeps one unit."""
    if criterion not in get_args(Criterion):
        raise LawfulError(f"units are scored by {', '.join(get_args(Criterion))}, not {criterion!r}")
    replaced = _Replaced(sites, state, statistics) if criterion == "replaced" else None
    if criterion == "magnitude":
        fixed = _magnitudes(sites, costs, state)
    else:
        fixed = np.array([(taylor or {}).get(number, 0.0) for number in range(len(sites.units))])
    left = [len(site.units) for site in sites.sites]
    alive = np.ones(len(sites.units), dtype=bool)
    order: list[Removal] = []
    while costs.now > until * costs.total:
        best: tuple[float, int] | None = None
        current = fixed if replaced is None else replaced.current()
        for number in np.flatnonzero(alive).tolist():
            if left[sites.units[number].site] > 1:
                # by magnitude units are compared inside their layers' own scale, which knows no cost
                saved = 1.0 if criterion == "magnitude" else costs.saved(number)
                value = float(current[number]) / max(saved, 1e-300)
                if best is None or value < best[0]:
                    best = value, number
        if best is None:
            break
        value, number = best
        alive[number] = False
        left[sites.units[number].site] -= 1
        costs.remove(number)
        if replaced is not None:
            replaced.remove(number)
        order.append(Removal(number, value, costs.now / costs.total))
        if len(order) % 50 == 0:
            tick(f"{len(order)} units ordered, {100 * costs.now / costs.total:.0f}% left")
    return order


class _Replaced:
    """Scores after replacement, kept up to date: each removal downdates W and G⁻¹ of the readers of its unit.

    With `A = L L'`, only `M = L' W` is kept: it is downdated like W, and `s_j = tr(M_j B_j M_j')`.
    """

    def __init__(
        self, sites: Sites, state: ChannelWeights, statistics: Mapping[str, LayerStatistics], ridge: float = RIDGE
    ) -> None:
        self.sites = sites
        self.inverse: dict[str, torch.Tensor] = {}
        self.mixed: dict[str, torch.Tensor] = {}
        self.columns: dict[str, dict[int, torch.Tensor]] = {weight: {} for weight in sites.readers}
        self.parts: dict[str, np.ndarray] = {}
        for weight, reader in sites.readers.items():
            known = statistics[weight]
            G = known.moments
            scale = float(G.diagonal()[:-1].mean())
            # a layer that reads only zeros has nothing to tell apart: any positive number keeps G invertible
            G = G + torch.eye(len(G), dtype=G.dtype) * (ridge * scale if scale > 0 else 1.0)
            self.inverse[weight] = torch.linalg.inv(G)
            W = torch.tensor(state.arrays[weight], dtype=torch.float64).reshape(len(state.arrays[weight]), -1)
            W = torch.cat([W, W.new_zeros(len(W), 1)], 1)
            values, vectors = torch.linalg.eigh(known.minded)
            positive = values > 1e-12 * max(float(values[-1]), 1e-300)
            self.mixed[weight] = (vectors[:, positive] * values[positive].sqrt()).T @ W
            for number, unit in enumerate(sites.units):
                if weight in unit.places:
                    at = torch.tensor(unit.places[weight])[:, None] * reader.taps + torch.arange(reader.taps)
                    self.columns[weight][number] = at.flatten()
            self._refresh(weight)

    def current(self) -> np.ndarray:
        """The score of every unit."""
        return np.sum(list(self.parts.values()), axis=0)  # type: ignore[no-any-return]

    def _refresh(self, weight: str) -> None:
        """Scores of all units that a reader has; those of one size are computed together."""
        scores = np.zeros(len(self.sites.units))
        sizes: dict[int, list[int]] = {}
        for number, at in self.columns[weight].items():
            sizes.setdefault(len(at), []).append(number)
        for numbers in sizes.values():
            at = torch.stack([self.columns[weight][number] for number in numbers])
            blocks = torch.linalg.inv(self.inverse[weight][at[:, :, None], at[:, None, :]])
            M = self.mixed[weight][:, at].transpose(0, 1)  # unit, direction, column
            scores[numbers] = ((M @ blocks) * M).sum((1, 2)).clamp(min=0).numpy()
        self.parts[weight] = scores

    def remove(self, unit: int) -> None:
        """Say what the others are worth without a unit."""
        for weight in self.sites.units[unit].places:
            at = self.columns[weight].pop(unit)
            inverse = self.inverse[weight]
            K = torch.linalg.solve(inverse[at][:, at], inverse[at])
            self.mixed[weight] -= self.mixed[weight][:, at] @ K
            self.mixed[weight][:, at] = 0
            inverse -= inverse[:, at] @ K
            inverse[at], inverse[:, at] = 0, 0
            inverse[at, at] = 1  # nobody asks for these any more, and the matrix stays invertible
            self._refresh(weight)


def _magnitudes(sites: Sites, costs: Costs, state: ChannelWeights) -> np.ndarray:
    """Squared norms of all rows and columns of a unit, relative to the mean of its site."""
    scores = np.zeros(len(sites.units))
    for operation in state.layers:
        weight = state.weight(operation)
        rows = (weight.reshape(len(weight), -1) ** 2).sum(1)
        columns = (np.moveaxis(weight, 1, 0).reshape(weight.shape[1], -1) ** 2).sum(1)
        by_cell: dict[int, float] = {}
        activations = state.program.activations
        for cells, sizes in ((activations[operation.name], rows), (activations[operation.sources[0]], columns)):
            for cell, size in zip(cells.tolist(), sizes.tolist(), strict=True):
                by_cell[int(cell)] = by_cell.get(int(cell), 0.0) + size
        for number, unit in enumerate(sites.units):
            scores[number] += sum(by_cell.get(cell, 0.0) for cell in unit.cells)
    for site in sites.sites:
        at = list(site.units)
        scores[at] /= max(float(scores[at].mean()), 1e-300)
    return scores


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
            {"unit": removal.unit, "name": plan.units[removal.unit], "score": removal.score, "left": removal.left}
            for removal in order
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
    order: list[Removal] = []
    try:
        for entry in entries:
            unit, score, left = entry["unit"], float(entry["score"]), float(entry["left"])
            if not isinstance(unit, int) or not 0 <= unit < len(plan.units) or plan.units[unit] != entry["name"]:
                raise ValueError
            order.append(Removal(unit, score, left))
    except (TypeError, KeyError, ValueError):
        raise LawfulError("has a removal that is no unit of this network") from None
    if len({removal.unit for removal in order}) != len(order):
        raise LawfulError("removes a unit twice")
    if order and order[-1].left > until and len(order) < len(plan.units) // 2:
        raise LawfulError("ends before the size that is asked for: remove it, or name another file")
    return order
