"""A certificate's program run by PyTorch, and the rank of its fields and brackets in floating point."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.func import grad, jvp

LEVELS = 3
FUNCTIONS = {
    "exp": torch.exp, "erf": torch.erf, "reciprocal": torch.reciprocal, "rsqrt": torch.rsqrt, "log": torch.log,
    "sin": torch.sin, "cos": torch.cos,
}  # fmt: skip


def prepared(steps: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The steps with their lists as tensors."""
    types = {"values": torch.float64, "indices": torch.long}
    return [
        step | {key: torch.tensor(step[key], dtype=kind) for key, kind in types.items() if key in step}
        for step in steps
    ]


def output(steps: list[dict[str, Any]], theta: Tensor, x: Tensor) -> Tensor:
    """The last array of the program."""
    arrays = [theta, x]
    for step in steps[2:]:
        kind, sources = step["kind"], [arrays[number] for number in step.get("sources", ())]
        if kind == "constant":
            made = step["values"]
        elif kind == "take":
            joined = torch.cat([*sources, torch.zeros(1, dtype=torch.float64)])
            made = joined[step["indices"]]
        elif kind == "matmul":
            n, p, q, r = step["sizes"]
            made = (sources[0].reshape(n, p, q) @ sources[1].reshape(n, q, r)).reshape(-1)
        elif kind == "sum":
            made = sources[0].reshape(-1, step["sizes"][0]).sum(dim=1)
        elif kind == "choose":
            made = torch.where(sources[0] > 0, sources[1], sources[2])
        elif kind in ("add", "mul"):
            made = sources[0] + sources[1] if kind == "add" else sources[0] * sources[1]
        else:
            made = FUNCTIONS[kind](sources[0])
        arrays.append(made)
    return arrays[-1]


def reaches(proof: dict[str, Any], enough: int, seed: int = 0) -> bool:
    """Whether fields and brackets at the certificate's point, for random inputs, have this rank; stops when they do."""
    rng = np.random.default_rng(seed)
    steps, classes = prepared(proof["steps"]), proof["classes"]
    theta = torch.tensor(proof["theta"], dtype=torch.float64) / 2.0 ** proof["theta_bits"]
    ends = len(proof["weights"][0])

    def field() -> Any:
        x, w = torch.tensor(rng.normal(size=steps[1]["length"])), rng.normal(size=ends)
        if classes:
            w = (w.reshape(-1, classes) - w.reshape(-1, classes).mean(axis=1, keepdims=True)).ravel()
        slopes = torch.tensor(w)
        return grad(lambda at: (output(steps, at, x) * slopes).sum())

    def bracket(level: int) -> Any:
        if level == 0:
            return field()
        first, second = bracket(level - 1), field()
        return lambda at: jvp(second, (at,), (first(at),))[1] - jvp(first, (at,), (second(at),))[1]

    rows: list[np.ndarray] = []
    for level in range(LEVELS):
        for _ in range(len(theta) + 2):
            row = bracket(level)(theta).numpy()
            rows.append(row / max(float(np.linalg.norm(row)), 1e-300))
            if len(rows) >= enough:
                values = np.linalg.svd(np.array(rows), compute_uv=False)
                if int((values > 1e-7 * values[0]).sum()) >= enough:
                    return True
    return False
