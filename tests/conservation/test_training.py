"""Three statements that must not be mixed: laws of φ, complete near weights, complete somewhere."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from lawful import Architecture, LawfulError
from lawful.conservation import HeavyBall, count_laws
from lawful.conservation.certificate import certificate
from lawful.conservation.near_random_weights import training_laws
from lawful.verify import verify


@pytest.mark.parametrize(
    "text",
    ["3-4-2 relu bias", "2-3-3-1 relu", "2-2-2-1 relu", "1-2-2-1 relu bias", "2-2-2 leaky_relu(0.1)", "1-2-1 relu"],
)
def test_weights_at_which_the_laws_of_phi_are_all(text: str) -> None:
    count = count_laws(text)
    found = training_laws(count)
    assert found is not None
    assert found.witness is not None
    assert (found.witness.laws, found.witness.status, found.witness.claim) == (count.laws, "proved", "somewhere")
    assert found.witness.dag is not None
    alone = count_laws(found.witness.dag, level="near", seed=7)
    assert (alone.laws, alone.status, alone.claim) == (count.laws, "proved", "near")
    assert sum(found.near.values()) == 8
    assert sum(found.shares.values()) == pytest.approx(1)


def test_one_input_without_bias_has_more_laws_near_every_weight_vector() -> None:
    """Inputs x > 0 and x < 0 have one activation pattern each: 5 to 8 laws where φ has 4."""
    count = count_laws("1-2-2-1 relu")
    found = training_laws(count, weights=3)
    assert found is not None
    assert (count.laws, found.witness, found.always) == (4, None, (5, 8))
    assert all(5 <= laws <= 8 for laws in found.near)


@pytest.mark.parametrize("seed", range(2))
def test_the_bounds_for_one_input_agree_with_autodiff(seed: int) -> None:
    """Gradients at inputs 1 and −1 and all their brackets up to three deep, in float64."""
    found = training_laws(count_laws("1-2-2-1 relu"), weights=1)
    assert found is not None
    assert found.always is not None
    dag = Architecture.parse("1-2-2-1 relu").to_dag().with_theta(np.random.default_rng(seed).normal(size=8))

    def field(x: float):  # type: ignore[no-untyped-def]
        return torch.func.grad(lambda theta: dag.evaluate(torch.tensor([[x]], dtype=torch.float64), theta).sum())

    def bracket(f, g):  # type: ignore[no-untyped-def]
        return lambda t: torch.func.jvp(f, (t,), (g(t),))[1] - torch.func.jvp(g, (t,), (f(t),))[1]

    fields = every = [field(1.0), field(-1.0)]
    for _ in range(2):
        every = every + [bracket(f, g) for f in fields for g in every]
    theta = torch.tensor(dag.theta)
    rows = np.array([f(theta).numpy() for f in every])
    rank = np.linalg.matrix_rank(rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-9), tol=1e-8)
    assert found.always[0] <= 8 - rank <= found.always[1]


def test_the_given_weights_are_looked_at_first() -> None:
    network = Architecture.parse("2-3-3-1 relu").initialise(seed=2)
    found = training_laws(count_laws(network), weights=1)
    assert found is not None
    assert found.near == {count_laws(network, level="near").laws: 1}


def test_where_there_is_nothing_to_compare() -> None:
    assert training_laws(count_laws("3-3-3 linear")) is None
    assert training_laws(count_laws("2-2-2 relu", flow=HeavyBall())) is None
    assert training_laws(count_laws("2-2-2 relu"), weights=0) is None
    assert count_laws("3-3-3 linear").claim == "near"
    assert count_laws("2-2-2 relu").claim == "phi"


def test_what_the_command_says(lawful) -> None:  # type: ignore[no-untyped-def]
    somewhere = lawful("laws", "3-4-2 relu bias", "--weights", 2, "--json").json
    assert (somewhere["claim"], somewhere["near"]["counts"], somewhere["near"]["weights"]) == ("somewhere", {"4": 2}, 2)
    assert len(somewhere["near"]["witness"]) == somewhere["parameters"]
    more = lawful("laws", "1-2-2-1 relu", "--json").json
    assert (more["claim"], more["laws"], more["near"]["always"]) == ("phi", 4, [5, 8])
    words = " ".join(lawful("laws", "1-2-2-1 relu").stdout.split())
    assert "near almost every weight vector training has at least 5 laws, more than those of φ" in words
    assert "reaches every direction" not in words
    assert "reaches every direction" in " ".join(lawful("laws", "3-3-3 linear").stdout.split())
    assert lawful("laws", "3-3-3 linear", "--json").json["near"] is None
    assert "--weights takes" in lawful("laws", "3-3-3", "--weights", -1, code=2).stderr
    with pytest.raises(LawfulError):
        count_laws("2-2-2 relu", level="somewhere")


def test_the_certificate_is_about_the_witness(lawful, tmp_path) -> None:  # type: ignore[no-untyped-def]
    import json

    path = tmp_path / "proof.json"
    lawful("laws", "2-3-3-1 relu", "--certificate", path)
    claim = json.loads(path.read_text())
    assert (claim["level"], claim["laws"]) == ("near", 6)
    assert "which hold at all weights of architecture" in lawful("verify", path).stdout
    lawful("laws", "3-4-2 relu bias", "--weights", 0, "--certificate", path)
    assert "at almost all weights" in lawful("verify", path).stdout


def test_a_certificate_is_about_the_file_that_was_given(lawful, tmp_path) -> None:  # type: ignore[no-untyped-def]
    """Near these weights there are nine laws, near others the six of all weights: those others are in the proof."""
    path, file, other = tmp_path / "proof.json", tmp_path / "weights.pt", tmp_path / "other.pt"
    torch.manual_seed(0)
    sizes = ((3, 2), (3, 3), (1, 3))
    weights = {f"{2 * k}.weight": torch.nn.Linear(n, m, bias=False).weight.detach() for k, (m, n) in enumerate(sizes)}
    torch.save(weights, file)
    torch.save(weights | {"0.weight": torch.ones(3, 4)}, other)
    for options, laws in (((), 6), (("--near",), 9)):
        assert lawful("laws", file, *options, "--certificate", path, "--json").json["laws"] == laws
        assert lawful("verify", path, file, "--json").json["facts"]["laws"] == laws
        assert f"not about {other}" in lawful("verify", path, other, code=1).stdout
    assert "not about 2-3-3-1" in lawful("verify", path, "2-3-3-1 relu", code=1).stdout  # near its weights alone


@pytest.mark.parametrize("text", ["2-3-6-9-2 relu", "3-2-6-5-10-9 relu"])
def test_weights_are_found_by_bending_neurons(text: str) -> None:
    """Narrow first layers leave random deep neurons always on or off (P1 Appendix I draws both architectures)."""
    count = count_laws(text)
    found = training_laws(count, weights=1)
    assert found is not None
    assert found.witness is not None
    assert (found.witness.laws, found.witness.status) == (count.laws, "proved")
    assert verify(certificate(found.witness)).facts["claim"] == "somewhere"
