"""A proof of components verifies, and no tampered one does."""

from __future__ import annotations

import copy
import json

import numpy as np
import pytest
from effort import trials
from forging import REFUSED, Proof, changed, signed

from lawful import Architecture, CertificateError, Dag, NotACertificate
from lawful.invariant_set import components, generic_point
from lawful.invariant_set.certificate import certificate
from lawful.verify import verify
from reproduction.claims.components_graphs import layered_graph, some_balance, some_graph


@pytest.mark.parametrize("seed", range(trials(13, 40)))
def test_proofs_of_random_graphs_verify_after_a_trip_through_json(seed: int) -> None:
    dag = some_graph(seed)
    verify(json.loads(json.dumps(certificate(components(dag, some_balance(dag, seed))))))


def test_proofs_of_real_weights_verify() -> None:
    for seed in range(10):
        dag = generic_point(some_graph(seed), np.random.default_rng(seed).normal(size=len(some_graph(seed).hidden)))
        proof = certificate(components(dag))
        assert proof["tolerance"] == 0
        verify(json.loads(json.dumps(proof)))


def test_marginal_edges_are_proved_free_within_the_tolerance() -> None:
    """Round-off of either sign at every bottleneck."""
    graph = Architecture.parse("2-40-1").to_dag()
    c = np.random.default_rng(0).normal(size=40) * 1e-17
    found = components(graph, c, tolerance=1e-14)
    assert found.connected
    assert len(found.marginal) > 10
    proof = certificate(found)
    assert len(proof["flows"]) < 4
    verify(proof)
    with pytest.raises(CertificateError, match="stated balance"):
        verify(proof | {"tolerance": 0})


def test_a_large_proof_stays_small_and_verifies() -> None:
    dag = layered_graph(10, 200, 5000)
    proof = certificate(components(dag, some_balance(dag, 1)))
    assert proof["log2_components"] > 200
    assert len(json.dumps(proof)) < 300_000
    verify(proof)


TAMPERED = {
    "another count": changed("log2_components", to=lambda count: count + 1),
    "the other answer": changed("connected", to=lambda answer: not answer),
    "a lock less": changed("locked", to=lambda locks: locks[1:]),
    "a lock twice": changed("locked", to=lambda locks: [*locks, locks[0]]),
    "a node less in T": changed("locked", 0, "nodes", to=lambda nodes: nodes[1:]),
    "an input in T": changed("locked", 0, "nodes", to=lambda nodes: [*nodes, 0]),
    "the other side": changed("locked", 0, "side", to=lambda side: {"out": "in", "in": "out"}[side]),
    "an unknown side": changed("locked", 0, "side", to=lambda side: "up"),
    "another balance": changed("balance", 2, to=lambda units: units + 1),
    "a balance too few": changed("balance", to=lambda units: units[1:]),
    "a flow less": changed("flows", to=lambda flows: flows[1:]),
    "more flow": changed("flows", 0, "squares", 0, 1, to=lambda units: units + 1),
    "negative flow": changed("flows", 0, "squares", 0, 1, to=lambda units: -units),
    "a flow that frees an edge it uses": changed("flows", 0, to=lambda flow: flow | {"frees": [flow["squares"][0][0]]}),
    "an edge that does not exist": changed("flows", 0, "frees", to=lambda frees: [*frees, 999]),
    "an edge twice": changed("network", "edges", 1, to=lambda edge: [0, 2]),
    "an edge backwards": changed("network", "edges", to=lambda edges: [edge[::-1] for edge in edges]),
    "a cycle": changed("network", "edges", to=lambda edges: [*edges, [4, 2]]),
    "a role that is none": changed("network", "roles", 0, to=lambda role: 7),
    "a hidden node that is an input": changed("network", "roles", 2, to=lambda role: 0),
    "a negative tolerance": changed("tolerance", to=lambda units: -1),
    "a loose tolerance": changed("tolerance", to=lambda units: 10**6),
    "a fraction for a number": changed("balance", 0, to=lambda units: units + 0.5),
    "no roles": changed("network", "roles", to=lambda roles: None),
    "a statement": lambda proof: proof.update(statement="connected"),
    "a denominator of zero": changed("denominator", to=lambda units: 0),
}


@pytest.fixture
def proof() -> Proof:
    """The toy DAG of P0 Figure 2d, locked by a set of three, beside two neurons of which one needs the other."""
    names = ("a", "b", "2", "3", "4", "5", "6", "y")
    tails, heads = zip((0, 2), (2, 3), (2, 4), (1, 3), (3, 4), (4, 7), (1, 5), (5, 6), (0, 6), (6, 7), strict=True)
    graph = Dag(names, [0, 0, 1, 1, 1, 1, 1, 2], tails, heads)
    found = components(graph, [-5, 1, 3, -1, 2])
    assert [lock.edge for lock in found.locked] == [5, 7]
    assert found.free_bottlenecks == (0, 4, 6, 9)
    return certificate(found)


@pytest.mark.parametrize("name", TAMPERED)
def test_tampered_proofs_are_rejected(proof: Proof, name: str) -> None:
    verify(proof)
    broken = copy.deepcopy(proof)
    TAMPERED[name](broken)
    assert broken != proof
    with pytest.raises(REFUSED):
        verify(signed(broken))


@pytest.mark.parametrize("key", ["network", "balance", "locked", "flows", "tolerance", "version", "kind", "about"])
def test_a_missing_part_is_malformed(proof: Proof, key: str) -> None:
    with pytest.raises(NotACertificate, match="missing"):
        verify({name: value for name, value in proof.items() if name != key})
