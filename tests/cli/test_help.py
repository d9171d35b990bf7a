"""Help: verbs in groups, whole sentences, and examples that run."""

from __future__ import annotations

import json
import shlex
from contextlib import chdir
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from command_line import in_process

from lawful import Architecture
from lawful.api.checkpoints.index import index_folder
from lawful.cli import app
from lawful.cli.help import EXAMPLES, FIRST, GROUPS, sentence, understood
from lawful.sources.files import write

COMMAND: Any = typer.main.get_command(app)
VERBS = sorted(COMMAND.commands)
LONG = {  # not run here: minutes, or made for whole machines
    "lawful leaky --teacher 20-5-20 --effective-depth 3,5,7,11 --out geodesics",
    "lawful sweep plan.toml --out results",
    "lawful demo",
    "lawful demo -o demo --seed 1",
}
ANSWERS = {  # a definite no
    "lawful path model.safetensors later.safetensors": 1,
    "lawful path model.safetensors later.safetensors --out path.npz": 1,
    "lawful same model.safetensors later.safetensors": 1,
}
EXAMPLE_LINES = [(verb, line) for verb, lines in EXAMPLES.items() for line in lines]


def test_every_verb_stands_in_one_group_and_has_two_examples() -> None:
    named = [name for names in GROUPS.values() for name in names]
    assert sorted(named) == VERBS
    assert sorted(EXAMPLES) == VERBS
    assert all(len(lines) == 2 for lines in EXAMPLES.values())
    assert len(GROUPS[FIRST]) == 8


def test_the_first_screen_has_eight_and_help_all_has_every_one(lawful: Any) -> None:
    first, every = lawful("--help").stdout, lawful("help", "all").stdout
    assert [line.split()[0] for line in first.splitlines() if line.startswith("  ") and line.split()[0] in VERBS] == [
        *GROUPS[FIRST]
    ]
    assert len(first.splitlines()) <= 45
    assert all(f"\n  {verb} " in every for verb in VERBS)
    assert all(f"\n{title}:" in every for title in GROUPS)
    assert lawful("help", "laws").stdout == lawful("laws", "--help").stdout
    assert lawful("help").stdout == first


@pytest.mark.parametrize("verb", VERBS)
def test_help_is_whole_sentences_and_ends_with_the_examples(lawful: Any, verb: str) -> None:
    words = sentence(COMMAND.commands[verb].help)
    assert words[0].isupper()
    assert words.endswith((".", "?", ")"))
    text = lawful(verb, "--help").stdout
    assert text.rstrip().splitlines()[-2:] == [f"    {line}" for line in EXAMPLES[verb]]
    assert "..." not in lawful("--help").stdout.replace("[ARGS]...", "")


@pytest.mark.parametrize(("verb", "line"), EXAMPLE_LINES, ids=lambda word: word)
def test_examples_parse(verb: str, line: str) -> None:
    program, name, *arguments = shlex.split(line)
    assert (program, name) == ("lawful", verb)
    command = COMMAND.get_command(None, verb)
    command.make_context(verb, understood(command, arguments))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that the examples name."""
    place: Path = tmp_path_factory.mktemp("examples")
    network = Architecture.parse("3-3-1 relu bias").initialise(seed=0)
    later = network.with_theta(1.01 * network.theta)
    for ending in (".safetensors", ".onnx", ".json"):
        write(network, place / f"model{ending}")
    write(later, place / "later.safetensors")
    rng = np.random.default_rng(0)
    rows = [",".join(f"{value:.3f}" for value in row) for row in rng.normal(size=(12, 4))]
    (place / "data.csv").write_text("\n".join(["a,b,c,y", *rows]) + "\n")
    points = np.concatenate([rng.normal(size=(6, 3)) * 0.1 + centre for centre in np.eye(3)])
    rows = [",".join([*(f"{value:.3f}" for value in row), str(k // 6)]) for k, row in enumerate(points)]
    (place / "labels.csv").write_text("\n".join(["a,b,c,label", *rows]) + "\n")
    bounds = "".join(f"(assert (>= X_{k} -0.1))(assert (<= X_{k} 0.1))" for k in range(3))
    names = "".join(f"(declare-const {name} Real)" for name in ("X_0", "X_1", "X_2", "Y_0"))
    (place / "specification.vnnlib").write_text(f"{names}{bounds}(assert (>= Y_0 100))")
    (place / "instances.csv").write_text("model.safetensors,specification.vnnlib,20\n")
    (place / "plan.toml").write_text('job = "count_laws"\n[grid]\narchitecture = ["2-2-1 relu"]\n')
    index_folder([place], place / "checkpoints.sqlite")
    return place


@pytest.mark.parametrize("line", [line for _, line in EXAMPLE_LINES if line not in LONG])
def test_examples_run(lawful: Any, folder: Path, line: str, tmp_path: Path) -> None:
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    _, *arguments = shlex.split(line)
    if "drift run" in line:
        lawful("flow", "model.safetensors", "--data", "data.csv", "--until", "0.1", "--out", "run", cwd=tmp_path)
    if "verify laws" in line:
        lawful("laws", "2-2-1 relu", "--certificate", "laws.json", cwd=tmp_path)
    if "verify same" in line:
        lawful("same", "model.json", "model.json", "--exact", "--certificate", "same.json", cwd=tmp_path)
    if "sweep status" in line:
        from lawful.api.sweeps import Plan, Store

        store = Store(tmp_path / "results", write=True)
        store.set_plan(Plan("count_laws", {"architecture": ["2-2-1 relu"]}))
        store.close()
    run = lawful(*arguments, code=ANSWERS.get(line, 0), cwd=tmp_path)
    assert run.stdout
    if "--json" in arguments:
        assert isinstance(json.loads(run.stdout), dict)


GUESSES = {
    ("compare", "a.safetensors", "b.safetensors"): "lawful same A B",
    ("same", "a.safetensors"): "For example: lawful same",
    ("laws", "3", "4", "2"): 'lawful laws "3-4-2 relu bias"',
    ("audit", "a.safetensors", "page.html"): "--html page.html",
    ("prune", "a.safetensors", "0.5"): "--tolerance 0.5 --box=-1,1",
    ("prune", "a.safetensors", "--sparsity", "0.5"): "Did you mean --target?",
    ("find", "a.safetensors"): "lawful fingerprint FOLDER --index",
    ("quantize", "a.safetensors"): "lawful convert",
    ("-V",): "--version",
}


@pytest.mark.parametrize("words", GUESSES, ids=" ".join)
def test_a_first_guess_is_told_what_to_type(words: tuple[str, ...], tmp_path: Path) -> None:
    with chdir(tmp_path):
        for name in ("a.safetensors", "b.safetensors"):
            Path(name).touch()
        run = in_process(*words)
    assert run.returncode == 2
    assert GUESSES[words] in run.stderr


def test_a_page_is_written_with_out_where_nothing_else_is(tmp_path: Path) -> None:
    assert in_process("explore", "2-3-1 relu bias", "--out", tmp_path / "page.html").returncode == 0
    assert (tmp_path / "page.html").exists()
