"""First guesses: short forms, old names, words without an option, and hints for what fits nowhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lawful.cli import _command
from lawful.cli.help import OLD, RENAMED, SHORT, options_of, understood
from lawful.cli.output import fit


def command(name: str) -> Any:
    return _command().get_command(None, name)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    rng = np.random.default_rng(0)
    first, second = rng.normal(size=(4, 3)), rng.normal(size=(2, 4))
    np.savez(tmp_path / "net.npz", W1=first, b1=np.ones(4), W2=second)
    np.savez(tmp_path / "turned.npz", first.T, np.ones(4), second.T)
    np.savez(tmp_path / "data.npz", x=[[0.0, 0], [0, 1], [1, 0], [1, 1]], y=[0, 0, 1, 1])
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("verb", "typed", "meant"),
    [
        ("separate", "data.npz", "--data=data.npz"),
        ("separate", "iris", "--data=iris"),
        ("flow", "net.npz data.npz", "net.npz --data=data.npz"),
        ("flow", "data.npz net.safetensors", "--data=data.npz net.safetensors"),
        ("explore", "data.csv net.npz", "--data=data.csv net.npz"),
        ("compare", "net.npz flow,sgd:0.1", "net.npz --optimizers=flow,sgd:0.1"),
        ("compare", "net.npz data.npz flow", "net.npz --data=data.npz --optimizers=flow"),
        ("compare", "net.npz --data data.npz flow,adam:0.1", "net.npz --data data.npz --optimizers=flow,adam:0.1"),
        ("prune", "net.npz out.npz", "net.npz out.npz"),  # no such file: it was meant to be written
        ("same", "net.npz turned.npz", "net.npz turned.npz"),
        ("prune", "net.npz -- data.npz", "net.npz -- data.npz"),
        ("explore", "net.npz --html data.csv", "net.npz --html data.csv"),
        ("check", "s.vnnlib net.npz", "net.npz s.vnnlib"),
        ("check", "--seconds 3 s.vnnlib.gz a.onnx b.onnx", "--seconds 3 a.onnx b.onnx s.vnnlib.gz"),
        ("check", "net.npz --box s.vnnlib t.vnnlib", "net.npz --box s.vnnlib t.vnnlib"),
        ("check", "a.vnnlib b.vnnlib net.npz", "a.vnnlib b.vnnlib net.npz"),  # two questions: said to be too many
        ("same", "net.npz turned.npz -o proof.json", "net.npz turned.npz -c proof.json"),
        ("same", "net.npz turned.npz -o page.html", "net.npz turned.npz -o page.html"),
        ("prune", "net.npz -o small.json", "net.npz -o small.json"),  # a network may be JSON
    ],
)
def test_a_word_that_fits_one_option_only_goes_there(place: Path, verb: str, typed: str, meant: str) -> None:
    assert " ".join(understood(command(verb), typed.split())) == meant


def test_usage_is_written_as_in_manuals(lawful: Any) -> None:
    said = lawful("same", "--help").stdout
    assert all(part in said for part in ("lawful same [OPTIONS] A B", "--certificate PATH", "--seconds NUMBER"))
    assert "[OPTIONS] NETWORK [NETWORK]... [FILE.vnnlib]" in lawful("check", "--help").stdout
    assert not any(mark in said for mark in ("{", "<str>", "<path>"))


def test_what_writes_only_a_page_writes_it_with_o(lawful: Any, place: Path) -> None:
    for verb in ("explore", "audit"):
        lawful(verb, "2-3-1 relu bias", "-o", place / f"{verb}.html")
        assert (place / f"{verb}.html").read_text(encoding="utf-8").startswith("<!doctype html>")


@pytest.mark.parametrize(
    ("verb", "typed", "meant"),
    [("same", "--atol", "--tolerance"), ("flow", "--epochs", "--until"), ("laws", "--proof", "--certificate")],
)
def test_what_others_call_an_option_is_understood(lawful: Any, verb: str, typed: str, meant: str) -> None:
    run = lawful(verb, "2-3-1 relu", *["2-3-1 relu"] * (verb == "same"), typed, "1", code=2)
    assert f"Did you mean {meant}?" in run.stderr


def test_one_of_a_kind_is_singular_and_nothing_is_a_power_of_ten(lawful: Any, place: Path) -> None:
    assert "1 law kept" in lawful("flow", "1-1-1 relu", "--until", "0.1").stdout
    assert "0.0e+00" not in lawful("separate", "data.npz").stdout


def test_old_names_work_and_are_told_once(lawful: Any) -> None:
    run = lawful("regions", "2-3-1 relu bias", "--time", 5)
    assert run.stderr.count("--time is now called --seconds") == 1
    assert "now called" not in lawful("regions", "2-3-1 relu bias", "-t", 5).stderr
    assert understood(command("explore"), ["a", "--with=b"]) == ["a", "--other=b"]
    assert understood(command("explore"), ["a", "--html", "--with"]) == ["a", "--html", "--with"]  # a value
    assert set(RENAMED) <= set(OLD)


def test_short_forms_mean_one_thing_everywhere() -> None:
    for name in _command().commands:
        for spelling, option in options_of(command(name)).items():
            if len(spelling) == 2 and spelling != "-h":
                assert (SHORT | {"--html": "-o"})[option.opts[0]] == spelling, (name, spelling)


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["prune", "net.npz", "small.npz"], "To write the result there: -o small.npz"),
        (["distance", "net.npz", "net.npz", "--boks=-1,1"], "--box"),
        (["laws", "2-3-1 relu", "--sed", "3"], "--seed"),
        (["laws", "2-3-1 relu", "--proof", "a.json"], "--certificate"),
        (["prun", "net.npz"], "prune"),
        (["laws", "data.npz"], "W1, b1, W2"),
        (["net.npz"], 'A subcommand comes first: lawful audit "net.npz"'),
        (["train", "net.npz"], "lawful flow"),
        (["laws", "3-4-2", "relu"], 'lawful laws "3-4-2 relu"'),
        (["audit"], 'lawful audit "3-4-2 relu bias"'),
        (["show", "net.npz", "turned.npz"], "lawful fingerprint"),
    ],
)
def test_mistakes_say_what_was_meant(lawful: Any, place: Path, words: list[str], hint: str) -> None:
    run = lawful(*words, code=2, cwd=place)
    assert hint in run.stdout + run.stderr


def test_plain_matrices_are_networks_whichever_way_they_are_multiplied(lawful: Any, place: Path) -> None:
    assert lawful("same", "net.npz", "turned.npz", "--json", cwd=place).json["verdict"] == "equal"
    rng = np.random.default_rng(1)
    np.savez(place / "square.npz", rng.normal(size=(3, 3)), rng.normal(size=(3, 3)))
    assumed = lawful("show", "square.npz", "--json", cwd=place).json["reading"]["assumed"]
    assert any("both orders of the axes fit" in each for each in assumed)
    np.savez(place / "apart.npz", W1=rng.normal(size=(3, 2)), W2=rng.normal(size=(5, 4)))
    assert "do not fit together" in lawful("laws", "apart.npz", code=2, cwd=place).stderr


def test_a_box_that_nobody_gave_is_said(lawful: Any, place: Path) -> None:
    import lawful as package

    answer = lawful("distance", "net.npz", "turned.npz", "--json", cwd=place).json
    assert any("between -1 and 1" in each for each in answer["reading"]["assumed"])
    stated = lawful("distance", "net.npz", "turned.npz", "--box=-1,1", "--json", cwd=place).json
    assert answer["upper"] == stated["upper"]
    assert not any("between -1 and 1" in each for each in stated["reading"]["assumed"])
    assert any("between -1 and 1" in each for each in package.distance("2-3-1 relu", "2-3-1 relu").reading.assumed)
    checked = lawful("check", "net.npz", "--monotone=+0", "--json", code=1, cwd=place).json
    assert any("between -1 and 1" in each for each in checked["reading"]["assumed"])


def test_lines_fit_the_width_that_is_stated(lawful: Any, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "50")
    assert max(map(len, lawful("same", "net.npz", "turned.npz", cwd=place).stdout.splitlines())) <= 50
    assert fit("a" * 90, 50) == "a" * 90  # a path is not broken


def test_verbose_says_how_files_were_read(lawful: Any, place: Path) -> None:
    assert "0.weight  float64  4×3" in lawful("same", "-v", "net.npz", "turned.npz", cwd=place).stdout
    assert "float64" not in lawful("same", "net.npz", "turned.npz", cwd=place).stdout
