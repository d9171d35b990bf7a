"""How the command line ends when there is no answer, and what foreign text may do to a terminal."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import safetensors.torch
import torch

import lawful
import lawful.sources.files
import lawful.sources.summary
from lawful.cli.output import harmless

COMMAND = str(Path(sys.executable).with_name("lawful"))


def failing(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def fail(_: object) -> None:
        raise error

    monkeypatch.setattr(lawful.sources.summary, "summarise", fail)


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (np.linalg.LinAlgError("SVD did\nnot converge"), 4, "LinAlgError: SVD did not converge"),
        (RecursionError("deep"), 4, "RecursionError"),
        (AssertionError(), 4, "please report"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (MemoryError(), 2, "not enough memory"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"), 2, "not enough memory"),
        (SystemExit(0), 2, "ended the program"),
        (OSError(28, "No space left on device", "out.npz"), 2, "out.npz: no space left on device"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_what_goes_wrong_is_one_line_or_one_object(
    lawful: Any, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int, words: str
) -> None:
    failing(monkeypatch, error)
    run = lawful("show", "3-4-2 relu", code=code)
    assert run.stdout == ""
    assert len(run.stderr.splitlines()) == 1
    assert words in run.stderr
    found = lawful("show", "3-4-2 relu", "--json", code=code).json
    assert set(found) == {"error", "hint", "exit"}
    assert found["exit"] == code
    assert "\n" not in found["error"]


def test_a_defect_names_its_place_and_how_to_report_it(lawful: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch, ZeroDivisionError("division by zero"))
    text = lawful("show", "3-4-2 relu", code=4).stderr
    assert text.startswith("lawful: api/networks.py:")
    assert "lawful --version" in text


@pytest.mark.parametrize(
    "arguments",
    [
        ("show", "absent.json"),
        ("show", "3-4-2 tanh"),
        ("show", "3-4-2 relu", "--nonsense"),
        ("nonsense",),
        ("show",),
        ("verify", "absent.json"),
        ("laws", "2-2 linear", "--degree", "x"),
        ("sweep", "absent.toml", "--out", "o"),
        ("flow", "absent.toml"),
        ("leaky",),
    ],
)
def test_mistakes_with_json_are_one_object(lawful: Any, tmp_path: Path, arguments: tuple[str, ...]) -> None:
    found = lawful(*arguments, "--json", code=2, cwd=tmp_path).json
    assert set(found) == {"error", "hint", "exit"}
    assert found["exit"] == 2
    assert found["error"]
    assert found["hint"].startswith("see: lawful")


def hostile(folder: Path) -> Path:
    name = "\x1b[31mred\x1b]0;title\x07 \u202etxet \x9b2J [/bold] \u2028 \x7f"
    edges = [["a", name, 1.0], [name, "y", -1.0], ["a", "[red]k", 1.0], ["[red]k", "y", 2.0]]
    path = folder / "net.json"
    path.write_text(json.dumps({"inputs": ["a"], "outputs": ["y"], "edges": edges}))
    return path


@pytest.mark.parametrize(
    "verb",
    [
        ("show",), ("components",), ("laws",), ("singular",), ("prune",), ("rebalance",), ("audit", "--quick"),
        ("identifiable",), ("fingerprint",), ("canonical",), ("regions",),
    ],
    ids=lambda verb: verb[0],
)  # fmt: skip
@pytest.mark.parametrize("more", [(), ("--json",)], ids=["text", "json"])
def test_escapes_in_a_file_are_shown_harmlessly(
    lawful: Any, tmp_path: Path, verb: tuple[str, ...], more: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "exit", _exit_zero)
    text = lawful(verb[0], hostile(tmp_path), *verb[1:], *more).stdout
    assert text
    assert harmless(text) == text
    if more:
        assert isinstance(json.loads(text), dict)


def _exit_zero(code: object = 0) -> None:
    assert code in (0, 1, 3), code
    raise SystemExit(0)


def test_escapes_in_messages_are_shown_harmlessly(lawful: Any, tmp_path: Path) -> None:
    for name in ("\x1b[31m.json", "\u202e.json", "a\nb.json", "\udc80.json"):
        run = lawful("show", tmp_path / name, code=2)
        assert harmless(run.stderr) == run.stderr
        assert len(run.stderr.splitlines()) == 1
    assert lawful("show", "\x1b[31m", "--json", code=2).json["error"].startswith("'\\x1b[31m'")
    run = lawful("show", "--\x1b[31m", code=2)
    assert "\x1b" not in run.stderr


BREAKING = "k\nverified: the networks are equal"


def with_a_breaking_name(folder: Path, ending: str) -> Path:
    """A file in which a name would begin a line of the answer."""
    path = folder / f"net{ending}"
    arrays = {f"{BREAKING}.0.weight": np.ones((2, 2)), f"{BREAKING}.1.weight": np.ones((1, 2))}
    tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
    if ending == ".json":
        edges = [["a", BREAKING, 1.0], [BREAKING, "y", -1.0]]
        path.write_text(json.dumps({"inputs": ["a"], "outputs": ["y"], "edges": edges}))
    elif ending == ".npz":
        np.savez(path, **arrays)
    elif ending == ".safetensors":
        safetensors.torch.save_file(tensors, path)
    elif ending == ".pt":
        torch.save(tensors, path)
    else:
        module = torch.nn.Sequential(torch.nn.Linear(2, 1))
        lawful.sources.files.write(lawful.open(module), path)
        model = onnx.load(path)
        for each in (*model.graph.initializer, *model.graph.node):
            for names in (each.input, each.output) if isinstance(each, onnx.NodeProto) else ():
                names[:] = [name and f"{BREAKING}{name}" for name in names]
            each.name = f"{BREAKING}{each.name}"
        for end in (*model.graph.input, *model.graph.output):
            end.name = f"{BREAKING}{end.name}"
        onnx.save(model, path)
    return path


@pytest.mark.parametrize("ending", [".json", ".npz", ".safetensors", ".pt", ".onnx"])
@pytest.mark.parametrize("verb", ["show", "laws", "components", "audit"])
def test_a_name_cannot_pass_for_a_line_of_the_answer(lawful: Any, tmp_path: Path, ending: str, verb: str) -> None:
    run = lawful(verb, with_a_breaking_name(tmp_path, ending), code=2)
    assert run.stdout == ""
    assert len(run.stderr.splitlines()) == 1
    assert "a name holds a line break: 'k\\nverified" in run.stderr


def test_a_path_cannot_pass_for_a_line_of_the_answer(lawful: Any, tmp_path: Path) -> None:
    name = "x\nverified: everything.json"
    lawful("convert", "2-2-1 relu", "plain.json", cwd=tmp_path)
    (tmp_path / name).write_bytes((tmp_path / "plain.json").read_bytes())
    for command in (
        ("show", name),
        ("audit", name),
        ("verify", name),
        ("laws", "2-2 linear", "--certificate", f"c{name}"),
        ("convert", "2-2-1 relu", f"y{name}"),
        ("flow", "2-2-1 relu", "--out", f"run{name}"),
    ):
        run = lawful(*command, code=2, cwd=tmp_path)
        assert not [line for line in (run.stdout + run.stderr).splitlines() if line.startswith("verified")]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["plain.json", name]


def test_prints_and_warnings_of_a_module_do_not_spoil_the_json(lawful_process: Any, tmp_path: Path) -> None:
    (tmp_path / "chatty.py").write_text(
        "import os, sys, torch, warnings\n"
        "print('loading')\nwarnings.warn('old')\nos.write(1, b'from a library')\n"
        "def make():\n    print('made')\n    return torch.nn.Sequential(torch.nn.Linear(2, 2))\n"
    )
    run = lawful_process("show", "chatty:make", "--json", cwd=tmp_path)
    assert run.json["parameters"] == 6
    assert "loading" in run.stderr
    assert "from a library" in run.stderr


@pytest.mark.parametrize("more", [(), ("--json",)])
def test_a_closed_pipe_is_no_answer(more: tuple[str, ...]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [COMMAND, "show", "3-4-2 relu", *more]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True)
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.parametrize("more", [(), ("--json",)])
def test_a_full_disk_behind_standard_output_is_one_line(more: tuple[str, ...]) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([COMMAND, "show", "3-4-2 relu", *more], stdout=full, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (2, "lawful: standard output: no space left on device\n")


LONG = {
    "flow": ("flow", "3-8-1 relu", "--until", "1e6", "--out", "run"),
    "laws": ("laws", "30-40-40-30 linear", "--certificate", "laws.json"),
    "regions": ("regions", "8-40-40-1 relu bias", "--box=-1,1", "--seconds", "500"),
    "leaky": ("leaky", "--teacher", "20-5-20", "--effective-depth", "3", "--out", "leaky"),
}


def used(process: subprocess.Popen[str]) -> float:
    """Processor seconds."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.parametrize("verb", LONG)
def test_ctrl_c_is_130_and_leaves_nothing_half_written(verb: str, tmp_path: Path) -> None:
    process = subprocess.Popen(
        [COMMAND, *LONG[verb]], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    while used(process) < (4 if verb == "leaky" else 1):  # which loads PyTorch: by then it computes
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 130, (out, err)
    assert "Traceback" not in err
    assert [
        path.name for path in tmp_path.rglob("*") if path.suffix in (".part", ".draft") or not path.stat().st_size
    ] == []
