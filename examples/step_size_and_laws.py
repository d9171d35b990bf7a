"""How much of a conservation law survives finite steps?

The flow keeps every balance. Gradient descent with step η moves a balance by η² c(g) a step, so over a fixed time by an
amount proportional to η, which the flow alone predicts. Adam does not follow the flow however small its steps.
"""

from __future__ import annotations

import numpy as np

from lawful import Architecture
from lawful.training import Optimizer, balances, compare, problem


def run() -> float:
    """Compare methods over the same time; return the drift of the flow."""
    network = Architecture.parse("4-8-2 relu bias").initialise(seed=0)
    rng = np.random.default_rng(0)
    at = problem(network, rng.normal(size=(20, 4)), rng.normal(size=(20, 2)))
    methods = [Optimizer.parse(text) for text in ("flow", "sgd:0.1", "sgd:0.01", "adam:0.01", "adam:0.005")]
    found = compare(at, balances(network), methods, time=2.0)
    for row in found.rows:
        predicted = "" if row.predicted_drift is None else f", predicted {row.predicted_drift:.2g}"
        print(f"{row.optimizer!s:10} loss {row.losses[-1]:.4f}  drift {row.max_drift:.2g}{predicted}")
    flow, coarse, fine, *_ = found.rows
    assert flow.max_drift < 1e-9
    assert fine.predicted_drift is not None
    assert abs(fine.max_drift / fine.predicted_drift - 1.0) < 0.1
    assert 5 < coarse.max_drift / fine.max_drift < 20
    return flow.max_drift


if __name__ == "__main__":
    run()
