"""How far from gradient flow was my training, and what step size explains it?

Gradient flow conserves every neuron's balance; a step of gradient descent moves it by exactly η² B̃g². So two
checkpoints and the fall of the loss bound the step from below.
"""

from __future__ import annotations

import numpy as np
import torch

from lawful import Architecture, Mlp
from lawful.api.checkpoints.diff import Diff, diff
from lawful.formats.queries.data import Data


def run() -> Diff:
    """Train with a known step, then infer it from the two ends."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(50, 4))
    data = Data(x, np.abs(x[:, 0]) - x[:, 1])
    before = Architecture.parse("4-10-1 relu bias").initialise("he", seed=0)
    dag, step = before.to_dag(), 0.02
    theta = torch.tensor(dag.theta.copy())
    for _ in range(100):
        theta.requires_grad_(True)
        loss = (dag.evaluate(torch.tensor(x), theta)[:, 0] - torch.tensor(data.y)).square().mean()
        (gradient,) = torch.autograd.grad(loss, theta)
        theta = (theta - step * gradient).detach()
    found = diff(before, Mlp.from_dag(dag.with_theta(theta.numpy())), data=data)
    assert isinstance(found, Diff)
    assert found.step is not None
    print(f"balances drifted by {100 * found.relative_drift:.2f}%, so the step was at least {found.step:.4f}")
    print(f"it was {step}")
    assert 0.1 * step < found.step < 1.1 * step
    return found


if __name__ == "__main__":
    run()
