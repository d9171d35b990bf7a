"""The one way in: every file that a user names is opened here, and is a regular file of bounded size and nesting."""

from __future__ import annotations

import ctypes
import gzip
import io
import json
import math
import os
import re
import stat
import sys
import tomllib
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from lawful.errors import LawfulError
from lawful.formats.io.limits import MAX_BYTES, check_bytes

if TYPE_CHECKING:
    import torch

MAX_TEXT = 64 * 2**20  # of JSON: parsed, it takes up to some twelve times as much
MAX_TOML = 2**20
PIECE = 2**20  # asked for at once: memory is taken for what comes, not for what might
MAX_NESTING = 64  # lists in lists; parsers and those who walk what they made are recursive
MAX_LISTS = 4_000_000  # an empty list takes 2 bytes in a file and 64 in memory

# Strings (and comments), as the parsers see them; one that does not end takes the rest, so that each is read once.
JSON_STRING = re.compile(r'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
TOML_STRING = re.compile(
    r""""{3}(?:\\.|[^\\])*?(?:"{3,5}|\\?\Z)|'{3}.*?(?:'{3,5}|\Z)|"(?:[^"\\\n]++|\\[^\n])*+"?|'[^'\n]*+'?|\#[^\n]*+""",
    re.DOTALL,
)
PAGE = 4096
MOST = 2**20  # bytes of a tensor below which its pages are left alone
NOT_NEEDED = 4  # MADV_DONTNEED: the next read of a mapped file finds its pages again


@contextmanager
def open_file(path: str | Path, limit: int = MAX_BYTES) -> Iterator[IO[bytes]]:
    """Open a regular file of at most `limit` bytes: no folder, pipe or device, nor a link to one.

    >>> with open_file("/dev/null") as file:
    ...     file.read()
    Traceback (most recent call last):
    lawful.errors.LawfulError: /dev/null: is not a regular file
    """
    with naming(path):
        # A pipe without a writer would make us wait; Windows has neither such pipes nor the flag.
        number = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
        try:
            status = os.fstat(number)
            if stat.S_ISDIR(status.st_mode):
                raise LawfulError("is a folder, not a file")
            if not stat.S_ISREG(status.st_mode):
                raise LawfulError("is not a regular file")
            check_bytes("the file", status.st_size, limit)
        except LawfulError:
            os.close(number)
            raise
        with os.fdopen(number, "rb") as file:
            yield file


def read_bytes(path: str | Path, limit: int = MAX_BYTES) -> bytes:
    """All of a regular file, however much its size pretends."""
    with open_file(path, limit) as file:
        content = bytearray()
        # The size that the system states may be wrong (/proc), or change while the file is read.
        while part := file.read(PIECE):
            content += part
            check_bytes("the file", len(content), limit)
        return bytes(content)


def read_unpacked(path: str | Path, limit: int = MAX_BYTES) -> bytes:
    """All of a file, unpacked if its name ends in `.gz`; the limit holds for what comes out."""
    content = read_bytes(path, limit)
    if not str(path).lower().endswith(".gz"):
        return content
    unpacked = bytearray()
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(content)) as packed:
            while part := packed.read(PIECE):
                unpacked += part
                check_bytes("the unpacked file", len(unpacked), limit)
    except (OSError, EOFError, zlib.error) as error:
        raise LawfulError(f"{path}: not a gzip file, or a truncated one ({error})") from None
    return bytes(unpacked)


def read_text(path: str | Path, limit: int = MAX_TEXT) -> str:
    """A file of UTF-8, with or without the mark that some editors put before it."""
    with naming(path):
        try:
            return read_unpacked(path, limit).decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise LawfulError(f"not a text file: byte {error.start} is not UTF-8") from None


def read_json(path: str | Path, limit: int = MAX_TEXT, number: Callable[[str], Any] | None = None) -> Any:
    """A JSON file: finite numbers, no key twice, nested at most 64 deep. `number` reads decimals (else `float`)."""
    with naming(path):
        return parse_json(read_text(path, limit), number)


def read_object(path: str | Path, limit: int = MAX_TEXT) -> dict[str, Any]:
    """A JSON file that holds an object."""
    with naming(path):
        content = read_json(path, limit)
        if not isinstance(content, dict):
            raise LawfulError("holds no JSON object with keys and values")
        return content


def parse_json(text: str, number: Callable[[str], Any] | None = None) -> Any:
    """What `read_json` makes of its text.

    >>> parse_json('{"a": [1, 2.5]}')
    {'a': [1, 2.5]}
    >>> parse_json('{"a": 1e999}')
    Traceback (most recent call last):
    lawful.errors.LawfulError: not a JSON file: 1e999 is not a finite number
    """
    # The parser is recursive: what is nested too deeply is refused before it starts, not by a crash of the stack.
    _check_nesting(JSON_STRING.sub("", text))
    try:
        return json.loads(
            text, parse_float=number or _finite, parse_constant=_finite, object_pairs_hook=refuse_duplicates
        )
    except (ValueError, RecursionError) as error:
        raise LawfulError(f"not a JSON file: {error}") from None


def read_toml(path: str | Path, limit: int = MAX_TOML) -> dict[str, Any]:
    """A TOML file, nested at most 64 deep."""
    with naming(path):
        return parse_toml(read_text(path, limit))


def parse_toml(text: str) -> dict[str, Any]:
    """What `read_toml` makes of its text.

    >>> parse_toml('network = "3-4-2 relu"')
    {'network': '3-4-2 relu'}
    """
    bare = TOML_STRING.sub("s", text)
    _check_nesting(bare)
    words = re.split(r"[^\w.-]", bare.replace(" ", "").replace("\t", ""))
    if max(word.count(".") for word in words) > MAX_NESTING:  # a key of n parts costs the parser n²
        raise LawfulError(f"not a TOML file: a key has more than {MAX_NESTING} parts")
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise LawfulError(f"not a TOML file: {error}") from None


@contextmanager
def naming(path: str | Path) -> Iterator[None]:
    """Errors that happen here begin with the file's name, once."""
    try:
        if "\0" in str(path):
            raise LawfulError("no file has a null character in its name")
        if "\n" in str(path):  # it could pass for a line of an answer
            raise LawfulError("a file with a line break in its name is neither read nor written: rename it")
        yield
    except LawfulError as error:
        if str(error).startswith((f"{path}: ", f"{path}{os.sep}")):
            raise
        raise type(error)(f"{path}: {error}") from None
    except FileNotFoundError:
        raise LawfulError(f"{path}: no such file") from None
    except OSError as error:
        raise LawfulError(f"{path}: {(error.strerror or str(error)).lower()}") from None


def _check_nesting(bare: str) -> None:
    """Refuse lists in lists in lists, counted in a text without its strings."""
    lists = bare.count("[") + bare.count("{")
    if lists > MAX_LISTS:
        raise LawfulError(f"holds {lists:,} lists, more than the {MAX_LISTS:,} that are read")
    depth = 0
    for bracket in re.findall(r"[\[\]{}]", bare):
        depth += 1 if bracket in "[{" else -1
        if depth > MAX_NESTING:
            raise LawfulError(f"is nested more than {MAX_NESTING} deep")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text[:40]} is not a finite number")
    return value


def refuse_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The object that these pairs make, for `json.loads`; of a key that comes twice the parser would take the last."""
    entries: dict[str, Any] = {}
    for key, value in pairs:
        if key in entries:
            raise ValueError(f"the key {key[:40]!r} appears twice")
        entries[key] = value
    return entries


def let_go(tensor: torch.Tensor) -> bool:
    """Let go the pages of a large tensor that is mapped from a file and that nobody has written to.

    Whether that was done: memory that belongs to no file, and systems other than Linux, are left alone.

    >>> import torch
    >>> let_go(torch.zeros(2**20))
    False
    """
    storage = tensor.untyped_storage()
    start, stop = storage.data_ptr(), storage.data_ptr() + storage.nbytes()
    start, stop = -(-start // PAGE) * PAGE, stop // PAGE * PAGE
    if storage.nbytes() < MOST or sys.platform != "linux" or not _of_a_file(start, stop):
        return False
    advise = ctypes.CDLL(None).madvise
    advise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return bool(advise(start, stop - start, NOT_NEEDED) == 0)


def _of_a_file(start: int, stop: int) -> bool:
    """Whether addresses are those of one mapping of a file, as the system lists them."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, _, _, _, inode, *name = line.split(maxsplit=5)
        low, high = (int(end, 16) for end in span.split("-"))
        if low <= start and stop <= high:
            return inode != "0" and bool(name)
    return False
