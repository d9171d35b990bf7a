"""Accuracy against size: the nuclear norm beside group lasso, L1 and nothing, with the same tuning for all.

    python -m benchmarks.regulariser_study table.json figure.svg        # train everything: half an hour
    python -m benchmarks.regulariser_study table.json figure.svg cnn    # one network; the table keeps the other
    python -m benchmarks.regulariser_study --draw table.json figure.svg # draw a stored table
    python -m benchmarks.regulariser_study --equal mlp 0.92 0.88        # sizes at these accuracies: some minutes

Digits (scikit-learn, 1437 to train and 360 to test), 64-256-256-10 and a small convolutional network, five seeds. Every
penalty has six strengths, each √2 times the one before, around one at which a pilot run lost about half of its neurons,
and acts after each step of plain SGD as a proximal step (of its quadratic majoriser for the group lasso and for
the lazy nuclear norm). At the end weights up to 0.001 are cut, and neurons or channels without a path from input to
output are gone. Without a penalty, neurons leave by the product of the norms of what they hear and say.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from torch import Tensor, nn

from lawful.figure import COLOURS, Figure, Panel, Series, draw
from lawful.invariant_set.singular.laplacian import layered_edge_weights
from lawful.invariant_set.singular.regulariser import Omegas, nuclear_prox
from lawful.network import Dag, Mlp
from lawful.types import Floats

PENALTIES = ("nuclear, lazy", "nuclear, proximal", "group lasso", "L1")
TASKS = ("mlp", "cnn")
STRENGTHS = {"nuclear, lazy": 5e-3, "nuclear, proximal": 5e-3, "group lasso": 5e-3, "L1": 1e-3}
FACTORS = 2.0 ** np.arange(-1, 2, 0.5)
SEEDS, EPOCHS, BATCH, STEP, EVERY, CUT = range(5), 25, 64, 0.1, 20, 1e-3
SHARES = (1.0, 0.5, 0.25, 0.12, 0.06, 0.03)  # sizes at which the plain network is pruned


@dataclass(frozen=True)
class Trained:
    """One run: neurons (or channels) left, and the accuracy on the test set after the cut."""

    task: str
    penalty: str
    strength: float
    seed: int
    left: int
    accuracy: float
    seconds: float


class Blocks:
    """The layers of a chain as matrices of the norms of their blocks: a channel's kernel is one entry.

    The laws of channels are sums of squares over kernels, so the Laplacian is that of these matrices, and every weight
    of a kernel has the same share.
    """

    def __init__(self, model: nn.Sequential) -> None:
        self.layers: list[Any] = [part for part in model if isinstance(part, (nn.Linear, nn.Conv2d))]
        self.parameters: list[Any] = [tensor for layer in self.layers for tensor in (layer.weight, layer.bias)]

    def norms(self) -> tuple[Floats, ...]:
        """Matrix and bias of each layer in turn."""
        found: list[Floats] = []
        below = None
        for layer in self.layers:
            weight = layer.weight.detach().double()
            blocks = weight.reshape(len(weight), weight.shape[1] if below is None else below, -1)
            found += [blocks.square().sum(2).sqrt().numpy(), layer.bias.detach().double().numpy()]
            below = len(weight)
        return tuple(found)

    @property
    def source(self) -> NDArray[np.intp]:
        """Entries lie on edges in their order."""
        return np.arange(sum(part.size for part in self.norms()))

    def omegas(self, floor: float, tolerance: float, values: Sequence[Floats] | None = None) -> Omegas:
        """Shares of all blocks."""
        parts = self.norms() if values is None else values
        found = layered_edge_weights(parts[0::2], parts[1::2], floor=floor, tolerance=tolerance)
        pairs = zip(found.weights, found.biases, strict=True)
        return Omegas(tuple(p for pair in pairs for p in pair if p is not None), found.norm, found.error, found.floor)

    def to_dag(self, values: Sequence[Floats] | None = None) -> Dag:
        """The graph of blocks."""
        parts = self.norms() if values is None else values
        return Mlp(parts[0::2], parts[1::2]).to_dag()

    @torch.no_grad()
    def scale(self, factors: Sequence[Floats]) -> None:
        """Multiply every block by its factor."""
        for parameter, factor in zip(self.parameters, factors, strict=True):
            flat = parameter.reshape(*factor.shape, -1)
            flat *= torch.as_tensor(factor, dtype=parameter.dtype)[..., None]

    def row_squares(self) -> list[Floats]:
        """For each hidden layer the sum of squares of all that touches each neuron."""
        parts = [part**2 for part in self.norms()]
        pairs = pairwise(zip(parts[0::2], parts[1::2], strict=True))
        return [below.sum(axis=1) + bias + above.sum(axis=0) for (below, bias), (above, _) in pairs]

    def left(self) -> int:
        """Neurons on a path of nonzero blocks from input to output."""
        matrices = [part > 0 for part in self.norms()[0::2]]
        reached: list[Any] = [np.ones(matrices[0].shape[1], dtype=bool)]
        for matrix in matrices:
            reached.append(matrix[:, reached[-1]].any(axis=1))
        heard: Any = np.ones(len(matrices[-1]), dtype=bool)
        count = 0
        for matrix, on in zip(matrices[:0:-1], reached[-2:0:-1], strict=True):
            heard = matrix[heard].any(axis=0)
            count += int((heard & on).sum())
        return count


def make(task: str, seed: int) -> nn.Sequential:
    """The network of a task."""
    torch.manual_seed(seed)
    if task == "mlp":
        return nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
    return nn.Sequential(
        nn.Unflatten(1, (1, 8, 8)), nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 48, 3), nn.ReLU(),
        nn.Flatten(), nn.Linear(48 * 16, 64), nn.ReLU(), nn.Linear(64, 10),
    )  # fmt: skip


def data(seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Digits on [0, 1], shuffled and split."""
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(labels))
    x, y = torch.tensor(images[order] / 16, dtype=torch.float32), torch.tensor(labels[order])
    return x[:1437], y[:1437], x[1437:], y[1437:]


class Penalty:
    """A penalty as what happens after a step of SGD."""

    def __init__(self, kind: str, strength: float, blocks: Blocks) -> None:
        self.kind, self.strength, self.blocks, self.calls = kind, strength, blocks, 0
        self.factors: list[Floats] = []
        self.shares: list[Floats] | None = None

    @torch.no_grad()
    def act(self) -> None:
        """What follows a step."""
        step, blocks = STEP * self.strength, self.blocks
        self.calls += 1
        if self.kind == "L1":
            for parameter in blocks.parameters:
                parameter.copy_(parameter.sign() * (parameter.abs() - step).clamp(min=0))
        elif self.kind == "nuclear, proximal":
            if self.calls % EVERY == 0:
                self._proximal(step * EVERY)
        else:
            if (self.calls - 1) % EVERY == 0:
                omegas = blocks.omegas(1e-3, 1e-2).values if self.kind == "nuclear, lazy" else self._group()
                self.factors = [1 / (1 + step * omega) for omega in omegas]
            blocks.scale(self.factors)

    def _proximal(self, step: float) -> None:
        target = list(self.blocks.norms())
        start = None if self.shares is None else [part * s for part, s in zip(target, self.shares, strict=True)]
        found = nuclear_prox(self.blocks, target, step, tolerance=1e-3, most=4, start=start)
        pairs = zip(found.values, target, strict=True)
        self.shares = [np.divide(new, old, out=np.ones_like(old), where=old != 0) for new, old in pairs]
        self.blocks.scale(self.shares)

    def _group(self) -> list[Floats]:
        """`2 Σ_v √(in_v + out_v)` has these edge weights."""
        roots = [2 / np.sqrt(rows + (0.5e-3) ** 2) for rows in self.blocks.row_squares()]
        parts = self.blocks.norms()
        ends = [np.zeros(parts[0].shape[1]), *roots, np.zeros(len(parts[-1]))]
        found: list[Floats] = []
        for below, above in pairwise(ends):
            found += [below + above[:, None], above]
        return found


def train(task: str, penalty: str, strength: float, seed: int) -> tuple[nn.Sequential, Blocks, float]:
    """One run; its processor time."""
    model = make(task, seed)
    blocks = Blocks(model)
    act = Penalty(penalty, strength, blocks) if strength else None
    optimiser = torch.optim.SGD(model.parameters(), lr=STEP)
    x, y, _, _ = data(seed)
    started = time.process_time()
    for _ in range(EPOCHS):
        for batch in torch.randperm(len(x)).split(BATCH):  # type: ignore[no-untyped-call]
            optimiser.zero_grad()
            nn.functional.cross_entropy(model(x[batch]), y[batch]).backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            if act is not None:
                act.act()
    return model, blocks, time.process_time() - started


@torch.no_grad()
def accuracy(model: nn.Module, seed: int) -> float:
    """Share of the test set that is right."""
    _, _, x, y = data(seed)
    return float((model(x).argmax(1) == y).double().mean())


def runs(task: str) -> Iterator[Trained]:
    """All runs of a task."""
    for seed in SEEDS:
        for penalty in PENALTIES:
            yield from strengths(task, penalty, seed)
        model, blocks, seconds = train(task, "none", 0.0, seed)
        yield from plain(task, model, blocks, seed, seconds)


def strengths(task: str, penalty: str, seed: int) -> Iterator[Trained]:
    """One penalty at its six strengths."""
    for factor in FACTORS:
        strength = float(STRENGTHS[penalty] * factor)
        model, blocks, seconds = train(task, penalty, strength, seed)
        with torch.no_grad():
            for parameter in blocks.parameters[:-1]:
                parameter[parameter.abs() <= CUT] = 0.0
        yield Trained(task, penalty, strength, seed, blocks.left(), accuracy(model, seed), seconds)


def sizes_at(level: float, found: Sequence[Trained]) -> float:
    """Neurons of one penalty and seed at an accuracy, on the line between its runs; NaN if none is as accurate.

    A larger network that is less accurate than a smaller one does not count: the curve is the running maximum.
    """
    curve = sorted((run.left, run.accuracy) for run in found)
    left, right = (np.array(column, dtype=float) for column in zip(*curve, strict=True))
    return float(np.interp(level, np.maximum.accumulate(right), left, right=np.nan))


def compare(task: str, levels: Sequence[float]) -> None:
    """Print the sizes of all penalties at equal accuracy, one number a seed."""
    for penalty in PENALTIES:
        seeds = [list(strengths(task, penalty, seed)) for seed in SEEDS]
        cost = np.mean([run.seconds for found in seeds for run in found])
        for level in levels:
            sizes = [sizes_at(level, found) for found in seeds]
            numbers = " ".join(f"{size:.0f}" for size in sizes)
            print(f"| {task} | {penalty} | {level} | {numbers} | {np.mean(sizes):.0f} | {cost:.1f} s |", flush=True)


@torch.no_grad()
def plain(task: str, model: nn.Sequential, blocks: Blocks, seed: int, seconds: float) -> Iterator[Trained]:
    """The network without a penalty, at several sizes: neurons leave by their scores, no training follows."""
    parts = blocks.norms()
    scores = [
        np.sqrt((below**2).sum(axis=1) + bias**2) * np.sqrt((above**2).sum(axis=0))
        for (below, bias), (above, _) in pairwise(zip(parts[0::2], parts[1::2], strict=True))
    ]
    order = np.argsort(np.concatenate(scores))
    total = len(order)
    for share in SHARES:
        gone = np.zeros(total, dtype=bool)
        gone[order[: total - int(share * total)]] = True
        for layer, part in zip(blocks.layers, np.split(gone, np.cumsum([len(s) for s in scores])[:-1]), strict=False):
            layer.weight[torch.as_tensor(part)] = 0.0
            layer.bias[torch.as_tensor(part)] = 0.0
        yield Trained(task, "none, by size", share, seed, total - int(gone.sum()), accuracy(model, seed), seconds)


@dataclass(frozen=True)
class Point:
    """Runs of one strength: means over seeds, and the deviation of the accuracy."""

    task: str
    penalty: str
    seeds: int
    left: float
    accuracy: float
    deviation: float


def points(found: Sequence[Trained]) -> list[Point]:
    """What is kept of all runs."""
    kinds = dict.fromkeys((run.task, run.penalty, run.strength) for run in found)
    same = [[run for run in found if (run.task, run.penalty, run.strength) == kind] for kind in kinds]
    return [
        Point(
            runs[0].task, runs[0].penalty, len(runs), float(np.mean([run.left for run in runs])),
            float(np.mean([run.accuracy for run in runs])), float(np.std([run.accuracy for run in runs])),
        )
        for runs in same
    ]  # fmt: skip


def figure(found: Sequence[Point]) -> Figure:
    """Mean accuracy over neurons left, with a band of one standard deviation over seeds."""
    panels = []
    for task, title in (("mlp", "digits, 64-256-256-10"), ("cnn", "digits, CNN 32-48-64")):
        series: list[Series] = []
        for penalty, colour in zip((*PENALTIES, "none, by size"), COLOURS, strict=False):
            mine = sorted(
                (each for each in found if (each.task, each.penalty) == (task, penalty)), key=lambda e: e.left
            )
            x, mean = np.array([each.left for each in mine]), np.array([each.accuracy for each in mine])
            spread = np.array([each.deviation for each in mine])
            series.append(Series(mean, x, label=penalty, colour=colour))
            series.append(Series(mean - spread, x, style="band", upper=mean + spread, colour=colour))
        panels.append(Panel(series, title, "neurons or channels left", "test accuracy"))
    return Figure("Accuracy against size under five penalties: means over five seeds, one deviation around.", panels)


def table(found: Sequence[Trained]) -> str:
    """Means over seeds, a line for each strength."""
    lines = ["| task | penalty | strength | left | accuracy | processor s |", "|---|---|---|---|---|---|"]
    for task, penalty, strength in dict.fromkeys((run.task, run.penalty, run.strength) for run in found):
        same = [run for run in found if (run.task, run.penalty, run.strength) == (task, penalty, strength)]
        left, right = np.array([run.left for run in same]), np.array([run.accuracy for run in same])
        seconds = np.mean([run.seconds for run in same])
        lines.append(
            f"| {task} | {penalty} | {strength:.2g} | {left.mean():.0f} ± {left.std():.0f} | "
            f"{right.mean():.3f} ± {right.std():.3f} | {seconds:.1f} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Run everything, write the numbers and the figure, print the table; or draw a stored table."""
    if sys.argv[1] == "--draw":
        stored = json.loads(Path(sys.argv[2]).read_text(encoding="utf-8"))
        draw(figure([Point(**each) for each in stored]), Path(sys.argv[3]), "svg")
        return
    torch.set_num_threads(1)
    if sys.argv[1] == "--equal":
        compare(sys.argv[2], [float(level) for level in sys.argv[3:]])
        return
    chosen, stored = sys.argv[3:] or TASKS, Path(sys.argv[1])
    kept = json.loads(stored.read_text(encoding="utf-8")) if sys.argv[3:] else []
    found: list[Trained] = []
    for task in chosen:
        for run in runs(task):
            found.append(run)
            print(run, file=sys.stderr, flush=True)
    whole = [*(Point(**each) for each in kept if each["task"] not in chosen), *points(found)]
    stored.write_text(json.dumps([asdict(each) for each in whole], indent=1), encoding="utf-8")
    draw(figure(whole), Path(sys.argv[2]), "svg")
    print(table(found))


if __name__ == "__main__":
    main()
