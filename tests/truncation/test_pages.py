"""What the pages draw: columns of other units, ten classes in ten colours, and why a cluster cannot be parted."""

from __future__ import annotations

import numpy as np

from lawful.figure import COLOURS, page_colour
from lawful.report.truncation import plane
from lawful.report.truncation_page import separation_page
from lawful.truncation.clusters import Clusters
from lawful.truncation.separability import separability


def test_a_column_of_large_numbers_does_not_hide_the_others() -> None:
    rng = np.random.default_rng(0)
    points = rng.normal(size=(40, 4))
    points[:20, 1] += 6.0
    scale = np.array([1e6, 1.0, 1.0, 1.0])
    shown, raw = points @ plane(points, alike=True).T, (points * scale) @ plane(points * scale).T
    level = (points * scale) @ plane(points * scale, alike=True).T
    assert np.ptp(raw[:, 0]) > 1e5 * np.ptp(raw[:, 1])
    gap = [abs(each[:20].mean(axis=0) - each[20:].mean(axis=0)).max() / each.std() for each in (shown, level)]
    assert gap[1] > 0.5 * gap[0] > 0.5
    np.testing.assert_allclose(plane(points, alike=True), plane(points))  # alike already


def test_the_page_of_a_no_shows_the_point_in_both_hulls() -> None:
    square = Clusters([[0.0, 0.0], [1.0, 1.0], [0.0, 1.0], [1.0, 0.0]], [0, 0, 1, 1])
    page = separation_page(separability(square), None, "square")
    assert "no hyperplane parts them" in page
    assert page.count("<polyline") + page.count("<path") >= 4  # two points of the cluster and two of the rest


def test_ten_classes_have_ten_colours() -> None:
    assert len({page_colour(number) for number in range(10)}) == len(set(COLOURS)) == 10
