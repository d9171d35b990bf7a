"""Whether H(c) has singular points: against brute force with an LP, and certificates that can be broken."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from effort import trials
from scipy.optimize import linprog

from lawful.errors import CertificateError, LawfulError
from lawful.invariant_set.certificate import singular_certificate as certificate
from lawful.invariant_set.singular.existence import SingularPoints, exact_balance, singular_points, zero_sums
from lawful.invariant_set.singular.spectrum import singularity, spectrum
from lawful.network import Architecture, Dag, initialise
from lawful.verify import verify


def verify_points(dag: Dag, balance: dict[str, Fraction], found: SingularPoints) -> None:
    verify(certificate(dag, found, balance))


def brute_force(dag: Dag, c: list[int]) -> bool:
    """Try every set of hidden neurons with an LP (oracle)."""
    matrix = dag.hidden_incidence.toarray()
    for size in range(1, len(dag.hidden) + 1):
        for chosen in combinations(dag.hidden, size):
            crossing = np.isin(dag.tails, chosen) != np.isin(dag.heads, chosen)
            upper = np.where(crossing, 0.0, np.inf)
            found = linprog(
                np.zeros(dag.parameters), A_eq=matrix, b_eq=c, bounds=np.stack([np.zeros_like(upper), upper], axis=1)
            )
            if found.status == 0:
                return True
    return False


def random_case(seed: int) -> tuple[Dag, list[int]]:
    rng = np.random.default_rng(seed)
    widths = tuple(int(width) for width in rng.integers(1, 4, size=rng.integers(3, 6)))
    dag = Architecture(widths, bias=bool(seed % 2), skips=((1, len(widths) - 2),) if len(widths) > 3 else ()).to_dag()
    gone = rng.choice(dag.parameters, size=dag.parameters // 3, replace=False)
    dag = dag.without_edges(gone, drop_useless=True)
    return dag, [int(value) for value in rng.integers(-3, 4, size=len(dag.hidden))]


@pytest.mark.parametrize("seed", range(trials(20, 60)))
def test_agrees_with_brute_force(seed: int) -> None:
    dag, c = random_case(seed)
    if len(dag.hidden) > 7:
        dag, c = random_case(seed + 1000)
    found = singular_points(dag, c)
    assert found.exist == (brute_force(dag, c) if len(dag.hidden) else False)
    balance = {dag.names[node]: Fraction(value) for node, value in zip(dag.hidden, c, strict=True)}
    verify_points(dag, balance, found)
    if found.witness is not None:
        at_witness = dag.with_theta(found.witness.parameter)
        assert singularity(at_witness).rank < len(dag.hidden)
        assert np.allclose(dag.hidden_incidence @ at_witness.theta**2, c)


def test_both_answers_occur_among_the_random_cases() -> None:
    answers = {singular_points(*random_case(seed)).exist for seed in range(60)}
    assert answers == {True, False}


def test_random_initialisations_have_none() -> None:
    """P0 Proposition 6: the balances of a random parameter have no zero partial sum."""
    for text in ("3-5-4-2 relu bias", "4-6-6-6-1", "2-30-1"):
        dag = Architecture.parse(text).initialise(seed=1).to_dag()
        balance = exact_balance(dag)
        found = singular_points(dag, balance)
        assert found.exist is False
        assert verify(certificate(dag, found), dag).facts["exist"] is False


def test_a_zero_sum_is_not_enough() -> None:
    """Beyond Proposition 6: supply must lie upstream of demand."""
    dag = Architecture.parse("2-2-2-1").to_dag()
    found = singular_points(dag, [1, 5, -1, 7])  # the sum is zero, but h1.0 would have to be fed by h2.0
    assert found.exist is False
    verify_points(dag, dict(zip([dag.names[v] for v in dag.hidden], [1, 5, -1, 7], strict=True)), found)


def test_shallow_networks_are_easy_at_any_width() -> None:
    dag = Architecture.parse("2-500-1").to_dag()
    c = [0] + [1] * 499
    assert singular_points(dag, c).witness.cut_off == ("h1.0",)
    assert singular_points(dag, [2] + [1] * 499).exist is False


def test_too_large_is_undecided() -> None:
    dag = initialise(Architecture.parse("2-30-30-1").to_dag())
    rng = np.random.default_rng(0)
    c = np.concatenate([-rng.random(30), rng.random(30)])
    found = singular_points(dag, list(c))
    assert found.exist is None
    assert "60 neurons" in found.reason


def test_zero_sums_are_found_exactly() -> None:
    names = [f"v{k}" for k in range(24)]
    c = {name: Fraction(3**k) for k, name in enumerate(names)}
    c["v20"] = -c["v3"] - c["v11"] - c["v17"]
    assert zero_sums(names, c) == [("v3", "v11", "v17", "v20")]


def test_verifier_rejects_broken_answers() -> None:
    dag = Architecture.parse("2-2-2-1").to_dag()
    names = [dag.names[node] for node in dag.hidden]
    balance = {name: Fraction(value) for name, value in zip(names, [-1, 2, 1, 3], strict=True)}
    found = singular_points(dag, balance)
    verify_points(dag, balance, found)
    with pytest.raises(CertificateError, match="do not have"):
        verify_points(dag, balance | {"h1.1": Fraction(1)}, found)
    with pytest.raises(CertificateError, match="joins"):
        verify_points(dag, balance, replace(found, witness=replace(found.witness, cut_off=("h1.0",))))
    with pytest.raises(CertificateError):
        verify_points(dag, balance, replace(found, exist=False, witness=None))
    none = singular_points(dag, [1, 5, -1, 7])
    with pytest.raises(CertificateError):
        verify_points(dag, balance, none)


def test_bad_balances_are_refused() -> None:
    dag = Architecture.parse("2-2-1").to_dag()
    for wrong in ([1], [1, 2, 3], [float("nan"), 1.0], {"h1.0": 1}):
        with pytest.raises(LawfulError, match="balance"):
            singular_points(dag, wrong)


@pytest.mark.parametrize("power", [-600, -40, 40, 500])
def test_scale_changes_nothing(power: int) -> None:
    """Squares of weights times 2^40 are all multiples of 2^80, which says nothing about their sums."""
    dag = Architecture.parse("2-6-6-6-1").to_dag()
    theta = np.random.default_rng(3).integers(-4, 5, dag.parameters).astype(float)
    here = singular_points(dag, exact_balance(dag.with_theta(theta)))
    there = singular_points(dag, exact_balance(dag.with_theta(theta * 2.0**power)))
    assert here.exist is not None
    assert (here.exist, len(here.refutations)) == (there.exist, len(there.refutations))
    if here.witness is not None and there.witness is not None:
        assert there.witness.parameter / 2.0**power == pytest.approx(here.witness.parameter)


def test_the_spectrum_scales_with_the_weights() -> None:
    dag = initialise(Architecture.parse("2-5-1").to_dag(), seed=0)
    far = spectrum(dag.with_theta(dag.theta * 2.0**-600))
    assert far.values * 2.0**600 == pytest.approx(spectrum(dag).values)
    assert far.rank == 5
