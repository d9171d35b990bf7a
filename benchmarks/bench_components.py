"""The invariant set: components by dominator trees and cuts beside one linear program per edge; rebalancing."""

from __future__ import annotations

import resource
from collections.abc import Iterator

import numpy as np
from scipy.sparse.linalg import splu

from benchmarks.harness import Row, best_of, compare
from lawful.invariant_set import components, free_flows, generic_point, unlock
from lawful.invariant_set.balance import sums_of_squares
from lawful.invariant_set.certificate import certificate
from lawful.invariant_set.rebalance import _Block, _Laplacian, rebalance
from lawful.network import Architecture, Dag
from lawful.verify import verify
from reproduction.claims.components_graphs import layered_graph, least_square


def weighted(layers: int, width: int, edges: int) -> Dag:
    """A layered random graph with normal weights."""
    graph = layered_graph(layers, width, edges)
    return graph.with_theta(np.random.default_rng(1).normal(size=graph.parameters))


def rows() -> Iterator[Row]:
    """Both run at 600 edges; ours alone beyond."""
    small = weighted(8, 40, 600)
    found = components(small)
    bottlenecks = [*found.free_bottlenecks, *(lock.edge for lock in found.locked)]
    yield compare(
        f"components, {small.parameters} edges",
        lambda: components(small),
        "a linear program per bottleneck edge",
        lambda: [least_square(small, found.balance.values, edge) for edge in bottlenecks],
        repeat=2,
        note=f"{len(bottlenecks)} bottlenecks; programs for all edges cost {small.parameters / len(bottlenecks):.1f}x",
    )
    yield from _large()
    yield from _rebalancing()


def _large() -> Iterator[Row]:
    medium = weighted(20, 2000, 100_000)
    found = components(medium)
    note = f"{len(found.locked):,} locked, {len(found.free_bottlenecks):,} free bottlenecks"
    yield Row(f"components, {medium.parameters:,} edges", best_of(lambda: components(medium), 2), note=note)
    flows = list(free_flows(found))
    yield Row("flows for its free bottlenecks", best_of(lambda: list(free_flows(found)), 1), note=f"{len(flows)} flows")
    proof = certificate(found)
    yield Row("verify its certificate", best_of(lambda: verify(proof), 1))
    yield Row("unlock it", best_of(lambda: unlock(medium), 1))
    big = weighted(20, 15_000, 1_000_000)
    seconds = best_of(lambda: components(big), 1)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    yield Row(f"components, {big.parameters:,} edges", seconds, note=f"peak memory of the process {peak:.1f} GB")
    c = np.random.default_rng(0).normal(size=len(big.hidden))
    yield Row(f"a generic point, {big.parameters:,} edges", best_of(lambda: generic_point(big, c), 1))


def _rebalancing() -> Iterator[Row]:
    deep = Architecture((2, *[250] * 9, 1)).initialise(seed=0).to_dag()
    done = rebalance(deep)
    yield Row(
        f"rebalance a 10-layer MLP, {deep.parameters:,} weights",
        best_of(lambda: rebalance(deep), 2),
        note=f"{done.steps} Newton steps, residual {done.residual:.0e}",
    )
    blocks = [_Block(deep.heads, deep.tails, done.dag.theta**2)]
    laplacian = _Laplacian(blocks, deep.hidden, len(deep.names))
    right = np.random.default_rng(0).normal(size=len(deep.hidden))
    entering, leaving = sums_of_squares(done.dag)
    matrix = laplacian.matrix(entering + leaving)
    yield compare(
        "its Newton step: assemble and solve",
        lambda: laplacian.solve(right),
        "one sparse factorisation (SuperLU)",
        lambda: splu(matrix, permc_spec="NATURAL", diag_pivot_thresh=0.0, options={"SymmetricMode": True}),
    )
