"""The eight pages of the docs, opened where their idea is, in a real browser."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "docs"))
from touch import Touch, cards, pages, write_touch

NAMES = list(pages())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, lawful: Any) -> Path:
    made = tmp_path_factory.mktemp("touch")
    write_touch(made, lawful)
    return made


SAYS = {
    "balances": ["6 independent laws", "Adam"],
    "matrices": ["independent laws", "gradient descent"],
    "locks": ["One weight can never change sign"],
    "path": ["signs flipped", "Connected"],
    "motion": ["motion of the data"],
    "bottleneck": ["Bottleneck rank about"],
    "hidden": ["Hidden crease of h1.0", "pieces in view"],
    "same": ["equal:", "reorder layer 1"],
}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("width", [390, 1400])
def test_a_page_opens_where_its_idea_is(
    folder: Path, visit: Callable[..., Any], poor_contrast: Callable[[Any], list[str]], name: str, width: int
) -> None:
    touch: Touch = pages()[name]
    page = visit(folder / f"{name}.html", width=width, dark=width == 390)
    if touch.state:
        page.goto(page.url.split("#")[0] + "#" + quote(json.dumps(touch.state)))
        page.wait_for_function("(tab) => state.tab === tab", arg=touch.state.get("tab", "laws"))
    text = page.inner_text("body")
    assert all(words in text for words in SAYS[name]), text
    assert poor_contrast(page) == []
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


def test_dragging_the_balance_joins_the_set(folder: Path, visit: Callable[..., Any]) -> None:
    """What the page of locks asks its reader to do."""
    page = visit(folder / "locks.html")
    address = page.url.partition("#")[0]
    page.goto("about:blank")  # the link of the list opens the page anew
    page.goto(address + "#" + quote(json.dumps(pages()["locks"].state)))
    page.wait_for_function("state.tab === 'where'")
    slide = (
        "(v) => { const s = document.querySelector('#panel input'); s.value = v; s.dispatchEvent(new Event('input')); }"
    )
    page.evaluate(slide, 4)
    assert "Connected" in page.inner_text("#panel")
    page.evaluate(slide, -1)
    assert "One weight can never change sign" in page.inner_text("#panel")


def test_the_list_links_to_every_page() -> None:
    assert len(NAMES) == 8
    assert all(f"_static/touch/{name}.html" in cards() for name in NAMES)
    assert {touch.paper for touch in pages().values()} == {"P0", "P1", "P2", "P3", "P4"}
