"""Eight pages to touch, one for each idea of the five papers, made by the library when the site is built."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import quote

import numpy as np

from lawful.api.explore import explore
from lawful.network import Architecture, Mlp
from lawful.report.page.drop import drop_page
from lawful.report.page.explorer import explorer_html
from lawful.sources.files import write


@dataclass(frozen=True)
class Touch:
    """A page: its idea, what to do on it, and how to make it, from networks or by a command."""

    idea: str
    paper: str
    lead: str
    networks: tuple[Mlp, ...] = ()
    state: Mapping[str, Any] = field(default_factory=dict)
    commands: tuple[tuple[str, ...], ...] = ()


def drawn(text: str, seed: int) -> Mlp:
    """Random weights of an architecture."""
    return Architecture.parse(text).initialise(seed=seed)


def locked() -> Mlp:
    """A single neuron in the middle sends out more than it takes in."""
    return Mlp([[[1.5, 0.3], [0.2, 1.4]], [[0.9, -1.1]], [[2.0]]])


def hiding() -> Mlp:
    """P4 Theorem 5: the second layer hides the first neuron's hyperplane wherever it is active."""
    first = [[1.0, 0.35], [-0.55, 0.8], [0.3, -0.9]]
    second = [[1.2, -0.6, -0.5], [0.8, -0.4, -0.9], [1.0, -1.1, -0.3]]
    return Mlp([first, second, [[1.0, -1.4, 0.8]]], [[1.1, 0.3, 0.4], [-0.3, -0.5, -0.9], [0.1]])


def twin(network: Mlp, order: tuple[int, ...], factors: tuple[float, ...]) -> Mlp:
    """The same function: neurons of the first layer in another order and at another scale."""
    (below, above, *rest), (bias, *others) = network.weights, network.biases
    scale, index = np.array(factors), list(order)
    return Mlp(
        [below[index] * scale[:, None], above[:, index] / scale, *rest], [np.asarray(bias)[index] * scale, *others]
    )


def pages() -> dict[str, Touch]:
    """All eight, by file name."""
    base = drawn("2-5-3-1 relu bias", 3)
    return {
        "balances": Touch(
            "Every neuron's balance is conserved", "P1",
            "Choose a law, then make the steps smaller: gradient descent comes to keep it, Adam does not.",
            (drawn("2-6-1 relu bias", 1),), {"tab": "laws"},
        ),
        "matrices": Touch(
            "Linear networks conserve whole matrices", "P1",
            "Not only balances: each pair of hidden neurons has a law of its own. Choose one and see which weights "
            "it ties together.", (drawn("3-3-3 linear", 2),), {"tab": "laws", "law": 1},
        ),
        "locks": Touch(
            "A balance can lock a sign for ever", "P0",
            "The yellow weight can never become zero. Drag the balance of its neuron upwards until the set joins.",
            (locked(),), {"tab": "where", "neuron": "1,0"},
        ),
        "path": Touch(
            "What is not locked can be walked to", "P0",
            "Press Play: every sign flips, each weight through zero, and no balance moves.",
            (drawn("2-4-3-2 relu bias", 4),), {"tab": "where", "walk": 0.4},
        ),
        "motion": Touch(
            "Training moves the data", "P2",
            "Slide over time: the truncation maps carry each cluster to a point.",
            commands=(("truncation-flow", "--clusters", "3,30,0.15", "--until", "8", "--html", "{page}"),),
        ),
        "bottleneck": Touch(
            "Deep residual streams narrow to the rank of the task", "P3",
            "A task of rank 2, learned at three effective depths: the deeper, the closer the estimate to 2.",
            commands=(
                ("leaky", "--teacher", "6-2-6", "--depth", "16", "--width", "16", "--samples", "60",
                 "--effective-depth", "2,5,9", "--tolerance", "0.01", "--out", "{folder}"),
                ("bottleneck", "{folder}", "--html", "{page}"),
            ),
        ),
        "hidden": Touch(
            "A hyperplane can hide, and then it may move", "P4",
            "The dotted line is the crease of a neuron that the next layer hides. Slide it, or slide along the fiber: "
            "the weights move, no pixel does.",
            (hiding(),), {"t": 0.4},
        ),
        "same": Touch(
            "Two sets of weights, one function", "P4",
            "The weights look unrelated; the table below shows the symmetry between them. Change a weight on the left "
            "and the difference appears.",
            (base, twin(base, (2, 0, 4, 1, 3), (2.0, 0.5, 4.0, 0.25, 1.0))), {"tab": "same"},
        ),
    }  # fmt: skip


def _run(*words: str) -> None:
    """A command in a process of its own."""
    subprocess.run([sys.executable, "-m", "lawful", *words], check=True, capture_output=True)  # noqa: S603


def write_touch(folder: Path, run: Callable[..., object] = _run) -> None:
    """Make every page."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, touch in pages().items():
        page = folder / f"{name}.html"
        if touch.networks:
            files = [folder / f"{name}{suffix}.safetensors" for suffix in ("", "-other")]
            for network, file in zip(touch.networks, files, strict=False):
                write(network, file)  # what the page's commands are about
            one, *other = touch.networks
            named = {"source": files[0].name} | ({"other": other[0], "other_source": files[1].name} if other else {})
            page.write_text(explorer_html(explore(one, **named), touch.idea, touch.lead), encoding="utf-8")
        with TemporaryDirectory() as scratch:
            for words in touch.commands:
                told = [word.format(page=page, folder=Path(scratch) / "run") for word in words]
                run(*told)


def write_try(folder: Path) -> None:
    """The page onto which a reader drops a file of their own."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "index.html").write_text(drop_page("../../files.html"), encoding="utf-8")


def cards() -> str:
    """The list of pages as HTML."""
    made = []
    for name, touch in pages().items():
        state = "#" + quote(json.dumps(touch.state)) if touch.state else ""
        made.append(
            f'<li><a href="_static/touch/{name}.html{state}">{escape(touch.idea)}</a> '
            f"<small>({touch.paper})</small><br>{escape(touch.lead)}</li>"
        )
    return '<ol class="touch">' + "".join(made) + "</ol>\n"
