"""Does training collapse a cluster to a point, and when?

For clusters that truncation maps can treat one by one, yes: in finite time, with a bound known before the run
(P2 Proposition 4.2, corrected).
"""

from __future__ import annotations

import numpy as np

from lawful.papers.truncation.flow.predictions import confirm, hypotheses


def run() -> float:
    """Predict the time of collapse of 400 points, then watch; return prediction minus observation."""
    rng = np.random.default_rng(0)
    cluster = -rng.uniform(1.4, 1.8, size=(400, 3))
    cluster[:2] = -rng.uniform(0.25, 0.3, size=(2, 3))  # two points outside the negative sector at the start
    target, shift, rotation = np.zeros(3), np.full(3, 0.32), np.eye(3)
    found = hypotheses(cluster, target, shift, rotation)
    seen = confirm(cluster, target, shift, rotation, found.bound)
    print(f"predicted before s = {found.bound:.4f}, collapsed at s = {seen.time:.4f}")
    print(f"afterwards R moves by {seen.turned_after:.1e}, and the rate of decay is {seen.rate_after:.6f}")
    assert found.holds
    assert 0 < seen.time <= found.bound
    return found.bound - seen.time


if __name__ == "__main__":
    run()
