"""The whole story on a network that reads handwritten digits: train, audit, prune, prove."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lawful.api.audit import Audit, audit
from lawful.extras import needed
from lawful.fibers import Equal
from lawful.fibers.same import same
from lawful.fibers.verdict import Verdict
from lawful.formats.queries.data import Data
from lawful.network import Mlp
from lawful.pruning.neurons.prune import Pruning, prune
from lawful.result import Shown
from lawful.types import Floats

HIDDEN, EPOCHS, STEP, STRENGTH = 32, 600, 0.5, 0.015
TRAINED_ON = 1400  # of the 1797 digits


@dataclass(frozen=True, eq=False)
class Demo(Shown):
    """A trained network, what the audit found, the smaller network, and whether they are one function."""

    data: Data
    unseen: Data
    trained: Mlp
    audit: Audit
    pruning: Pruning
    verdict: Verdict
    accuracy: tuple[float, float]  # on digits not trained on: before and after pruning

    @property
    def proved(self) -> bool:
        """Whether the two networks were proved to be the same function."""
        return isinstance(self.verdict, Equal)


def demo(seed: int = 0) -> Demo:
    """Train 64-32-10 on scikit-learn's handwritten digits with the nuclear norm (P0 Section 3.3), then look at it."""
    train, unseen = digits(seed)
    trained = train_singular(train, seed)
    pruning = prune(trained)
    found = audit(trained, source="trained.safetensors", data=train)
    before, after = (accuracy(network, unseen) for network in (trained, pruning.network))
    return Demo(train, unseen, trained, found, pruning, same(trained, pruning.network), (before, after))


def digits(seed: int) -> tuple[Data, Data]:
    """Images of 8 by 8 pixels from 0 to 1 with labels 0 to 9: a training and a test set."""
    images, labels = needed("sklearn.datasets").load_digits(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(images))
    parts = order[:TRAINED_ON], order[TRAINED_ON:]
    first, second = (Data(images[part] / 16.0, labels[part].astype(np.float64)) for part in parts)
    return first, second


def train_singular(data: Data, seed: int, strength: float = STRENGTH) -> Mlp:
    """Gradient descent on the cross-entropy with proximal steps of the nuclear norm, in a few seconds."""
    torch = needed("torch")
    from lawful.pruning.trainer import SingularTrainer
    from lawful.sources.modules.convert import from_module

    torch.manual_seed(seed)
    layers = torch.nn.Linear(64, HIDDEN), torch.nn.ReLU(), torch.nn.Linear(HIDDEN, 10)
    model = torch.nn.Sequential(*layers).double()
    optimiser = torch.optim.SGD(model.parameters(), lr=STEP)
    loss = torch.nn.CrossEntropyLoss()
    trainer = SingularTrainer(model, optimiser, loss, strength=strength, every=5, proximal=True)
    batch = torch.tensor(data.x), torch.tensor(data.classes)
    for _ in range(EPOCHS):
        trainer.step(*batch)
    return Mlp.from_dag(from_module(model).to_dag())


def readings(network: object, images: Floats) -> Floats:
    """The digit that the network sees in each image."""
    return np.asarray(network.evaluate(images).argmax(axis=1))  # type: ignore[attr-defined]


def accuracy(network: object, data: Data) -> float:
    """Share of images that are read correctly."""
    return float(np.mean(readings(network, data.x) == data.y))
