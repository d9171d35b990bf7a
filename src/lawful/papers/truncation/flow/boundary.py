"""Where the velocity jumps: coordinates at zero that pass, turn back, or are held between two pushes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.integrate import solve_ivp
from scipy.optimize import lsq_linear

from lawful.papers.truncation.flow.field import Chart, Field, Maps, Velocity
from lawful.types import Floats

# Find the first moment at which any of many smooth functions changes sign.

Sample = tuple[Floats, Floats]  # values and derivatives at one time


def first_crossing(
    sample: Callable[[float], Sample], low: float, high: float, at_low: Sample, at_high: Sample, slack: float
) -> float | None:
    """The first time in (low, high] at which a function falls below zero, or None.

    Every function starts at or above zero. On an interval a function's cubic Hermite interpolant lies in the hull of
    its four Bernstein coefficients, so a function whose coefficients all exceed `−slack` needs no further look; for
    the others the interpolant's first root splits the interval. `slack` is the value that counts as zero.

    >>> first_crossing(lambda t: (np.array([1 - t * t]), np.array([-2 * t])), 0.0, 3.0,
    ...                (np.array([1.0]), np.array([0.0])), (np.array([-8.0]), np.array([-6.0])), 1e-12)
    1.0...
    """
    pending = [(low, high, at_low, at_high)]
    while pending:
        start, stop, here, there = pending.pop()
        coefficients = _bernstein(stop - start, here, there)
        suspects = (coefficients[1:] < -slack).any(axis=0)
        if not suspects.any():
            continue
        middle = start + _first_root(coefficients[:, suspects]) * (stop - start)
        if not start < middle < stop:
            middle = 0.5 * (start + stop)
        if not start < middle < stop:  # the two ends are neighbouring numbers
            return stop
        between = sample(middle)
        lowest = between[0].min()
        clear = _bernstein(middle - start, here, between)[1:].min() >= -slack
        if clear and lowest <= slack and (between[1][between[0] <= slack] < 0).any():
            return middle
        if lowest >= -slack:
            pending.append((middle, stop, between, there))
        if not clear:
            pending.append((start, middle, here, between))
    return None


def _bernstein(length: float, here: Sample, there: Sample) -> Floats:
    step = length / 3
    return np.array([np.maximum(here[0], 0.0), here[0] + step * here[1], there[0] - step * there[1], there[0]])


def _first_root(coefficients: Floats) -> float:
    """The first place in [0, 1] at which one of the cubics falls below zero (0.5 if none does)."""
    grid = np.linspace(0.0, 1.0, 33)
    rest = 1.0 - grid
    basis = np.array([rest**3, 3 * grid * rest**2, 3 * grid**2 * rest, grid**3])
    values = coefficients.T @ basis
    below = values[:, 1:] < 0
    if not below.any():
        return 0.5
    column = int(np.flatnonzero(below.any(axis=0))[0])
    cubics = coefficients[:, below[:, column]]
    c0, c1, c2, c3 = cubics
    a1, a2, a3 = 3 * (c1 - c0), 3 * (c0 - 2 * c1 + c2), c3 - c0 + 3 * (c1 - c2)
    root = np.full(cubics.shape[1], grid[column + 1])
    for _ in range(4):
        slope = a1 + root * (2 * a2 + 3 * root * a3)
        step = (c0 + root * (a1 + root * (a2 + root * a3))) / np.where(slope == 0, 1.0, slope)
        root = np.clip(root - step, grid[column], grid[column + 1])
    return float(root.min())


# Past a corner that no choice of signs settles: the flow with its jumps rounded off, for a short while.

MOST_EVALUATIONS = (
    50_000  # evaluations: a passage takes hundreds to some thousands, a Jacobian by differences as many as coordinates
)
WIDTH = 1e-7  # of the data's size: where a share is between 0 and 1


@dataclass(frozen=True, eq=False)
class RoundedPassage:
    """The flow from one time to another with shares `clip(1/2 + z/2δ, 0, 1)` instead of signs: δ is `width`.

    Solutions of Filippov's inclusion are limits of these for δ → 0; where several exist, this is one of them.
    """

    end: float
    width: float
    path: Callable[[float], Maps]
    shares: Callable[[Maps], Floats]
    evaluations: int


def smooth_passage(field: Field, start: Maps, low: float, high: float) -> RoundedPassage | None:
    """Follow the rounded flow by an implicit method, for steep shares; None if it fails or does not end.

    >>> from lawful.papers.truncation.flow.field import Separated
    >>> field = Separated(np.array([[-1.0, -1.0], [1.0, 0.5]]), np.array([2.0, 2.0]))
    >>> found = smooth_passage(field, Maps(np.zeros((1, 2)), np.eye(2)[None]), 0.0, 0.2)
    >>> bool(np.abs(found.path(0.2).shifts + 0.19).max() < 0.01)
    True
    """
    chart = Chart(start)
    width = WIDTH * max(float(np.abs(field.preactivations(start)).max()), 1.0)
    evaluations = 0

    def slope(_: float, values: Floats) -> Floats:
        nonlocal evaluations
        evaluations += 1
        if evaluations > MOST_EVALUATIONS:
            raise TooMuchWork
        maps = chart.at(values)
        return chart.slope(values, field.velocity(maps, smooth_shares(field, maps, width)))

    options = {"rtol": 1e-8, "atol": 1e-3 * width, "dense_output": True, "max_step": high - low}
    try:
        solved = solve_ivp(slope, (low, high), chart.origin, "LSODA", **options)
    except TooMuchWork:
        return None
    if not solved.success or not np.isfinite(solved.y).all():
        return None
    dense = solved.sol
    return RoundedPassage(
        high,
        width,
        lambda time: chart.at(dense(time)),
        lambda maps: smooth_shares(field, maps, width),
        evaluations,
    )


def smooth_shares(field: Field, maps: Maps, width: float) -> Floats:
    """`clip(1/2 + z/2δ, 0, 1)`; the points that a map sees depend on the shares of the maps before it."""
    shares = np.asarray((field.preactivations(maps) > 0).astype(np.float64))
    for _ in range(len(shares)):
        shares = np.clip(0.5 + field.preactivations(maps, shares) / (2 * width), 0.0, 1.0)
    return shares


Index = tuple[int, ...]  # map, point, coordinate
SHARE = 1e-9  # how far a held coordinate's share may leave [0, 1] by round-off


class TooMuchWork(Exception):
    """The velocity was asked for more often than a piece of the flow may."""


class Boundary:
    """The signs H of one run; `active` has values between 0 and 1 where a coordinate is held at zero (Filippov)."""

    def __init__(self, field: Field, maps: Maps) -> None:
        z = field.preactivations(maps)
        self.field = field
        self.active = (z > 0).astype(np.float64)
        self.held: list[list[Index]] = []  # groups of coordinates that coincide, each with one share
        self.response: tuple[Floats, Floats, Floats] | None = None  # of the held coordinates, see `respond`
        self.slack = 1e-13 * max(float(np.abs(z).max()), 1.0)  # what counts as zero
        self.offset = np.zeros(z.size)
        self.evaluations = 0
        self.limit: float = np.inf  # evaluations beyond which `TooMuchWork` is raised

    def spend(self) -> None:
        """Count one evaluation."""
        self.evaluations += 1
        if self.evaluations > self.limit:
            raise TooMuchWork

    def share(self, shares: Floats) -> None:
        """Let the held coordinates count as active by these shares."""
        for group, share in zip(self.held, shares, strict=True):
            self.active[tuple(np.array(group).T)] = share

    def shares(self) -> Floats:
        """By how much each held group counts as active."""
        return np.array([self.active[group[0]] for group in self.held])

    def trial(self, maps: Maps, shares: Floats) -> tuple[Velocity, Floats]:
        """The velocity with these shares, and the rate of z that it gives each held group."""
        self.share(shares)
        self.spend()
        velocity = self.field.velocity(maps, self.active)
        rates = self.field.rates(maps, velocity, self.active)
        return velocity, np.array([rates[group[0]] for group in self.held])

    def velocity(self, maps: Maps) -> Velocity:
        """Minus the gradient; shares of held coordinates are solved for so that these stay at zero (Filippov)."""
        if not self.held:
            self.spend()
            return self.field.velocity(maps, self.active)
        shares = self.shares()
        velocity, rates = self.trial(maps, shares)
        response = self.response or self.respond(maps, shares, velocity, rates)
        for attempt in range(12):
            if attempt == 6:
                response = self.respond(maps, shares, velocity, rates)
            change = response[0] @ rates
            if np.abs(rates).max() <= 10 * self.slack:
                break
            shares = np.clip(shares - change, -1.0, 2.0)  # a wild guess far from the path must not overflow
            velocity, rates = self.trial(maps, shares)
        self.share(shares - change)
        self.response = response
        return Velocity(velocity.shifts - response[1] @ change, velocity.generators - response[2] @ change)

    def respond(self, maps: Maps, shares: Floats, velocity: Velocity, rates: Floats) -> tuple[Floats, Floats, Floats]:
        """Inverse of the rates' derivative in the shares, and the velocity's derivatives (last axis)."""
        trials = [self.trial(maps, shares + unit) for unit in np.eye(len(shares))]
        inverse = np.linalg.pinv(np.array([trial[1] - rates for trial in trials]).T, rcond=1e-8)
        shifts = np.stack([trial[0].shifts - velocity.shifts for trial in trials], axis=-1)
        return inverse, shifts, np.stack([trial[0].generators - velocity.generators for trial in trials], axis=-1)

    def watch(self, maps: Maps) -> tuple[Floats, Sample]:
        """The signs that a new piece starts with, and its first sample: round-off at zero is forgiven from here on."""
        sign = np.where(self.active > 0.5, 1.0, -1.0)
        self.offset = np.zeros(sign.size)
        z, rates = self.signed(maps, sign)
        self.offset = np.minimum(z, 0.0)
        return sign, (z - self.offset, rates)

    def signed(self, maps: Maps, sign: Floats) -> Sample:
        """Every pre-activation times the sign it should have, and its rate; held coordinates count as positive."""
        velocity = self.velocity(maps)
        z = sign * self.field.preactivations(maps, self.active)
        rates = sign * self.field.rates(maps, velocity, self.active)
        for group in self.held:
            where = tuple(np.array(group).T)
            z[where], rates[where] = 1.0, 0.0
        return z.ravel() - self.offset, rates.ravel()

    def first_release(self, path: Callable[[float], Maps], low: float, high: float) -> float | None:
        """The time at which a held coordinate's share leaves [0, 1], by bisection."""

        def inside(time: float) -> bool:
            self.velocity(path(time))
            shares = self.shares()
            return bool((shares > -SHARE).all() and (shares < 1 + SHARE).all())

        if not self.held or inside(high):
            return None
        while high - low > 1e-14 * max(1.0, abs(high)):
            middle = 0.5 * (low + high)
            if not low < middle < high:
                break
            low, high = (middle, high) if inside(middle) else (low, middle)
        return high

    def kind(self, index: Index) -> str:
        """What is being done to a coordinate."""
        return "hold" if 0.0 < self.active[index] < 1.0 else "release" if self.active[index] > 0.5 else "truncate"

    def kinds(self) -> dict[Index, str]:
        """What is being done to every coordinate."""
        return {index: self.kind(index) for index in np.ndindex(self.active.shape)}

    def take(self, shares: Floats) -> None:
        """Go on with these shares, each coordinate between 0 and 1 held by itself."""
        self.active = shares.copy()
        between = np.argwhere((shares > 0) & (shares < 1))
        self.held, self.response = [[tuple(int(i) for i in index)] for index in between], None

    def settle(self, maps: Maps) -> dict[Index, str] | None:
        """Decide for every coordinate at zero what it does next; the changes, or None if they do not settle.

        The velocity is affine in the shares of the coordinates at zero, and each column of that map is normal to its
        boundary. Where activity pushes back (a convex kink of the cost) the flow takes the shares in [0, 1] of least
        velocity; elsewhere a coordinate goes where it is pushed.
        """
        z = self.field.preactivations(maps, self.active)
        at_zero = {tuple(int(i) for i in index) for index in np.argwhere(np.abs(z) <= 4 * self.slack)}
        before = {index: self.kind(index) for index in sorted(at_zero.union(*self.held))}
        self.share(np.clip(self.shares(), 0.0, 1.0))
        self.held, self.response = [], None
        for _ in range(2 * len(before) + 2):
            groups = self._settle_once(maps, list(before))
            if groups is not None:
                self.held = groups
                return {index: self.kind(index) for index, kind in before.items() if self.kind(index) != kind}
        return None

    def _settle_once(self, maps: Maps, touching: list[Index]) -> list[list[Index]] | None:
        """One pass over the coordinates at zero: the held groups, or None if any coordinate changed."""
        base = self.velocity(maps)
        rates = self.field.rates(maps, base, self.active)
        shares = np.array([self.active[index] for index in touching])
        columns, back = [], []
        for index, share in zip(touching, shares, strict=True):
            self.active[index] = 1.0 if share < 0.5 else 0.0
            step = self.active[index] - share
            other = self.velocity(maps)
            columns.append((_flat(other) - _flat(base)) / step)
            back.append((self.field.rates(maps, other, self.active)[index] - rates[index]) / step < -self.slack)
            self.active[index] = share
        pushed = np.array([rates[index] for index in touching])
        wanted = np.where(pushed > self.slack, 1.0, np.where(pushed < -self.slack, 0.0, shares))
        convex = np.flatnonzero(back)
        groups = [convex[group] for group in _groups([columns[number] for number in convex])]
        if groups:
            summed = np.array([sum(columns[number] for number in group) for group in groups]).T
            rest = _flat(base) - np.array(columns)[convex].T @ shares[convex]
            least = lsq_linear(summed, -rest, (0, 1), method="bvls", tol=1e-14).x
            least = np.where(least < SHARE, 0.0, np.where(least > 1 - SHARE, 1.0, least))
            for group, share in zip(groups, least, strict=True):
                wanted[group] = share
        for index, share in zip(touching, wanted, strict=True):
            self.active[index] = share
        if (np.abs(wanted - shares) > 1e-3 * SHARE).any():
            return None
        return [[touching[number] for number in group] for group in groups if 0.0 < wanted[group[0]] < 1.0]


def _flat(velocity: Velocity) -> Floats:
    return np.concatenate([velocity.shifts.ravel(), velocity.generators.ravel()])


def _groups(columns: list[Floats]) -> list[list[int]]:
    """Numbers of the columns that agree: points that coincide move together and share alike."""
    groups: list[list[int]] = []
    for number, column in enumerate(columns):
        for group in groups:
            if np.abs(column - columns[group[0]]).max() <= 1e-7 * np.abs(column).max():
                group.append(number)
                break
        else:
            groups.append([number])
    return groups
