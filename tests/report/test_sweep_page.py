"""A sweep's page and the atlas: small however many rows there are, and exceptions are seen."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from lawful.api.sweeps import Finished, Plan, Store
from lawful.conservation.theorems import predicted_laws
from lawful.network import Architecture
from lawful.report.training.sweep import MOST_PLOTTED, MOST_ROWS, look, write_page
from reproduction.atlas import atlas, training_atlas


def numbers(count: int) -> Iterator[Finished]:
    for n in range(count):
        yield Finished(str(n), "job", {"n": n}, "ok" if n % 10 else "failed", {"double": 2 * n}, "", "0", 0.5)


def counted(name: str, *, off: int = 0, status: str = "proved") -> Finished:
    """A row of `count_laws`; `off` makes it an exception."""
    network = Architecture.parse(name)
    laws = predicted_laws(network)
    assert laws is not None
    outputs = {
        "parameters": network.parameters, "laws": laws + off, "predicted": laws, "matches": off == 0, "status": status
    }  # fmt: skip
    return Finished(name, "count_laws", {"architecture": name}, "ok", outputs, "", "9.9", 0.1)


def test_a_large_sweep_is_sampled_evenly() -> None:
    seen = look(numbers(20_000))
    assert (seen.calls, seen.failed, seen.good, seen.seconds) == (20_000, 2_000, 18_000, 10_000.0)
    assert len(seen.first) == len(seen.failures) == MOST_ROWS
    places = [row.inputs["n"] for row in seen.sample]
    assert len(set(places)) == MOST_PLOTTED
    assert places == sorted(places)
    assert abs(sum(places) / len(places) - 10_000) < 400  # 4 standard deviations
    assert [row.inputs["n"] for row in look(numbers(20_000)).sample] == places


def test_the_page_of_a_large_sweep_is_small_and_says_what_it_leaves_out(tmp_path: Path) -> None:
    write_page(numbers(20_000), tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    assert len(text) < 3_000_000
    assert f"random sample of {MOST_PLOTTED} of 18000 calls" in text
    assert f"The first {MOST_ROWS} of 18000" in text
    assert f"The first {MOST_ROWS} of 2000" in text


def test_laws_have_a_map_and_exceptions_a_section(tmp_path: Path) -> None:
    rows = [counted("2-3-2 linear"), counted("2-4-2 linear"), counted("2-2-2 relu", off=1)]
    assert write_page(rows, tmp_path / "page.html").exceptions == 1
    text = (tmp_path / "page.html").read_text()
    assert "Mean number of laws" in text
    assert 'id="exceptions"' in text
    write_page(rows[:2], tmp_path / "calm.html")
    assert 'id="exceptions"' not in (tmp_path / "calm.html").read_text()


def test_the_atlas_counts_and_names_exceptions() -> None:
    rows = [counted("2-3-2 linear"), counted("1-2-2-1 linear", status="numerical"), counted("2-3-3 relu")]
    page = atlas(rows, 3)
    assert "The laws of 3 architectures" in page
    assert "No exception." in page
    assert "only one is here" in page
    assert "| linear | 3 | 1 | 7 | 0 | 1 | 0 |" in page
    assert "| `1-2-2-1 linear` | 8 | 7 | 7 |" in page
    assert "| 12 | 1 | 6 | 0 |  |" in page
    assert "Exceptions" not in page
    worse = atlas([*rows, counted("3-2-2 relu", off=-1)], 5)
    assert "1 exceptions." in worse
    assert "**Unfinished: 1 are missing.**" in worse
    assert "| `3-2-2 relu` | 10 | 1 | 2 | proved |" in worse
    assert "only one is here" not in worse


def test_the_report_of_exceptions_says_no(tmp_path: Path, lawful) -> None:  # type: ignore[no-untyped-def]
    names = ["2-3-2 linear", "2-2-2 relu"]
    plan = Plan("count_laws", {"architecture": names})
    for off in (0, 1):
        store = Store(tmp_path / str(off), write=True)
        store.set_plan(plan)
        rows = [counted(name, off=off) for name in names]
        store.add([Finished(t.key, *list(vars(row).values())[1:]) for t, row in zip(plan.tasks(), rows, strict=True)])
        store.close()
        arguments = ("sweep", "report", tmp_path / str(off), "--markdown", tmp_path / "atlas.md", "--json")
        assert lawful(*arguments, code=off).json["exceptions"] == 2 * off
    assert "2 exceptions" in (tmp_path / "atlas.md").read_text()
    store = Store(tmp_path / "other", write=True)
    store.set_plan(Plan("claim", {"id": ["x"]}))
    store.close()
    assert "count_laws" in lawful("sweep", "report", tmp_path / "other", "--markdown", tmp_path / "x", code=2).stderr


def test_the_atlas_of_training_tells_proofs_from_open_cases() -> None:
    def row(name: str, parameters: int, *, witness: bool, least: int | None) -> Finished:
        outputs = {"parameters": parameters, "laws": 4, "fewest": 5, "usual": 0.5, "witness": witness, "least": least}
        return Finished(name, "training_laws", {"architecture": name}, "ok", outputs, "", "1.0", 1.0)

    decided = [row("2-2-2-1 relu", 10, witness=True, least=None), row("1-2-2-1 relu", 8, witness=False, least=5)]
    page = training_atlas(decided, 2)
    assert "| relu | 3 | 2 | 1 | 1 | 0 | 50% |" in page
    assert "| 8 | 1 | 0 | 1 | 0 | 50% |" in page
    assert "## Open" not in page
    more = training_atlas([*decided, row("3-2-1 relu", 8, witness=False, least=4)], 4)
    assert "| `3-2-1 relu` | 8 | 4 | 5 |" in more  # as many laws as φ has prove nothing
    assert "Unfinished: 1 are missing" in more
