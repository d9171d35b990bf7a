"""Can a network prune itself while it trains, and lose nothing?

Yes: the nuclear norm of the invariant set's Jacobian drives whole neurons to zero (P0 Section 3.3), a proximal step
lands them there exactly, and what is left is the same function with a proof.
"""

from __future__ import annotations

import torch
from sklearn.datasets import load_breast_cancer
from torch import nn

from lawful.pruning import SingularTrainer
from lawful.pruning.neurons.certificate import certificate
from lawful.verify import verify


def run() -> int:
    """Train 30-20-1 on Breast Cancer with the penalty; return the number of neurons left."""
    torch.manual_seed(0)
    features, labels = load_breast_cancer(return_X_y=True)
    inputs = torch.tensor((features - features.mean(0)) / features.std(0))
    targets = torch.tensor(labels[:, None], dtype=torch.float64)
    model = nn.Sequential(nn.Linear(30, 20), nn.ReLU(), nn.Linear(20, 1)).double()
    optimiser = torch.optim.SGD(model.parameters(), lr=0.2)

    trainer = SingularTrainer(model, optimiser, nn.BCEWithLogitsLoss(), strength=0.05, every=5, proximal=True)
    trainer.fit([(inputs, targets)], epochs=300)
    pruning = trainer.pruned()

    verify(certificate(pruning))  # replays every step in rational arithmetic
    accuracy = float(((model(inputs) > 0) == (targets > 0.5)).double().mean())
    change = pruning.measured()
    before, after = pruning.neurons_before, pruning.neurons_after
    print(f"{before} -> {after} neurons, accuracy {accuracy:.3f}, outputs moved {change:.1e}")
    assert pruning.bound == 0.0
    assert pruning.neurons_after <= 4
    assert accuracy > 0.93
    assert change < 1e-12
    return pruning.neurons_after


if __name__ == "__main__":
    run()
