"""A run's page: the slider moves the weights."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any


def test_the_slider_moves_the_weights(tmp_path: Path, lawful: Callable[..., Any], visit: Callable[..., Any]) -> None:
    lawful("flow", "2-4-1 relu bias", "--time", "3", "--out", tmp_path / "run")
    lawful("drift", tmp_path / "run", "--html", tmp_path / "run.html")
    page = visit(tmp_path / "run.html", width=360)
    slider, output = page.locator("input[type=range]"), page.locator("output").first
    assert output.inner_text().startswith("time 0,")
    before = [line.get_attribute("stroke-width") for line in page.locator("svg.graph line").all()]
    slider.focus()
    page.keyboard.press("End")
    assert output.inner_text().startswith("time 3,")
    after = [line.get_attribute("stroke-width") for line in page.locator("svg.graph line").all()]
    assert before != after
    assert page.locator("details#laws tbody tr").count() == 4
