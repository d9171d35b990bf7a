"""Claims about the ground floor: incidence matrices and the rescaling symmetry (P0 Section 2)."""

from __future__ import annotations

import numpy as np

from lawful.network import Architecture, Dag, Role, initialise
from reproduction.claim import Outcome, Size, claim
from reproduction.claims.extremes import largest


def example_dags(count: int, seed: int = 0) -> list[Dag]:
    """Random graphs with skips, several inputs and outputs, biases and mixed activations."""
    rng = np.random.default_rng(seed)
    dags = []
    for number in range(count):
        widths = tuple(int(width) for width in rng.integers(2, 6, size=rng.integers(3, 6)))
        skips = ((1, len(widths) - 2),) if len(widths) > 3 else ((0, 1),)
        graph = Architecture(widths, bias=bool(number % 2), skips=skips).to_dag()
        slopes = rng.choice([0.0, 0.1, 1.0], size=len(graph.names))
        dags.append(initialise(Dag(graph.names, graph.roles, graph.tails, graph.heads, None, slopes), seed=number))
    return dags


@claim(
    "p0-incidence",
    "Section 2, Figure 1",
    "B has +1 where an edge enters a node and -1 where it leaves; B-tilde keeps the hidden rows",
    size=Size("20 random DAGs", "200 random DAGs", "every DAG"),
)
def incidence(full: bool) -> Outcome:
    """Compare both matrices with their definition, entry by entry, and their column sums with 0."""
    wrong = 0
    for dag in example_dags(200 if full else 20):
        dense = np.zeros((len(dag.names), dag.parameters))
        for edge, (tail, head) in enumerate(zip(dag.tails, dag.heads, strict=True)):
            dense[head, edge], dense[tail, edge] = 1.0, -1.0
        hidden = [node for node, role in enumerate(dag.roles) if role == Role.HIDDEN]
        wrong += int(np.abs(dag.incidence.toarray() - dense).sum())
        wrong += int(np.abs(dag.hidden_incidence.toarray() - dense[hidden]).sum())
        wrong += int(np.abs(dag.incidence.sum(axis=0)).sum())
    return Outcome(wrong == 0, {"wrong_entries": wrong})


@claim(
    "p0-rescaling",
    "Section 2",
    "rescaling a hidden neuron's incoming weights by a and its outgoing weights by 1/a keeps the function, "
    "for ReLU and leaky ReLU neurons of any DAG",
    size=Size("20 random DAGs", "200 random DAGs", "every DAG"),
)
def rescaling(full: bool) -> Outcome:
    """Rescale every hidden neuron at random and compare outputs; a *negative* factor must change the function."""
    rng = np.random.default_rng(1)
    worst = 0.0
    for dag in example_dags(200 if full else 20):
        batch = rng.normal(size=(64, len(dag.inputs)))
        before = dag.evaluate(batch)
        after = dag.rescaled(np.exp(rng.normal(size=len(dag.hidden)))).evaluate(batch)
        worst = largest(worst, float(np.abs(after - before).max() / np.abs(before).max()))
    neuron = initialise(Architecture.parse("2-1-1 relu").to_dag(), seed=1)
    flipped = neuron.with_theta(-neuron.theta)
    batch = rng.normal(size=(64, 2))
    negative = float(np.abs(flipped.evaluate(batch) - neuron.evaluate(batch)).max())
    return Outcome(
        worst < 1e-12 and negative > 1e-3,
        {"relative_change": worst, "change_under_a_negative_factor": negative},
    )


CLAIMS = (incidence, rescaling)
