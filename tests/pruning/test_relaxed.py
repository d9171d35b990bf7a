"""Pruning with ranges by linear relaxation: neurons that intervals cannot settle."""

from __future__ import annotations

import numpy as np

from lawful.network import Dag, Mlp
from lawful.network.relaxation import preactivation_bounds
from lawful.pruning.neurons.prune import prune


def shares_inputs() -> Dag:
    """h2.0 hears 2 relu(x0) − 2 relu(x0) − 1.2: never active, though by intervals its sum reaches 0.8."""
    weights = [[[1.0], [1.0]], [[2.0, -2.0], [1.0, 1.0]], [[1.0, 1.0]]]
    return Mlp(weights, [np.zeros(2), [-1.2, 0.0], [0.0]]).to_dag()


def test_a_neuron_that_only_lines_prove_dead_is_removed() -> None:
    dag = shares_inputs()
    assert preactivation_bounds(dag, -1.0, 1.0)[1][dag.index["h2.0"]] > 0
    broken = dag.with_theta(np.where(dag.theta == 2.0, np.nextafter(2.0, 3.0), dag.theta))  # no exact duplicates
    broken = broken.with_theta(np.where(np.arange(dag.parameters) == 0, 1.0 + 2**-30, broken.theta))
    found = prune(broken, box=(-1.0, 1.0))
    assert "dead" in [stage.kind for stage in found.stages]
    assert "dead" not in [stage.kind for stage in prune(broken, box=(-1.0, 1.0), replayable=True).stages]
    assert found.bound == 0
    assert found.measured() < 1e-12
