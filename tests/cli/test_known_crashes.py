"""Files and modules that once crashed a verb: each now gives an answer or one line."""

from __future__ import annotations

import io
import json
import os
import sqlite3
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lawful.api.sweeps import Finished, Plan, Store
from lawful.training.integration.runs import load

GRAPH: dict[str, Any] = {"inputs": ["a"], "outputs": ["y"], "edges": [["a", "h", 2.0], ["h", "y", -1.0]]}


def graph(path: Path, **changes: object) -> Path:
    path.write_text(json.dumps(GRAPH | changes))
    return path


def archive(path: Path, **members: bytes) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in members.items():
            file.writestr(f"{name}.npy", content)
    return path


def npy(header: str, content: bytes = b"") -> bytes:
    text = header.encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + content


@pytest.mark.parametrize(
    "header",
    [
        "{'descr': '<f8', 'fortran_order': False, 'shape': (1,",
        "{'descr': '<f8', 'fortran_order': False, 'shape': " + "(" * 4000,
        "{'descr': '<f8', 'fortran_order': False, 'shape': (-1,)}",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (10**9,)}",
        "{'descr': '|O', 'fortran_order': False, 'shape': (1,)}",
        "{'descr': [('a', '<f8')], 'fortran_order': False, 'shape': (1,)}",
        "[]",
        "\x00",
    ],
    ids=range(8),
)
def test_broken_headers_of_arrays(lawful: Any, tmp_path: Path, header: str) -> None:
    path = archive(tmp_path / "net.npz", **{"0.weight": npy(header, bytes(8))})
    assert "array '0.weight'" in lawful("show", path, code=2).stderr
    assert (
        "array 'x'"
        in lawful("truncate", "2-2-2 relu", "--data", archive(tmp_path / "d.npz", x=npy(header)), code=2).stderr
    )


def test_deeply_nested_settings(lawful: Any, tmp_path: Path) -> None:
    path = tmp_path / "deep.toml"
    for text in ("a = " + "[" * 5000, "a = " + "{a=" * 5000, ".".join("a" * 20000) + " = 1", "a.b = 1\n" * 2):
        path.write_text(text)
        assert "deep.toml: " in lawful("flow", path, code=2).stderr
        assert "deep.toml: " in lawful("sweep", path, "--out", tmp_path / "out", code=2).stderr
    assert not (tmp_path / "out").exists()


@pytest.fixture(scope="module")
def stored(lawful: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("stored")
    graph(folder / "net.json")
    lawful("flow", folder / "net.json", "--until", "0.1", "--snapshots", "3", "--out", folder / "run")
    store = Store(folder / "sweep", write=True)
    plan = Plan("count_laws", {"architecture": ["2-2-1 relu"], "seed": [0, 1]})
    store.set_plan(plan)
    store.add(Finished(t.key, t.job, t.inputs, "ok", {"laws": 2}, "", "0", 0.1) for t in plan.tasks())
    store._base.execute("PRAGMA journal_mode = DELETE")
    store.close()
    return folder


def changed(run: Path, name: str, value: Any) -> None:
    with np.load(run / "trajectory.npz") as arrays:
        held = {key: arrays[key] for key in arrays.files}
    held.pop(name, None)
    np.savez_compressed(run / "trajectory.npz", **held, **({} if value is None else {name: value}))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("theta", None),
        ("theta", np.zeros((3, 7))),
        ("theta", np.zeros(3)),
        ("theta", np.full((3, 2), np.nan)),
        ("times", np.array(["a", "b", "c"])),
        ("losses", np.zeros((3, 1))),
        ("laws", np.zeros((3, 9))),
        ("singular_values", np.zeros(3)),
        ("singular_values", np.array(1.0)),
        ("law_names", np.array([1.0])),
        ("kink_times", np.zeros(4)),
        ("kink_kinds", np.zeros((1, 1))),
    ],
)
def test_damaged_trajectories(lawful: Any, stored: Path, tmp_path: Path, name: str, value: Any) -> None:
    run = tmp_path / "run"
    os.makedirs(run)
    for file in (stored / "run").iterdir():
        (run / file.name).write_bytes(file.read_bytes())
    changed(run, name, value)
    assert "incomplete or damaged" in lawful("drift", run, code=2).stderr


@pytest.mark.parametrize(
    "change",
    [
        {"stop": None}, {"stop": {"reason": "x"}}, {"evaluations": "many"}, {"evaluations": 1e308}, {"decay": "x"},
        {"decay": [1]}, {"kinks_not_located": [1]}, {"kinks_not_located": 5}, {"format": []},
    ],
    ids=str,
)  # fmt: skip
def test_damaged_words_of_a_run(lawful: Any, stored: Path, tmp_path: Path, change: dict[str, Any]) -> None:
    run = tmp_path / "run"
    os.makedirs(run)
    for file in (stored / "run").iterdir():
        (run / file.name).write_bytes(file.read_bytes())
    words = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps(words | change))
    assert len(lawful("drift", run, code=2).stderr.splitlines()) == 1


def test_a_small_trajectory_does_not_take_all_memory(stored: Path, tmp_path: Path, lawful: Any) -> None:
    """Zeros pack a thousand to one; each kink would become an object of some hundred bytes."""
    run = tmp_path / "run"
    os.makedirs(run)
    for file in (stored / "run").iterdir():
        (run / file.name).write_bytes(file.read_bytes())
    count = 1_500_000
    with np.load(run / "trajectory.npz") as arrays:
        held = {key: arrays[key] for key in arrays.files}
    held |= {"kink_times": np.zeros(count), "kink_samples": np.zeros(count, dtype=np.int64)}
    held |= {"kink_neurons": np.zeros(count, dtype="U1"), "kink_kinds": np.zeros(count, dtype="U1")}
    np.savez_compressed(run / "trajectory.npz", **held)
    assert (run / "trajectory.npz").stat().st_size < 1_000_000
    assert "at most 1,000,000" in lawful("drift", run, code=2).stderr
    header = "{'descr': '<f8', 'fortran_order': False, 'shape': (70000000,)}"
    archive(run / "trajectory.npz", theta=npy(header, bytes(1000)))
    assert "more than" in lawful("drift", run, code=2).stderr
    assert load(stored / "run").max_drift < 1e-9


@pytest.mark.parametrize(
    "statement",
    [
        "DROP TABLE plan", "DROP TABLE done", "ALTER TABLE done ADD COLUMN more", "UPDATE done SET outputs = '['",
        "UPDATE done SET inputs = '[1]'", "UPDATE done SET outputs = x'00'", "UPDATE done SET status = 'maybe'",
        "CREATE VIEW v AS WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT x FROM c",
        "CREATE TRIGGER t AFTER INSERT ON done BEGIN DELETE FROM plan; END",
    ],
)  # fmt: skip
def test_damaged_stores(lawful: Any, stored: Path, tmp_path: Path, statement: str) -> None:
    folder = tmp_path / "sweep"
    folder.mkdir()
    (folder / "results.sqlite").write_bytes((stored / "sweep" / "results.sqlite").read_bytes())
    base = sqlite3.connect(folder / "results.sqlite")
    with base:
        base.execute(statement)
    base.close()
    assert "sweep" in lawful("sweep", "report", folder, code=2).stderr
    plan = tmp_path / "plan.toml"
    plan.write_text('job = "count_laws"\n[grid]\narchitecture = ["2-2-1 relu"]\nseed = [0, 1]\n')
    assert (
        "sweep" in lawful("sweep", plan, "--out", folder, code=2).stderr
    )  # all calls are finished: it resumes at once


@pytest.mark.parametrize("content", [b"", b"SQLite format 3\x00" + bytes(200), b"x" * 5000, bytes(4096)])
def test_stores_that_are_none(lawful: Any, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "results.sqlite").write_bytes(content)
    for verb in ("status", "report"):
        assert len(lawful("sweep", verb, tmp_path, code=2).stderr.splitlines()) == 1


def test_a_store_that_is_a_pipe_is_refused(lawful: Any, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "results.sqlite")
    assert "regular" in lawful("sweep", "status", tmp_path, code=2).stderr


@pytest.mark.parametrize("size", [1e200, 1e-200, 1.7e308, 5e-324])
@pytest.mark.parametrize("verb", [("components", "--exact"), ("singular", "--exist"), ("prune",), ("show",)])
def test_weights_of_any_size(lawful: Any, tmp_path: Path, size: float, verb: tuple[str, ...]) -> None:
    edges = [["a", "h", size], ["h", "y", -size], ["a", "k", 1.0], ["k", "h", size]]
    assert lawful(verb[0], graph(tmp_path / "net.json", edges=edges), *verb[1:], "--json").json


@pytest.mark.parametrize(
    "arrays", [{}, {"low": np.zeros(3)}, {"low": np.ones(1), "high": np.zeros(1)}, {"low": np.array("x"), "high": 1.0},
               {"low": np.array([np.nan]), "high": np.ones(1)}, {"low": np.zeros((2, 2)), "high": np.ones((2, 2))}]
)  # fmt: skip
def test_boxes_that_are_none(lawful: Any, tmp_path: Path, arrays: dict[str, Any]) -> None:
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    (tmp_path / "box.npz").write_bytes(buffer.getvalue())
    net = graph(tmp_path / "net.json")
    assert "box.npz" in lawful("prune", net, "--box", tmp_path / "box.npz", code=2).stderr
    (tmp_path / "box.npz").write_bytes(b"PK\x03\x04")
    assert "box.npz" in lawful("prune", net, "--box", tmp_path / "box.npz", code=2).stderr
    assert "absent.npz" in lawful("prune", net, "--box", tmp_path / "absent.npz", code=2).stderr


MODULES = """
import numpy, torch
class Fails(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 2)
    def forward(self, x):
        raise numpy.linalg.LinAlgError("singular matrix")
def fails(): return Fails()
def raises(): raise ValueError("no weights here")
def ends(): raise SystemExit(0)
"""


def test_modules_that_raise(lawful: Any, tmp_path: Path) -> None:
    (tmp_path / "faulty.py").write_text(MODULES)
    (tmp_path / "unloadable.py").write_text('raise RuntimeError("not today")')
    for name, words in (
        ("faulty:fails", "LinAlgError: singular matrix"),
        ("faulty:raises", "ValueError: no weights here"),
        ("faulty:ends", "ended the program"),
        ("unloadable:make", "RuntimeError: not today"),
    ):
        assert words in lawful("laws", name, "--input", "2", code=2, cwd=tmp_path).stderr


def test_every_file_a_user_names_is_regular(lawful: Any, tmp_path: Path) -> None:
    """A pipe would make a verb wait for ever, a device would never end."""
    net = graph(tmp_path / "net.json")
    for ending in (".json", ".npz", ".csv", ".toml", ".safetensors", ".pt", ".onnx"):
        os.mkfifo(tmp_path / f"pipe{ending}")
        (tmp_path / f"zero{ending}").symlink_to("/dev/zero")
    for command in (
        ("show", "{}.json"), ("show", "{}.npz"), ("show", "{}.safetensors"), ("show", "{}.pt"), ("show", "{}.onnx"),
        ("verify", "{}.json"), ("truncate", "2-2-2 relu", "--data", "{}.csv"), ("flow", "{}.toml"),
        ("truncate", "2-2-2 relu", "--data", "{}.npz"), ("laws", "2-2-1 relu", "--metric", "{}.json"),
        ("components", net, "--balance", "{}.json"), ("prune", net, "--box", "{}.npz"),
        ("sweep", "{}.toml", "--out", "out"),
    ):  # fmt: skip
        for name in ("pipe", "zero"):
            run = lawful(*(str(word).format(tmp_path / name) for word in command), code=2, cwd=tmp_path)
            assert "regular file" in run.stderr, (command, run.stderr)


def test_a_full_disk_leaves_nothing_behind(lawful: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    net = graph(tmp_path / "net.json")
    monkeypatch.setattr(os, "fsync", full)
    for command in (
        ("show", net, "--svg", "a.svg"), ("laws", net, "--certificate", "a.json"), ("convert", net, "a.npz"),
        ("components", net, "--certificate", "b.json"), ("flow", net, "--until", "0.01", "--out", "run"),
        ("rebalance", net, "--out", "c.json"), ("prune", net, "--out", "d.json"), ("audit", net, "--html", "e.html"),
        ("same", net, net, "--certificate", "f.json"), ("separate", "--clusters", "2,5,0.1", "--out", "g.json"),
        ("regions", net, "--box=-1,1", "--svg", "h.svg"),
    ):  # fmt: skip
        run = lawful(*command, code=2, cwd=tmp_path)
        assert "space" in run.stderr or "two inputs" in run.stderr, run.stderr
        assert [path.name for path in tmp_path.iterdir()] == ["net.json"], command


def test_names_with_spaces_and_letters_of_all_kinds(lawful: Any, tmp_path: Path) -> None:
    folder = tmp_path / "мои сети ✓ 模型"
    folder.mkdir()
    net = graph(folder / "naïve größe.json")
    lawful("convert", net, folder / "模型 2.safetensors")
    lawful("flow", folder / "模型 2.safetensors", "--until", "0.01", "--out", folder / "ein Lauf")
    assert lawful("drift", folder / "ein Lauf", "--json").json["laws"] == 1
    assert "größe" in lawful("audit", net, "--quick", "--html", folder / "é.html").stdout


def test_numbers_at_the_ends_of_what_doubles_hold(lawful: Any, tmp_path: Path) -> None:
    wide = graph(tmp_path / "wide.json", edges=[["a", "h", 1.7e308], ["h", "y", 1.7e308], ["a", "g", 5e-324],
                 ["g", "y", 1e308]], biases={"g": 1.7e308})  # fmt: skip
    skip = graph(tmp_path / "skip.json", edges=[["a", "h", 1.0], ["h", "y", 1.0], ["a", "y", 1.0]])
    assert "larger than doubles" in lawful("canonical", wide, code=2).stderr
    assert lawful("laws", wide, "--json").json["laws"] == 2
    assert "--within" in lawful("distance", wide, wide, "--box=-1,1", "--within", "1e400", code=2).stderr
    pair = graph(tmp_path / "pair.json", edges=[*GRAPH["edges"], ["a", "g", 1.0], ["g", "y", 1.0]])
    assert "smaller" in lawful("prune", pair, "--tolerance", "0.1", "--box=-1e308,1e308", code=2).stderr
    assert "--seed" in lawful("laws", "1-1-1 relu", "--seed=-1", code=2).stderr
    assert "--points" in lawful("path", skip, skip, "--points", "9" * 20, code=2).stderr
    assert "skips" in lawful("fiber", skip, "--sample", "1", "--out", tmp_path / "members", code=2).stderr
    assert not (tmp_path / "members").exists()
