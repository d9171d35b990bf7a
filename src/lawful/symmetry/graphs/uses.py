"""How the graph reads a parameter: as the weight of a product, in groups, as a stack of matrices."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import torch
from torch import fx

from lawful.program.frontends.export import operator_name
from lawful.symmetry.graphs.motion import Shape, index_fields
from lawful.symmetry.labels import compact, varying

CONVOLUTIONS = {"conv1d": 6, "conv2d": 6, "conv3d": 6, "conv_transpose1d": 6, "conv_transpose2d": 6,
                "conv_transpose3d": 6, "convolution": 8}  # where the number of groups stands  # fmt: skip
PRODUCTS = {"linear", "matmul", "mm", "bmm", "addmm", "baddbmm", *CONVOLUTIONS}
STACKED = {"matmul", "bmm", "baddbmm", "_grouped_mm", "grouped_mm_fallback"}  # products with a stack of matrices
MATRICES = PRODUCTS - set(CONVOLUTIONS)
IN_ORDER = {"view", "reshape", "_unsafe_view", "squeeze", "unsqueeze", "flatten", "unflatten", "contiguous", "clone",
            "to", "_to_copy"}  # entries stay one after the other  # fmt: skip
MOVES = {"t", "transpose", "permute", "numpy_T", "mT", "view", "reshape", "contiguous", "clone", "to", "_to_copy",
         "unsqueeze", "squeeze", "flatten", "unflatten", "_unsafe_view"}  # fmt: skip


def uses_of(node: fx.Node) -> Iterable[str]:
    """Names of the operations that read a value, looking through those that only move its entries."""
    for user in node.users:
        if user.op == "call_function":
            name = operator_name(user.target)
            if name in MOVES:
                yield from uses_of(user)
            else:
                yield name


def groups_of(weight: fx.Node, shape: Shape) -> int:
    """The most groups of a convolution that reads this weight in its own shape, whatever shapes it had in between."""
    found = 1
    for user in weight.users:
        name = operator_name(user.target)
        place = CONVOLUTIONS.get(name)
        if name in IN_ORDER:
            found = max(found, groups_of(user, shape))
        elif place is not None and user.args[1] is weight and tuple(weight.meta["val"].shape) == tuple(shape):
            given = user.args[place] if len(user.args) > place else user.kwargs.get("groups", 1)
            found = max(found, int(given))  # type: ignore[arg-type]
    return found


def matrix_sides(node: fx.Node, shape: Shape) -> tuple[tuple[int, ...], ...] | None:
    """The axes of a parameter along the two sides of the one matrix that it is read as; (d, h, k) as d × (h, k).

    None if it is read otherwise, or in several ways.
    """
    found = set()
    for name, indices in _readings(node, index_fields(shape)):
        last = indices[0].dim() - 1
        along = [[axis for axis, index in enumerate(indices) if d in varying(index)] for d in range(last + 1)]
        whole = name in MATRICES and last > 0 and not any(along[: last - 1])
        found.add(tuple(sorted((tuple(along[last - 1]), tuple(along[last])))) if whole else ())
    sides = found.pop() if len(found) == 1 else ()
    parted = sorted(axis for side in sides for axis in side) == [axis for axis, size in enumerate(shape) if size > 1]
    return sides if sides and parted and all(sides) else None


def _readings(node: fx.Node, indices: Sequence[torch.Tensor]) -> Iterator[tuple[str, Sequence[torch.Tensor]]]:
    """Names of the operations that read a parameter, and its index fields as they see them."""
    for user in node.users:
        name = operator_name(user.target)
        if user.op == "call_function" and name in MOVES:
            yield from _readings(user, [compact(_moved(user, name, index)) for index in indices])
        else:
            yield name, indices


def _moved(call: fx.Node, name: str, index: torch.Tensor) -> torch.Tensor:
    """What a call that only moves entries makes of an index field."""
    if name in ("contiguous", "clone", "to", "_to_copy"):
        return index
    if name in ("view", "reshape", "_unsafe_view"):
        return index.reshape(call.meta["val"].shape)
    found: torch.Tensor = call.target(index, *call.args[1:])  # type: ignore[operator]
    return found
