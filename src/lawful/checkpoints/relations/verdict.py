"""One answer from both tests: related, alike, no relation found, or undecided.

Only the test of places says that two checkpoints are related: its null holds for every network whose start was drawn at
random, on whatever data it was trained. Likeness after alignment is no evidence of kinship, however large: networks
that learn from a teacher of their own size find its weights again, from any start (`benchmarks/lineage.py`). So a
relative in other coordinates is *alike*, and undecided.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Literal

import numpy as np
import torch

from lawful.checkpoints.group.axis_actions import frames, move_tensors
from lawful.checkpoints.group.spaces import OrbitGroup, UnitSpace
from lawful.checkpoints.relations.statistics import (
    HeldOutTensor,
    PlacesTest,
    compare_held_out,
    compare_places,
    deviation_tail,
    paired_places_tail,
    places_tail,
)
from lawful.outward import at_most
from lawful.sentences import checkpoints as sentences
from lawful.sentences.checkpoints import Relation

Found = Literal["related", "shared", "places", "alike", "none", "undecided"]
Tensors = Mapping[str, torch.Tensor]

# One test decides for each pair, so one level is enough: with a million pairs of strangers one is expected to fail.
# Measured by `benchmarks/lineage.py` (21 recipes, widths from 8 to 256): of 548 pairs trained apart none was called
# related, and of 147 modified models 129 were found and none was called a stranger.
LEVEL = 1e-6
# If units were started in pairs (antisymmetric starts), the chance is larger; it may be this at most.
PAIRED = 1e-4
# Units that were put into the order of another file stand in place too. Then the weights have to agree as well: in what
# was left out of the alignment, or by a distance below those of networks trained apart once they are aligned (0.44 and
# more where the task leaves any choice).
CONFIRMED = 1e-3
CLOSE = 0.3
NEAR = 0.15  # relative distance of what is called fine-tuned: a word for how far, which decides no relation
# *No relation found* needs a median distance of FAR and no cosine of UNLIKE, since a relative that was moved by a
# symmetry has no units in place: nearer than that the benchmark has both relatives and networks trained apart.
FAR, UNLIKE = 0.5, 0.6


@dataclass(frozen=True)
class Lineage:
    """What the tests found, in numbers; `apart` is the median distance of weight matrices after alignment."""

    found: Found
    reason: str
    places: PlacesTest
    held_out: tuple[HeldOutTensor, ...]
    shared: tuple[str, ...]
    apart: float

    level: float = LEVEL

    @property
    def is_related(self) -> bool:
        """Whether a relation was established."""
        return self.found in ("related", "shared")

    @property
    def is_alike(self) -> bool:
        """Whether a symmetry brings the weights of one near those of the other, whatever the reason is."""
        return self.found == "alike" or self.apart <= CLOSE

    @property
    def relation(self) -> Relation:
        """Near relatives were fine-tuned; of others nothing more is told."""
        if self.is_related:
            return "child" if self.apart < NEAR else "relative"
        return "stranger" if self.found == "none" else "undecided"

    @property
    def p_value(self) -> float | None:
        """Of the units in place, for networks trained apart; None if no units can be compared."""
        return self.places.p_value if self.places.units else None

    @property
    def effect(self) -> float | None:
        """The share of units in place."""
        return self.places.share if self.places.units else None

    @property
    def deviation(self) -> float | None:
        """The largest deviation of a tensor that was left out, in its bulk."""
        return max((tensor.deviation for tensor in self.held_out if tensor.deviation is not None), default=None)


def trace_lineage(
    group: OrbitGroup,
    one: Tensors,
    two: Tensors,
    *,
    apart: float | None = None,
    fitting: Collection[str] = (),
    seed: int = 0,
) -> Lineage:
    """Test two checkpoints in one form. `apart` is the distance after alignment, if it is known, and `fitting` the
    tensors that are the same then, up to the rounding of stored numbers."""
    places = compare_places(group, one, two, seed=seed)
    held_out = compare_held_out(group, one, two, seed=seed)
    if apart is None:
        apart = _distance(group, one, two, places)
    shared, share = _shared_matrices(group, one, two, fitting)
    outcome, reason = _judge(places, held_out, shared, share, apart)
    return Lineage(outcome, reason, places, held_out, shared, apart)


def _judge(
    places: PlacesTest, held_out: tuple[HeldOutTensor, ...], shared: tuple[str, ...], share: float, apart: float
) -> tuple[Found, str]:
    seen = places.in_place, places.units, places.p_value
    deviations = [tensor.deviation for tensor in held_out if tensor.deviation is not None]
    p_value = min((tensor.p_value for tensor in held_out), default=1.0) * max(len(held_out), 1)
    # Rows of different tensors are permuted independently: deviations of all together count more than the largest.
    together = sum(deviations) / len(deviations) ** 0.5 if deviations else 0.0
    units = min((tensor.units for tensor in held_out), default=1)
    close = apart <= CLOSE
    if places.p_value <= LEVEL and places.paired_p_value <= PAIRED:
        if close or min(p_value, deviation_tail(together, units)) <= CONFIRMED:
            return "related", sentences.related(*seen)
        return "places", sentences.places(*seen)
    if shared and share >= 0.5:
        return "shared", sentences.shared(shared, share)
    if close or p_value <= LEVEL:
        return "alike", sentences.alike(apart, max(deviations) if p_value <= LEVEL else None)
    words = f"{places.in_place} of {places.units} hidden units stand in place (p = {places.p_value:.2g})"
    if places.left_out:
        words += f", {', '.join(places.left_out[:4])} left out: places mean something there in both files"
    if places_tail(places.units, places.spaces) > LEVEL or paired_places_tail(places.units, places.spaces) > PAIRED:
        return "undecided", f"{words}: too few units to tell a relative from networks trained apart"
    cosine = max((tensor.cosine for tensor in held_out), default=0.0)
    if apart < FAR or cosine >= UNLIKE:
        return "undecided", (
            f"{words}; after alignment the median weight matrix is {apart:.2g} of its size apart and what was left out "
            f"has a cosine of up to {at_most(cosine, 2)}: networks trained apart on one task may have both, and so may "
            "relatives in other coordinates"
        )
    if shared:
        return "undecided", f"{words}; but A and B share {', '.join(shared[:4])}"
    return "none", sentences.no_relation(*seen, apart)


def _shared_matrices(
    group: OrbitGroup, one: Tensors, two: Tensors, fitting: Collection[str]
) -> tuple[tuple[str, ...], float]:
    """The matrices that are the same in both, and their share of all numbers in matrices of hidden units.

    Tables of tokens may be given to both, and constants (zeros, an identity) are no evidence: most numbers have to be
    different ones.
    """
    of_units = {
        rows.tensor
        for space in group.spaces
        if isinstance(space, UnitSpace) and space.permutes
        for rows in space.members
        if len(group.shapes[rows.tensor]) > 1
    }
    matrices = [name for name, shape in group.shapes.items() if len(shape) > 1]
    same = [name for name in matrices
            if (name in fitting or torch.equal(one[name], two[name])) and _is_generic(one[name])]  # fmt: skip
    total = sum(one[name].numel() for name in of_units)
    return tuple(same), sum(one[name].numel() for name in same if name in of_units) / total if total else 0.0


def _is_generic(tensor: torch.Tensor) -> bool:
    return 2 * len(torch.unique(tensor.abs())) > tensor.numel()


def _distance(group: OrbitGroup, one: Tensors, two: Tensors, places: PlacesTest) -> float:
    """The median relative distance of matrices, stored or aligned, whichever is nearer."""
    acting = frames(group, places.moves)
    names = [name for name, shape in group.shapes.items() if int(np.prod(shape, dtype=int)) > max(shape, default=0)]
    distances = []
    for name in names:
        size = float(one[name].norm())
        away = min(
            float((candidate - one[name]).norm()) for candidate in (two[name], move_tensors(two, acting, [name])[name])
        )
        distances.append(away / size if size else float("inf") if away else 0.0)
    return median(distances) if distances else float("inf")
