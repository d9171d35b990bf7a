"""Data that no order of hyperplanes parts: a wider first layer, one neuron for each cap that is cut off, parts them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog

from lawful.types import Floats, Indices

DIRECTIONS = 300  # random ones that are tried for every cap
MOST = 64  # caps before giving up
PROGRAMMED = 2000  # points up to which linear programs are solved


def caps(points: Floats, labels: Indices, seed: int = 0) -> tuple[Floats, Floats] | None:
    """Neurons `σ(w_k·x + t_k)`, positive on a cap of one cluster and zero on all others not cut off before; or None.

    A list of half-spaces decides the cluster of every point: the first that contains it says which. With factors that
    fall fast enough a sum over the list does the same, so the neurons' values are parted by hyperplanes.

    >>> found = caps(np.array([[0.0], [1.0], [2.0]]), np.array([0, 1, 0]))
    >>> len(found[1])
    2
    """
    rng = np.random.default_rng(seed)
    weights, biases = list[Floats](), list[float]()
    left = np.ones(len(points), dtype=bool)
    while len(np.unique(labels[left])) > 1:
        ways = rng.normal(size=(DIRECTIONS, points.shape[1]))
        proposals = [_cut(points[left], labels[left], way) for way in (*_steep(points[left], labels[left]), *ways)]
        weight, bias, inside = max(proposals, key=lambda each: int(each[2].sum()))
        if len(weights) == MOST or not inside.any():
            return None
        weights.append(weight)
        biases.append(bias)
        left[np.flatnonzero(left)[inside]] = False
    return np.array(weights), np.array(biases)


def _cut(points: Floats, labels: Indices, way: Floats) -> tuple[Floats, float, NDArray[np.bool_]]:
    """The cap at the low end along `way`: as far as it is of one cluster, or up to a wider gap before that."""
    heights = points @ way
    order = np.argsort(heights)
    other = np.flatnonzero(labels[order] != labels[order[0]])[0]  # there is one
    steps = np.diff(heights[order[: other + 1]])
    wide = steps.max(initial=0.0)
    enough = np.flatnonzero(steps >= wide / 4)
    if not wide > 0:
        return way, 0.0, np.zeros(len(points), dtype=bool)
    count = int(enough[-1]) + 1
    level = (heights[order[count - 1]] + heights[order[count]]) / 2
    inside = np.zeros(len(points), dtype=bool)
    inside[order[:count]] = True
    size = float(level - heights[order[0]])
    return -way / size, float(level / size), inside


def _steep(points: Floats, labels: Indices) -> list[Floats]:
    """For each cluster the way along which most of it lies below all others, by a linear program."""
    found = []
    for label in np.unique(labels) if len(points) <= PROGRAMMED else ():
        own, rest = points[labels == label], points[labels != label]
        one, two = np.ones((len(own), 1)), np.ones((len(rest), 1))
        rows = np.vstack([np.c_[own, one, -np.eye(len(own))], np.c_[-rest, -two, np.zeros((len(rest), len(own)))]])
        costs = np.r_[np.zeros(points.shape[1] + 1), np.ones(len(own))]
        bounds = [(None, None)] * (points.shape[1] + 1) + [(0.0, None)] * len(own)
        solved = linprog(costs, A_ub=rows, b_ub=-np.ones(len(rows)), bounds=bounds)
        if solved.x is not None and np.abs(solved.x[: points.shape[1]]).max() > 0:
            found.append(np.asarray(solved.x[: points.shape[1]]))
    return found
