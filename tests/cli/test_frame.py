"""The frame of the command line: help, version, refusals, and what stays unloaded."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = ("torch", "scipy", "numpy", "onnx", "flint", "matplotlib", "sympy", "rustworkx", "ortools")


def test_help_names_every_verb_and_the_exit_codes(lawful) -> None:  # type: ignore[no-untyped-def]
    text = lawful("help", "all").stdout
    assert "3 undecided" in text
    for verb in ("show", "convert", "verify", "reproduce"):
        assert f"\n  {verb}" in text
        assert lawful(verb, "--help").stdout.startswith("Usage: lawful")


def test_version(lawful) -> None:  # type: ignore[no-untyped-def]
    import lawful as package

    assert lawful("--version").stdout == f"lawful {package.__version__}\n"


def test_the_package_runs_as_a_module() -> None:
    told = subprocess.run([sys.executable, "-m", "lawful", "--version"], capture_output=True, text=True, check=True)
    assert told.stdout.startswith("lawful ")


@pytest.mark.parametrize("module", ["lawful", "lawful.cli"])
def test_importing_loads_nothing_heavy(module: str) -> None:
    code = f"import {module}, sys; print([name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_shell_completion_is_offered(lawful) -> None:  # type: ignore[no-untyped-def]
    done = subprocess.run(
        [str(Path(sys.executable).with_name("lawful"))],
        env={"_LAWFUL_COMPLETE": "complete_bash", "COMP_WORDS": "lawful sh", "COMP_CWORD": "1", "PATH": ""},
        capture_output=True,
        text=True,
    )
    assert "show" in done.stdout.split()


@pytest.mark.parametrize(
    "arguments",
    [
        ["show", "nothing-like-a-network"],
        ["show", "absent.json"],
        ["show", "3-4-2 tanh"],
        ["show", "no_such_module:make"],
        ["show", "3-4-2 relu", "--input", "x"],
        ["show"],
        ["verify", "absent.json"],
        ["nonsense"],
    ],
)
def test_mistakes_are_one_line_and_exit_2(lawful, arguments: list[str], tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    run = lawful(*arguments, code=2, cwd=tmp_path)
    assert run.stdout == ""
    lines = run.stderr.strip().splitlines()
    assert len(lines) == 1 or lines[0].startswith("Usage:")


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"kind": "nothing"}', "[" * 100_000, "\x00\xff"])
def test_what_is_no_certificate_is_refused(lawful, tmp_path: Path, text: str) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "certificate.json"
    path.write_text(text, encoding="latin-1")
    assert "certificate" in lawful("verify", path, code=2).stderr


def test_show_describes_an_architecture(lawful) -> None:  # type: ignore[no-untyped-def]
    found = lawful("show", "3-4-1 relu bias", "--json").json
    assert found["parameters"] == 3 * 4 + 4 + 4 + 1
    assert [layer["width"] for layer in found["layers"]] == [3, 4, 1]
    assert found["out_bottlenecks"] == ["h1.0", "h1.1", "h1.2", "h1.3"]
    assert found["balance"] is None
    text = lawful("show", "3-4-1 relu bias").stdout
    assert "21 parameters" in text
    assert max(map(len, text.splitlines())) <= 80


def graph(path: Path, **changes: object) -> Path:
    edges = [["a", "h", 2.0], ["a", "k", -1.0], ["h", "m", -1.0], ["k", "m", -3.0], ["m", "y", 1.0], ["h", "y", 1.0]]
    path.write_text(json.dumps({"inputs": ["a"], "outputs": ["y"], "edges": edges} | changes))
    return path


def test_show_finds_dead_neurons_and_balances(lawful, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    """m has only negative weights from ReLU neurons, so it is 0 for every input. Balances: h 4-1-1, k 1-9, m 1+9-1."""
    found = lawful("show", graph(tmp_path / "net.json"), "--json").json
    assert found["dead"] == ["m"]
    assert found["balance"] == {"min": -8.0, "median": 2.0, "max": 9.0}


def test_show_draws_escaped_svg(lawful, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    hostile = "<script>alert(1)</script>"
    path = graph(tmp_path / "net.json", edges=[["a", hostile, 1.0], [hostile, "y", -1.0]])
    lawful("show", path, "--svg", tmp_path / "net.svg")
    picture = (tmp_path / "net.svg").read_text()
    assert "<script" not in picture
    assert picture.count("<circle") == 3
    lawful("show", "200-300-10 relu", "--svg", tmp_path / "large.svg")
    assert (tmp_path / "large.svg").read_text().count("<rect") == 3


def test_a_module_is_made_by_its_factory(lawful, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "mine.py").write_text(
        "import torch\n"
        "def make():\n    return torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))\n"
        "def number():\n    return 3\n"
    )
    assert lawful("show", "mine:make", "--json", cwd=tmp_path).json["parameters"] == 26
    assert "not a torch.nn.Module" in lawful("show", "mine:number", code=2, cwd=tmp_path).stderr
    assert "cannot import" in lawful("show", "mine:absent", code=2, cwd=tmp_path).stderr


@pytest.mark.parametrize("verb", ["symmetries", "audit", "laws"])
def test_sizes_may_be_written_with_crosses(lawful, tmp_path: Path, verb: str) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "small.py").write_text(
        "import torch\n"
        "def make():\n"
        "    torch.manual_seed(0)\n"
        "    return torch.nn.Sequential(torch.nn.Conv1d(2, 2, 3), torch.nn.ReLU(), torch.nn.Conv1d(2, 1, 2))\n"
    )
    answers = [lawful(verb, "small:make", "--input", size, "--json", cwd=tmp_path).json for size in ("2,4", "2x4")]
    assert answers[0] == answers[1]
    refused = lawful("symmetries", "small:make", "--input", "1x1x2x4", code=2, cwd=tmp_path).stderr
    assert "--input takes the size of one sample" in refused
