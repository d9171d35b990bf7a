"""Pages in a real browser: they render, sort, download, escape and stay readable."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lawful.api.sweeps import Finished
from lawful.figure import Figure, Panel, Series
from lawful.report.page.page import Markup, Section, Table, render
from lawful.report.training.sweep import write_page

HOSTILE = "</script><script>window.hacked = true</script><img src=x onerror='window.hacked = true'>"


@pytest.fixture
def page_file(tmp_path: Path) -> Path:
    table = Table(("name", "value"), [["b", 10.0], [HOSTILE, 9], ['say "hi", twice', -2.5e-3]], caption="Three rows.")
    figure = Figure(f"What to see {HOSTILE}", [Panel([Series([1, 3, 2], label="line")], title=HOSTILE)])
    drawn = Markup("<svg viewBox='0 0 9 9'><circle r='3'/></svg>", HOSTILE)
    path = tmp_path / "page.html"
    sections = [Section("First things", ["Words.", table], open=True), Section(HOSTILE, [figure, drawn])]
    path.write_text(render(HOSTILE, HOSTILE, sections))
    return path


@pytest.mark.parametrize("width", [360, 768, 1280])
@pytest.mark.parametrize("dark", [False, True])
def test_it_renders_readably_at_every_width(
    page_file: Path, visit: Callable[..., Any], poor_contrast: Callable[[Any], list[str]], width: int, dark: bool
) -> None:
    page = visit(page_file, width=width, dark=dark)
    assert page.locator("h2").count() == 2
    assert poor_contrast(page) == []


def test_text_from_files_never_runs(page_file: Path, visit: Callable[..., Any]) -> None:
    page = visit(page_file)
    assert page.evaluate("window.hacked") is None
    assert HOSTILE in page.locator("h1").inner_text()


def test_tables_sort_by_mouse_and_keyboard(page_file: Path, visit: Callable[..., Any]) -> None:
    page = visit(page_file)

    def values() -> list[str]:
        return list(page.locator("tbody tr td:nth-child(2)").all_inner_texts())

    page.get_by_role("button", name="value").click()
    assert values() == ["−0.0025", "9", "10"]
    page.get_by_role("button", name="value").focus()
    page.keyboard.press("Enter")
    assert values() == ["10", "9", "−0.0025"]
    assert page.locator("th[aria-sort=descending]").count() == 1


def test_tables_download_as_csv_and_json(page_file: Path, visit: Callable[..., Any]) -> None:
    page = visit(page_file)
    found = {}
    for kind in ("CSV", "JSON"):
        with page.expect_download() as waiting:
            page.get_by_role("button", name=kind).click()
        found[kind] = Path(waiting.value.path()).read_text()
    assert [row["name"] for row in json.loads(found["JSON"])] == ["b", HOSTILE, 'say "hi", twice']
    rows = list(csv.reader(found["CSV"].splitlines()))
    assert rows[0] == ["name", "value"]
    assert rows[3] == ['say "hi", twice', "-0.0025"]


def test_no_cell_of_a_table_starts_a_formula(tmp_path: Path, visit: Callable[..., Any]) -> None:
    names = ["=1+1", "+cmd", "-x", "@sum", "\t=1", " =1", "|x", "-1.5", "plain"]
    path = tmp_path / "page.html"
    path.write_text(
        render("t", "t", [Section("s", [Table(("name", "value"), [[name, -2.5] for name in names])], open=True)])
    )
    page = visit(path)
    with page.expect_download() as waiting:
        page.get_by_role("button", name="CSV").click()
    rows = list(csv.reader(Path(waiting.value.path()).read_text().splitlines()))
    assert [row[0] for row in rows[1:]] == [*(f"'{name}" for name in names[:-2]), "-1.5", "plain"]
    assert {row[1] for row in rows[1:]} == {"-2.5"}


def test_a_table_with_infinite_numbers_is_still_json() -> None:
    page = render("t", "lead", [Section("s", [Table(("a", "b"), [(float("inf"), 1.5)])])])
    text = page.partition('<script type="application/json">')[2].partition("</script>")[0]

    def refuse(word: str) -> Any:  # json.loads would take what the JSON.parse of a browser refuses
        raise ValueError(word)

    assert json.loads(text, parse_constant=refuse) == [{"a": "inf", "b": 1.5}]


def test_a_term_is_explained_in_the_lead_before_what_stands_under_it() -> None:
    page = render("t", "The balance is kept.", [Section("s", ["A balance."], open=True)])
    lead, _, rest = page.partition("<main>")
    assert "<abbr" in lead
    assert "<abbr" not in rest


def test_a_sweep_has_its_plots(tmp_path: Path, visit: Callable[..., Any]) -> None:
    rows = [
        Finished(
            f"{n}{s}", "job", {"n": n, "seed": s}, "ok", {"laws": n * n, "parameters": 10 * n + s}, "", "0", 0.01 * n
        )
        for n in range(1, 5)
        for s in range(3)
    ]
    failed = Finished("x", "job", {"n": 9, "seed": 0}, "failed", {}, f"ValueError {HOSTILE}", "0", 0.0)
    path = tmp_path / "report.html"
    assert write_page([*rows, failed], path).failed == 1
    page = visit(path)
    assert page.locator("figure.plot").count() == 3
    assert page.locator("section#failures tbody tr").count() == 1
    assert page.locator("section#results tbody tr").count() == 12
    assert "1 failed" in page.locator("header p").inner_text()


def test_a_page_may_load_and_evaluate_nothing(page_file: Path, browser: Any) -> None:
    """The page works under its own policy, and the policy refuses what a smuggled script would need."""
    page = browser.new_page()
    trouble: list[str] = []
    page.on("console", lambda message: trouble.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: trouble.append(str(error)))
    page.goto(page_file.as_uri())
    page.get_by_role("button", name="value").click()
    assert trouble == []
    assert page.evaluate("fetch('data:,x').then(() => 'loaded', () => 'refused')") == "refused"
    page.close()
