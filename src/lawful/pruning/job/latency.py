"""How long a network takes, in PyTorch and in ONNX Runtime: the least of many runs, one thread."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

RUNS, SECONDS = 60, 0.5


def least(run: Callable[[], Any]) -> float:
    """Milliseconds of the quickest of some runs: whatever else the machine does only makes them longer."""
    run()
    best, started = float("inf"), time.perf_counter()
    for _ in range(RUNS):
        begin = time.perf_counter()
        run()
        now = time.perf_counter()
        best = min(best, now - begin)
        if now - started > SECONDS:
            break
    return 1e3 * best


@torch.no_grad()
def torch_latency(module: nn.Module, examples: Sequence[torch.Tensor]) -> float:
    """Milliseconds of one call, on one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return least(lambda: module(*examples))
    finally:
        torch.set_num_threads(threads)


def runtime_latency(content: bytes, examples: Sequence[torch.Tensor]) -> float | None:
    """The same in ONNX Runtime; None where that is not installed or refuses the file."""
    try:
        import onnxruntime  # type: ignore[import-untyped]
    except ImportError:
        return None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        given = {entry.name: value.numpy() for entry, value in zip(session.get_inputs(), examples, strict=True)}
        return least(lambda: session.run(None, given))
    except Exception:  # whatever the runtime raises: its kinds of errors have no common base
        return None
