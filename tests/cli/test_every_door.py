"""Every verb at its doors: Ctrl-C, a reader that leaves, a full disk, a place that cannot be written."""

from __future__ import annotations

import inspect
import io
import json
import os
import resource
import shutil
import sys
import typing
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
import typer
from command_line import in_process
from torch import nn

import lawful
from lawful.cli import app
from lawful.formats.io import writing

VERBS: dict[str, Any] = dict(typer.main.get_command(app).commands)  # type: ignore[attr-defined]
HOME = str(Path(lawful.__file__).parent)
READ = {"data", "metric", "balance", "folder", "file", "held_out", "plan"}  # parameters that name what is read (too)
LEAKY = ("--teacher", "2-1-2", "--effective-depth", "2", "--depth", "4", "--width", "3", "--samples", "6",
         "--evaluations", "3000", "--tolerance", "0.005")  # fmt: skip
EXAMPLES: dict[str, tuple[str, ...]] = {
    "show": ("a.safetensors",),
    "convert": ("a.safetensors", "new.json"),
    "laws": ("a.safetensors",),
    "symmetries": ("a.safetensors", "--input", "2"),
    "components": ("a.safetensors",),
    "path": ("a.safetensors", "a.safetensors"),
    "rebalance": ("a.safetensors",),
    "singular": ("a.safetensors", "--exist"),
    "prune": ("a.safetensors",),
    "flow": ("a.safetensors", "--data", "d.csv", "--until", "0.1"),
    "drift": ("run",),
    "compare": ("a.safetensors", "--data", "d.csv", "--until", "0.1", "--optimizers", "sgd:0.1"),
    "truncate": ("a.safetensors", "--clusters", "2,5,0.1"),
    "truncation-flow": ("--clusters", "2,5,0.1", "--until", "0.1", "--frames", "3"),
    "separate": ("--clusters", "2,5,0.1"),
    "leaky": (*LEAKY, "--out", "new"),
    "bottleneck": ("a.safetensors", "--data", "d.csv", "--blocks", "0,1,2"),
    "same": ("a.safetensors", "a.safetensors"),
    "fiber": ("a.safetensors",),
    "identifiable": ("a.safetensors",),
    "regions": ("a.safetensors", "--box=-1,1"),
    "canonical": ("a.safetensors",),
    "fingerprint": ("a.safetensors",),
    "distance": ("a.safetensors", "b.safetensors", "--box=0,1"),
    "check": ("a.safetensors", "s.vnnlib"),
    "vnncomp": ("instances.csv", "--threads", "1"),
    "audit": ("a.safetensors", "--quick"),
    "diff": ("a.safetensors", "b.safetensors"),
    "explore": ("a.safetensors", "--html", "new.html"),
    "demo": ("--out", "new"),
    "verify": ("proof.json",),
    "reproduce": ("p0-rescaling",),
    "sweep": ("report", "sweep"),
    "align": ("a.safetensors", "b.safetensors"),
    "merge": ("a.safetensors", "b.safetensors"),
    "find": ("a.safetensors", "--index", "index.json"),
}
OUTPUTS: dict[tuple[str, str], tuple[str, ...]] = {  # where the example alone would not write
    ("symmetries", "out"): (*EXAMPLES["symmetries"], "--apply", "1"),
    ("fiber", "out"): ("a.safetensors", "--sample", "1"),
    ("same", "certificate"): ("a.safetensors", "a.safetensors", "--exact"),
    ("bottleneck", "save"): ("leaky",),
    ("bottleneck", "html"): ("leaky",),
    ("bottleneck", "figure"): ("leaky",),
    ("leaky", "out"): LEAKY,
    ("leaky", "html"): (*LEAKY, "--out", "leaky"),  # which is finished
    ("convert", "out"): ("a.safetensors",),
    ("explore", "html"): ("a.safetensors",),
    ("demo", "out"): (),
    ("fingerprint", "index"): ("folder",),
    ("sweep", "out"): ("plan.toml", "--workers", "1"),
    ("prune", "plot"): ("a.safetensors", "--curve"),
}
PARTIAL = ("flow", "truncation-flow", "distance", "check", "vnncomp")  # what is known by then is an answer, and says so
NAMES = {"out": "target.safetensors", "network": "target.safetensors", "svg": "target.svg", "plot": "target.svg",
         "figure": "target.svg", "html": "target.html", "values": "target.npz", "markdown": "target.md"}  # fmt: skip
OTHER_NAMES = {("laws", "out"): "target.json", ("path", "out"): "target.npz", ("separate", "out"): "target.json",
               ("vnncomp", "out"): "target.csv", ("vnncomp", "certificates"): "target"}  # fmt: skip


def outputs() -> list[tuple[str, str]]:
    """Every parameter of every verb that names a file or folder to write."""
    found = []
    for verb, command in VERBS.items():
        hints = typing.get_type_hints(inspect.unwrap(command.callback))
        paths = [name for name, kind in hints.items() if Path in (kind, *typing.get_args(kind))]
        found += [(verb, name) for name in paths if name not in READ and (verb, name) != ("find", "index")]
    return found


def writing_to(verb: str, parameter: str, folder: str = "") -> tuple[str, ...]:
    """The command that writes there."""
    name = os.path.join(folder, OTHER_NAMES.get((verb, parameter), NAMES.get(parameter, "target.json")))
    option = next(each for each in VERBS[verb].params if each.name == parameter)
    where = (name,) if option.param_type_name == "argument" else (option.opts[0], name)
    return (verb, *OUTPUTS.get((verb, parameter), EXAMPLES[verb]), *where)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Small files of every kind that a verb needs."""
    folder = tmp_path_factory.mktemp("doors")
    torch.manual_seed(0)
    for name in ("a", "b"):
        net = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
        safetensors.torch.save_file(net.state_dict(), folder / f"{name}.safetensors")
    (folder / "folder").mkdir()
    shutil.copy(folder / "a.safetensors", folder / "folder")
    rows = np.random.default_rng(0).normal(size=(6, 3)).round(3)
    (folder / "d.csv").write_text("a,b,y\n" + "\n".join(",".join(map(str, row)) for row in rows) + "\n")
    (folder / "s.vnnlib").write_text(
        "".join(f"(declare-const {name} Real)\n" for name in ("X_0", "X_1", "Y_0"))
        + "".join(f"(assert (<= X_{k} 1.0))\n(assert (>= X_{k} 0.0))\n" for k in (0, 1))
        + "(assert (>= Y_0 100.0))\n"
    )
    (folder / "instances.csv").write_text("a.safetensors,s.vnnlib,20\n")
    (folder / "plan.toml").write_text('job = "count_laws"\n[grid]\narchitecture = ["2-2-1 relu"]\nseed = [0]\n')
    for command in (
        ("laws", "2-2-1 relu", "--certificate", "proof.json"),
        ("flow", *EXAMPLES["flow"], "--snapshots", "3", "--out", "run"),
        ("leaky", *LEAKY, "--out", "leaky"),
        *([("fingerprint", "folder", "--index", "index.json")] if "find" in VERBS else []),
    ):
        assert in_process(*command, cwd=folder).returncode in (0, 1), command
    _keep_one_result(folder / "sweep")
    return folder


def _keep_one_result(folder: Path) -> None:
    from lawful.api.sweeps import Finished, Plan, Store

    store, plan = Store(folder, write=True), Plan("count_laws", {"architecture": ["2-2-1 relu"], "seed": [0]})
    store.set_plan(plan)
    task = next(iter(plan.tasks()))
    counted = {"parameters": 6, "laws": 2, "predicted": 2, "matches": True, "status": "proved"}
    store.add([Finished(task.key, task.job, task.inputs, "ok", counted, "", "0", 0.1)])
    store._base.execute("PRAGMA journal_mode = DELETE")  # one file, which can be read where nothing can be written
    store.close()


@pytest.fixture
def folder(prepared: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(prepared, tmp_path / "work"))


def files(folder: Path) -> dict[str, bytes | None]:
    """All that is there; a data base's own scratch files are not ours."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
        if not path.name.endswith(("-wal", "-shm", ".pyc", "__pycache__"))
    }


def test_every_verb_is_tried() -> None:
    assert set(VERBS) <= set(EXAMPLES)
    assert len(outputs()) > 30


def finalises(frame: FrameType | None) -> bool:
    """Whether this runs because something was let go."""
    while frame is not None:
        if frame.f_code.co_filename == weakref.__file__ and frame.f_code.co_name == "__call__":
            return True
        frame = frame.f_back
    return False


def computes(frame: FrameType) -> bool:
    """Whether a function of ours is called that is neither the frame of the command line nor a reader.

    Generators and finalisers are left out: Python ignores what is raised in one that is let go half-way.
    """
    place = frame.f_code.co_filename.removeprefix(HOME)
    ours = place != frame.f_code.co_filename and not place.startswith(("/cli/__init__", "/cli/output", "/cli/failure",
        "/cli/help", "/cli/words", "/cli/evidence", "/errors", "/version", "/report/keys",
        "/report/reading"))  # fmt: skip
    return ours and not frame.f_code.co_flags & inspect.CO_GENERATOR and not finalises(frame)


@pytest.fixture
def ctrl_c() -> Iterator[Callable[[int], None]]:
    """Press Ctrl-C when a function of ours is called for the n-th time."""

    def press(number: int) -> None:
        calls = 0

        def watch(frame: FrameType, event: str, _: object) -> None:
            nonlocal calls
            if event == "call" and computes(frame):
                calls += 1
                if calls == number:
                    sys.setprofile(None)
                    raise KeyboardInterrupt

        sys.setprofile(watch)

    yield press
    sys.setprofile(None)


@pytest.mark.parametrize("verb", VERBS)
def test_ctrl_c_is_130_wherever_it_comes(verb: str, folder: Path, ctrl_c: Callable[[int], None]) -> None:
    """Early, and later while it computes: one line, no answer, and nothing half-written."""
    before, stopped = files(folder), 0
    for number, more in ((1, ()), (25, ("--json",)), (120, ()), (700, ("--json",))):
        ctrl_c(number)
        run = in_process(verb, *EXAMPLES[verb], *more, cwd=folder)
        if sys.getprofile() is not None:  # it ended before
            sys.setprofile(None)
            break
        assert run.returncode == 130, (number, run)
        assert "interrupted" in run.stderr + run.stdout
        if verb not in PARTIAL:
            assert json.loads(run.stdout)["exit"] == 130 if more else not run.stdout
        stopped += 1
        left = {name: content for name, content in files(folder).items() if before.get(name, b"") != content}
        assert all(content is None or (content and ".part" not in name) for name, content in left.items()), left
    assert stopped


DATABASES = (("sweep", "out"), ("fingerprint", "index"))  # they keep what is finished


@pytest.mark.parametrize(("verb", "parameter"), [each for each in outputs() if each not in DATABASES])
def test_ctrl_c_while_writing_leaves_what_was_there(
    verb: str, parameter: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def press(_: object) -> None:
        raise KeyboardInterrupt

    before = files(folder)
    monkeypatch.setattr(writing, "_to_disk", press)
    run = in_process(*writing_to(verb, parameter), cwd=folder)
    assert run.returncode == 130, run
    assert [name for name, content in files(folder).items() if name not in before and content is not None] == []
    assert {name: content for name, content in files(folder).items() if name in before} == before


class Gone(io.RawIOBase):
    """A pipe that nobody reads."""

    def writable(self) -> bool:
        return True

    def write(self, _: object, /) -> int:
        raise BrokenPipeError(32, "Broken pipe")


@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb != "demo"])  # which trains first
@pytest.mark.parametrize("more", [(), ("--json",)], ids=["text", "json"])
def test_a_reader_that_leaves_is_141(
    verb: str, more: tuple[str, ...], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = io.StringIO()
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "argv", ["lawful", verb, *EXAMPLES[verb], *more])
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BufferedWriter(Gone(), 1), write_through=True))
    monkeypatch.setattr(sys, "stderr", said)
    with pytest.raises(SystemExit) as stop:
        lawful.cli.main()
    assert stop.value.code == 141, said.getvalue()
    assert "lawful: " not in said.getvalue()


@contextmanager
def full_disk() -> Iterator[None]:
    """The system refuses every byte that is written to a file."""
    kept = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, kept[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, kept)


@pytest.mark.parametrize(("verb", "parameter"), outputs())
def test_a_full_disk_is_named_and_leaves_nothing(verb: str, parameter: str, folder: Path) -> None:
    before = files(folder)
    with full_disk():
        run = in_process(*writing_to(verb, parameter), cwd=folder)
    assert run.returncode == 2, run
    assert "target" in run.stderr or "sweep/report.html" in run.stderr  # which is written before its summary
    assert "too large" in run.stderr.lower() or "disk" in run.stderr, run.stderr
    assert [name for name, content in files(folder).items() if name not in before and content is not None] == []
    assert {name: content for name, content in files(folder).items() if name in before} == before


@pytest.mark.parametrize(("verb", "parameter"), outputs())
def test_a_place_that_cannot_be_written_is_named(verb: str, parameter: str, folder: Path) -> None:
    before = files(folder)
    run = in_process(*writing_to(verb, parameter, folder="d.csv"), cwd=folder)
    assert run.returncode == 2, run
    assert "d.csv" in run.stderr
    assert files(folder) == before


def test_pytorch_says_a_full_disk_in_its_own_words(folder: Path) -> None:
    with full_disk():
        run = in_process("symmetries", "a.safetensors", "--input", "2", "--apply", "1", "--out", "new.pt", cwd=folder)
    assert (run.returncode, run.stdout) == (2, "")
    assert "the weights came from" in run.stderr
    (folder / "net.py").write_text("from torch import nn\n\ndef make():\n    return nn.Linear(2, 1)\n")
    with full_disk():
        run = in_process("symmetries", "net:make", "--input", "2", "--apply", "1", "--out", "new.pt", cwd=folder)
    assert run.returncode == 2, run
    assert run.stderr.startswith("lawful: new.pt: ")
    assert not (folder / "new.pt").exists()
