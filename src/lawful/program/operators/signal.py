"""Fourier transforms of real signals: fixed matrices along an axis, with windows that are a movement."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lawful.program.builder import Builder
from lawful.program.program import Node
from lawful.program.table import Refused, onnx


def fourier_basis(size: int, bins: int) -> NDArray[np.float64]:
    """(size, bins, 2): the real and imaginary parts of exp(-2πi t k / size)."""
    angle = 2 * np.pi * (np.outer(np.arange(size), np.arange(bins)) % size) / size  # reduced first: exact
    return np.stack([np.cos(angle), -np.sin(angle)], -1)


@onnx("STFT")
def _stft(
    b: Builder, x: Node, step: Node, window: Node | None = None, length: Node | None = None, onesided: int = 1
) -> Node:
    if x.rank == 3 and x.shape[-1] != 1:
        raise Refused("STFT of a complex signal")
    signal = b.reshape(x, x.shape[:2])
    if length is not None:
        size = int(b.numbers(length, "the length of STFT")[0])
    elif window is not None:
        size = window.shape[0]
    else:
        raise Refused("STFT without a length")
    hop = int(b.numbers(step, "the step of STFT")[0])
    frames = b.move(lambda t: np.lib.stride_tricks.sliding_window_view(t, size, 1)[:, ::hop], signal)
    frames = frames if window is None else b.mul(frames, window)
    basis = b.constant(fourier_basis(size, size // 2 + 1 if onesided else size))
    return b.contract("bfs,sko->bfko", frames, basis)
