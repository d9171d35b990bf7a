"""One checkpoint beside another: B brought to A, and the mean of the two with the loss on the way."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Unpack

from lawful.api.inputs import Help, ModuleOptions, PairOptions, takes
from lawful.errors import LawfulError

if TYPE_CHECKING:
    import torch

    from lawful.checkpoints.merge import Merged
    from lawful.checkpoints.opening import CheckpointPair
    from lawful.checkpoints.placement import Aligned
    from lawful.sources.opening import Source


@takes(PairOptions)
def align(first: Source, second: Source, **reading: Unpack[PairOptions]) -> Aligned:
    """The member of B's orbit that is nearest to A: the same function as B, with A's order of units, scales and axes.

    >>> import torch
    >>> from torch import nn
    >>> one = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    >>> turned = {"0.weight": 3 * one[0].weight.flip(0), "0.bias": 3 * one[0].bias.flip(0),
    ...           "2.weight": one[2].weight.flip(1) / 3, "2.bias": one[2].bias}
    >>> aligned = align(one, turned, input=(3,))
    >>> aligned.before > 0.5, aligned.after < 1e-6, torch.allclose(aligned.weights["0.weight"], one[0].weight)
    (True, True, True)
    """
    from lawful.api.two_networks import TwoNetworks
    from lawful.checkpoints.placement import align_pair
    from lawful.sources.provenance import read_as

    pair, readings = TwoNetworks(first, second, **reading).one_form()
    return read_as(align_pair(pair), *readings)


@takes(ModuleOptions)
def merge(
    first: Source,
    second: Source,
    *,
    weight: Annotated[float, Help("Share of B in the mean.")] = 0.5,
    data: Annotated[
        str | Path | None, Help("Inputs and targets (.npz or .csv): the loss on the way from A to B.")
    ] = None,
    **reading: Unpack[ModuleOptions],
) -> Merged:
    """The mean of two checkpoints after alignment; with data, the loss on the way from one to the other."""
    from lawful.api.two_networks import TwoNetworks
    from lawful.checkpoints.merge import merge_pair
    from lawful.sources.provenance import read_as

    pair, readings = TwoNetworks(first, second, **reading).one_form()
    merged = merge_pair(pair, weight) if data is None else _merge_on_data(pair, weight, Path(data))
    return read_as(merged, *readings)


def _merge_on_data(pair: CheckpointPair, weight: float, data: Path) -> Merged:
    """The mean, and the loss along the line (labels: cross-entropy, real targets: mean squared error)."""
    import numpy as np
    import torch

    from lawful.checkpoints.merge import merge_pair
    from lawful.formats.queries.data import read_data

    table = read_data(data)
    if table.y is None:
        raise LawfulError(f"{data}: a loss needs targets (`y`, or a column named label)")
    (example,) = pair.architecture.inputs if len(pair.architecture.inputs) == 1 else (None,)
    if example is None:
        raise LawfulError("the loss on the way is measured for modules with one input")
    shape = tuple(example.shape[1:])
    if int(np.prod(shape, dtype=int)) != table.x.shape[1]:
        raise LawfulError(f"{data}: {table.x.shape[1]} numbers per sample do not fill an input of size {shape}")
    kind = torch.float64 if example.is_floating_point() else example.dtype
    inputs = torch.as_tensor(table.x).to(kind).reshape(-1, *shape)
    return merge_pair(
        pair, weight, inputs=[inputs], loss=_loss(np.asarray(table.y), str(data), not example.is_floating_point())
    )


def _loss(targets: Any, name: str, tokens: bool) -> Callable[[list[torch.Tensor]], float]:
    import numpy as np
    import torch

    from lawful.sources.modules.classes import check_labels, class_rows, classes_axis

    labels = targets.reshape(len(targets), -1)
    whole = labels.shape[1] == 1 and np.equal(labels, np.round(labels)).all() and labels.min(initial=0) >= 0

    def loss(outputs: list[torch.Tensor]) -> float:
        first = outputs[0].reshape(len(targets), -1)
        if whole and first.shape[1] > 1:
            axis = classes_axis(outputs[0].shape, tokens=tokens)
            check_labels(labels.shape, outputs[0].shape, axis)
            first = class_rows(outputs[0], axis)
            classes = torch.as_tensor(labels[:, 0]).long()
            if int(classes.max()) >= first.shape[1]:
                raise LawfulError(f"{name}: label {int(classes.max())} of {first.shape[1]} classes")
            return float(torch.nn.functional.cross_entropy(first, classes))
        wanted = torch.as_tensor(labels, dtype=torch.float64)
        if wanted.shape != first.shape:
            raise LawfulError(f"{name}: targets of size {labels.shape[1]} for outputs of size {first.shape[1]}")
        return float(torch.nn.functional.mse_loss(first, wanted))

    return loss
