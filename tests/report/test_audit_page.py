"""The audit's page in a real browser, with hostile names in the network."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lawful import Dag
from lawful.api.audit import audit
from lawful.formats.queries.data import Data
from lawful.network import Role
from lawful.report.audit.audit_page import audit_page

HOSTILE = '"><script>window.hacked = true</script>'


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The toy of P0 Figure 2d with a locked edge and a hostile name."""
    names = ("a", "b", "2", "3", HOSTILE, "5")
    roles = [Role.INPUT, Role.INPUT, Role.HIDDEN, Role.HIDDEN, Role.HIDDEN, Role.OUTPUT]
    dag = Dag(names, roles, [0, 2, 2, 1, 3, 4], [2, 3, 4, 3, 4, 5], [1.0, 3**0.5, 3**0.5, 0.5, 1.5, 1.5])
    data = Data(np.random.default_rng(0).normal(size=(20, 2)))
    path = tmp_path_factory.mktemp("page") / "audit.html"
    path.write_text(audit_page(audit(dag, source=HOSTILE, data=data)), encoding="utf-8")
    return path


@pytest.mark.parametrize("width", [360, 768, 1280])
def test_it_renders_at_every_width_in_both_schemes(
    page_file: Path, visit: Callable[..., Any], poor_contrast: Callable[[Any], list[str]], width: int
) -> None:
    for dark in (False, True):
        page = visit(page_file, width=width, dark=dark)
        assert page.locator("h2").count() >= 5
        assert poor_contrast(page) == []
        assert page.evaluate("window.hacked") is None


def test_pointing_and_tabbing_tell_about_a_neuron(page_file: Path, visit: Callable[..., Any]) -> None:
    page = visit(page_file)
    page.locator("svg.graph g[tabindex]").first.hover()
    assert "2: balance -5" in page.locator("output").first.inner_text()
    page.locator("svg.graph g[tabindex]").nth(2).focus()
    note = page.locator("output").first.inner_text()
    assert "sign-locked" in note
    assert HOSTILE in note


def test_the_locked_weight_is_in_the_table(page_file: Path, visit: Callable[..., Any]) -> None:
    page = visit(page_file)
    cells = page.locator("#where-training-can-go tbody tr").first.locator("td").all_inner_texts()
    assert cells[:3] == [HOSTILE, "5", "+"]
    assert float(cells[4]) == pytest.approx(1.0)  # √(2 − 1), P0 Figure 2d


def test_it_prints(page_file: Path, visit: Callable[..., Any]) -> None:
    page = visit(page_file)
    page.emulate_media(media="print")
    assert not page.locator("nav").is_visible()
    assert page.locator("table").first.is_visible()
