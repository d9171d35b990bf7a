"""How large a file may be: sizes are checked before memory is taken, whatever a header says."""

from __future__ import annotations

import math
import struct
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from lawful.errors import InvalidNetwork

MAX_BYTES = 512 * 2**20  # of a file, packed or unpacked
MAX_MAPPED = 2**40  # of a file that is mapped into memory instead of read
MAX_NUMBERS = 50_000_000  # of a tensor or of all tensors of a network: 400 MB in float64
MAX_ENTRIES = 20_000  # tensors of a file


def check_bytes(what: str, size: int, limit: int = MAX_BYTES) -> None:
    """Refuse more than `limit` bytes."""
    if size > limit:
        raise InvalidNetwork(f"{what} takes {size:,} bytes, more than the {limit:,} that are read")


def check_numbers(what: str, shape: Sequence[int]) -> int:
    """The number of entries of a tensor, refused if its shape is not one or is too large.

    >>> check_numbers("tensor a", (3, 4))
    12
    """
    count = check_shape(what, shape)
    if count > MAX_NUMBERS:
        sizes = "×".join(map(str, shape[:6]))
        raise InvalidNetwork(f"{what} claims shape {sizes}, more than the {MAX_NUMBERS:,} numbers that are read")
    return count


def check_shape(what: str, shape: Sequence[int]) -> int:
    """The number of entries of a tensor, refused if its shape is not one."""
    if any(size < 0 for size in shape):
        raise InvalidNetwork(f"{what} has a negative size in its shape {tuple(shape)}")
    if len(shape) > 32:
        raise InvalidNetwork(f"{what} claims {len(shape)} dimensions")
    return math.prod(shape)


def check_entries(count: int) -> None:
    """Refuse files with very many tensors."""
    if count > MAX_ENTRIES:
        raise InvalidNetwork(f"{count:,} entries, more than the {MAX_ENTRIES:,} that are read")


def open_zip(path: Path | IO[bytes], limit: int = MAX_BYTES) -> zipfile.ZipFile:
    """Open an archive whose declared sizes, taken together, are within the limits."""
    try:
        archive = zipfile.ZipFile(path)
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError, struct.error) as error:
        raise InvalidNetwork(f"not a zip archive, or a truncated one ({error})") from None
    members = archive.infolist()
    try:
        check_entries(len(members))
        check_bytes("the unpacked archive", sum(member.file_size for member in members), limit)
        for member in members:
            if member.flag_bits & 1 or member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise InvalidNetwork(f"{member.filename[:80]!r} is encrypted or packed in an unusual way")
    except InvalidNetwork:
        archive.close()
        raise
    return archive
