"""The verbs as a user types them."""

from __future__ import annotations

import html.parser
import json
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import ended, in_process

from lawful.cli import main
from lawful.network import Architecture
from lawful.papers.truncation.census import census
from lawful.papers.truncation.clusters import Clusters, synthetic
from lawful.papers.truncation.flow.motion import run_flow
from lawful.papers.truncation.separability import separability
from lawful.report.training.truncation import run_json
from lawful.report.training.truncation_page import census_page, flow_page, separation_page

Misuse = Callable[..., str]
LAWFUL = Path(sys.executable).with_name("lawful")


def lawful(*args: object, code: int = 0) -> str:
    run = ended(in_process(*args), code)
    return run.stdout if code in (0, 1, 3) else run.stderr


@pytest.fixture
def misuse(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Misuse:
    """The same entry point without a new process: what it says on stderr before it exits with 2."""

    def run(*args: object) -> str:
        monkeypatch.setattr(sys, "argv", ["lawful", *map(str, args)])
        with pytest.raises(SystemExit) as stop:
            main()
        assert stop.value.code == 2
        return capsys.readouterr().err

    return run


@pytest.fixture
def corners(tmp_path: Path) -> Path:
    """Four points on two diagonals: neither cluster can be parted from the other."""
    path = tmp_path / "corners.csv"
    path.write_text("a,b,label\n0,0,3\n1,1,3\n0,1,5\n1,0,5\n")
    return path


def test_truncate_a_network(corners: Path) -> None:
    found = json.loads(lawful("truncate", "2-2-2-3 relu bias", "--data", corners, "--json"))
    assert set(found) >= {"classes", "sizes", "residual", "layers", "reading", "certified", "evidence"}
    assert found["classes"] == ["3", "5"]
    assert len(found["layers"]) == 2
    for layer in found["layers"]:
        assert [sum(t) for t in zip(layer["untruncated"], layer["partial"], layer["full"], strict=True)] == [2, 2]
    text = lawful("truncate", "2-2-2-3 relu bias", "--data", corners)
    assert "\nThe network is a chain of 2 truncations" in text
    assert max(map(len, text.splitlines())) <= 80


def test_flow_writes_a_page_that_loads_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    data = tmp_path / "data.npz"
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1], 20)
    np.savez(data, x=np.repeat([[0.0, 0.0], [1.0, 1.0]], 20, axis=0) + 0.15 * rng.normal(size=(40, 2)), y=labels)
    text = lawful("truncation-flow", "--data", data, "--until", 5, "--frames", 26, "--out", folder, "--images", "svg")
    assert text.startswith("2 of 2 clusters collapsed to a point by s = ")
    assert max(map(len, text.splitlines())) <= 80
    assert text.count("  predicted       cluster") == 2
    assert len(list((folder / "frames").iterdir())) == 26
    found = json.loads((folder / "run.json").read_text())
    assert len(found["times"]) == len(found["costs"]) == len(found["collapse"]) == 26
    written = (folder / "report.html").read_text()

    class Reader(html.parser.HTMLParser):
        def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
            for name, value in attributes:
                assert name not in ("src", "href") or (value or "").startswith(("data:", "#")), (tag, value)

    Reader().feed(written)


def test_the_page_escapes_all_text() -> None:
    hostile = ["<b>one</b>", "</script><script>alert(1)</script>"]
    data = Clusters(synthetic(2, 3, 0.1).points, [hostile[label] for label in synthetic(2, 3, 0.1).labels])
    run = run_flow(data, until=1.0, frames=2)
    written = flow_page(run, run_json(run, []) | {"halted": "<i>never</i>"})
    network = Architecture.parse("2-2-2 bias").initialise()
    written += census_page(census(network, data), data, "<u>title</u>")
    written += separation_page(separability(data), None, "<u>title</u>")
    for tag in ("<b>one", "<i>", "<u>", "<script>alert"):
        assert tag not in written


def test_a_duplicate_in_two_classes_is_named(tmp_path: Path) -> None:
    path = tmp_path / "twins.csv"
    path.write_text("a,b,label\n0,0,0\n1,5,0\n7,7,1\n1,5,1\n")
    text = lawful("separate", "--data", path, "--network", tmp_path / "never.npz", code=1)
    assert text.startswith("No: ")
    assert "rows 1 and 3 are the same point in two clusters" in text
    assert not (tmp_path / "never.npz").exists()
    found = json.loads(lawful("separate", "--data", path, "--json", code=1))
    assert [answer["pair"] for answer in found["answers"]] == [[1, 3], [3, 1]]


def test_widening_layers_say_what_is_lost() -> None:
    text = lawful("truncate", "2-8-3-2 relu bias", "--data", "moons")
    assert "pseudo-inverses" in text
    assert "of its variation has no place in input space" in text
    found = json.loads(lawful("truncate", "2-8-3-2 relu bias", "--data", "moons", "--json"))
    assert 0 < found["layers"][0]["lost"] < 1
    assert found["layers"][0]["misalignment"] is None


def test_flow_json_general_and_closed_forms() -> None:
    general = json.loads(lawful("truncation-flow", "--clusters", "2,6,0.2", "--general", "--until", 3, "--json"))
    assert general["general"] is True
    assert general["orthogonality"] < 1e-13
    assert max(general["descent_shifts"]) <= 0
    assert max(general["descent_rotations"]) <= 0
    fixed = json.loads(lawful("truncation-flow", "--clusters", "2,6,0.2", "--fixed", "--json"))
    assert fixed["coordinates"][0][0]["rates"][-1] == 1.0
    for case, key in (("collapsed", "gap"), ("clustered", "difference")):
        assert key in json.loads(lawful("truncation-flow", "--clusters", "2,6,0.2", "--standard", case, "--json"))


@pytest.mark.parametrize("general", [False, True])
def test_ctrl_c_keeps_the_run(
    general: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A real signal, sent once the flow has come to s = 0.3."""
    from lawful.papers.truncation.flow import motion

    def impatient(data: Clusters, **options: Any) -> motion.TruncationRun:
        def interrupt(now: float) -> None:
            if now > 0.3:
                signal.raise_signal(signal.SIGINT)

        return run_flow(data, **(options | {"progress": interrupt}))

    run_flow = motion.run_flow
    monkeypatch.setattr(motion, "run_flow", impatient)
    out = tmp_path / "run"
    words = ["truncation-flow", "--clusters", "3,12,0.4", "--until", "5", "--frames", "101", "--out", str(out)]
    monkeypatch.setattr(sys, "argv", ["lawful", *words, *(["--general"] if general else [])])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 130
    assert "INTERRUPTED" in capsys.readouterr().out
    found = json.loads((out / "run.json").read_text())
    assert found["halted"].startswith("interrupted at s = ")
    assert 0.25 <= found["times"][-1] < 5.0
    assert len(found["times"]) == len(found["costs"]) == len(found["collapse"])
    assert (out / "report.html").exists()


def test_separate_yes_no_and_the_certificate(tmp_path: Path, corners: Path) -> None:
    proof, network = tmp_path / "proof.json", tmp_path / "zero.json"
    found = json.loads(lawful("separate", "--clusters", "3,9,0.2", "--out", proof, "--json"))
    assert found["answer"] == "yes"
    assert found["network"]["loss"] < 1e-20
    assert "each of the 3 clusters is strictly parted" in lawful("verify", proof)
    certificate = json.loads(proof.read_text())
    certificate["answers"][1]["normal"] = ["0", "0", "1"]
    proof.write_text(json.dumps(certificate))
    assert lawful("verify", proof, code=1).startswith("REJECTED")
    lawful("separate", "--clusters", "3,9,0.2", "--network", tmp_path / "zero.safetensors")
    arguments = (tmp_path / "zero.safetensors", "--activation", "relu", "--clusters", "3,9,0.2", "--json")
    layers = json.loads(lawful("truncate", *arguments))["layers"]
    for layer, name in zip(layers, found["network"]["order"], strict=True):  # each layer collapses one whole cluster
        assert layer["full"][int(name)] == 9
    text = lawful("separate", "--data", corners, code=1)
    assert text.startswith("No: not every cluster can be parted.")
    line = tmp_path / "line.csv"
    line.write_text("a,b,y\n-5,1,0\n5,1,0\n-2,0,1\n0,-1,2\n")
    text = lawful("separate", "--data", line, code=1)
    assert "one by one they can" in text
    assert "zero-loss network 2-2-2-2-3" in text
    assert max(map(len, text.splitlines())) <= 80
    assert json.loads(lawful("separate", "--data", corners, "--aligned", "--json", code=1))["answer"] == "no"
    text = lawful("separate", "--data", corners, "--network", network, code=1)
    assert "one by one neither" in text
    assert "behind a first layer of" in text
    assert network.exists()
    line.write_text("a,b,y\n1,1,0\n5,1,0\n1,1,1\n")
    text = lawful("separate", "--data", line, "--network", tmp_path / "none.json", code=1)
    assert "rows 0 and 2 are the same point" in text
    assert not (tmp_path / "none.json").exists()


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("truncation-flow",), "give either --data FILE or --clusters"),
        (("truncation-flow", "--clusters", "2,x,1"), "--clusters takes Q,N,spread"),
        (("truncation-flow", "--clusters", "3,5,nan"), "--clusters takes Q,N,spread"),
        (("truncation-flow", "--data", "iris"), "3 clusters in R^4: fewer clusters than coordinates"),
        (("truncation-flow", "--clusters", "2,3,0.1", "--until", "-1"), "positive finite time"),
        (("truncation-flow", "--clusters", "2,3,0.1", "--general", "--fixed"), "exclude each other"),
        (("truncate", "3-3-1", "--clusters", "2,3,0.1"), "takes 3 numbers, but the data have 2"),
        (("separate", "--data", "nothing.txt"), "data come as .npz or .csv"),
        (("separate", "--data", "missing.csv"), "missing.csv"),
    ],
)
def test_misuse_is_one_line(args: tuple[str, ...], words: str, misuse: Misuse) -> None:
    message = misuse(*args)
    assert words in message
    assert len(message.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a,y\n1,2,3\n", "line 2 has 3 cells"),
        ("a,b\n1,2\n", "needs labels"),
        ("", "a header"),
        ("a,y\nnan,1\n", "finite"),
    ],
)
def test_bad_tables(tmp_path: Path, text: str, words: str, misuse: Misuse) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(text)
    assert words in misuse("separate", "--data", path)
