"""Attacks on what is said of runs: balances in rationals, ranks of dense Jacobians, locks of neurons one by one."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import torch
from falsification import Trial
from torch import nn

import lawful
from lawful.cli.flow import _locked_weights
from lawful.network import Mlp
from lawful.report.training.flow import compare_text, drift_text, flow_text
from lawful.training import HeavyBall, Optimizer, compare, known_laws, problem
from lawful.training.monitor.monitor import Monitor


def network(seed: int, inputs: int = 1, hidden: int = 2, outputs: int = 1) -> Mlp:
    """One hidden layer with weights that are often 0, equal or large."""
    rng = np.random.default_rng(seed)
    pool = np.array([0.0, 0.5, -0.5, 1.0, -1.0, 2.0, 1e-3])
    shapes = ((hidden, inputs), (outputs, hidden))
    return Mlp([rng.choice(pool, size=shape) for shape in shapes], [None, None])


def balances(net: Mlp, theta: np.ndarray) -> list[Fraction]:
    """Σ in² − Σ out² of every hidden neuron, exactly."""
    below, above = net.with_theta(theta).weights
    return [
        sum((Fraction(float(w)) ** 2 for w in below[unit]), Fraction(0))
        - sum((Fraction(float(w)) ** 2 for w in above[:, unit]), Fraction(0))
        for unit in range(len(below))
    ]


def drift_of(net: Mlp, thetas: np.ndarray) -> Fraction:
    start = balances(net, thetas[0])
    return max(abs(now - then) for theta in thetas for now, then in zip(balances(net, theta), start, strict=True))


def runs(dynamics: HeavyBall | None = None) -> Iterator[tuple[str, Mlp, Any]]:
    for seed in range(8):
        net = network(seed, inputs=1 + seed % 2, hidden=1 + seed % 3)
        x = np.random.default_rng(seed).normal(size=(4, net.widths[0]))
        yield f"seed {seed}", net, lawful.flow(net, (x, x[:, :1]), until=0.3, snapshots=5, dynamics=dynamics)


def bound_trials(words: str, dynamics: HeavyBall | None) -> Iterator[Trial]:
    """The printed bound, read back from the text, holds for balances in rationals; a tenth of it does not."""
    for about, net, run in runs(dynamics):
        found = re.search(words + r" (\S+)$", flow_text(run), re.MULTILINE)
        drift = drift_of(net, run.trajectory.theta)
        rounding = Fraction(1, 10**15)  # of balances in float64, beside exact ones
        said = None if found is None else Fraction(found[1])
        yield Trial(about, found is not None, said is not None and drift <= said + rounding)
        if said is not None and said > 10 * rounding:
            yield Trial(f"{about}, a tenth", False, drift <= said / 10)


def laws_kept() -> Iterator[Trial]:
    yield from bound_trials("laws? kept to", None)


def heavy_ball() -> Iterator[Trial]:
    yield from bound_trials("need not keep them:", HeavyBall(0.5))


def rank() -> Iterator[Trial]:
    for about, net, run in runs():
        dag = net.to_dag()
        ranks = []
        for theta in run.trajectory.theta:
            jacobian = 2 * dag.hidden_incidence.toarray() * theta
            values = np.linalg.svd(jacobian, compute_uv=False)
            ranks.append(int((values > 1e-7 * values[0]).sum()))
        for count in range(len(dag.hidden) + 1):
            said = f"rank of J: {count} at all 5 snapshots" in drift_text(run)
            yield Trial(f"{about}, rank {count}", said, set(ranks) == {count})


def locks(net: Mlp) -> set[int]:
    """Neurons of one hidden layer do not share weights: one into a neuron is locked if it is alone and c > 0."""
    dag, found = net.to_dag(), set()
    for unit, balance in zip(dag.hidden, balances(net, net.theta), strict=True):
        into, out = np.flatnonzero(dag.heads == unit), np.flatnonzero(dag.tails == unit)
        if len(into) == 1 and balance > 0:
            found.add(int(into[0]))
        if len(out) == 1 and balance < 0:
            found.add(int(out[0]))
    return found


def signs_kept() -> Iterator[Trial]:
    for about, net, run in runs():
        theta = run.trajectory.theta
        held = sum(len({float(np.sign(value)) for value in theta[:, edge]} - {0.0}) == 1 for edge in locks(net))
        for kept in range(4):
            said = f"locked weights: {kept} of {len(locks(net))} kept" in drift_text(run, _locked_weights(run))
            yield Trial(f"{about}, {kept} kept", said, bool(locks(net)) and held == kept)


def none_locked() -> Iterator[Trial]:
    for about, net, run in runs():
        said = "no weight is locked" in drift_text(run, _locked_weights(run))
        yield Trial(about, said, not locks(net))


def exact_law() -> Iterator[Trial]:
    for seed in range(6):
        net = network(seed)
        x = np.random.default_rng(seed).normal(size=(4, 1))
        found = compare(problem(net, x, x), known_laws(net), [Optimizer.parse("sgd:0.1:momentum=0.5")], 1.0)
        (row,) = found.rows
        said = re.search(r"off by at most (\S+)", compare_text(found))
        assert said is not None
        assert row.exact is not None
        error = max(
            abs(Fraction(float(a)) - Fraction(float(b))) for a, b in zip(row.exact, row.values[-1], strict=True)
        )
        yield Trial(f"seed {seed}", True, error <= Fraction(said[1]))
        yield Trial(f"seed {seed}, less", False, error <= Fraction(said[1]) / 10 - Fraction(1, 10**30))


def lost() -> Iterator[Trial]:
    for value in (0.0, 1e30, -3e38, float("nan"), float("inf"), float("-inf")):
        for name in ("0.weight", "2.bias"):
            model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
            with torch.no_grad():
                model.get_parameter(name).view(-1)[0] = value
            with warnings.catch_warnings(record=True) as heard:
                warnings.simplefilter("always")
                with Monitor(model, live=False, laws=False):
                    pass
            said = any(f"the run is lost: at step 0 {name} has" in str(each.message) for each in heard)
            bad = any(number != number or abs(number) == float("inf") for number in _all(model))
            yield Trial(f"{name} = {value}", said, bad)


def _all(model: nn.Module) -> list[float]:
    return [number for tensor in model.state_dict().values() for number in tensor.flatten().tolist()]


FALSIFIERS = {
    "flow.laws_kept": laws_kept,
    "flow.heavy_ball": heavy_ball,
    "flow.rank": rank,
    "flow.signs_kept": signs_kept,
    "flow.none_locked": none_locked,
    "flow.exact_law": exact_law,
    "flow.lost": lost,
}
