"""Evidence for a run, and a dull second program that re-checks it: autograd for gradients, classical RK4 for time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import scipy.sparse as sparse
from numpy.typing import ArrayLike

from lawful.errors import CertificateError, LawfulError
from lawful.flow.trajectory import Trajectory
from lawful.network import Dag, Mlp
from lawful.network.dynamics import Metric
from lawful.types import Floats

KIND = "flow"
POINTS = 4  # snapshots kept in a certificate
SUBSTEPS = (25, 100, 400)  # of RK4 between two of them: more if fewer do not suffice


def certificate(
    network: Mlp | Dag,
    x: ArrayLike,
    y: ArrayLike,
    loss: str,
    trajectory: Trajectory,
    decay: float = 0.0,
    metric: Metric | None = None,
) -> dict[str, Any]:
    """A gradient flow as JSON: graph, data, a few snapshots, and the drift of the balances `B̃θ²` over them."""
    if trajectory.velocity is not None:
        raise LawfulError("certificates are for gradient flows, not for heavy balls")
    dag = network.to_dag()
    short = _short(trajectory)
    theta = trajectory.theta[short]
    values = (dag.hidden_incidence @ (theta**2).T).T
    drift = values - values[0] * np.exp(-2.0 * decay * trajectory.times[short])[:, None]
    return {
        "kind": KIND,
        "statement": f"{'gradient' if metric is None else metric} flow of {dag!r} under {loss} for time "
        f"{trajectory.times[short][-1]:g}",
        "nodes": [[name, int(role), float(slope)] for name, role, slope in zip(*_nodes(dag), strict=True)],
        "edges": [[int(tail), int(head)] for tail, head in zip(dag.tails, dag.heads, strict=True)],
        "x": np.asarray(x, dtype=np.float64).tolist(),
        "y": np.asarray(y, dtype=np.float64).tolist(),
        "loss": loss,
        "decay": decay,
        "metric": None if metric is None else metric.to_json(),
        "times": trajectory.times[short].tolist(),
        "theta": theta.tolist(),
        "losses": trajectory.losses[short].tolist(),
        "drift": float(np.abs(drift).max(initial=0.0)),
    }


def _short(trajectory: Trajectory) -> list[int]:
    """A few snapshots, the first and the last among them."""
    return sorted(set(np.linspace(0, len(trajectory.times) - 1, POINTS).round().astype(int).tolist()))


def _nodes(dag: Dag) -> tuple[Any, Any, Any]:
    return dag.names, dag.roles.tolist(), dag.slopes.tolist()


def verify(given: Mapping[str, Any]) -> None:
    """Raise `CertificateError` unless losses, balances and motion are what the certificate states.

    The motion is re-integrated by RK4 with fixed steps; it must land within 1% of each stretch's length, the price of
    stepping over kinks blindly.
    """
    try:
        theta, times = np.array(given["theta"], dtype=np.float64), np.array(given["times"], dtype=np.float64)
        names, roles, slopes = ([node[part] for node in given["nodes"]] for part in range(3))
        tails, heads = ([edge[part] for edge in given["edges"]] for part in range(2))
        dag = Dag(names, roles, tails, heads, theta[0], slopes)
        x, y, decay = np.array(given["x"]), np.array(given["y"]), float(given["decay"])
        losses, stated = [float(value) for value in given["losses"]], float(given["drift"])
        loss = str(given["loss"])
        metric = _dense(given.get("metric"), dag.parameters)
    except (KeyError, TypeError, ValueError, IndexError, LawfulError) as error:
        raise CertificateError(f"the certificate is incomplete or damaged ({error})") from None
    if theta.shape != (len(times), dag.parameters) or len(losses) != len(times) or len(times) < 2:
        raise CertificateError("snapshots, times and losses do not fit together")
    if not np.isfinite(theta).all() or (np.diff(times) <= 0).any():
        raise CertificateError("times must increase and parameters be finite")
    _check_balances(dag, theta, times, decay, stated)
    value = _autograd(dag, x, y, loss)
    for number, parameters in enumerate(theta):
        found = value(parameters)[0]
        if abs(found - losses[number]) > 1e-9 * max(1.0, abs(found)):
            raise CertificateError(f"the loss at t = {times[number]:g} is {found:.12g}, not {losses[number]:.12g}")
    for number in range(len(times) - 1):
        span = float(times[number + 1] - times[number])
        length = float(np.linalg.norm(theta[number + 1] - theta[number]))
        for substeps in SUBSTEPS:
            ended = _rk4(lambda at: -(metric @ value(at)[1]) - decay * at, theta[number], span, substeps)
            miss = float(np.linalg.norm(ended - theta[number + 1]))
            if miss <= 0.01 * length + 1e-9:
                break
        else:
            raise CertificateError(
                f"from t = {times[number]:g} to {times[number + 1]:g} the flow ends {miss:.3g} from the stated point"
            )


def _dense(given: Mapping[str, Any] | None, size: int) -> sparse.csr_array:
    """The matrix that multiplies the gradient: 1 unless a diagonal or blocks say otherwise."""
    if given is not None and "diagonal" in given:
        scale = np.array(given["diagonal"], dtype=np.float64)
        if scale.shape != (size,) or not (scale > 0).all():
            raise ValueError("the metric is not one positive number per parameter")
        return sparse.csr_array(sparse.diags_array(scale))
    found = sparse.lil_array(sparse.eye_array(size))
    for block in [] if given is None else given["blocks"]:
        where, matrix = list(block["weights"]), np.array(block["matrix"], dtype=np.float64)
        np.linalg.cholesky(matrix)
        for row, line in zip(where, matrix, strict=True):
            for column, entry in zip(where, line, strict=True):
                found[row, column] = entry
    return sparse.csr_array(found)


def _check_balances(dag: Dag, theta: Floats, times: Floats, decay: float, stated: float) -> None:
    worst = 0.0
    for node in dag.hidden:
        into, out = dag.heads == node, dag.tails == node
        values = [float((row[into] ** 2).sum() - (row[out] ** 2).sum()) for row in theta]
        for value, time in zip(values, times, strict=True):
            worst = max(worst, abs(value - values[0] * float(np.exp(-2.0 * decay * time))))
    if worst > stated + 1e-12 * max(1.0, float((theta**2).sum(axis=1).max())):
        raise CertificateError(f"the balances drift by {worst:.3g}, more than the stated {stated:.3g}")


def _autograd(dag: Dag, x: Floats, y: Floats, loss: str) -> Callable[[Floats], tuple[float, Floats]]:
    import torch
    from torch.nn import functional

    inputs = torch.as_tensor(x, dtype=torch.float64)
    outputs = len(dag.outputs)
    if loss not in ("mse", "bce", "ce"):
        raise CertificateError(f"unknown loss {loss[:40]!r}")
    try:
        target = torch.as_tensor(y).long().reshape(-1) if loss == "ce" else torch.as_tensor(y).reshape(-1, outputs)
    except RuntimeError:
        raise CertificateError("the targets do not fit the outputs") from None

    def value(theta: Floats) -> tuple[float, Floats]:
        weights = torch.tensor(theta, requires_grad=True)
        answer = dag.evaluate(inputs, weights)
        if loss == "mse":
            found = functional.mse_loss(answer, target.double())
        elif loss == "bce":
            found = functional.binary_cross_entropy_with_logits(answer, target.double())
        else:
            found = functional.cross_entropy(answer, target)
        (gradient,) = torch.autograd.grad(found, weights)
        return found.item(), gradient.numpy()

    try:
        value(dag.theta)
    except (RuntimeError, ValueError, IndexError, LawfulError) as error:
        raise CertificateError(f"the data do not fit the network: {str(error)[:80]}") from None
    return value


def _rk4(field: Callable[[Floats], Floats], state: Floats, time: float, substeps: int) -> Floats:
    step = time / substeps
    for _ in range(substeps):
        first = field(state)
        second = field(state + 0.5 * step * first)
        third = field(state + 0.5 * step * second)
        fourth = field(state + step * third)
        state = state + step / 6.0 * (first + 2.0 * second + 2.0 * third + fourth)
    return state
