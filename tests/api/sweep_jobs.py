"""Jobs that behave badly, for the sweep's tests."""

from __future__ import annotations

import os
import time
from pathlib import Path


def square(n: int, milliseconds: float = 0.0, log: str = "") -> dict[str, int]:
    time.sleep(milliseconds / 1000)
    if log:  # one line per run, appended in one write: shows what ran how often
        with Path(log).open("a") as file:
            file.write(f"{n}\n")
    return {"square": n * n}


def nasty(n: int) -> dict[str, int]:
    if n == 1:
        raise ValueError("one\nis bad")
    if n == 2:
        time.sleep(1000)
    if n == 3:
        os._exit(9)
    if n == 4:
        return {"kept": len([bytearray(b"x" * 10_000_000) for _ in range(200)])}
    return {"square": n * n}


def slow_once(n: int) -> dict[str, int]:
    if n == 150:
        time.sleep(1000)
    return {"n": n}


def needs(n: int, path: str) -> dict[str, int]:
    if not Path(path).exists():
        raise FileNotFoundError(path)
    return {"n": n}


def not_a_row(n: int) -> int:
    return n
