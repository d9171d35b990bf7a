"""A trained Leaky ResNet with the numbers that `lawful verify` encloses again."""

from __future__ import annotations

from typing import Any

import numpy as np

from lawful.papers.leaky.model import LeakyResNet
from lawful.papers.leaky.path import Energies
from lawful.papers.leaky.task import TeacherTask

ROOM = 1e-6  # round-off of the measured numbers, relative or absolute, whichever is larger


def certificate(network: LeakyResNet, task: TeacherTask, ridge: float, energies: Energies) -> dict[str, Any]:
    """Network and data, and intervals that hold its stationarity and the rank estimate of every layer."""
    return {
        "kind": "geodesic",
        "version": 1,
        "about": [],
        "effective_depth": float(network.effective_depth),
        "softness": float(network.softness),
        "ridge": float(ridge),
        "steps": network.steps.tolist(),
        "weights": network.weights.tolist(),
        "into": None if network.into is None else network.into.tolist(),
        "out": None if network.out is None else network.out.tolist(),
        "inputs": task.inputs.tolist(),
        "targets": task.targets.tolist(),
        "stationarity": _interval(energies.stationarity),
        "ranks": [_interval(rank) for rank in np.asarray(energies.rank).tolist()],
    }


def _interval(value: float) -> list[float]:
    room = ROOM * (1.0 + abs(value))
    return [value - room, value + room]
