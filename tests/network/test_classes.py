"""The classes of cross-entropy stand on one axis, for laws, flows and losses on data: that of PyTorch."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from lawful import LawfulError
from lawful.conservation.count import count_laws
from lawful.sources.modules.classes import check_labels, class_rows, classes_axis, vocabulary_of
from lawful.training.problems.module_problem import ModuleProblem


class CastsInside(nn.Module):
    """Takes numbers, and reads them as token ids."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(5, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.table(input=x.long()) if x.ndim else self.table(x)


CASES = {
    "picture": (nn.Conv2d(2, 3, 1), (2, 2, 4), (2, 4), 1),
    "square picture": (nn.Conv2d(1, 3, 1), (1, 3, 3), (3, 3), 1),  # as many places as classes: sizes do not tell
    "sequence of numbers": (nn.Conv1d(2, 3, 1), (2, 5), (5,), 1),
    "one place": (nn.Conv2d(2, 3, 1), (2, 1, 1), (), 1),
    "vector": (nn.Linear(2, 3), (2,), (), 1),
    "tokens": (nn.Embedding(5, 3), (4,), (4,), 2),
    "as many tokens as classes": (nn.Embedding(5, 3), (3,), (3,), 2),
    "tokens that are cast inside": (CastsInside(), (3,), (3,), 2),
}


@pytest.mark.parametrize("name", CASES)
def test_flows_have_the_loss_of_pytorch(name: str) -> None:
    module, size, places, axis = CASES[name]
    rng = np.random.default_rng(0)
    x = rng.integers(5, size=(4, *size)) if axis == 2 else rng.normal(size=(4, *size))
    y = rng.integers(3, size=(4, *places))
    at = ModuleProblem(module, x, y, "ce")
    outputs = at.module(at.x).movedim(axis, 1)
    truth = cross_entropy(outputs, torch.as_tensor(y).reshape(4, *outputs.shape[2:]))
    found = at.evaluate(at.start)
    assert found.loss == pytest.approx(truth.item(), rel=1e-12)
    slopes = torch.autograd.grad(truth, list(at.module.parameters()))
    assert np.allclose(found.gradient, torch.cat([slope.reshape(-1) for slope in slopes]), rtol=1e-10, atol=1e-14)
    some = torch.as_tensor(y[1::2]).reshape(2, *outputs.shape[2:])
    assert at.rows(np.array([1, 3])).evaluate(at.start).loss == pytest.approx(cross_entropy(outputs[1::2], some).item())


def test_laws_take_the_same_axis() -> None:
    """A convolution's bias: its sum over the classes is kept, and a real step of that loss keeps it."""
    torch.manual_seed(0)
    module, x, y = nn.Conv2d(1, 3, 1), torch.randn(4, 1, 3, 3).numpy(), np.arange(36).reshape(4, 3, 3) % 3
    count = count_laws(module, loss="cross-entropy", input_shape=(1, 3, 3))
    assert count.laws == 2  # the sums of the weights and of the biases over the classes
    at = ModuleProblem(module, x, y, "ce")
    slope = at.evaluate(at.start).gradient
    assert np.allclose([slope[:3].sum(), slope[3:].sum()], 0.0, atol=1e-15)


@pytest.mark.parametrize(
    ("module", "size", "labels", "words"),
    [
        (nn.Conv2d(2, 3, 1), (2, 2, 4), (), "y of size .2, 4. where the output is of size .3, 2, 4., not .."),
        (nn.Linear(2, 3), (5, 2), (5,), "classes are axis 1; give the loss as a function"),
        (nn.Linear(2, 3), (2,), (2,), "one class number per sample, not 2"),
        (nn.Flatten(0), (2,), (), "one number for each sample"),
    ],
)
def test_labels_that_do_not_fit_are_refused(
    module: nn.Module, size: tuple[int, ...], labels: tuple[int, ...], words: str
) -> None:
    if isinstance(module, nn.Flatten):
        module = nn.Sequential(nn.Linear(2, 1), module)
    with pytest.raises(LawfulError, match=words):
        ModuleProblem(module, np.ones((4, *size)), np.zeros((4, *labels)), "ce")


def test_the_parts() -> None:
    assert vocabulary_of(CastsInside(), (3,)) == 5
    assert vocabulary_of(nn.Sequential(nn.Linear(2, 2), nn.Embedding(3, 3)), (2,)) is None
    assert classes_axis((4, 3, 5), tokens=False, axis=2) == 2
    assert class_rows(torch.arange(12).reshape(1, 3, 2, 2), 1)[1].tolist() == [1, 5, 9]
    check_labels((4, 1), (4, 3), 1)
    with pytest.raises(LawfulError, match="no axis 3"):
        classes_axis((4, 3, 5), tokens=True, axis=3)
