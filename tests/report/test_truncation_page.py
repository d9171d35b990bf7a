"""Pages on which the data move."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


@pytest.mark.parametrize(("verb", "options"), [
    ("separate", ["--clusters", "2,12,0.2"]),
    ("truncate", ["2-2-2-2 relu bias", "--clusters", "2,12,0.2"]),
    ("truncation-flow", ["--clusters", "2,12,0.2", "--until", "2", "--frames", "9"]),
])  # fmt: skip
@pytest.mark.parametrize(("width", "dark"), [(360, True), (1280, False)])
def test_the_slider_moves_points_and_cones(
    verb: str, options: list[str], width: int, dark: bool, tmp_path: Path, lawful: Callable[..., Any],
    visit: Callable[..., Any], poor_contrast: Callable[[Any], list[str]],
) -> None:  # fmt: skip
    lawful(verb, *options, "--html", tmp_path / "page.html")
    page = visit(tmp_path / "page.html", width=width, dark=dark)
    film = page.locator("[data-motion]")
    dots, rays = film.locator("svg[role=img] circle"), film.locator("svg[role=img] line")
    assert dots.count() == 24
    assert rays.count() >= 2
    places = lambda: [dot.get_attribute("cx") for dot in dots.all()]  # noqa: E731
    end = places()
    slider = film.locator("input[type=range]")
    slider.focus()
    page.keyboard.press("Home")
    assert "data" in film.locator("output").inner_text()
    assert places() != end
    film.locator("button").click()
    page.wait_for_function("document.querySelector('[data-motion] button').textContent === 'Play'", timeout=20_000)
    assert places() == end
    assert poor_contrast(page) == []


def test_overlapping_data_are_drawn_too(tmp_path: Path, lawful: Callable[..., Any], visit: Callable[..., Any]) -> None:
    lawful("separate", "--data", "moons", "--html", tmp_path / "page.html", code=1)
    page = visit(tmp_path / "page.html")
    assert page.locator(".stage figure svg").count() >= 1
    assert "cannot" in page.locator("section#clusters").inner_text()
