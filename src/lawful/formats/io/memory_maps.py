"""Pages of mapped files: let go once their numbers were read, so that a large checkpoint does not fill the memory."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

PAGE = 4096
MOST = 2**20  # bytes of a tensor below which its pages are left alone
NOT_NEEDED = 4  # MADV_DONTNEED: the next read of a mapped file finds its pages again


def let_go(tensor: torch.Tensor) -> bool:
    """Let go the pages of a large tensor that is mapped from a file and that nobody has written to.

    Whether that was done: memory that belongs to no file, and systems other than Linux, are left alone.

    >>> import torch
    >>> let_go(torch.zeros(2**20))
    False
    """
    held = tensor.untyped_storage()
    start, stop = held.data_ptr(), held.data_ptr() + held.nbytes()
    start, stop = -(-start // PAGE) * PAGE, stop // PAGE * PAGE
    if held.nbytes() < MOST or sys.platform != "linux" or not _of_a_file(start, stop):
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
