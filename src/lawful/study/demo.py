"""The whole story on one small real network: train, audit, prune, prove."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lawful.fibers import Equal, same
from lawful.fibers.verdict import Verdict
from lawful.network import Mlp
from lawful.network.formats.data import Data
from lawful.pruning.prune import Pruning, prune
from lawful.shown import Shown
from lawful.study.audit import Audit, audit

EPOCHS, STEP, STRENGTH = 400, 0.5, 0.008


@dataclass(frozen=True, eq=False)
class Demo(Shown):
    """A trained network, what the audit found, the smaller network, and whether they are one function."""

    data: Data
    trained: Mlp
    audit: Audit
    pruning: Pruning
    verdict: Verdict
    accuracy: tuple[float, float]  # on samples not trained on: before and after pruning

    @property
    def proved(self) -> bool:
        """Whether the two networks were proved to be the same function."""
        return isinstance(self.verdict, Equal)


def demo(seed: int = 0) -> Demo:
    """Train 30-20-1 on scikit-learn's breast-cancer data with the nuclear norm (P0 Section 3.3), then look at it."""
    train, test = breast_cancer(seed)
    trained = train_singular(train, seed)
    pruning = prune(trained)
    accuracies = tuple(accuracy(network, test) for network in (trained, pruning.network))
    found = audit(trained, source="trained.safetensors", data=train)
    return Demo(train, trained, found, pruning, same(trained, pruning.network), accuracies)  # type: ignore[arg-type]


def breast_cancer(seed: int) -> tuple[Data, Data]:
    """Standardised features and labels 0, 1: a training and a test set."""
    from sklearn.datasets import load_breast_cancer

    features, labels = load_breast_cancer(return_X_y=True)
    x = (features - features.mean(axis=0)) / features.std(axis=0)
    order = np.random.default_rng(seed).permutation(len(x))
    chosen, rest = order[:400], order[400:]
    return Data(x[chosen], labels[chosen].astype(np.float64)), Data(x[rest], labels[rest].astype(np.float64))


def train_singular(data: Data, seed: int, strength: float = STRENGTH) -> Mlp:
    """Gradient descent on the logistic loss with proximal steps of the nuclear norm, in a few seconds."""
    import torch

    from lawful.network.modules.convert import from_module
    from lawful.pruning.trainer import SingularTrainer

    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(30, 20), torch.nn.ReLU(), torch.nn.Linear(20, 1)).double()
    optimiser = torch.optim.SGD(model.parameters(), lr=STEP)
    loss = torch.nn.BCEWithLogitsLoss()
    trainer = SingularTrainer(model, optimiser, loss, strength=strength, every=5, proximal=True)
    batch = (torch.tensor(data.x), torch.tensor(data.y)[:, None])
    for _ in range(EPOCHS):
        trainer.step(*batch)
    return Mlp.from_dag(from_module(model).to_dag())


def accuracy(network: object, data: Data) -> float:
    """Share of samples whose logit has the right sign."""
    logits: NDArray[np.float64] = network.evaluate(data.x)[:, 0]  # type: ignore[attr-defined]
    return float(np.mean((logits > 0) == (data.y == 1.0)))
