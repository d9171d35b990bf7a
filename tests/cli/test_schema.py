"""The JSON of every verb is what its schema says."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from command_line import in_process

from lawful.cli.help import EXAMPLES
from lawful.report.schema import TABLE, VERSION, json_schema, lines_of

from .test_help import LONG, VERBS, folder

__all__ = ["folder"]
RUN = [(verb, line) for verb, lines in EXAMPLES.items() for line in lines if line not in LONG]
MORE = [
    ("laws", 'lawful laws "3-3-2 linear" --degree 2 --all --reduction'),
    ("laws", 'lawful laws "3-4-2 relu" --momentum'),
    ("path", "lawful path model.safetensors model.safetensors"),
    ("regions", "lawful regions model.safetensors --box=-1,1 --each --facets"),
    ("prune", "lawful prune model.safetensors --data data.csv --verify"),
    ("show", "lawful show missing.safetensors"),
    ("sweep", "lawful sweep plan.toml"),
    ("verify", "lawful verify model.json"),
]


def checked(verb: str, found: dict[str, Any]) -> None:
    """An answer fits the schema of its verb; an error is an error."""
    jsonschema.Draft202012Validator(json_schema(verb)).validate(found)
    if "error" not in found or verb == "laws":
        for key, _, always, _ in lines_of(verb):
            assert key in found or not always, key
        assert found["schema"] == f"lawful {verb} {VERSION}"


def test_every_verb_has_its_table_and_every_line_a_meaning() -> None:
    assert set(VERBS) <= set(TABLE)
    for verb in TABLE:
        jsonschema.Draft202012Validator.check_schema(json_schema(verb))
        assert all(meaning for _, _, _, meaning in lines_of(verb)), verb


@pytest.mark.parametrize(("verb", "line"), RUN + MORE, ids=lambda word: word)
def test_the_json_of_a_verb_fits_its_schema(folder: Path, tmp_path: Path, verb: str, line: str) -> None:
    words = [word for word in shlex.split(line)[1:] if word != "--json"]
    needed = {"laws.json": 'lawful laws "6-5-6 linear" --certificate laws.json', "run": EXAMPLES["flow"][0]}
    needed["same.json"] = EXAMPLES["same"][1]
    for file, maker in needed.items():
        if file in words and verb in ("verify", "drift") and not (folder / file).exists():
            in_process(*shlex.split(maker)[1:], cwd=folder)
    if "--out" in words:  # folders must not exist yet
        place = words.index("--out") + 1
        words[place] = str(tmp_path / words[place])
    checked(verb, in_process(*words, "--json", cwd=folder).json)


def test_the_schema_can_fail() -> None:
    good = in_process("laws", "3-4-2 relu", "--json").json
    checked("laws", good)
    for broken in (good | {"laws": "four"}, {k: v for k, v in good.items() if k != "status"}):
        with pytest.raises(jsonschema.ValidationError):
            checked("laws", broken)
