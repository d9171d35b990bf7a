"""Losses with their derivative in the outputs, in PyTorch's conventions (means over everything, logits for labels)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit, log_softmax

from lawful.errors import LawfulError
from lawful.network.dynamics import loss_name
from lawful.types import Floats, Indices

# A loss of the parameters whose ReLU pattern can be held still while the solver steps.


@dataclass(frozen=True)
class LossValue:
    """One evaluation: the loss, its gradient, and for every gate the pre-activation behind it and its push.

    Opening gate k by dα changes the gradient by `push_k ∇z_k dα`: the push is `(1 − slope) ∂L/∂h_k`.
    """

    loss: float
    gradient: Floats
    heights: Floats
    pushes: Floats


class Problem(Protocol):
    """A loss `L(θ)` that is smooth for a fixed pattern of *gates*, one per (sample, neuron with a kink).

    A gate is 1 where the pre-activation (its *height*) is positive, 0 where it is negative, and between them only
    while the flow is pinned to the kink. With gates held still a neuron computes `h = (slope + (1 − slope) gate) z`.
    """

    start: Floats

    def heights(self, theta: Floats, gates: Floats | None = None) -> Floats:
        """Pre-activations under a fixed pattern, or under the true one."""
        ...

    def evaluate(self, theta: Floats, gates: Floats | None = None) -> LossValue:
        """Loss, gradient and heights under a fixed pattern, or under the true one."""
        ...

    def height_gradients(self, theta: Floats, gates: Floats, chosen: Sequence[int]) -> Floats:
        """`∇z` of some heights (rows), under a fixed pattern."""
        ...

    def label(self, gate: int) -> tuple[int, str]:
        """Sample number and neuron name of a gate."""
        ...

    def rows(self, samples: Indices) -> Problem:
        """The same problem on some of the samples (a mini-batch)."""
        ...

    @property
    def samples(self) -> int:
        """Number of samples."""
        ...


Slope = Callable[[Floats, Floats], tuple[float, Floats]]


@dataclass(frozen=True)
class Loss:
    """A loss: `value_and_slope(outputs, targets)` and `targets(y, outputs)`, which checks and shapes labels.

    >>> MSE.value_and_slope(np.array([[1.0, 3.0]]), np.array([[0.0, 0.0]]))
    (5.0, array([[1., 3.]]))
    """

    name: str
    value_and_slope: Slope
    targets: Callable[[Floats, int], Floats]


def _mse(outputs: Floats, targets: Floats) -> tuple[float, Floats]:
    error = outputs - targets
    return float(np.mean(error * error)), error * (2.0 / error.size)


def _bce(outputs: Floats, targets: Floats) -> tuple[float, Floats]:
    value = np.logaddexp(0.0, outputs) - outputs * targets
    return float(np.mean(value)), (expit(outputs) - targets) / outputs.size


def _ce(outputs: Floats, targets: Floats) -> tuple[float, Floats]:
    logs = log_softmax(outputs, axis=1)
    return float(-np.sum(logs * targets) / len(outputs)), (np.exp(logs) - targets) / len(outputs)


def _values(y: Floats, outputs: int) -> Floats:
    table = y.reshape(len(y), -1)
    if table.shape[1] != outputs:
        raise LawfulError(f"the network has {outputs} outputs, but the data have {table.shape[1]} targets per sample")
    return table


def _probabilities(y: Floats, outputs: int) -> Floats:
    table = _values(y, outputs)
    if table.min() < 0 or table.max() > 1:
        bad = table[(table < 0) | (table > 1)][0]
        raise LawfulError(f"bce needs labels between 0 and 1, not {bad:g}")
    return table


def _classes(y: Floats, outputs: int) -> Floats:
    labels = y.reshape(-1)
    if len(labels) != len(y):
        raise LawfulError(f"ce needs one class number per sample, not {y.size // len(y)}")
    wrong = (labels != np.round(labels)) | (labels < 0) | (labels >= outputs)
    if wrong.any():
        raise LawfulError(
            f"ce needs class numbers 0 to {outputs - 1} for {outputs} outputs, not {labels[wrong][0]:g}"
            + ("; for one output use bce" if outputs == 1 else "")
        )
    return np.asarray(np.eye(outputs)[labels.astype(np.intp)])


MSE = Loss("mse", _mse, _values)
BCE = Loss("bce", _bce, _probabilities)
CE = Loss("ce", _ce, _classes)
LOSSES = {loss.name: loss for loss in (MSE, BCE, CE)}


def find_loss(name: str | Loss) -> Loss:
    """The loss with this name: `mse`, `bce` (logistic, on logits) or `ce` (softmax cross-entropy, class numbers)."""
    if isinstance(name, Loss):
        return name
    loss_class = LOSSES.get(loss_name(name))
    if loss_class is None:
        raise LawfulError(f"{name!r} stands for many losses: here choose one, {', '.join(LOSSES)}")
    return loss_class


def check_data(x: ArrayLike, y: ArrayLike) -> tuple[Floats, Floats]:
    """Data as finite arrays with one row per sample, or a `LawfulError` that says what is wrong."""
    try:
        inputs, targets = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    except (TypeError, ValueError):
        raise LawfulError("data must be numbers: x of shape (samples, inputs), y with one row per sample") from None
    if inputs.ndim == 0 or targets.ndim == 0 or not len(inputs):
        raise LawfulError("data need at least one sample: x of shape (samples, inputs), y with one row per sample")
    if len(inputs) != len(targets):
        raise LawfulError(f"x has {len(inputs)} samples but y has {len(targets)}")
    for name, values in (("x", inputs), ("y", targets)):
        if not np.isfinite(values).all():
            row = int(np.argwhere(~np.isfinite(values))[0][0])
            raise LawfulError(f"data must be finite: {name} has a NaN or an infinity in sample {row}")
    return inputs, targets
