"""Can a network of zero loss be written down instead of trained?

If the classes are linearly separable, yes: each layer collapses one class to a point and leaves the others alone, and
the last affine map sends the points to the labels (P2 Section 3).
"""

from __future__ import annotations

from sklearn.datasets import load_wine

from lawful.papers.truncation.clusters import Clusters
from lawful.papers.truncation.construction import ZeroLoss, zero_loss_network


def run() -> float:
    """Build a network for the wine data; return its loss."""
    data = Clusters(*load_wine(return_X_y=True))
    built = zero_loss_network(data)
    assert isinstance(built, ZeroLoss)
    chosen = built.network.evaluate(data.points).argmax(axis=1)
    print(f"{built.network}: loss {built.loss:.1e}, {(chosen == data.labels).mean():.0%} of the wines classified")
    assert built.loss < 1e-12
    return built.loss


if __name__ == "__main__":
    run()
