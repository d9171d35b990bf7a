"""Removing neurons that others can stand in for: what is certified is never exceeded."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lawful.errors import CertificateError, LawfulError, NotACertificate, Unsupported
from lawful.network import Architecture, Mlp
from lawful.pruning import size_curve
from lawful.pruning.neurons.certificate import prune_with_certificate
from lawful.pruning.neurons.prune import prune
from lawful.pruning.neurons.surrogates import samples
from lawful.sources.files import read, write
from lawful.verify import verify


def trained(seed: int = 0, hidden: tuple[int, ...] = (12, 8)) -> Mlp:
    """Wide layers with weights that mostly repeat each other: what training leaves, without training."""
    rng = np.random.default_rng(seed)
    widths = (3, *hidden, 2)
    weights, biases = [], []
    for below, above in pairwise(widths):
        patterns = rng.normal(size=(4, below))
        rows = patterns[rng.integers(4, size=above)] + 0.01 * rng.normal(size=(above, below))
        weights.append(rows * np.sqrt(2 / below))
        biases.append(0.05 * rng.normal(size=above))
    return Mlp(weights, biases)


def worst(one: Mlp, other: Any, low: float = -1.0, high: float = 1.0) -> np.ndarray[Any, Any]:
    batch = samples((np.full(3, low), np.full(3, high)), 7)
    return np.abs(one.evaluate(batch) - other.evaluate(batch)).max(axis=0)


@pytest.mark.parametrize("tolerance", [0.05, 0.3, 1.0])
def test_no_output_moves_further_than_allowed(tolerance: float) -> None:
    mlp = trained()
    found = prune(mlp, tolerance=tolerance, box=(-1.0, 1.0))
    assert (worst(mlp, found.network) <= np.array(found.bounds)).all()
    assert found.bound + found.rounding <= tolerance
    assert found.neurons_after <= prune(mlp, tolerance=tolerance, box=(-1.0, 1.0), replayable=True).neurons_after
    assert sum(len(stage.removed) for stage in found.stages) == found.neurons_before - found.neurons_after


def test_stand_ins_remove_more_than_constants_and_twins() -> None:
    """Three neurons span what the others say, and no two are alike."""
    rng = np.random.default_rng(0)
    mixed = rng.normal(size=(12, 3)) @ rng.normal(size=(3, 3))
    mlp = Mlp([np.eye(3), np.maximum(mixed, 0) + 0.1, rng.normal(size=(2, 12))], [np.ones(3), np.ones(12), np.zeros(2)])
    options = {"tolerance": 0.05, "box": (-0.5, 0.5)}
    replayed = prune(Mlp(mlp.weights, mlp.biases, [0.0, 0.999]), **options, replayable=True)
    assert prune(Mlp(mlp.weights, mlp.biases, [0.0, 0.999]), **options).neurons_after <= replayed.neurons_after


def test_a_larger_tolerance_removes_no_less_and_units_do_not_matter() -> None:
    mlp = trained(1)
    sizes = [prune(mlp, tolerance=tolerance).neurons_after for tolerance in (0.02, 0.5)]
    assert sizes == sorted(sizes, reverse=True)
    times = Mlp([*mlp.weights[:-1], mlp.weights[-1] * 2.0**20], [*mlp.biases[:-1], mlp.biases[-1] * 2.0**20])
    assert prune(times, tolerance=0.5 * 2**20).neurons_after == sizes[1] < 20
    relative = prune(times, tolerance=0.1, relative=True)
    assert relative.neurons_after == prune(mlp, tolerance=0.1, relative=True).neurons_after < 20


def test_one_tolerance_for_each_output() -> None:
    mlp = trained(2)
    found = prune(mlp, tolerance=np.array([0.01, 5.0]))
    assert found.bounds[0] <= 0.01


def test_keep_and_curve_agree() -> None:
    mlp = trained(3)
    kept = prune(mlp, keep=10)
    assert kept.neurons_after == 10
    assert (worst(mlp, kept.network) <= np.array(kept.bounds)).all()
    points = size_curve(mlp, points=6)
    assert [point.neurons for point in points] == sorted((point.neurons for point in points), reverse=True)
    assert points[0].bound < 1e-9
    assert points[-1].neurons == 2
    assert prune(mlp, keep=100).neurons_after == 20
    with pytest.raises(LawfulError, match="fewer than the 2 layers"):
        prune(mlp, keep=1)
    with pytest.raises(Unsupported, match="layered"):
        prune(mlp, keep=5, skips=True)
    assert prune(mlp.to_dag(), keep=5).neurons_after == 5


def test_the_data_give_the_box() -> None:
    mlp = trained(4)
    data = 0.3 * np.random.default_rng(0).random((50, 3))
    found = prune(mlp, tolerance=0.1, data=data)
    assert found.box is not None
    assert (found.box[1] == data.max(axis=0)).all()
    assert found.change_on(data) <= found.bound
    assert found.neurons_after <= prune(mlp, tolerance=0.1, box=(-1.0, 1.0)).neurons_after


@pytest.mark.parametrize("tolerance", [-1.0, float("nan"), float("inf"), np.array([1.0])])
def test_bad_tolerances_are_refused(tolerance: Any) -> None:
    with pytest.raises(LawfulError, match="tolerance"):
        prune(trained(), tolerance=tolerance)


def test_the_command_line(lawful: Any, tmp_path: Path) -> None:
    file, out, data = tmp_path / "a.safetensors", tmp_path / "b.safetensors", tmp_path / "d.npz"
    write(trained(), file)
    np.savez(data, x=np.random.default_rng(0).uniform(-0.5, 0.5, (40, 3)))
    got = lawful("prune", file, "--tolerance", "10%", "--data", data, "--out", out, "--json").json
    assert got["neurons_after"] == len(read(out).to_dag().hidden) < 20
    assert got["change_on_data"] <= got["max_output_change_bound"]
    assert len(got["bounds"]) == len(got["output_range"]) == 2
    assert max(b / r for b, r in zip(got["bounds"], got["output_range"], strict=True)) <= 0.1
    text = lawful("prune", file, "--tolerance", "10%", "--data", data).stdout
    assert "on the 40 samples of the data" in text
    assert lawful("prune", file, "--keep", 8, "--json").json["neurons_after"] == 8
    table = lawful("prune", file, "--curve").stdout.splitlines()
    assert table[0].split()[0] == "neurons"
    assert len(table) > 5
    assert lawful("prune", file, "--curve", "--json").json["curve"][-1]["neurons"] == 2
    boxed = lawful("prune", file, "--box", "0:1,-1:1,0.5", "--json").json
    assert boxed["box"] == [[0.0, -1.0, 0.5], [1.0, 1.0, 0.5]]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--tolerance", "much"), "--tolerance takes"),
        (("--tolerance", "-1"), "tolerance"),
        (("--box", "1,-1"), "give finite lo <= hi"),
        (("--box", "0:1,0:1"), "inputs"),
        (("--data", "absent.csv"), "absent.csv"),
        (("--out", "no/such/folder/a.npz"), "its folder does not exist"),
    ],
)
def test_bad_input_is_one_line(lawful: Any, tmp_path: Path, options: tuple[str, ...], words: str) -> None:
    write(Architecture.parse("3-4-2 relu bias").initialise(), tmp_path / "a.npz")
    error = lawful("prune", tmp_path / "a.npz", *options, code=2, cwd=tmp_path).stderr
    assert words in error
    assert len(error.strip().splitlines()) == 1


def test_around_the_data_more_can_go_than_on_their_box() -> None:
    """Samples on a line in a box of four dimensions: the bound holds near each of them, and is checked there."""
    rng = np.random.default_rng(0)
    mlp = Architecture.parse("4-12-8-2 relu bias").initialise(seed=1)
    data = rng.uniform(-1, 1, (60, 1)) @ np.array([[1.0, -0.5, 0.25, 0.75]])
    on_the_box = prune(mlp, tolerance=0.05, data=data)
    near = prune(mlp, tolerance=0.05, data=data, around=0.02)
    assert near.neurons_after < on_the_box.neurons_after
    assert near.around == 0.02
    assert near.bound <= 0.05
    points = data[rng.integers(60, size=2000)] + rng.choice([-0.02, 0.0, 0.02], (2000, 4))
    assert near.change_on(points) <= near.bound
    assert near.change_on(data) <= near.bound
    with pytest.raises(LawfulError, match="around the data"):
        prune(mlp, tolerance=0.05, around=0.02)
    with pytest.raises(LawfulError, match="around the data"):
        prune(mlp, tolerance=0.05, data=data, around=-1.0)


def test_around_samples_is_beyond_the_box_of_the_data_too() -> None:
    """An input that is 0 in all samples still differs by up to the radius: neurons that read it alone are not dead."""
    weights = [np.array([[1.0, 0.0], [0.0, 1.0], [0.0, -1.0]]), np.array([[1.0, 50.0, 50.0]])]
    mlp = Mlp(weights, [np.zeros(3), np.zeros(1)])
    data = np.array([[0.25, 0.0], [0.75, 0.0]])
    points = np.array([[x, y] for x in (0.15, 0.85) for y in (-0.1, 0.1)])
    for found in (prune(mlp, tolerance=0.01, data=data, around=0.1), prune(mlp, keep=2, data=data, around=0.1)):
        assert found.change_on(points) <= found.bound
        assert not found.cut_off
        assert "for every input within 0.1" in str(found) or found.bound == 0
    smallest = size_curve(mlp, data=data, around=0.1)[-1]
    assert smallest.bound >= 2.5  # |50 y| is at best 2.5 from one number
    inside = prune(mlp, tolerance=0.01, data=data, around=0.1, box=([0.0, 0.0], [1.0, 0.0]))
    assert inside.neurons_after == 1
    assert inside.bound <= 0.01
    kept = prune(mlp, keep=2, data=data, around=0.1, box=([0.0, 0.0], [1.0, 0.05]))
    assert kept.around is None or "for every input of the box within 0.1" in str(kept)
    with pytest.raises(LawfulError, match="outside of the box"):
        prune(mlp, keep=1, data=data, around=0.1, box=(0.0, 0.5))


def test_the_command_line_draws_curves_and_bounds_near_the_data(lawful: Any, tmp_path: Path) -> None:
    data = np.random.default_rng(0).uniform(-1, 1, (20, 1)) @ np.array([[1.0, -0.5]])
    np.savez(tmp_path / "data.npz", x=data)
    options = ("prune", "2-6-4-1 relu bias", "--data", tmp_path / "data.npz", "--around", "0.01")
    got = lawful(*options, "--tolerance", "0.1", "--json").json
    assert got["around"] == 0.01
    assert max(got["bounds"]) <= 0.1
    assert "within 0.01 of a sample" in lawful(*options, "--keep", "4").stdout
    plot = tmp_path / "curve.svg"
    lawful(*options, "--curve", "--plot", plot)
    assert "<svg" in plot.read_text()
    assert "--curve" in lawful(*options, "--tolerance", "0.1", "--plot", plot, code=2).stderr


def test_what_stand_ins_and_relaxations_claim_is_re_checked() -> None:
    mlp = trained()
    replayed = prune(mlp, tolerance=1.0, replayable=True)
    found, proof = prune_with_certificate(mlp, tolerance=1.0)
    assert found.neurons_after < replayed.neurons_after
    assert proof["kind"] == "distance"
    assert found.bound <= 1.0
    assert f"at most {found.bound:.6g}"[:14] in verify(proof).statement
    assert (worst(mlp, found.network) <= found.bounds).all()
    proof["upper"] = str(Fraction(float(worst(mlp, found.network).max())) / 2)
    with pytest.raises(CertificateError):
        verify(proof)


def test_certificates_without_stand_ins_are_replays() -> None:
    exact, proof = prune_with_certificate(Architecture.parse("3-4-2 relu bias").initialise())
    assert (proof["kind"], exact.bound) == ("pruning", 0.0)
    kept, proof = prune_with_certificate(trained(), keep=8)
    assert (proof["kind"], kept.neurons_after) == ("distance", 8)
    verify(proof)


def test_bounds_around_samples_are_re_checked_box_by_box(lawful: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    mlp = Architecture.parse("4-12-8-2 relu bias").initialise(seed=1)
    data = rng.uniform(-1, 1, (30, 1)) @ np.array([[1.0, -0.5, 0.25, 0.75]])
    found, proof = prune_with_certificate(mlp, tolerance=0.05, data=data, around=0.02)
    assert found.around == 0.02
    assert found.bound <= 0.05
    said = verify(proof, mlp, found.network, data)
    assert said.given == (0, 1, 2)
    assert "within 0.02 of one of 30 samples" in said.statement
    for place, to in (
        ("radius", "1"), ("radius", "-1/50"), ("samples", (data + 0.5).tolist()), ("samples", []),
    ):  # fmt: skip
        with pytest.raises((CertificateError, NotACertificate)):
            verify(proof | {"near": proof["near"] | {place: to}})
    with pytest.raises(CertificateError):
        verify(proof | {"upper": str(Fraction(proof["upper"]) / 2)})
    with pytest.raises(CertificateError):
        verify(proof | {"tree": [0]})
    write(mlp, tmp_path / "a.npz")
    np.savez(tmp_path / "data.npz", x=data)
    options = ("--data", tmp_path / "data.npz", "--around", "0.02", "--certificate", tmp_path / "proof.json")
    lawful("prune", tmp_path / "a.npz", "--tolerance", "0.05", *options, "--verify")
    assert "30 samples" in lawful("verify", tmp_path / "proof.json", tmp_path / "a.npz", tmp_path / "data.npz").stdout


def test_the_command_line_certifies_tolerances(lawful: Any, tmp_path: Path) -> None:
    file, out, proof = tmp_path / "a.npz", tmp_path / "b.npz", tmp_path / "proof.json"
    write(trained(), file)
    options = ("--tolerance", "1", "--out", out, "--certificate", proof, "--verify", "--json")
    got = lawful("prune", file, *options).json
    assert got["verified"] is True
    assert got["neurons_after"] < 12
    said = lawful("verify", proof, file, out).stdout
    assert "is at most" in said


def test_a_search_without_time_states_what_it_has() -> None:
    rng = np.random.default_rng(0)
    mlp = Architecture.parse("4-12-8-2 relu bias").initialise(seed=1)
    data = rng.uniform(-1, 1, (60, 1)) @ np.array([[1.0, -0.5, 0.25, 0.75]])
    heard: list[str] = []
    long = prune(mlp, tolerance=0.05, data=data, around=0.02, tick=heard.append)
    short = prune(mlp, tolerance=0.05, data=data, around=0.02, seconds=1e-9)
    assert "box 33 of 60" in heard[-1]
    assert short.bound <= 0.05
    assert short.neurons_after >= long.neurons_after
    with pytest.raises(LawfulError, match="seconds"):
        prune(mlp, tolerance=0.05, seconds=0.0)


def test_one_that_left_returns_where_two_can_leave() -> None:
    from lawful.pruning.neurons.surrogates import Search

    mlp = trained(seed=3, hidden=(16,))
    search = Search(mlp, (np.full(3, -1.0), np.full(3, 1.0)))
    order = search.orders[0.01]
    first = search._bound(order[-2:], 0.01)  # the worst choice of two
    allowed = first.bounds * 1.5 + 0.2
    better = search._exchange(first, order, allowed)
    assert len(better.removed) > 2
    assert (better.bounds <= allowed).all()
