"""Random weights by the usual schemes, for any graph, from an explicit seed."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from lawful.errors import LawfulError
from lawful.network.dag import Dag
from lawful.network.validity import Role
from lawful.types import Floats

Draw = Callable[[np.random.Generator, Floats, Floats, NDArray[np.bool_]], Floats]


def _torch(rng: np.random.Generator, fan_in: Floats, fan_out: Floats, bias: NDArray[np.bool_]) -> Floats:
    return rng.uniform(-1.0, 1.0, len(fan_in)) / np.sqrt(fan_in)


def _he(rng: np.random.Generator, fan_in: Floats, fan_out: Floats, bias: NDArray[np.bool_]) -> Floats:
    return np.where(bias, 0.0, rng.normal(size=len(fan_in)) * np.sqrt(2.0 / fan_in))


def _xavier(rng: np.random.Generator, fan_in: Floats, fan_out: Floats, bias: NDArray[np.bool_]) -> Floats:
    return np.where(bias, 0.0, rng.uniform(-1.0, 1.0, len(fan_in)) * np.sqrt(6.0 / (fan_in + fan_out)))


def _uniform(rng: np.random.Generator, fan_in: Floats, fan_out: Floats, bias: NDArray[np.bool_]) -> Floats:
    return rng.uniform(-1.0, 1.0, len(fan_in))


SCHEMES: dict[str, Draw] = {"torch": _torch, "he": _he, "xavier": _xavier, "uniform": _uniform}


def initialise(dag: Dag, scheme: str = "torch", seed: int = 0) -> Dag:
    """The graph with random weights: `torch` (PyTorch's default for Linear), `he`, `xavier` or `uniform` on [−1, 1].

    Fan-in of an edge is the number of weights into its head, fan-out the number out of its tail, biases not counted.
    """
    if scheme not in SCHEMES:
        raise LawfulError(f"unknown initialisation {scheme!r}: choose from {', '.join(SCHEMES)}")
    bias = dag.roles[dag.tails] == Role.CONSTANT
    into = np.bincount(dag.heads[~bias], minlength=len(dag.names))
    fan_in = np.maximum(into[dag.heads], 1).astype(np.float64)
    fan_out = np.maximum(dag.out_degree[dag.tails], 1).astype(np.float64)
    return dag.with_theta(SCHEMES[scheme](np.random.default_rng(seed), fan_in, fan_out, bias))
