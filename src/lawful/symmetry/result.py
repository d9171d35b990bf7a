"""The answer: hidden spaces with their groups, the laws they give, dead parameters, and what was not understood."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import torch

from lawful.result import Shown
from lawful.symmetry.laws.families import Parameters, SpaceLaws
from lawful.types import Floats

Mode = Literal["train", "eval"]


@dataclass(frozen=True, eq=False)
class Space:
    """A hidden space and the group that acts on it.

    `group` is `GL(m)`, `O(m)`, `scales` (one positive number for each coordinate) or `shifts` (constant directions);
    `roles` says how: for each parameter, along which of its axes.
    """

    name: str
    size: int
    group: str
    dimension: int
    roles: tuple[str, ...]
    laws: SpaceLaws | None

    @property
    def parameters(self) -> tuple[str, ...]:
        """The parameters it acts on."""
        return tuple(dict.fromkeys(role.split(" ")[0] for role in self.roles))

    @property
    def count(self) -> int:
        """How many independent laws it gives."""
        return 0 if self.laws is None else self.laws.count


@dataclass(frozen=True)
class Dead:
    """Entries of a parameter that training never moves: no loss sees them (or the graph never reads them)."""

    parameter: str
    entries: int
    of: int
    unused: bool


@dataclass(frozen=True)
class Pinned:
    """An operation without a rule: the spaces it touches were taken to have no symmetry."""

    operation: str
    calls: int
    parameters: tuple[str, ...]
    share: float


@dataclass(frozen=True)
class SymmetryCheck:
    """Largest `|⟨∇⟨w, f(x)⟩, ρ(X)θ⟩|` over all generators X, relative to the sum of its terms' sizes."""

    points: int
    worst: float
    tolerance: float


@dataclass(frozen=True, eq=False)
class Symmetries(Shown):
    """What acts on the parameters of a module without changing its function, and what training therefore conserves.

    A subgroup of all symmetries: everything stated is true, and what was not understood is in `pinned`.
    """

    parameters: int
    spaces: tuple[Space, ...]
    dead: tuple[Dead, ...]
    pinned: tuple[Pinned, ...]
    mode: Mode
    log10_discrete: float
    noted: str
    shapes: Mapping[str, tuple[int, ...]]
    checked: SymmetryCheck | None = None

    @cached_property
    def laws(self) -> StructuralLaws:
        """All explicit laws."""
        families = tuple(space.laws for space in self.spaces if space.laws is not None and space.laws.count)
        unused = tuple((part.parameter, part.entries) for part in self.dead if part.unused)
        return StructuralLaws(families, unused, self.shapes)

    @property
    def dimension(self) -> int:
        """Dimension of the continuous group."""
        return sum(space.dimension for space in self.spaces) + sum(part.entries for part in self.dead if part.unused)


@dataclass(frozen=True, eq=False)
class StructuralLaws:
    """The laws of all spaces: how many are independent, their values and derivatives at any parameters, in float64.

    A parameter that training never sees conserves each of its entries; `unused` counts those.
    """

    families: tuple[SpaceLaws, ...]
    unused: tuple[tuple[str, int], ...]
    shapes: Mapping[str, tuple[int, ...]]

    def __len__(self) -> int:
        return sum(family.count for family in self.families) + sum(count for _, count in self.unused)

    def stream(self, theta: Parameters) -> Iterator[tuple[SpaceLaws, Floats]]:
        """SpaceLaws by family, the values at θ."""
        for family in self.families:
            yield family, family.values(theta)

    def values(self, theta: Parameters) -> Floats:
        """All values at θ (a mapping from names to tensors): families in order, then unused entries."""
        parts = [result for _, result in self.stream(theta)]
        parts += [theta[name].detach().double().cpu().reshape(-1).numpy() for name, _ in self.unused]
        return np.concatenate(parts) if parts else np.zeros(0)

    def along(self, theta: Parameters, step: Parameters) -> Floats:
        """Derivatives of all laws at θ along a step: zero for every gradient of the module."""
        parts = [family.along(theta, step) for family in self.families]
        parts += [step[name].detach().double().cpu().reshape(-1).numpy() for name, _ in self.unused]
        return np.concatenate(parts) if parts else np.zeros(0)

    def gradients(self, theta: Parameters) -> Floats:
        """All gradients at θ, a row each, over the parameters in the order of `shapes`: for small modules."""
        rows: list[Floats] = []
        for family in self.families:
            for weights in np.eye(len(family.values(theta))):
                rows.append(self._flat(dict_sum(family.pull(theta, weights))))
        for name, _ in self.unused:
            for place in range(int(np.prod(self.shapes[name], dtype=int))):
                unit = torch.zeros(int(np.prod(self.shapes[name], dtype=int)), dtype=torch.float64)
                unit[place] = 1.0
                rows.append(self._flat({name: unit}))
        size = sum(int(np.prod(shape, dtype=int)) for shape in self.shapes.values())
        return np.array(rows).reshape(-1, size)

    def _flat(self, pieces: Mapping[str, torch.Tensor]) -> Floats:
        parts = [
            pieces[name].reshape(-1).numpy() if name in pieces else np.zeros(int(np.prod(shape, dtype=int)))
            for name, shape in self.shapes.items()
        ]
        return np.concatenate(parts)


def dict_sum(pieces: Iterator[tuple[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    """Pieces of a gradient added up by parameter."""
    result: dict[str, torch.Tensor] = {}
    for name, piece in pieces:
        result[name] = result[name] + piece if name in result else piece
    return result
