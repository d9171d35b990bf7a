"""Ways to damage a file: bytes, words and numbers of a text, members of an archive, cells of a database."""

from __future__ import annotations

import io
import json
import random
import re
import sqlite3
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

NUMBERS = ["NaN", "Infinity", "-1e400", "1e400", "1e308", "-1", "0", "-0.0", "1e-320", "9" * 30, "9" * 5000, "0.5", "2"]
WORDS = [*NUMBERS, "null", "true", '""', '"x"', "[]", "{}", "[[[]]]", '"\\u0000"', '"\\ud800"', "[" * 90, "nan", "inf"]
VALUES = [None, True, -1, 0, 2, 10**30, 1e308, -1e-320, 0.5, "", "x", "1e999999999", "\x1b[31m", "\u202e", [], {}, [[]]]
BYTES = [b"\x00", b"\xff", b"\x80\x80", b"[", b"{", b'"', b"\n", b"\x1b[2J", b"PK\x03\x04", b"(", b"9" * 40, b"-"]


def damaged(content: bytes, name: str, rng: random.Random) -> bytes:
    """The content, damaged once or a few times in a way that suits the file's kind."""
    kinds = [_bytes, _bytes, _cut, _spliced]
    if name.endswith((".json", ".toml", ".csv", ".vnnlib")):
        kinds = [_word, _word, _line, _bytes, _cut, _nested]
    if name.endswith(".json"):
        kinds += [_value] * 6
    if name.endswith((".npz", ".pt")):
        kinds += [_member] * 4
    if name.endswith(".npz"):
        kinds += [_arrays] * 6
    if name.endswith(".sqlite"):
        kinds += [_cells] * 8
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        content = rng.choice(kinds)(content, rng)
    return content


def _bytes(content: bytes, rng: random.Random) -> bytes:
    found = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 8))):
        at = rng.randrange(len(found) + 1)
        match rng.randrange(3):
            case 0:
                found[at : at + 1] = bytes([rng.randrange(256)])
            case 1:
                found[at:at] = rng.choice(BYTES)
            case _:
                del found[at : at + rng.choice((1, 4, 64))]
    return bytes(found)


def _cut(content: bytes, rng: random.Random) -> bytes:
    return content[: rng.randrange(len(content) + 1)]


def _spliced(content: bytes, rng: random.Random) -> bytes:
    first, second, third = (rng.randrange(len(content) + 1) for _ in range(3))
    return content[:first] + content[min(second, third) : max(second, third)] + content[first:]


def _word(content: bytes, rng: random.Random) -> bytes:
    """One word or number of a text becomes another."""
    text = content.decode("utf-8", "replace")
    words = list(re.finditer(r'-?\d+(?:\.\d+)?(?:e[-+]?\d+)?|"[^"\n]*"|\w+', text))
    if not words:
        return rng.choice(WORDS).encode()
    chosen = rng.choice(words)
    other = rng.choice([*WORDS, rng.choice(words)[0]])
    return (text[: chosen.start()] + other + text[chosen.end() :]).encode("utf-8", "replace")


def _line(content: bytes, rng: random.Random) -> bytes:
    lines = content.split(b"\n")
    at = rng.randrange(len(lines))
    lines[at : at + 1] = rng.choice(([], [lines[at]] * 2, [lines[at] * 2], [b""], lines[::-1]))
    return b"\n".join(lines)


def _nested(content: bytes, rng: random.Random) -> bytes:
    opening, closing = rng.choice(((b"[", b"]"), (b'{"a":', b"}"), (b"{a=", b"}"), (b"a.", b"")))
    deep = rng.choice((3, 60, 2000))
    return rng.choice((content + b"\n", b"", b"a = ")) + opening * deep + rng.choice((b"1", b"")) + closing * deep


def _value(content: bytes, rng: random.Random) -> bytes:
    """One value of a JSON text becomes another, goes, or comes twice."""
    try:
        whole = json.loads(content)
    except (ValueError, RecursionError):
        return _bytes(content, rng)
    places: list[tuple[Any, Any]] = []
    waiting = [whole]
    while waiting:
        inner = waiting.pop()
        keys = list(inner) if isinstance(inner, dict) else range(len(inner)) if isinstance(inner, list) else ()
        places += [(inner, key) for key in keys]
        waiting += [inner[key] for key in keys]
    if not places:
        return json.dumps(rng.choice(VALUES)).encode()
    inner, key = rng.choice(places)
    match rng.randrange(5):
        case 0:
            del inner[key]
        case 1 if isinstance(inner, list):
            inner.insert(rng.randrange(len(inner) + 1), inner[key])
        case 2 if isinstance(inner, dict):
            inner[str(rng.choice(VALUES))] = inner.pop(key)
        case 3:
            other, place = rng.choice(places)
            inner[key] = json.loads(
                json.dumps(
                    other[place]
                    if place in other or (isinstance(other, list) and isinstance(place, int) and place < len(other))
                    else 0
                )
            )
        case _:
            inner[key] = rng.choice(VALUES)
    return json.dumps(whole).encode("utf-8", "replace")


def _member(content: bytes, rng: random.Random) -> bytes:
    """Damage inside an archive whose checksums are right again."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = [(item.filename, archive.read(item)) for item in archive.infolist()]
    except Exception:  # damaged before
        return _bytes(content, rng)
    if not members:
        return content
    at = rng.randrange(len(members))
    name, inner = members[at]
    members[at] = (
        name,
        inner[:16] + _bytes(inner[16:80], rng) + inner[80:] if rng.random() < 0.6 else _bytes(inner, rng),
    )
    if rng.random() < 0.2:
        members.append(rng.choice(members))
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, inner in members:
            archive.writestr(name, inner)
    return buffer.getvalue()


def _arrays(content: bytes, rng: random.Random) -> bytes:
    """Another shape, kind or value of one array."""
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as stored:
            arrays = {name: np.asarray(stored[name]) for name in stored.files}
    except Exception:  # damaged before
        return _bytes(content, rng)
    if not arrays:
        return content
    name = rng.choice(list(arrays))
    array = arrays[name]
    match rng.randrange(8):
        case 0:
            del arrays[name]
        case 1:
            arrays[name] = array.ravel()[: rng.randrange(3)]
        case 2:
            arrays[name] = array[None] if rng.random() < 0.5 else np.array(array.ravel()[:1])
        case 3:
            arrays[name] = np.zeros(rng.choice(((0,), (0, 2), (2, 0), (3, 1), (1, 1, 1), ())))
        case 4:
            arrays[name] = np.array(rng.choice(("x", True, 1j, "\x1b[31m", 2**63 - 1, np.datetime64("2020"))))
        case 5 if array.dtype.kind in "fi":
            arrays[name] = np.where(
                np.arange(array.size).reshape(array.shape) == 0,
                rng.choice((np.nan, np.inf, 1e308, -1e-320, 1e200, -1.0, 0.0)),
                array,
            )
        case 6 if array.dtype.kind in "fi":
            arrays[name] = array.astype(rng.choice(("f2", "f4", ">f8", "i1", "u8", "?", "c16", "U3")))
        case _:
            arrays[rng.choice(("x", "y", "dag.names", "lawful.slopes", "\x1b", "a/b", "0.weight"))] = array
    buffer = io.BytesIO()
    np.savez(buffer, **{name.replace("\x00", ""): value for name, value in arrays.items() if name != "file"})
    return buffer.getvalue()


def _cells(content: bytes, rng: random.Random) -> bytes:
    """A database that SQLite itself finds in order."""
    cells = [
        "x",
        "",
        "{}",
        "[]",
        "[1]",
        '{"a": NaN}',
        "[" * 2000,
        '{"laws": []}',
        b"\x00",
        None,
        1,
        1e999,
        -1,
        '"😀"',
    ]
    statements: list[tuple[str, tuple[Any, ...]]] = [
        (f"UPDATE done SET {column} = ? WHERE rowid = 1", (rng.choice(cells),))  # noqa: S608
        for column in ("key", "job", "inputs", "status", "outputs", "error", "version", "seconds")
    ]
    statements += [
        ("UPDATE plan SET key = ?", (rng.choice(cells),)),
        ("DROP TABLE plan", ()),
        ("DROP TABLE done", ()),
        ("DELETE FROM done", ()),
        ("CREATE TABLE more (a)", ()),
        ("CREATE TRIGGER t AFTER INSERT ON done BEGIN DELETE FROM plan; END", ()),
        ("ALTER TABLE done ADD COLUMN more TEXT", ()),
        ("ALTER TABLE done RENAME TO was", ()),
        ("CREATE VIEW v AS WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT x FROM c", ()),
    ]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "results.sqlite"
        path.write_bytes(content)
        base = sqlite3.connect(path)
        try:
            with base:
                base.execute(*rng.choice(statements))
        except sqlite3.Error:
            pass
        finally:
            base.close()
        return path.read_bytes()
