"""Claims of P2 about when truncation happens: equilibria, finite times, rates (Section 4)."""

from __future__ import annotations

import numpy as np

from lawful.papers.truncation.flow.field import Maps, Separated
from lawful.papers.truncation.flow.integrate import integrate
from lawful.papers.truncation.flow.predictions import (
    Equilibrium,
    confirm,
    equilibrium,
    fixed_flow,
    hypotheses,
    schedule,
)
from reproduction.claim import Erratum, Outcome, Size, claim
from reproduction.claims.extremes import largest, smallest
from reproduction.claims.truncation import autodiff, rotations


@claim(
    "p2-equilibria",
    "Proposition 4.1",
    "untruncated data are at rest; fully truncated data keep R while β moves to −ỹ at rate 1",
    erratum=Erratum(
        "fully truncated data are an equilibrium too",
        "R is stationary, but ∂β = −(β + ỹ), as the paper itself uses in (4.36)",
        "the velocity by autodiff, in both cases",
    ),
    size=Size("Q = 2 to 6", "Q = 2 to 14", "every Q"),
)
def equilibria(full: bool) -> Outcome:
    """Put a cluster wholly into either sector and ask autodiff for the velocity."""
    rng = np.random.default_rng(0)
    rest = turning = law = 0.0
    moving = np.inf
    names = True
    for size in range(2, 15 if full else 7):
        turn, shift, target = rotations(rng, 1, size)[0], rng.normal(size=size), rng.normal(size=size)
        inside = rng.exponential(size=(40, size)) @ turn
        maps, weights, goals = Maps(shift[None], turn[None]), np.full(40, 1 / 40), np.tile(target, (40, 1))
        free = autodiff(inside - shift, goals, weights, maps)
        held = autodiff(-inside - shift, goals, weights, maps)
        rest = largest(rest, float(np.abs(free.shifts).max()), float(np.abs(free.generators).max()))
        turning = largest(turning, float(np.abs(held.generators).max()))
        law = largest(law, float(np.abs(held.shifts[0] + shift + target).max()))
        moving = smallest(moving, float(np.abs(held.shifts).max()))
        names &= equilibrium(inside - shift, target, shift, turn) is Equilibrium.REST
        names &= equilibrium(-inside - shift, target, shift, turn) is Equilibrium.TURNED
    measured = {"untruncated_velocity": rest, "truncated_turning": turning, "truncated_law": law, "moving": moving}
    return Outcome(largest(rest, turning, law) < 1e-12 and names, measured, moving < 1e-9)


@claim(
    "p2-finite-time-collapse",
    "Proposition 4.2, (4.13)-(4.37)",
    "under (4.14)-(4.17) the gradient flow makes a cluster one point after a finite time s_1, at most (4.30); then "
    "|β + ỹ| decays at rate 1 and R rests; on the way |Ω| stays below η1|β + ỹ| (4.25)",
    erratum=Erratum(
        "(4.20): |β + ỹ| lies strictly below e^(−(s−s1)) of its value at s_1",
        "it equals that: ∂(β + ỹ) = −(β + ỹ) exactly, as (4.37) says",
        "integration of the flow, whose velocity is compared with autodiff along the run",
    ),
    size=Size("clusters of 400 points in R^2, R^3, R^5; 1500 random states", "12 clusters, 20,000 random states"),
)
def finite_time_collapse(full: bool) -> Outcome:
    """Run clusters under the hypotheses, hold the velocity against autodiff, and compare s_1 with its printed bound."""
    rng = np.random.default_rng(0)
    checked, excess, turned, rate, gap = 0, -np.inf, 0.0, 0.0, 0.0
    for size in (2, 3, 5) * (4 if full else 1):
        turn = rotations(rng, 1, size)[0]
        body = -rng.uniform(1.4, 1.8, size=(400, size))
        body[:2] = -rng.uniform(0.25, 0.3, size=(2, size))  # not truncated at the start
        cluster, shift = body @ turn, 0.32 * rng.uniform(0.9, 1.1, size=size) @ turn
        found = hypotheses(cluster, np.zeros(size), shift, turn)
        if not found.holds:
            continue
        seen = confirm(cluster, np.zeros(size), shift, turn, found.bound)
        gap = largest(gap, *(_against_autodiff(Separated(cluster, np.zeros(size)), at) for at in seen.trajectory.maps))
        printed = np.log(1 / found.gamma) / (1 - found.eta0 - 1.1 * np.linalg.norm(shift) * found.eta1)
        checked += seen.time > 0
        excess = largest(excess, seen.time - found.bound, seen.time - float(printed))
        turned, rate = largest(turned, seen.turned_after), largest(rate, abs(seen.rate_after - 1))
    states = [random_state(rng) for _ in range(20_000 if full else 1500)]
    gap = largest(gap, *(_against_autodiff(*state) for state in states[: 2000 if full else 150]))
    share = largest(_turning_share(*state) for state in states)
    measured = {"clusters_checked": checked, "s1_minus_bound": excess, "turned_after": turned, "rate_error": rate,
                "velocity_against_autodiff": gap, "largest_omega_over_bound": share}  # fmt: skip
    holds = checked >= 3 and excess <= 1e-9 and largest(turned, rate) < 1e-8 and gap < 1e-12 and 0.3 < share <= 1
    return Outcome(holds, measured, printed_holds=rate > 1e-6)


def _against_autodiff(field: Separated, maps: Maps) -> float:
    """The largest error of the velocity of the flow that is integrated."""
    count = len(field.points)
    exact = autodiff(field.points, np.tile(field.target, (count, 1)), np.full(count, 1 / count), maps)
    return largest(float(np.abs(a - b).max()) for a, b in zip(field.velocity(maps), exact, strict=True))


def turning_share(rng: np.random.Generator, obey: bool = True) -> float:
    """`|Ω| / (η1|β + ỹ|)` at a random state; (4.16), `R(x − ỹ) <= 0`, holds unless told otherwise."""
    return _turning_share(*random_state(rng, obey))


def random_state(rng: np.random.Generator, obey: bool = True) -> tuple[Separated, Maps]:
    """A cluster and a map; (4.16), `R(x − ỹ) <= 0`, holds unless told otherwise."""
    size, count = int(rng.integers(2, 6)), int(rng.integers(1, 6))
    turn, target = rotations(rng, 1, size)[0], rng.normal(size=size)
    below = -rng.exponential(size=(count, size)) * rng.uniform(0, 1, size=size)
    points = (below if obey else rng.normal(size=below.shape)) @ turn + target
    shift = rng.normal(size=size) * 10.0 ** rng.uniform(-2, 1) - target
    return Separated(points, target), Maps(shift[None], turn[None])


def _turning_share(field: Separated, maps: Maps) -> float:
    z = field.preactivations(maps)[0]
    mixed = ~((z > 0).all(axis=1) | (z <= 0).all(axis=1))
    bound = float((mixed * np.linalg.norm(z, axis=1)).mean() * np.linalg.norm(maps.shifts[0] + field.target))
    return float(np.linalg.norm(field.velocity(maps).generators[0], 2)) / bound if bound else 0.0


@claim(
    "p2-truncation-times",
    "(4.47)-(4.50)",
    "at fixed R every coordinate decays at rate n/N between truncation times given by (4.49), and at rate 1 in the end",
    size=Size("100,000 points", "a million points", "every N"),
)
def truncation_times(full: bool) -> Outcome:
    """Compare the closed form with event-driven integration at fixed R, and with (4.49) term by term."""
    rng = np.random.default_rng(0)
    count = 1_000_000 if full else 100_000
    values = np.sort(rng.normal(size=count))
    found = schedule(values, float(values[0]), float(values[-1]) + 0.5)
    steps = count / np.arange(1, count) * np.log((found.target - values[:-1]) / (found.target - values[1:]))
    relative = float(np.abs(np.diff(found.times) - steps).max() / found.times[-1])
    points, target = rng.normal(size=(20, 3)), np.full(3, 4.0)
    turn, shift = rotations(rng, 1, 3)[0], np.zeros(3)
    target = target @ turn
    flow = fixed_flow(points, target, shift, turn)
    worst = 0.0
    for number, each in enumerate(flow.schedules):
        still = Separated(points @ turn[number][:, None], np.array([each.target]))  # in R^1 nothing turns
        run = integrate(still, Maps(np.array([[-each.levels[0]]]), np.eye(1)[None]), [0.0, 1.0, 5.0])
        seen = [event.time for event in run.events]
        expected = each.times[(each.times > 0) & (each.times <= 5.0)]
        worst = largest(worst, float(np.abs(np.array(seen) - expected).max()) if len(seen) == len(expected) else np.inf)
    final = {float(each.rates[-1]) for each in flow.schedules}
    measured = {"points": count, "term_by_term": relative, "against_integration": worst, "final_rates": sorted(final)}
    return Outcome(relative < 1e-11 and worst < 1e-8 and final == {1.0}, measured)


@claim(
    "p2-rates",
    "Section 4.3",
    "at fixed R the rate n/N rises while b moves up through the data, and falls while it moves down",
    erratum=Erratum(
        "β converges to −ỹ at a rate that increases with every truncated point",
        "only while every coordinate of Rỹ lies above −Rβ: below it points are released, the rate falls, and b stops "
        "at the lowest data point if ỹ lies beyond it, so that β never reaches −ỹ",
        "the closed form and event-driven integration",
    ),
    size=Size("11 points on a line", "101 points on a line", "every N"),
)
def rates(full: bool) -> Outcome:
    """Aim below the data and follow b."""
    values = np.linspace(0.0, 1.0, 101 if full else 11)
    up, down = schedule(values, 0.5, 2.0), schedule(values, 0.5, -2.0)
    field = Separated(values[:, None], np.array([-2.0]))
    run = integrate(field, Maps(np.array([[-0.5]]), np.eye(1)[None]), [0.0, 30.0])
    end = -float(run.maps[-1].shifts[0, 0])
    rising, falling = bool((np.diff(up.rates) > 0).all()), bool((np.diff(down.rates) < 0).all())
    measured = {"rises_upwards": rising, "falls_downwards": falling, "stops_at": down.limit, "integrated_end": end}
    holds = rising and falling and down.limit == 0.0 and abs(end) < 1e-9 and up.limit == 2.0
    return Outcome(holds, measured, abs(end + 2.0) < 1e-3)


CLAIMS = (equilibria, finite_time_collapse, truncation_times, rates)
