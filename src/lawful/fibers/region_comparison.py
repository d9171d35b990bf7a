"""Compare two networks region by region: exact up to the linear programs' margin, feasible for small ones."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np

from lawful.fibers import region_proof
from lawful.fibers.cells import MARGIN, Cell, OutOfTime, Polyhedron, walk_cells
from lawful.fibers.domain import Domain
from lawful.fibers.reduce import Reduced
from lawful.fibers.search import Counterexample, Pair
from lawful.fibers.stack import Stack
from lawful.fibers.verdict import Different, Equal, EqualityWitness
from lawful.types import Floats

REPLAYED = "the outputs differ at this input, replayed in exact arithmetic"


def compare(pair: Pair, first: Reduced, second: Reduced, deadline: float) -> Equal | Different | str:
    """Walk all regions that the two networks cut together; or say why there is no answer."""
    if pair.tolerance == 0:
        return _compare_exactly(pair, first, second, deadline)
    count, worst = 0, 0.0
    scale = np.maximum(path_sizes(pair.first), path_sizes(pair.second))
    try:
        for ours, theirs in joint_cells(first.stack, second.stack, pair.domain, deadline):
            count += 1
            residual = affine_residual(ours, theirs, scale)
            worst = max(worst, residual)
            if residual > pair.tolerance:
                if found := _inside(pair, ours, theirs):
                    return Different("region search", REPLAYED, found, pair.domain, pair.tolerance)
                return f"the affine maps of a region differ by {residual:.1e}, too little for an input to show it"
    except OutOfTime:
        return f"{count} regions agreed before the time limit"
    witness = EqualityWitness(first.steps, second.steps, "regions", worst, regions=count)
    return Equal("region search", witness, pair.domain, pair.tolerance)


def _compare_exactly(pair: Pair, first: Reduced, second: Reduced, deadline: float) -> Equal | Different | str:
    try:
        proof = region_proof.prove_by_regions(first.stack, second.stack, pair.domain, deadline)
    except OutOfTime:
        return "not all regions were compared before the time limit"
    except region_proof.Unresolved:
        return "a region is too thin to be judged by linear programs in floats"
    except region_proof.Disagree as error:
        nudges = 1e-6 * np.random.default_rng(0).normal(size=(8, len(error.point)))
        for point in (error.point, *np.clip(error.point + nudges, pair.domain.low, pair.domain.high)):
            if found := pair.replay(point):
                return Different("region search", REPLAYED, found, pair.domain, 0.0)
        return "the affine maps of a region differ, but no input in it was found that shows it"
    witness = EqualityWitness(
        first.steps, second.steps, "regions", 0.0, regions=proof.regions, decisions=tuple(proof.decisions)
    )
    return Equal("region search in exact arithmetic", witness, pair.domain, 0.0)


def joint_cells(
    first: Stack, second: Stack, domain: Domain, deadline: float | None = None
) -> Iterator[tuple[Cell, Cell]]:
    """Regions on which both networks are affine: inside each region of the first, the regions of the second."""
    polyhedron = Polyhedron(domain)
    radius, point = polyhedron.widest()
    for ours in walk_cells(first.floating(), polyhedron, point, radius, MARGIN, deadline):
        for theirs in walk_cells(second.floating(), polyhedron, ours.point, ours.radius, MARGIN, deadline):
            if deadline is not None and time.perf_counter() > deadline:
                raise OutOfTime
            yield ours, theirs


def affine_residual(ours: Cell, theirs: Cell, scale: Floats) -> float:
    """Largest difference of two affine maps `[A | c]` relative to the terms that they sum."""
    gap = np.abs(np.column_stack([ours.matrix - theirs.matrix, ours.offset - theirs.offset]))
    if not np.isfinite(gap).all():
        return np.inf
    linear, constant = (float(part.max(initial=0.0)) for part in (scale[:, :-1], scale[:, -1]))
    return max(
        float(gap[:, :-1].max(initial=0.0)) / max(linear, 1e-300), float(gap[:, -1].max()) / max(constant, 1e-300)
    )


def path_sizes(stack: Stack) -> Floats:
    """`|W_L| … |W_1|` and the same for biases: the sum of absolute values over all paths."""
    floats = stack.floating()
    values = np.column_stack([np.eye(stack.widths[0]), np.zeros(stack.widths[0])])
    for weight, bias, slope in zip(floats.weights, floats.biases, (*stack.slopes, 1.0), strict=True):
        values = np.abs(weight) @ values * max(1.0, abs(slope))
        values[:, -1] += np.abs(bias)
    return values


def _inside(pair: Pair, ours: Cell, theirs: Cell) -> Counterexample | None:
    """Points of the common region where the difference should show."""
    ways = ours.matrix - theirs.matrix
    sizes = np.sqrt((ways**2).sum(axis=1, keepdims=True))
    ways = ways / np.where(sizes > 0, sizes, 1.0)
    radius = 0.9 * theirs.radius
    return pair.check(
        np.concatenate([theirs.point[None, :], theirs.point + radius * ways, theirs.point - radius * ways])
    )
