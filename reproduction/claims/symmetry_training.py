"""Claims about laws read from the graph of real blocks: what descent, Adam and weight decay do to them (P1)."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from lawful.figure import Figure, Panel, Series
from lawful.training.monitor.watch import LawWatch
from reproduction.claim import Outcome, Size, claim
from reproduction.claims.extremes import largest, smallest

Batch = tuple[torch.Tensor, torch.Tensor]
Make = Callable[[], nn.Module]


class _PictureNet(nn.Module):
    """A small residual network with batch normalisation, for 8×8 pictures of digits."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.first = nn.Conv2d(1, 6, 3, padding=1), nn.BatchNorm2d(6)
        self.a, self.norm, self.b = nn.Conv2d(6, 8, 3, padding=1), nn.BatchNorm2d(8), nn.Conv2d(8, 6, 3, padding=1)
        self.head = nn.Linear(6, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.first(self.stem(x)))
        x = torch.relu(x + self.b(torch.relu(self.norm(self.a(x)))))
        found: torch.Tensor = self.head(x.mean((2, 3)))
        return found


class _TextNet(nn.Module):
    """One pre-norm transformer block on characters."""

    def __init__(self, letters: int, length: int) -> None:
        super().__init__()
        self.token, self.place = nn.Embedding(letters, 8), nn.Parameter(0.1 * torch.randn(length, 8))
        self.block = nn.TransformerEncoderLayer(8, 2, 16, 0.0, "gelu", batch_first=True, norm_first=True)
        self.norm, self.head = nn.LayerNorm(8), nn.Linear(8, letters, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.head(self.norm(self.block(self.token(x) + self.place)))
        return found


class _PatchNet(nn.Module):
    """A small vision transformer: patches, a class token, positions, one block."""

    def __init__(self) -> None:
        super().__init__()
        self.patches, self.token = nn.Conv2d(1, 8, 4, 4), nn.Parameter(0.1 * torch.randn(1, 1, 8))
        self.place = nn.Parameter(0.1 * torch.randn(5, 8))
        self.block = nn.TransformerEncoderLayer(8, 2, 16, 0.0, "gelu", batch_first=True, norm_first=True)
        self.norm, self.head = nn.LayerNorm(8), nn.Linear(8, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.cat([self.token.expand(len(x), -1, -1), self.patches(x).flatten(2).transpose(1, 2)], 1)
        found: torch.Tensor = self.head(self.norm(self.block(x + self.place))[:, 0])
        return found


def _patches() -> tuple[Make, Batch]:
    return _PatchNet, _digits()[1]


def _digits() -> tuple[Make, Batch]:
    from sklearn.datasets import load_digits

    found = load_digits()
    x = torch.as_tensor(found.images[:64, None] / 16.0)
    return _PictureNet, (x, torch.as_tensor(found.target[:64]))


def _text() -> tuple[Make, Batch]:
    text = inspect.getdoc(inspect.getmodule(LawWatch)) or ""
    text = (text + (inspect.getdoc(LawWatch) or "")).lower()
    letters = sorted(set(text))
    ids = torch.tensor([letters.index(letter) for letter in text])
    rows = torch.stack([ids[start : start + 9] for start in range(0, 24 * 9, 9)])
    return lambda: _TextNet(len(letters), 8), (rows[:, :-1], rows[:, 1:])


def _start(make: Make) -> nn.Module:
    torch.manual_seed(0)
    return make().double().train()


def _run(
    make: Make, batch: Batch, watch: LawWatch, optimiser: Callable[[Any], torch.optim.Optimizer], steps: int
) -> dict[str, Any]:
    """Train from the start, which the watch has seen."""
    model = _start(make)
    step = optimiser(model.parameters())
    for _ in range(steps):
        step.zero_grad()
        loss = functional.cross_entropy(model(batch[0]).flatten(0, -2), batch[1].flatten())
        loss.backward()  # type: ignore[no-untyped-call]
        step.step()
    return watch.measure(model)


@claim(
    "p1-structural-laws-descent",
    "Section 2 and Example 3.6, on residual, normalised and attention blocks",
    "laws of every family read from the graphs of a small ResNet and ViT (digits) and a small GPT (text) drift by the "
    "square of the step size at each step of gradient descent; Adam and weight decay do not keep them",
    size=Size("three models, time 0.6", "three models, time 4", "beyond the paper"),
    criterion="ours: drifts that halve within 1.7 to 2.4 at half the step; Adam and decay drift over three times more",
    experiment=True,
)
def structural_laws(full: bool) -> Outcome:
    """Steps h, h/2, h/4 over the same time: drift then halves with h; Adam and weight decay for as many steps."""
    time, rates = (4.0, (0.04, 0.02, 0.01, 0.005)) if full else (0.6, (0.04, 0.02, 0.01))
    curves, ratios, others, shifts, measured = [], [], [], 0.0, {}
    with torch.random.fork_rng(devices=[]):
        for name, (make, batch) in (("resnet", _digits()), ("vit", _patches()), ("gpt", _text())):
            watch = LawWatch(_start(make), (batch[0],))
            found = [_run(make, batch, watch, _descent(rate), round(time / rate)) for rate in rates]
            drifts = {
                kind: [each["by_group"][kind] for each in found] for kind in found[0]["by_group"] if kind != "shifts"
            }
            ratios += [first / second for drift in drifts.values() for first, second in pairwise(drift)]
            steps = round(time / rates[0])
            adam = _run(make, batch, watch, lambda p: torch.optim.Adam(p, 0.01), steps)
            decay = _run(make, batch, watch, lambda p: torch.optim.SGD(p, rates[0], weight_decay=0.1), steps)
            others += [adam["drift"] / found[0]["drift"], decay["drift"] / found[0]["drift"]]
            measured[name] = {"laws": found[0]["laws"], **drifts, "adam": adam["drift"], "decay": decay["drift"]}
            shifts = largest(shifts, *(each["by_group"]["shifts"] for each in found))
            curves += [Series(np.array(drift), np.array(rates), f"{name}, {kind}") for kind, drift in drifts.items()]
    holds = all(1.7 < ratio < 2.4 for ratio in ratios) and smallest(others) > 3 and shifts < 1e-11
    figure = Figure(
        "Drift of structural laws after a fixed time of gradient descent",
        [Panel(curves, "largest drift", "step size", log_y=True)],
    )
    return Outcome(holds, {**measured, "shifts": shifts, "halving": ratios, "worse": others}, figure=figure)


def _descent(rate: float) -> Callable[[Any], torch.optim.Optimizer]:
    return lambda parameters: torch.optim.SGD(parameters, rate)


CLAIMS = (structural_laws,)
