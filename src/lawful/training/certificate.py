"""Evidence for a run: a few snapshots, where the loss stood at each and how far the balances strayed."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from lawful.errors import LawfulError
from lawful.network import Dag, Mlp
from lawful.network.digest import digest, network_record
from lawful.training.integration.trajectory import Trajectory

POINTS = 4  # snapshots kept in a certificate
ROOM = 1e-9  # relative round-off of a loss
BALANCE_ROOM = 1e-12  # of a balance, relative to the squares of the weights


def certificate(
    network: Mlp | Dag, x: ArrayLike, y: ArrayLike, loss: str, trajectory: Trajectory, decay: float = 0.0
) -> dict[str, Any]:
    """Graph, data, snapshots, an interval for the loss at each, and the drift of the balances `B̃θ²` over them.

    With a weight decay λ the balances are compared with `e^{-2λt}` times the first ones.
    """
    if trajectory.velocity is not None:
        raise LawfulError("certificates are for gradient flows, not for heavy balls")
    dag = network.to_dag()
    short = _short(trajectory)
    theta, times = trajectory.theta[short], trajectory.times[short]
    values = (dag.hidden_incidence @ (theta**2).T).T
    drift = np.abs(values - values[0] * np.exp(-2.0 * decay * times)[:, None]).max(initial=0.0)
    labels = loss == "ce"
    targets = np.asarray(y, dtype=np.int64 if labels else np.float64).reshape(
        (-1,) if labels else (-1, len(dag.outputs))
    )
    size = float((targets**2).mean()) if loss == "mse" else 1.0
    return {
        "kind": "flow",
        "version": 1,
        "about": [digest(dag.with_theta(weights)) for weights in (theta[0], theta[-1])],
        "network": network_record(dag, weights=False),
        "x": np.asarray(x, dtype=np.float64).tolist(),
        "y": targets.tolist(),
        "loss": loss,
        "decay": float(decay),
        "times": times.tolist(),
        "theta": theta.tolist(),
        "losses": [_interval(value, size) for value in trajectory.losses[short].tolist()],
        "drift": float(drift + BALANCE_ROOM * (theta**2).sum(axis=1).max()),
    }


def _short(trajectory: Trajectory) -> list[int]:
    """A few snapshots, the first and the last among them."""
    return sorted(set(np.linspace(0, len(trajectory.times) - 1, POINTS).round().astype(int).tolist()))


def _interval(loss: float, size: float) -> list[float]:
    if not np.isfinite(loss):
        raise LawfulError("a loss along the run is not finite: there is no interval to certify")
    room = ROOM * (loss + 1e-6 * size)
    return [max(0.0, loss - room), loss + room]
