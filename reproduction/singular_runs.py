"""Many regularised trainings at once: all runs and all penalties of one architecture are one batch (P0 A.8).

Every run is descent on the logistic loss, on all samples or on batches; its penalty acts as a proximal step after each
gradient step (soft thresholds for L1, division for L2 and for the nuclear norm's majoriser, refreshed every few steps),
so that weights reach zero instead of jumping around it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, leaky_relu

from lawful.errors import LawfulError
from lawful.network import Architecture, Dag, initialise
from lawful.types import Floats

PENALTIES = ("nuclear", "l1", "l2", "none")
# The paper's strengths; its L1 and L2 (10 and 20) only make sense for means over the parameters, and are read so.
STRENGTH = {"nuclear": 0.05, "l1": 10.0, "l2": 20.0, "none": 0.0}
FLOOR = 1e-3
REFRESH, REFRESH_SMALL = 5, 20  # steps between two refreshes of the majoriser; small steps change it little


@dataclass(frozen=True)
class TrainingData:
    """A binary classification task, split in two."""

    train: Floats
    train_labels: Floats
    test: Floats
    test_labels: Floats


@dataclass(frozen=True)
class Runs:
    """Trained weights (penalty, run, edge), and what was recorded on the way (penalty, run, moment, ...)."""

    dag: Dag
    penalties: tuple[str, ...]
    theta: Floats
    initial: Floats
    moments: NDArray[np.intp]
    null: NDArray[np.intp]
    values: Floats
    balances: Floats
    train_loss: Floats
    test_loss: Floats
    accuracy: Floats

    def of(self, penalty: str, run: int) -> Dag:
        """One trained network."""
        return self.dag.with_theta(self.theta[self.penalties.index(penalty), run])


@lru_cache(maxsize=4)
def breast_cancer(raw: bool = False) -> TrainingData:
    """Breast Cancer from scikit-learn, 398 patients to train and 171 to test, standardised unless `raw`."""
    from sklearn.datasets import load_breast_cancer

    features, labels = load_breast_cancer(return_X_y=True)
    return split(features, labels, raw)


def feature_file() -> tuple[str, Floats, Floats] | None:
    """Name, features and labels of the file that LAWFUL_FEATURES names (.npz with `features` and `labels`), if any."""
    given = os.environ.get("LAWFUL_FEATURES")
    if not given:
        return None
    with np.load(given, allow_pickle=False) as arrays:
        if "features" not in arrays or "labels" not in arrays:
            raise LawfulError(f"{given}: needs the arrays features and labels")
        return given, np.asarray(arrays["features"], float), np.asarray(arrays["labels"], float)


def split(features: Floats, labels: Floats, raw: bool = False, seed: int = 0) -> TrainingData:
    """Shuffle, split 70 to 30, and standardise by the training part."""
    order = np.random.default_rng(seed).permutation(len(labels))
    features, labels = np.asarray(features, float)[order], np.asarray(labels, float)[order]
    count = int(0.7 * len(labels))
    if not raw:
        centre, scale = features[:count].mean(axis=0), features[:count].std(axis=0)
        features = (features - centre) / np.where(scale > 0, scale, 1.0)
    return TrainingData(features[:count], labels[:count], features[count:], labels[count:])


@lru_cache(maxsize=64)
def breast_cancer_runs(
    text: str, runs: int, epochs: int, step: float = 0.2, raw: bool = False, batch: int | None = None
) -> Runs:
    """Train an architecture on Breast Cancer under all four penalties; remembered within a process."""
    return train(Architecture.parse(text), breast_cancer(raw), runs=runs, epochs=epochs, step=step, batch=batch)


def train(
    architecture: Architecture,
    data: TrainingData,
    *,
    runs: int,
    epochs: int,
    step: float,
    penalties: tuple[str, ...] = PENALTIES,
    strength: dict[str, float] | None = None,
    seed: int = 0,
    moments: int = 20,
    batch: int | None = None,
) -> Runs:
    """Train `runs` initialisations under each penalty; all from the same ones, with the same batches."""
    dag = architecture.to_dag()
    first = np.stack([initialise(dag, "torch", seed + run).theta for run in range(runs)])
    theta = torch.tensor(np.concatenate([first] * len(penalties)), dtype=torch.float32)
    inputs, labels = torch.tensor(data.train, dtype=torch.float32), torch.tensor(data.train_labels, dtype=torch.float32)
    rows = {name: slice(k * runs, (k + 1) * runs) for k, name in enumerate(penalties)}
    incidence = torch.tensor(dag.hidden_incidence.toarray())
    strengths = STRENGTH | (strength or {})
    steps = {"l1": step * strengths["l1"] / dag.parameters, "l2": step * strengths["l2"] / dag.parameters}
    omega = torch.zeros(runs, dag.parameters)
    watch = np.unique(np.linspace(0, epochs, moments + 1).astype(np.intp))
    seen: list[tuple[Floats, Floats]] = []
    generator, taken = torch.Generator().manual_seed(seed), 0
    refresh = REFRESH if batch is None else REFRESH_SMALL
    for epoch in range(epochs + 1):
        if epoch in watch:
            seen.append(_watched(theta, incidence))
        if epoch == epochs:
            break
        for chosen in _batches(len(inputs), batch, generator):
            theta = theta - step * _gradient(architecture, theta, inputs[chosen], labels[chosen])
            if "nuclear" in rows:
                if taken % refresh == 0:
                    omega = _omega(theta[rows["nuclear"]], incidence)
                theta[rows["nuclear"]] /= 1 + step * strengths["nuclear"] * omega
            if "l1" in rows:
                part = theta[rows["l1"]]
                theta[rows["l1"]] = part.sign() * (part.abs() - steps["l1"]).clamp(min=0)
            if "l2" in rows:
                theta[rows["l2"]] /= 1 + 2 * steps["l2"]
            taken += 1
    values = np.stack([value for value, _ in seen], axis=1).reshape(len(penalties), runs, len(watch), -1)
    balances = np.stack([balance for _, balance in seen], axis=1).reshape(len(penalties), runs, len(watch), -1)
    shape = (len(penalties), runs)
    train_loss, _ = _measure(architecture, theta, data.train, data.train_labels)
    test_loss, accuracy = _measure(architecture, theta, data.test, data.test_labels)
    return Runs(
        dag, penalties, theta.double().numpy().reshape(*shape, -1), first, watch, (values < 1e-3).sum(axis=-1), values,
        balances, train_loss.reshape(shape), test_loss.reshape(shape), accuracy.reshape(shape),
    )  # fmt: skip


def _batches(count: int, batch: int | None, generator: torch.Generator) -> tuple[Tensor | slice, ...]:
    """All samples at once, or shuffled parts of them."""
    if batch is None:
        return (slice(None),)
    order = torch.randperm(count, generator=generator)
    return tuple(order[start : start + batch] for start in range(0, count, batch))


def outputs(architecture: Architecture, theta: Tensor, inputs: Tensor) -> Tensor:
    """Outputs (run, sample, output) of many parameters (run, edge) of one architecture."""
    return _forward(architecture, theta, inputs)[-1].mT


def _weights(architecture: Architecture, layer: int) -> Iterator[tuple[int, int, slice]]:
    """What a layer reads: the layer below, then skips; each with its width and its place in θ."""
    widths = architecture.widths
    at = sum(_edges(architecture, before) for before in range(1, layer))
    for below in [layer - 1, *(i for i, j in architecture.skips if j + 1 == layer)]:
        size = widths[layer] * widths[below]
        yield below, widths[below], slice(at, at + size)
        at += size


def _edges(architecture: Architecture, layer: int) -> int:
    """Weights and biases that enter a layer."""
    widths = architecture.widths
    read = widths[layer - 1] + sum(widths[i] for i, j in architecture.skips if j + 1 == layer)
    return widths[layer] * (read + architecture.bias)


def _bias(architecture: Architecture, layer: int) -> slice:
    end = sum(_edges(architecture, upto) for upto in range(1, layer + 1))
    return slice(end - architecture.widths[layer], end)


def _forward(architecture: Architecture, theta: Tensor, inputs: Tensor) -> list[Tensor]:
    """Every layer, samples last, the longest axis; what reads the inputs, which all runs share, is one product."""
    widths, runs = architecture.widths, len(theta)
    layers = [inputs.mT]
    for layer in range(1, len(widths)):
        total: Tensor | None = None
        for below, width, place in _weights(architecture, layer):
            weight = theta[:, place]
            if below == 0:
                part = (weight.reshape(-1, width) @ layers[0]).reshape(runs, widths[layer], -1)
            else:
                part = torch.bmm(weight.reshape(runs, widths[layer], width), layers[below])
            total = part if total is None else total + part
        assert total is not None  # noqa: S101  (every layer has one below)
        if architecture.bias:
            total = total + theta[:, _bias(architecture, layer), None]
        layers.append(leaky_relu(total, architecture.slope) if layer < len(widths) - 1 else total)
    return layers


def _gradient(architecture: Architecture, theta: Tensor, inputs: Tensor, labels: Tensor) -> Tensor:
    """Of the mean logistic loss of each run, by hand: a tenth of autodiff's overhead, and steps are many and small."""
    widths, runs = architecture.widths, len(theta)
    layers = _forward(architecture, theta, inputs)
    slope = torch.empty_like(theta)
    blame: dict[int, Tensor] = {len(widths) - 1: (layers[-1].sigmoid() - labels) / len(labels)}
    for layer in range(len(widths) - 1, 0, -1):
        signal = blame.pop(layer)
        if layer < len(widths) - 1:
            signal = torch.where(layers[layer] > 0, signal, architecture.slope * signal)
        for below, width, place in _weights(architecture, layer):
            if below == 0:
                slope[:, place] = (signal.reshape(-1, signal.shape[2]) @ layers[0].mT).reshape(runs, -1)
                continue
            slope[:, place] = torch.bmm(signal, layers[below].mT).reshape(runs, -1)
            back = torch.bmm(theta[:, place].reshape(runs, widths[layer], width).mT, signal)
            blame[below] = back + blame[below] if below in blame else back
        if architecture.bias:
            slope[:, _bias(architecture, layer)] = signal.sum(dim=2)
    return slope


def _omega(theta: Tensor, incidence: Tensor) -> Tensor:
    """`2 b_eᵀ (L + ε)^{-1/2} b_e` for a batch of parameters."""
    laplacian = (incidence * theta.double().square()[:, None, :]) @ incidence.T
    values, vectors = torch.linalg.eigh(laplacian)
    root = (vectors / (values.clamp(min=0) + (FLOOR / 2) ** 2).sqrt()[:, None, :]) @ vectors.mT
    omega: Tensor = 2 * (incidence * (root @ incidence)).sum(dim=1)
    return omega.to(theta.dtype)


def _watched(theta: Tensor, incidence: Tensor) -> tuple[Floats, Floats]:
    squares = theta.double().square()
    values = torch.linalg.eigvalsh(4 * (incidence * squares[:, None, :]) @ incidence.T).clamp(min=0).sqrt().flip(-1)
    return values.numpy(), (squares @ incidence.T).numpy()


def _measure(architecture: Architecture, theta: Tensor, inputs: Floats, labels: Floats) -> tuple[Floats, Floats]:
    logits = outputs(architecture, theta.double(), torch.tensor(inputs))[..., 0]
    truth = torch.tensor(labels).expand_as(logits)
    loss = binary_cross_entropy_with_logits(logits, truth, reduction="none").mean(dim=1)
    return loss.numpy(), ((logits > 0) == (truth > 0.5)).double().mean(dim=1).numpy()


def loss_on_test(data: TrainingData) -> Callable[[Dag], float]:
    """The logistic loss on the test part, as a function of a network."""

    def measure(dag: Dag) -> float:
        logits = dag.evaluate(data.test)[:, 0]
        return float(np.mean(np.logaddexp(0.0, logits) - data.test_labels * logits))

    return measure
