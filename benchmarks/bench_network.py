"""The ground floor at a million edges: building a graph, and evaluating it beside SciPy by hand."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import scipy.sparse as sparse

from benchmarks.harness import Row, compare
from lawful.network import Architecture, Dag, initialise


def rows() -> Iterator[Row]:
    """A layered graph 1000-800-250 with 10^6 edges, and a sparse random one."""
    rng = np.random.default_rng(0)
    dag = initialise(Architecture.parse("1000-800-250 relu").to_dag(), seed=0)
    yield compare("build a Dag, 10^6 edges", lambda: Dag(dag.names, dag.roles, dag.tails, dag.heads, dag.theta))
    batch = rng.normal(size=(128, 1000))
    first = sparse.csr_array(dag.theta[:800_000].reshape(800, 1000))
    second = sparse.csr_array(dag.theta[800_000:].reshape(250, 800))

    def by_hand() -> object:
        return second @ np.maximum(first @ batch.T, 0.0)

    np.testing.assert_allclose(dag.evaluate(batch), np.asarray(by_hand()).T, rtol=1e-9, atol=1e-9)
    yield compare("evaluate 128 samples, 10^6 edges", lambda: dag.evaluate(batch), "SciPy CSR by hand", by_hand)
