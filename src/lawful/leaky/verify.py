"""Re-check a saved geodesic with autograd alone: no code of the solver or of the energies is used."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from lawful.errors import CertificateError
from lawful.leaky.model import LeakyResNet
from lawful.leaky.path import Energies
from lawful.leaky.task import TeacherTask


def certificate(network: LeakyResNet, task: TeacherTask, ridge: float, energies: Energies) -> dict[str, Any]:
    """Everything needed to re-check the stationarity and the Hamiltonian, as plain JSON types."""
    return {
        "kind": "geodesic",
        "statement": (
            f"stationarity {energies.stationarity:.3g}, bottleneck rank estimate {float(np.median(energies.rank)):.4g}"
        ),
        "effective_depth": network.effective_depth,
        "softness": network.softness,
        "ridge": ridge,
        "steps": network.steps.tolist(),
        "weights": network.weights.tolist(),
        "into": None if network.into is None else network.into.tolist(),
        "out": None if network.out is None else network.out.tolist(),
        "inputs": task.inputs.tolist(),
        "targets": task.targets.tolist(),
        "stationarity": energies.stationarity,
        "ranks": energies.rank.tolist(),
    }


def verify(given: dict[str, Any]) -> None:
    """Raise `CertificateError` unless the stated stationarity and Hamiltonians are those of the network."""
    try:
        numbers = {name: float(given[name]) for name in ("effective_depth", "ridge", "softness", "stationarity")}
        arrays = {
            name: None if given[name] is None else torch.tensor(given[name], dtype=torch.float64)
            for name in ("weights", "steps", "into", "out", "inputs", "targets", "ranks")
        }
        gap, ranks = _recomputed(arrays, **numbers)
        stated, claimed = np.array(given["ranks"], dtype=float), numbers["stationarity"]
    except (KeyError, TypeError, ValueError, RuntimeError, IndexError) as error:
        raise CertificateError(f"not a geodesic certificate: {str(error)[:100]}") from None
    if not np.isfinite(claimed) or abs(gap - claimed) > 1e-6 * (1 + gap):
        raise CertificateError(f"the stationarity is {gap:.6g}, not {claimed:.6g}")
    if ranks.shape != stated.shape or not np.allclose(ranks, stated, rtol=1e-6, atol=1e-6):
        raise CertificateError("the Hamiltonians are not those of the network")


def _recomputed(
    arrays: dict[str, Any], *, effective_depth: float, ridge: float, softness: float, stationarity: float
) -> tuple[float, np.ndarray]:
    """Forward by definition, `B_ℓ = -(1/λ) ∂C/∂A_ℓ` by autograd, `-2𝓗/L̃` by its formula."""
    depth, soft = effective_depth, softness
    weights, steps, into, out, inputs, targets = (
        arrays[name] for name in ("weights", "steps", "into", "out", "inputs", "targets")
    )
    state = (inputs.T if into is None else into @ inputs.T).requires_grad_()
    states, lifts = [state], []
    for step, weight in zip(steps, weights, strict=True):
        inside = (state.abs() < soft) if soft else torch.zeros_like(state, dtype=torch.bool)
        quadratic = (state + soft) ** 2 / (4 * soft) if soft else state
        rectified = torch.where(inside, quadratic, state.clamp(min=0))
        lifts.append(torch.vstack([rectified, torch.ones(1, state.shape[1], dtype=state.dtype)]))
        state = state - step * depth * state + step * weight @ lifts[-1]
        states.append(state)
    result = state if out is None else out @ state
    cost = ((result - targets.T) ** 2).sum() / len(inputs)
    momenta = [-gradient / ridge for gradient in torch.autograd.grad(cost, states[1:])]
    gap = size = torch.zeros((), dtype=torch.float64)
    ranks = []
    for step, weight, sigma, before, momentum in zip(steps, weights, lifts, states[:-1], momenta, strict=True):
        product = momentum @ sigma.T
        gap = gap + step * ((weight - depth * product) ** 2).sum()
        size = size + step * (weight**2).sum()
        ranks.append(float((2 * (momentum * before).sum() - (product**2).sum()).detach()))
    return float(torch.sqrt(gap / size).detach()), np.array(ranks)
