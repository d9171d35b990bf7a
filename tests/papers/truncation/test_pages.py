"""What the pages draw: columns of other units, ten classes in ten colours, and why a cluster cannot be parted."""

from __future__ import annotations

import numpy as np

from lawful import Mlp
from lawful.figure import COLOURS, page_colour
from lawful.papers.truncation.census import census
from lawful.papers.truncation.clusters import Clusters, synthetic
from lawful.papers.truncation.flow.motion import run_flow
from lawful.papers.truncation.separability import separability
from lawful.report.training.truncation import plane, run_json
from lawful.report.training.truncation_page import census_film, flow_page, separation_page


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


def test_the_page_of_right_angled_cones_shows_the_two_differences() -> None:
    line = Clusters([[0.0, 0.0], [2.0, 0.1], [-1.0, 0.1]], [0, 1, 1])
    page = separation_page(separability(line, aligned=True), None, "line")
    assert "no acute angle" in page
    assert "in both hulls" not in page
    assert page.count("<polyline") == 2


def test_a_film_has_axes_the_data_in_pale_and_the_lines_of_a_layer_that_widens() -> None:
    data = Clusters([[0.0, 0.0], [1.0, 1.0], [0.0, 1.0], [1.0, 0.0]], [0, 0, 1, 1])
    wide = Mlp([[[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], np.ones((1, 3))], [[-0.5, -0.5, -1.5], [0.0]])
    drawn = census_film(census(wide, data), data)
    assert "where a neuron of the layer switches" in drawn.caption
    assert drawn.html.count("<line ") == 3
    assert drawn.html.count("h0M") == 2  # two clusters of two pale dots
    assert ">column 1</text>" in drawn.html
    assert ">0.5</text>" in drawn.html
    square = census_film(census(Mlp([np.eye(2), np.eye(2)]), data), data)
    assert "the edges of the cone" in square.caption
    assert square.html.count("<line ") == 2


def test_the_table_of_a_flow_has_every_line_of_its_text() -> None:
    run = run_flow(synthetic(2, 6, 0.1), until=1.0)
    page = flow_page(run, run_json(run, []))
    assert "NC4" in page
    assert page.count('stroke="var(--s2') > 1  # a cone in its cluster's colour
