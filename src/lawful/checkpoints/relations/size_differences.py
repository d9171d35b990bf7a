"""Two checkpoints of different architectures: in which sizes these differ, and how far apart what corresponds is."""

from __future__ import annotations

from dataclasses import dataclass

from lawful.checkpoints.architecture import CheckpointArchitecture
from lawful.checkpoints.group.spaces import GroupedUnits, HeadSpace, HiddenSpace
from lawful.checkpoints.opening import ApartPair
from lawful.result import Shown


@dataclass(frozen=True)
class OtherSize:
    """A hidden space or a tensor that has other sizes in A and in B."""

    name: str
    first: tuple[int, ...]
    second: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Correspondence(Shown):
    """Sizes that differ, tensors that only one has, and of those with one name and one size the distance as stored."""

    reason: str
    spaces: tuple[OtherSize, ...]
    tensors: tuple[OtherSize, ...]
    only_first: tuple[str, ...]
    only_second: tuple[str, ...]
    common: tuple[tuple[str, float], ...]  # ‖B − A‖ relative to the larger of both


def corresponding(pair: ApartPair) -> Correspondence:
    """Compare by names, without alignment."""
    one, two = pair.first.state, pair.second.state
    sizes = [_sizes(each) for each in pair.architectures]
    common = []
    for name in one:
        if name in two and one[name].shape == two[name].shape and one[name].is_floating_point():
            left, right = one[name].double(), two[name].double()
            largest = max(float(left.norm()), float(right.norm()))
            common.append((name, float((left - right).norm()) / largest if largest else 0.0))
    return Correspondence(
        pair.reason,
        tuple(OtherSize(name, (size,), (sizes[1][name],)) for name, size in sizes[0].items()
              if sizes[1].get(name, size) != size),
        tuple(OtherSize(name, tuple(one[name].shape), tuple(two[name].shape)) for name in one
              if name in two and one[name].shape != two[name].shape),
        tuple(name for name in one if name not in two),
        tuple(name for name in two if name not in one),
        tuple(common),
    )  # fmt: skip


def _sizes(architecture: CheckpointArchitecture) -> dict[str, int]:
    return {space.name: _size(space) for space in architecture.group.spaces}


def _size(space: HiddenSpace) -> int:
    if isinstance(space, HeadSpace):
        return len(space.heads)
    return space.slots[0].size if isinstance(space, GroupedUnits) else space.size
