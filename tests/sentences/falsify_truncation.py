"""Attacks on what is said of truncations: linear programmes for parting, images of every point for collapse."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fractions import Fraction
from functools import cache
from itertools import chain, pairwise, product
from typing import Any

import numpy as np
from falsification import Trial
from scipy.optimize import linprog

from lawful.papers.truncation.clusters import Clusters, synthetic
from lawful.papers.truncation.flow.motion import TruncationRun, run_flow
from lawful.papers.truncation.flow.predictions import predictions
from lawful.papers.truncation.separability import separability
from lawful.report.training.truncation import run_json, run_text, separation_text


def is_parted(inside: np.ndarray, outside: np.ndarray) -> bool:
    """Whether w·x + b ≤ −1 inside and ≥ 1 outside has a solution; coordinates are small whole numbers."""
    rows = np.vstack([np.c_[inside, np.ones(len(inside))], -np.c_[outside, np.ones(len(outside))]])
    found = linprog(np.zeros(rows.shape[1]), A_ub=rows, b_ub=-np.ones(len(rows)), bounds=(None, None))
    return bool(found.status == 0)


def data_sets() -> Iterator[tuple[str, Clusters]]:
    """Small whole numbers: touching hulls, equal points and lines are common."""
    for seed in range(24):
        rng = np.random.default_rng(seed)
        labels = np.r_[np.arange(2 + seed % 2), rng.integers(0, 2 + seed % 2, 3)]
        yield f"seed {seed}", Clusters(rng.integers(0, 4, size=(len(labels), 1 + seed % 3)).astype(float), labels)
    yield "nested", Clusters(np.array([[0.0], [1.0], [2.0], [3.0]]), np.array([0, 1, 1, 2]))


@cache
def answers() -> list[tuple[str, str, bool, bool]]:
    """What is said, whether all clusters can be parted from the rest, and whether one by one they can."""
    found = []
    for about, data in data_sets():
        points, labels = data.points, data.labels
        apart = all(is_parted(points[labels == each], points[labels != each]) for each in set(labels.tolist()))
        left = set(labels.tolist())
        while len(left) > 1:
            rest = np.isin(labels, list(left))
            free = [each for each in left if is_parted(points[labels == each], points[rest & (labels != each)])]
            if not free:
                break
            left.remove(free[0])
        found.append((about, separation_text(separability(data)).split("\n")[0], apart, len(left) == 1))
    return found


def separable() -> Iterator[Trial]:
    for about, said, apart, _ in answers():
        yield Trial(about, said.startswith("Yes: cluster-separated truncations exist"), apart)


def not_separable() -> Iterator[Trial]:
    for about, said, apart, _ in answers():
        yield Trial(about, said == "No: not every cluster can be parted.", not apart)


def one_by_one() -> Iterator[Trial]:
    for about, said, apart, ordered in answers():
        yield Trial(about, "but one by one they can" in said, not apart and ordered)


def blurred() -> Iterator[Trial]:
    for gap in (1e-3, 1e-9, 1e-12):
        points = np.array([[1.0, 0.0], [0.0, 1.0], [1.0 + gap, 0.0], [3.0, 3.0]])
        said = "in float32 rows 0 and 2 of two clusters are one point" in separation_text(
            separability(Clusters(points, np.array([0, 0, 1, 1])))
        )
        yield Trial(f"gap {gap}", said, bool((points[0].astype(np.float32) == points[2].astype(np.float32)).all()))


CASES = ((0, 0.1, False, 12.0), (1, 0.4, False, 3.0), (2, 1.5, False, 2.0), (3, 0.2, True, 2.0), (4, 0.1, False, 0.3))


@cache
def flows() -> list[tuple[str, TruncationRun, dict[str, Any]]]:
    found = []
    for seed, spread, general, until in CASES:
        run = run_flow(synthetic(2, 5, spread, seed), general=general, until=until, frames=7)
        found.append((f"seed {seed}", run, run_json(run, [] if general else predictions(run))))
    return found


def images(points: np.ndarray, run: TruncationRun, index: int, own: int | None = None) -> np.ndarray:
    """The maps as P2 (6.2) writes them, one point at a time."""
    maps = run.maps(index)
    out = []
    for point in points:
        at = np.array(point)
        for number, (shift, rotation) in enumerate(zip(*maps, strict=True)):
            if own is None or own == number:
                at = rotation.T @ np.maximum(rotation @ (at + shift), 0.0) - shift
        out.append(at)
    return np.array(out)


def is_point(run: TruncationRun, number: int, index: int) -> bool:
    seen = images(run.data.cluster(number), run, index, None if run.general else number)
    return float(np.ptp(seen, axis=0).max()) <= 1e-9 * float(np.abs(run.data.points).max())


def collapsed() -> Iterator[Trial]:
    for about, run, result in flows():
        if run.general:
            continue
        count = sum(is_point(run, number, len(run.times) - 1) for number in range(run.data.count))
        for number in range(run.data.count + 1):
            said = run_text(result).startswith(f"{number} of {run.data.count} clusters collapsed")
            yield Trial(f"{about}, {number}", said, count == number)


def costs() -> Iterator[tuple[str, str, bool]]:
    """Costs as they came, and with numbers exchanged: reversed, a bump, NaN."""
    for about, _, result in flows():
        given = result["costs"]
        bump = [*given[:-1], given[-2] + 1e-6 * given[0]]
        for word, changed in (
            ("", given),
            ("reversed", given[::-1]),
            ("bump", bump),
            ("NaN", [*given[:-1], float("nan")]),
        ):
            rises = any(not after - before <= 1e-9 * changed[0] for before, after in pairwise(changed))
            yield f"{about} {word}", run_text(result | {"costs": changed}), rises


def cost_falls() -> Iterator[Trial]:
    for about, text, rises in costs():
        yield Trial(about, "rising between no two recorded times" in text, not rises)


def cost_rises() -> Iterator[Trial]:
    for about, text, rises in costs():
        yield Trial(about, "RISING between recorded times" in text, rises)


def separated() -> Iterator[Trial]:
    for about, run, result in flows():
        size = float(np.abs(run.data.points).max())
        gaps = chain.from_iterable(
            np.abs(images(run.data.cluster(own), run, index) - images(run.data.cluster(own), run, index, own)).ravel()
            for index in range(len(run.times))
            for own in range(run.data.count)
        )
        yield Trial(about, "at every recorded time, to 1e-9" in run_text(result), max(gaps) <= 1e-9 * size)


def orthogonal() -> Iterator[Trial]:
    for about, run, result in flows():
        worst = max(
            abs(sum(Fraction(float(a)) * Fraction(float(b)) for a, b in zip(*pair, strict=True)) - int(first == second))
            for index in range(len(run.times))
            for rotation in run.maps(index).rotations
            for first, second in product(range(len(rotation)), repeat=2)
            for pair in [(rotation[first], rotation[second])]
        )
        said = re.search(r"\|RR' - 1\| <= (\S+)", run_text(result))
        assert said is not None
        yield Trial(about, True, worst <= Fraction(said[1]) + Fraction(1, 10**15))
        yield Trial(f"{about}, less", False, worst <= 0)


def predicted() -> Iterator[Trial]:
    """Where a bound lies within the run, the cluster is one point at all later recorded times."""
    for seed in range(3):
        run = run_flow(synthetic(3, 6 + 2 * seed, 0.1, seed), until=10.0, frames=31)
        text = run_text(run_json(run, predictions(run)))
        for number in range(run.data.count):
            said = re.search(rf"cluster {run.data.names[number]}, from s = \S+: before s = (\S+),", text)
            bound = np.inf if said is None else float(said[1])
            late = [index for index, time in enumerate(run.times) if time >= bound]
            true = all(is_point(run, number, index) for index in late)
            yield Trial(f"seed {seed}, cluster {number}", said is not None, true)
            early = all(is_point(run, number, index) for index in range(len(run.times)))
            yield Trial(f"seed {seed}, cluster {number} from the start", False, early)


FALSIFIERS = {
    "truncation.separable": separable,
    "truncation.not_separable": not_separable,
    "truncation.one_by_one": one_by_one,
    "truncation.blurred": blurred,
    "truncation.collapsed": collapsed,
    "truncation.cost_falls": cost_falls,
    "truncation.cost_rises": cost_rises,
    "truncation.separated": separated,
    "truncation.orthogonal": orthogonal,
    "truncation.predicted": predicted,
}
