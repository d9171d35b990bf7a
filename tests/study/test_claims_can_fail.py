"""A deliberately wrong variant of what a claim measures makes the claim fail."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from lawful.leaky import FlatPath
from lawful.study.claims import (
    leaky,
    leaky_identity,
    leaky_steps,
    leaky_symmetries,
    leaky_training,
    truncation,
    truncation_limits,
    truncation_maps,
    truncation_times,
)
from lawful.truncation.cumulative import TruncationMap
from lawful.truncation.field import Velocity
from lawful.truncation.finite_time import Equilibrium
from lawful.types import Floats


def test_a_path_that_keeps_one_kernel_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Proposition 3 needs both kernels: scaling rows at random keeps neither, and the cost moves."""

    def careless(A: Floats) -> FlatPath:
        factors = np.random.default_rng(0).uniform(0.5, 1.5, size=len(A))
        factors[:8] = 0.0
        return FlatPath(A, factors)

    assert leaky_identity.caratheodory.run(False).holds
    monkeypatch.setattr(leaky_identity, "flat_path", careless)
    assert not leaky_identity.caratheodory.run(False).holds


def test_a_gap_five_percent_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    flow = truncation_limits.collapsed_flow
    monkeypatch.setattr(
        truncation_limits, "collapsed_flow", lambda *given: replace(flow(*given), gap=1.05 * flow(*given).gap)
    )
    assert not truncation_limits.spectral_gap.run(False).holds


@pytest.mark.parametrize("wrong", ["rank", "order", "spectrum", "momenta"])
def test_figure_one(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rank, found = leaky_training._depths(False)
    variants: dict[str, tuple[int, Any]] = {
        "rank": (rank + 1, found),
        "order": (rank, found[::-1]),
        "spectrum": (rank, tuple(replace(e, singular_values=np.ones_like(e.singular_values)) for e in found)),
        "momenta": (rank, tuple(replace(e, rank=1.3 * e.rank) for e in found)),
    }
    assert leaky_training.figure_one.run(False).holds
    monkeypatch.setattr(leaky_training, "_depths", lambda full: variants[wrong])
    assert not leaky_training.figure_one.run(False).holds


@pytest.mark.parametrize("wrong", ["momentum_norms", "product_norms", "speeds"])
def test_figure_three(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What grows like the root of the effective depth is not bounded."""
    rank, found = leaky_training._depths(False)
    grown = tuple(replace(e, **{wrong: getattr(e, wrong) * np.sqrt(e.effective_depth)}) for e in found)
    assert leaky_training.figure_three.run(False).holds
    monkeypatch.setattr(leaky_training, "_depths", lambda full: (rank, grown))
    assert not leaky_training.figure_three.run(False).holds


# One wrong variant for every other claim: a factor, a sign, a rule that is not the paper's

Wrong = Callable[[Any], Any]  # takes what is there, gives what is wrong


def scaled(factor: float) -> Wrong:
    """The same function with another size."""
    return lambda original: lambda *given, **named: factor * original(*given, **named)


def velocity(shifts: float, generators: float) -> Wrong:
    return lambda original: (
        lambda self, *given: Velocity(
            *(a * b for a, b in zip((shifts, generators), original(self, *given), strict=True))
        )
    )


def changed(**how: Wrong) -> Wrong:
    """The same result with some fields changed."""
    return lambda original: lambda *given, **named: _with(original(*given, **named), how)


def _with(found: Any, how: dict[str, Wrong]) -> Any:
    return replace(found, **{name: change(getattr(found, name)) for name, change in how.items()})


def first(factor: float) -> Wrong:
    """The first of several results, scaled."""

    def wrong(original: Any) -> Any:
        def call(*given: Any, **named: Any) -> Any:
            head, *rest = original(*given, **named)
            return (factor * head, *rest)

        return call

    return wrong


def printed_steps(original: Any) -> Any:
    return lambda layers, a=0.9: np.array(
        [1 / layers + a / layers * (0.25 - abs(k / layers - 0.5)) for k in range(1, layers + 1)]
    )


def forgets_second_moments(original: Any) -> Any:
    return lambda field, maps: truncation.generator(field, maps, bare=0.0)


def larger_weights(original: Any) -> Any:
    """Another solution of the same equation."""

    def wrong(A: Floats, speed: Floats, depth: float) -> Floats:
        sigma = np.concatenate([np.maximum(A, 0), np.ones((1, A.shape[1]))])
        free = np.eye(len(sigma)) - sigma @ np.linalg.pinv(sigma)
        return np.asarray(original(A, speed, depth) + 5 * np.ones((len(A), len(sigma))) @ free)

    return wrong


def doubled_bias(original: Any) -> Any:
    return lambda A: np.concatenate([original(A)[..., :-1, :], 2 * original(A)[..., -1:, :]], axis=-2)


def slow(original: Any) -> Any:
    def wrong(*given: Any) -> Any:
        np.linalg.svd(given[1][:4])
        return original(*given)

    return wrong


VARIANTS: list[tuple[Any, str, Any, str, Wrong]] = [  # module, claim, whose attribute, its name, what is wrong
    (truncation, "theorem_3_2", truncation.Separated, "velocity", velocity(1.0, 0.98)),
    (truncation, "sign", truncation.Separated, "velocity", velocity(1.0, -1.0)),
    (truncation, "moments", truncation, "_from_moments", forgets_second_moments),
    (truncation, "theorem_5_1", truncation.Composed, "velocity", velocity(1.0, 0.98)),
    (truncation_maps, "chain", TruncationMap, "__call__", scaled(1.001)),
    (truncation_maps, "fixed_points", TruncationMap, "__call__", scaled(1.001)),
    (truncation_maps, "aligned", TruncationMap, "__call__", scaled(1.001)),
    (truncation_maps, "composition", truncation_maps, "truncate", scaled(1.001)),
    (truncation_times, "equilibria", truncation_times, "equilibrium", lambda _: lambda *given: Equilibrium.REST),
    (truncation_times, "finite_time_collapse", truncation.Separated, "velocity", velocity(1.0, 3.0)),
    (truncation_times, "finite_time_collapse", truncation_times, "confirm", changed(time=lambda time: time + 9)),
    (truncation_times, "truncation_times", truncation_times, "schedule", changed(times=lambda times: 1.0001 * times)),
    (truncation_times, "rates", truncation_times, "schedule", changed(rates=np.sort)),
    (truncation_limits, "integral_of_motion", truncation_limits, "collapsed_flow",
     changed(drift=lambda drift: drift + 1e-6)),
    (truncation_limits, "collapse_persists", truncation_limits, "collapsed_flow",
     changed(shifts=lambda path: np.repeat(path[:1], len(path), axis=0))),
    (truncation_limits, "clustered", truncation_limits, "clustered_weight", scaled(1 + 1e-6)),
    (truncation_limits, "zero_loss", truncation_limits, "zero_loss_network", changed(loss=lambda loss: loss + 1e-9)),
    (leaky_symmetries, "integration_range", leaky_symmetries.LeakyResNet, "parameter_cost",
     lambda _: lambda self: self.weights.square().sum()),
    (leaky_symmetries, "output_scaling", leaky_symmetries, "relayered", lambda original: lambda *given, **named: (
        original(*given, **named)[0], 1.001 * original(*given, **named)[1])),
    (leaky, "minimal", leaky, "minimal_weights", larger_weights),
    (leaky, "hamilton", leaky, "motion", first(1.001)),
    (leaky, "hamilton", leaky, "hamiltonian", lambda original: lambda A, B, depth: original(A, 1.01 * B, depth)),
    (leaky, "energy", leaky, "hamiltonian", scaled(1.0001)),
    (leaky, "fourth", leaky, "hamiltonian", scaled(1.0001)),
    (leaky, "fourth", leaky, "theorem_four", changed(distance_right=lambda right: 0.3 * right)),
    (leaky, "rate_bound", leaky, "motion", first(3.0)),
    (leaky, "gamma_scale", leaky, "stable_norm", lambda original: lambda M, sigma, _: original(M, sigma, 1e-3)),
    (leaky_symmetries, "irregular_steps", leaky_symmetries, "irregular", printed_steps),
    (leaky, "balancedness", leaky, "lifted", doubled_bias),
    (leaky_identity, "bound_by_stable_rank", leaky_identity, "stable_rank", scaled(1.2)),
    (leaky_identity, "stable_minima", leaky_identity, "minimise_identity_cost",
     changed(A=lambda A: A - 0.01, with_bias=lambda value: value + 0.01)),
    (leaky_steps, "adaptive_cost", leaky_steps, "adapted", slow),
    (leaky_training, "learned_maps", leaky_training.LeakyResNet, "parameter_cost",
     lambda original: lambda self: original(self) + self.out.square().sum()),
]  # fmt: skip


@pytest.mark.parametrize(
    ("module", "name", "owner", "attribute", "wrong"), VARIANTS, ids=[f"{each[1]}-{each[3]}" for each in VARIANTS]
)
def test_a_wrong_variant_fails(
    module: Any, name: str, owner: Any, attribute: str, wrong: Wrong, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, attribute, wrong(getattr(owner, attribute)))
    assert not getattr(module, name).run(False).holds


@pytest.mark.parametrize(
    ("module", "name"),
    [(truncation_limits, "propagators"), (leaky, "momentum_from_weights"), (leaky_identity, "stable_rank_proof")],
)
def test_where_both_formulas_are_written_out_the_printed_one_fails(module: Any, name: str) -> None:
    found = getattr(module, name).run(False)
    assert found.holds
    assert found.printed_holds is False


def test_representations_that_stay_negative(monkeypatch: pytest.MonkeyPatch) -> None:
    rank, found = leaky_training._depths(False)
    kept = tuple(replace(e, negative_share=np.full_like(e.negative_share, 0.3)) for e in found)
    monkeypatch.setattr(leaky_training, "_depths", lambda full: (rank, kept))
    assert not leaky_training.nonnegative.run(False).holds


def test_steps_that_do_not_adapt(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = leaky_steps._rules(False, 1)
    monkeypatch.setattr(leaky_steps, "_rules", lambda full, seed: runs | {"adaptive": runs["equidistant"]})
    assert not leaky_steps.figure_two.run(False).holds


def test_an_advantage_of_two_percent_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twelve teachers suffice: ratios about 0.98 with a spread of 0.02 speak for the paper."""
    rng = np.random.default_rng(0)

    def errors(_: Any) -> dict[str, dict[int, float]]:
        return {"equidistant": {6: 1.0}, "irregular": {6: 0.98 + 0.02 * rng.normal()},
                "adaptive": {6: 0.98 + 0.02 * rng.normal()}}  # fmt: skip

    monkeypatch.setattr(leaky_steps, "_rules", lambda full, seed: None)
    monkeypatch.setattr(leaky_steps, "_test_errors", errors)
    found = leaky_steps.step_rules.run(False)
    assert not found.holds
    assert found.printed_holds


def test_every_claim_of_papers_two_and_three_has_a_wrong_variant() -> None:
    """The list above is complete: a new claim needs its own."""
    modules = (
        truncation, truncation_maps, truncation_times, truncation_limits, leaky, leaky_identity, leaky_steps,
        leaky_symmetries, leaky_training,
    )  # fmt: skip
    own = {  # tests of their own, above
        "caratheodory", "spectral_gap", "figure_one", "figure_three", "propagators", "momentum_from_weights",
        "stable_rank_proof", "nonnegative", "figure_two", "step_rules",
    }  # fmt: skip
    named = {each[1] for each in VARIANTS} | own
    every = {name for module in modules for name, value in vars(module).items() if value in module.CLAIMS}
    assert every == named
