"""The one way in: regular files only, bounded in size, nesting and time."""

from __future__ import annotations

import contextlib
import os
import threading
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lawful.errors import LawfulError
from lawful.formats.io.reading import (
    MAX_NESTING,
    open_file,
    parse_json,
    parse_toml,
    read_bytes,
    read_json,
    read_text,
    read_toml,
)


def test_a_file_is_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "naïve name .txt"
    path.write_bytes(b"\xef\xbb\xbf{}")
    assert read_bytes(path) == b"\xef\xbb\xbf{}"
    assert read_text(path) == "{}"
    assert read_json(path) == {}


def test_what_is_no_regular_file_is_refused_at_once(tmp_path: Path) -> None:
    pipe, link, folder = tmp_path / "pipe", tmp_path / "link", tmp_path / "folder"
    os.mkfifo(pipe)
    link.symlink_to("/dev/zero")
    folder.mkdir()
    for path, words in (
        (pipe, "not a regular file"),
        (link, "not a regular file"),
        (Path("/dev/stdin"), "file"),
        (folder, "is a folder"),
        (tmp_path / "absent", "no such file"),
        (tmp_path / "a\0b", "null character"),
        (tmp_path / ("x" * 300), "too long"),
    ):
        with pytest.raises(LawfulError, match=words) as refused:
            read_bytes(path)
        assert str(refused.value).startswith(f"{path}: ")
        assert str(refused.value).count(str(path)) == 1


def test_a_pipe_with_a_writer_is_refused_too(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    ready = os.open(pipe, os.O_RDWR)
    threading.Thread(target=lambda: os.write(ready, b"{}")).start()
    with pytest.raises(LawfulError, match="not a regular file"):
        read_bytes(pipe)
    os.close(ready)


def test_the_size_is_checked_before_and_while_reading(tmp_path: Path) -> None:
    path = tmp_path / "sparse"
    with path.open("wb") as file:
        file.truncate(2**40)
    with pytest.raises(LawfulError, match="1,099,511,627,776 bytes"):
        read_bytes(path)
    with pytest.raises(LawfulError, match="more than the 10 that are read"):
        read_bytes("/proc/cpuinfo", 10)  # states a size of 0


def test_errors_of_the_reader_are_named(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.touch()
    with pytest.raises(LawfulError, match=f"^{path}: worse$"), open_file(path):
        raise LawfulError("worse")


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        '{"a":' * 100_000,
        "[" * (MAX_NESTING + 1) + "]" * (MAX_NESTING + 1),
        '{"a": NaN}',
        '{"a": -Infinity}',
        '{"a": 1e400}',
        '{"a": 1, "a": 2}',
        "1" * 5000,
        '"' + '\\"' * 100_000,  # an unending string: each quote must not be tried again
        "[" + "[]," * 5_000_000 + "[]]",
        "",
        "\x00",
        '{"a": ' + '"[' * 40,
    ],
    ids=lambda text: text[:12],
)
def test_json_that_is_refused(text: str) -> None:
    with pytest.raises(LawfulError):
        parse_json(text)


@pytest.mark.parametrize(
    "text",
    [
        "a = " + "[" * 100_000,
        "a = " + "{a=" * 100_000,
        ".".join("a" * 100_000) + " = 1",
        ".".join(['"a,"'] * 30_000) + " = 1",
        " . ".join(["'#'"] * 30_000) + " = 1",
        "[" + ".".join("a" * 100_000) + "]",
        "x = {y = '''\n' ''', " + ".".join("a" * 30_000) + " = 1}",
        'x = {y = """a"""", ' + ".".join("a" * 30_000) + ' = "b"}',
        '"""' + '\nx\\"""' * 50_000,
        "a = " + "9" * 5000,
        "a = 1\na = 2",
        "\x00",
    ],
    ids=lambda text: text[:12],
)
def test_toml_that_is_refused(text: str) -> None:
    with pytest.raises(LawfulError):
        parse_toml(text)


def test_brackets_and_dots_in_strings_and_numbers_do_not_count(tmp_path: Path) -> None:
    dots = "." * 100
    path = tmp_path / "a.toml"
    path.write_text(f'# {dots}\na = "{dots}{"[" * 100}"\nb = [{"0.5, " * 1000}]\nc.d.e = """\n{dots}"""\n')
    assert read_toml(path) == tomllib.loads(path.read_text())
    assert parse_json(f'{{"{dots}[[": "{"[" * 100}\\"]"}}') == {f"{dots}[[": "[" * 100 + '"]'}


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(values)
def test_what_json_writes_is_read_back(value: object) -> None:
    import json

    assert parse_json(json.dumps(value)) == value
    assert parse_json(json.dumps(value, ensure_ascii=False)) == value


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    for parse in (parse_json, parse_toml):
        with contextlib.suppress(LawfulError):
            parse(text)
