"""A real browser for the pages."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

WIDTHS = (360, 768, 1280)  # a phone, a tablet, a desk


@pytest.fixture(scope="package")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium")
    assert chromium, "the tests of the pages need chromium (make test installs it)"
    quiet = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync"]
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=chromium, args=quiet)
        yield running
        running.close()


@dataclass(eq=False)
class Tab:
    """A page of the browser and what went wrong in it."""

    page: Any
    trouble: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        note = self.trouble.append
        self.page.on("console", lambda message: note(message.text) if message.type == "error" else None)
        self.page.on("pageerror", lambda error: note(str(error)))
        self.page.on("request", lambda request: note(request.url) if request.url.startswith("http") else None)


@pytest.fixture(scope="package")
def tabs() -> list[Tab]:
    """Tabs that no test looks at now: a new one costs five times what loading a file costs."""
    return []


@pytest.fixture
def visit(browser: Any, tabs: list[Tab]) -> Iterator[Callable[..., Any]]:
    """Open a file; any console error, failed or outgoing request, and any sideways scrolling fails the test."""
    opened: list[Tab] = []

    def go(path: Path, *, width: int = 1280, dark: bool = False) -> Any:
        tab = tabs.pop() if tabs else Tab(browser.new_page(bypass_csp=True))  # a test may evaluate text, a page may not
        opened.append(tab)
        tab.page.set_viewport_size({"width": width, "height": 800})
        tab.page.emulate_media(media="null", color_scheme="dark" if dark else "light")
        tab.page.goto(path.as_uri())
        assert tab.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), (
            f"scrolls sideways at {width}"
        )
        return tab.page

    yield go
    for tab in opened:
        assert tab.trouble == []
        tab.page.mouse.move(0, 0)
        tab.page.goto("about:blank")  # whatever the page still did ends, and the next file is loaded anew
        tabs.append(tab)


CONTRAST = """() => {
  const light = (c) => { const v = c / 255; return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; };
  const level = ([r, g, b]) => 0.2126 * light(r) + 0.7152 * light(g) + 0.0722 * light(b);
  const numbers = (text) => {
    const found = text.replace(/^color\\(srgb/, "").match(/[\\d.]+(e-\\d+)?/g).map(Number);
    return text.startsWith("color(") ? [...found.slice(0, 3).map((c) => 255 * c), ...found.slice(3)] : found;
  };
  const behind = (node) => {  // what is half transparent lies over what is behind it
    if (!node) return [255, 255, 255];
    const c = numbers(getComputedStyle(node).backgroundColor), alpha = c.length < 4 ? 1 : c[3];
    if (alpha === 1) return c.slice(0, 3);
    const under = behind(node.parentElement);
    return under.map((value, k) => alpha * c[k] + (1 - alpha) * value);
  };
  const poor = [];
  for (const node of document.querySelectorAll("h1, h2, p, li, td, th, button, caption, figcaption, a, code")) {
    if (!node.textContent.trim() || node.offsetParent === null) continue;
    const [a, b] = [level(numbers(getComputedStyle(node).color)), level(behind(node))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) poor.push(`${node.tagName} ${ratio.toFixed(2)} ${node.textContent.slice(0, 30)}`);
  }
  return poor;
}"""


@pytest.fixture
def poor_contrast() -> Callable[[Any], list[str]]:
    """Texts whose contrast with what is behind them is below 4.5 (WCAG AA)."""
    return lambda page: list(page.evaluate(CONTRAST))
