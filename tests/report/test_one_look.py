"""Every kind of page in a real browser, narrow to wide, light and dark: nothing overflows, everything is readable."""

from __future__ import annotations

import importlib
import os
import re
import shlex
import sys
from collections.abc import Callable
from contextlib import chdir
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import in_process
from page_checklist import faults
from safetensors.torch import save_file

import lawful
from lawful.api.sweeps import Finished
from lawful.report.training.sweep import write_page
from lawful.sources.files import write

SIZES = ((320, 700), (390, 844), (800, 1000), (1400, 900))


def wide_audit(folder: Path) -> Path:
    in_process("audit", "16-14-4-3 relu bias", "--quick", "--html", folder / "page.html")
    return folder / "page.html"


def locked_audit(folder: Path) -> Path:
    data = np.random.default_rng(0)
    np.savez(folder / "data.npz", x=data.normal(size=(30, 4)))
    in_process("audit", "4-8-1 relu", "--data", folder / "data.npz", "--html", folder / "page.html")
    return folder / "page.html"


def drift(folder: Path) -> Path:
    in_process("flow", "2-6-1 relu bias", "--until", "2", "--out", folder / "run")
    in_process("drift", folder / "run", "--html", folder / "page.html")
    return folder / "page.html"


def sweep(folder: Path) -> Path:
    rows = [
        Finished(f"{n}", "job", {"architecture": f"{n}-{n}-1 relu"}, "ok",
                 {"laws": n, "parameters": n * n + n, "rate": 1.0 / n}, "", "0", 0.01 * n)
        for n in range(1, 30)
    ]  # fmt: skip
    write_page(rows, folder / "page.html")
    return folder / "page.html"


def explorer(folder: Path) -> Path:
    in_process("explore", "2-4-1 relu bias", "--html", folder / "page.html")
    return folder / "page.html"


def symmetries(folder: Path) -> Path:
    in_process("symmetries", "5-8-8-3 relu bias", "--html", folder / "page.html")
    return folder / "page.html"


def diff(folder: Path) -> Path:
    one = lawful.Architecture.parse("4-8-5-2 relu bias").initialise(seed=0)
    for name, theta in (("a", one.theta), ("b", one.theta - 0.4)):
        write(one.with_theta(theta), folder / f"{name}.safetensors")
    in_process("diff", folder / "a.safetensors", folder / "b.safetensors", "--html", folder / "page.html")
    return folder / "page.html"


CONVOLUTIONS = """
from torch import nn

def make():
    return nn.Sequential(
        nn.Conv2d(1, 12, 3, padding=1), nn.ReLU(), nn.Conv2d(12, 16, 3), nn.ReLU(), nn.Flatten(), nn.Linear(576, 4)
    )
"""


def kin(folder: Path) -> Path:
    """A child of a small convolutional network, its first tensor moved."""
    (folder / "small_convolutions.py").write_text(CONVOLUTIONS, encoding="utf-8")
    with chdir(folder):
        sys.path.insert(0, "")
        state = importlib.import_module("small_convolutions").make().state_dict()
        save_file(state, "a.safetensors")
        save_file(state | {"0.weight": 1.01 * state["0.weight"] + 0.001}, "b.safetensors")
        words = ("--model", "small_convolutions:make", "--input", "1,8,8", "--html", "page.html")
        run = in_process("diff", "a.safetensors", "b.safetensors", *words)
        sys.path.remove("")
    assert run.stdout.startswith("FINE-TUNED"), run
    return folder / "page.html"


def module_audit(folder: Path) -> Path:
    (folder / "small_convolutions_too.py").write_text(CONVOLUTIONS, encoding="utf-8")
    with chdir(folder):
        sys.path.insert(0, "")
        in_process("audit", "small_convolutions_too:make", "--input", "1,8,8", "--html", "page.html")
        sys.path.remove("")
    return folder / "page.html"


def laws(folder: Path) -> Path:
    in_process("laws", "3-4-2 relu bias", "--html", folder / "page.html")
    return folder / "page.html"


def compare(folder: Path) -> Path:
    in_process("compare", "2-4-1 relu bias", "--optimizers", "sgd:0.1,adam:0.01", "--html", folder / "page.html")
    return folder / "page.html"


def truncation(folder: Path) -> Path:
    words = ("--clusters", "3,10,0.15", "--until", "2", "--html", folder / "page.html")
    in_process("truncation-flow", *words)
    return folder / "page.html"


def wasteful(folder: Path) -> Path:
    """A network with a constant neuron, a duplicate, and one that nothing reads."""
    network = lawful.Architecture.parse("3-6-5-2 relu bias").initialise(seed=0)
    (first, second, last), (below, *biases) = network.weights, network.biases
    first, second = first.copy(), second.copy()
    below = np.asarray(below).copy()
    first[1], second[:, 4] = 0, 0
    first[3], below[3] = 2 * first[2], 2 * below[2]
    write(lawful.Mlp([first, second, last], [below, *biases]), folder / "a.safetensors")
    return folder / "a.safetensors"


def prune(folder: Path) -> Path:
    in_process("prune", wasteful(folder), "--html", folder / "page.html")
    return folder / "page.html"


def prune_nearly(folder: Path) -> Path:
    words = ("--tolerance", "0.5", "--box", "-1,1", "--html", folder / "page.html")
    in_process("prune", "3-8-4-2 relu bias", *words)
    return folder / "page.html"


def same_function(folder: Path) -> Path:
    one = wasteful(folder)
    in_process("rebalance", one, "--out", folder / "b.safetensors")
    assert in_process("same", one, folder / "b.safetensors", "--html", folder / "page.html").returncode == 0
    return folder / "page.html"


def two_functions(folder: Path) -> Path:
    words = ("--html", folder / "page.html")
    assert in_process("same", wasteful(folder), "3-6-5-2 relu bias", *words).returncode == 1
    return folder / "page.html"


def rounded_module(folder: Path) -> Path:
    """Two checkpoints of a module, one of them edited."""
    (folder / "small_convolutions_same.py").write_text(CONVOLUTIONS, encoding="utf-8")
    with chdir(folder):
        sys.path.insert(0, "")
        state = importlib.import_module("small_convolutions_same").make().state_dict()
        save_file(state, "a.safetensors")
        save_file(state | {"0.weight": 1.01 * state["0.weight"] + 0.001}, "b.safetensors")
        words = ("--model", "small_convolutions_same:make", "--input", "1,8,8", "--html", "page.html")
        in_process("same", "a.safetensors", "b.safetensors", *words)
        sys.path.remove("")
    return folder / "page.html"


def separation(folder: Path) -> Path:
    in_process("separate", "--clusters", "3,10,0.15", "--html", folder / "page.html")
    return folder / "page.html"


def census(folder: Path) -> Path:
    in_process("truncate", "3-3-3 relu", "--clusters", "3,10,0.15", "--html", folder / "page.html")
    return folder / "page.html"


def stream(folder: Path) -> Path:
    np.savez(folder / "data.npz", x=np.random.default_rng(0).normal(size=(12, 4)))
    with chdir(folder):
        in_process("bottleneck", "4-4-4-2 relu bias", "--data", "data.npz", "--html", "page.html")
    return folder / "page.html"


def relatives(folder: Path) -> Path:
    """A checkpoint, a copy of it and three others in an index."""
    with chdir(folder):
        for seed in range(4):
            write(lawful.Architecture.parse("4-6-3 relu bias").initialise(seed=seed), Path(f"{seed}.safetensors"))
        in_process("rebalance", "0.safetensors", "--out", "copy.safetensors")
        in_process("fingerprint", ".", "--index", "zoo.sqlite")
        in_process("find", "0.safetensors", "--index", "zoo.sqlite", "--html", "page.html")
    return folder / "page.html"


KINDS: dict[str, Callable[[Path], Path]] = {
    "module-audit": module_audit, "laws": laws, "compare": compare, "truncation": truncation,
    "audit": locked_audit, "wide-audit": wide_audit, "drift": drift, "sweep": sweep, "explorer": explorer,
    "symmetries": symmetries, "diff": diff, "kin": kin, "prune": prune, "prune-nearly": prune_nearly,
    "same": same_function, "different": two_functions, "different-module": rounded_module,
    "separation": separation, "census": census, "stream": stream, "relatives": relatives,
}  # fmt: skip


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {kind: make(tmp_path_factory.mktemp(kind)) for kind, make in KINDS.items()}


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("kind", list(KINDS))
def test_a_page_meets_the_checklist_at_every_width(
    pages: dict[str, Path],
    visit: Callable[..., Any],
    poor_contrast: Callable[[Any], list[str]],
    kind: str,
    dark: bool,
) -> None:
    for width, height in SIZES:
        page = visit(pages[kind], width=width, dark=dark)
        page.wait_for_timeout(50)  # a picture follows its box
        assert faults(page, height) == [], (kind, width)
        assert poor_contrast(page) == []
        assert page.locator("img").count() == 0, "figures are drawn from data, not pasted"
        if folder := os.environ.get("LAWFUL_SCREENSHOTS"):  # to look at them
            name = f"{kind}-{'dark' if dark else 'light'}-{width}.png"
            page.screenshot(path=str(Path(folder) / name), full_page=True)


def commands(page: Path) -> list[str]:
    """What a page offers to copy, in order."""
    found = re.findall(r'<div class="cmd"><code>(.*?)</code>', page.read_text(encoding="utf-8"))
    return [unescape(command) for command in dict.fromkeys(found)]


@pytest.mark.parametrize(
    "kind", ["prune", "prune-nearly", "same", "different", "different-module", "laws", "kin", "diff", "compare",
             "truncation", "separation", "census", "stream", "relatives"]
)  # fmt: skip
def test_every_command_on_a_page_works_as_printed(pages: dict[str, Path], kind: str) -> None:
    folder = pages[kind].parent
    listed = commands(pages[kind])
    assert listed
    with chdir(folder):
        sys.path.insert(0, "")
        for command in (part for line in listed for part in line.split(" && ")):
            run = in_process(*shlex.split(command)[1:])
            assert run.returncode in ((0, 1) if " same " in command else (0,)), (command, run.stderr)
        sys.path.remove("")


@pytest.mark.parametrize("kind", ["audit", "wide-audit", "drift", "sweep"])
def test_no_figure_has_a_colour_of_its_own_for_paper_or_ink(pages: dict[str, Path], kind: str) -> None:
    text = pages[kind].read_text(encoding="utf-8")
    assert "matplotlib" not in text
    for white in ('fill="#fff"', 'fill="white"', 'stroke="#000"', 'fill="black"'):
        assert white not in text


def test_pointing_at_a_curve_reads_all_panels(pages: dict[str, Path], visit: Callable[..., Any]) -> None:
    page = visit(pages["drift"], width=1400)
    panel = page.locator("svg[data-plot]").first
    panel.scroll_into_view_if_needed()
    box = panel.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    said = page.locator("figure.plot output").first.inner_text()
    assert said.count("time") == page.locator("figure.plot").first.locator("svg[data-plot]").count()
    assert page.locator("line[data-cursor]").count() >= 3


def test_the_slider_moves_the_cursor_of_the_curves(pages: dict[str, Path], visit: Callable[..., Any]) -> None:
    page = visit(pages["drift"], width=390)
    places = []
    for key in ("Home", "End"):
        page.locator("input[type=range]").focus()
        page.keyboard.press(key)
        places.append(float(page.locator("line[data-cursor]").first.get_attribute("x1")))
    assert places[1] > places[0] + 100


def test_terms_are_explained_where_they_stand(pages: dict[str, Path], visit: Callable[..., Any]) -> None:
    page = visit(pages["audit"])
    terms = page.locator("abbr[title]")
    assert terms.count() >= 4
    words = [(terms.nth(k).text_content() or "").rstrip("s") for k in range(terms.count())]
    assert len(set(words)) == len(words), "each is explained once"


def test_a_wide_network_is_drawn_as_tiles(pages: dict[str, Path], visit: Callable[..., Any]) -> None:
    page = visit(pages["wide-audit"])
    assert page.locator(".tile").count() == 14
    assert page.locator("svg.graph").count() == 0


def test_bars_stand_in_the_cells(pages: dict[str, Path], visit: Callable[..., Any]) -> None:
    page = visit(pages["audit"])
    cells = page.locator("details#all-8-neurons-with-numbers td.bar")
    shares = [float(cells.nth(k).evaluate("c => parseFloat(c.style.getPropertyValue('--share'))")) for k in range(8)]
    assert shares == sorted(shares, reverse=True)
    assert shares[0] == 100


BLOCKS = """
from torch import nn

class Blocks(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(6, 9), nn.ReLU(), nn.Linear(9, 6)) for _ in range(3))

    def forward(self, x):
        for block in self.blocks:
            x = x + block(x)
        return x
"""


def test_spaces_that_repeat_are_one_row(
    lawful: Any, tmp_path: Path, visit: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks of one kind are grouped, those with most laws first."""
    (tmp_path / "three_blocks.py").write_text(BLOCKS, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    lawful("symmetries", "three_blocks:Blocks", "--input", "6", "--html", tmp_path / "page.html")
    page = visit(tmp_path / "page.html")
    page.locator("details#spaces > summary").click()
    rows = page.locator("details#spaces tbody tr").all_inner_texts()
    assert any("blocks.*.0.weight" in row and "\t3\t" in row for row in rows), rows
    totals = [int(row.split("\t")[-1]) for row in rows]
    assert totals == sorted(totals, reverse=True)
