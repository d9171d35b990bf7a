"""`.npz`: headers are read and sizes checked before an array is made, and nothing is unpickled."""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from lawful.errors import InvalidNetwork
from lawful.formats.io.limits import check_numbers, open_zip
from lawful.formats.io.reading import open_file
from lawful.network.validity import check_names

SLOPES = "lawful.slopes"
NUMBERS = "fiubc"


def load(path: Path) -> tuple[dict[str, NDArray[Any]], list[float] | None]:
    """The arrays of the file in its order, and the slopes it states, if any."""
    arrays = load_arrays(path)
    slopes = arrays.pop(SLOPES, None)
    if slopes is not None and (slopes.ndim != 1 or slopes.dtype != np.float64):
        raise InvalidNetwork(f"{SLOPES!r} is not a list of slopes")
    return arrays, None if slopes is None else slopes.tolist()


def load_arrays(path: Path, *, kinds: str = NUMBERS) -> dict[str, NDArray[Any]]:
    """All arrays of a file; `kinds` are NumPy's letters for what they may hold (U: text)."""
    arrays: dict[str, NDArray[Any]] = {}
    total = 0
    with open_file(path) as file, open_zip(file) as archive:
        check_names(member.filename for member in archive.infolist())
        for member in archive.infolist():
            name = member.filename.removesuffix(".npy")
            if name in arrays:
                raise InvalidNetwork(f"array {name[:80]!r} appears twice")
            try:
                with archive.open(member) as stream:
                    arrays[name] = _array(name, stream, member.file_size, kinds)
            except (zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError, NotImplementedError) as error:
                raise InvalidNetwork(f"array {name[:80]!r} cannot be read: {str(error)[:120]}") from None
            total = check_numbers("the file", (total + arrays[name].size,))
    return arrays


def dump(arrays: Mapping[str, NDArray[Any]], slopes: tuple[float, ...] | None) -> bytes:
    """The bytes of a file that holds the arrays."""
    buffer = io.BytesIO()
    stated = {} if slopes is None else {SLOPES: np.array(slopes, dtype=np.float64)}
    np.savez(buffer, allow_pickle=False, **{**arrays, **stated})
    return buffer.getvalue()


def _array(name: str, stream: IO[bytes], size: int, kinds: str) -> NDArray[Any]:
    shape, fortran, dtype = _header(name, stream)
    # Before anything is read: NumPy would unpickle objects, which runs code.
    if dtype.hasobject:
        raise InvalidNetwork(f"array {name[:80]!r} holds Python objects: they would have to be unpickled")
    if dtype.kind in "US" and dtype.kind not in kinds:
        raise InvalidNetwork(
            f"array {name[:80]!r} holds text: store labels as whole numbers (0, 1, ...), or leave it out"
        )
    if dtype.kind not in kinds:
        raise InvalidNetwork(f"array {name[:80]!r} holds {dtype}, not numbers")
    needed = check_numbers(f"array {name[:80]!r}", shape) * dtype.itemsize
    if stream.tell() + needed != size:
        raise InvalidNetwork(f"array {name[:80]!r} claims {needed:,} bytes but has {size - stream.tell():,}")
    content = stream.read(needed + 1)  # one byte more makes the archive check its sum
    if len(content) != needed:
        raise InvalidNetwork(f"array {name[:80]!r} is truncated: {len(content):,} of {needed:,} bytes")
    if not needed:
        return np.empty(shape, dtype)
    return np.frombuffer(content, dtype=dtype).reshape(shape, order="F" if fortran else "C")


def _header(name: str, stream: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    version = npy.read_magic(stream)
    if version not in ((1, 0), (2, 0)):
        raise InvalidNetwork(f"array {name[:80]!r} has an unknown format {version}")
    try:
        return npy.read_array_header_1_0(stream) if version == (1, 0) else npy.read_array_header_2_0(stream)
    except Exception as error:  # NumPy parses the header as Python, which fails in a dozen ways
        raise InvalidNetwork(f"array {name[:80]!r} has a broken header: {str(error)[:120]}") from None
