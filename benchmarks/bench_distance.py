"""Certified distances of pairs of networks, beside a MILP (HiGHS) and, where it is installed, auto_LiRPA.

With files of real networks, `python -m benchmarks.bench_distance FOLDER` measures every pair `NAME.EXT`,
`NAME_other.EXT` of a folder on the box `FOLDER/box.npz`.
"""

from __future__ import annotations

import importlib.util
import json
import math
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np

from benchmarks.bench_fibers import milp_gap
from benchmarks.harness import Row, compare
from lawful import Mlp, read, to_module
from lawful.bounds.box_bounds import bound
from lawful.bounds.distance import distance
from lawful.bounds.layers import layers_of
from lawful.bounds.pair import align
from lawful.bounds.result import Distance, certificate
from lawful.formats.queries.box import read_box
from lawful.types import Floats
from lawful.verify import verify


def rows() -> Iterator[Row]:
    """All comparisons."""
    yield from _copies()
    yield from _wide()
    yield from _certificates()
    yield from _against_milp()
    yield from _growth()
    yield from _against_lirpa()


def network(widths: tuple[int, ...], seed: int = 0) -> Mlp:
    """He-initialised, with small biases."""
    rng = np.random.default_rng(seed)
    weights = [rng.normal(size=(m, n)) * math.sqrt(2 / n) for n, m in pairwise(widths)]
    return Mlp(weights, [0.1 * rng.normal(size=m) for m in widths[1:]])


def pruned(original: Mlp, share: float) -> Mlp:
    """The smallest weights of each layer set to zero."""
    return Mlp([np.where(np.abs(w) < np.quantile(np.abs(w), share), 0.0, w) for w in original.weights], original.biases)


def quantised(original: Mlp) -> Mlp:
    """Weights rounded to 8 bits, layer by layer."""
    steps = [np.abs(weight).max() / 127 for weight in original.weights]
    return Mlp([np.round(w / s) * s for w, s in zip(original.weights, steps, strict=True)], original.biases)


def _box(inputs: int, radius: float) -> tuple[Floats, Floats]:
    return np.full(inputs, -radius), np.full(inputs, radius)


def _note(found: Distance) -> str:
    return f"{float(found.lower):.4g} to {found.upper:.4g}, {found.boxes} boxes, {found.status}"


def _copies() -> Iterator[Row]:
    original = network((5, *[50] * 6, 5))
    box = _box(5, 0.02)
    for name, copy in (("pruned by 5%", pruned(original, 0.05)), ("int8", quantised(original))):
        found = distance(original, copy, box, seconds=20.0)
        yield Row(f"distance 5-50x6-5, {name}, until 4 digits or 20 s", found.seconds, note=_note(found))


def _wide() -> Iterator[Row]:
    """Many inputs: splitting is hopeless, singular values bound the whole box."""
    original = network((64, 64, 10))
    found = distance(original, quantised(original), (np.zeros(64), np.ones(64)), seconds=20.0)
    yield Row("distance 64-64-10, int8, on [0, 1]^64, 20 s", found.seconds, note=_note(found))


def _certificates() -> Iterator[Row]:
    original = network((4, 20, 20, 3))
    copy, box = pruned(original, 0.05), _box(4, 0.3)
    question = distance(original, copy, box, seconds=20.0).upper * 1.2
    proof = json.dumps(certificate(distance(original, copy, box, within=question, seconds=20.0), original, copy))
    yield compare(
        "distance 4-20-20-3, pruned by 5%, within 1.2 times the bound",
        lambda: distance(original, copy, box, within=question, seconds=20.0),
        "re-checking the certificate",
        lambda: verify(proof),
        repeat=2,
        note=f"{len(proof):,} bytes, {json.loads(proof)['tree'].count(0)} leaves",
    )


def _against_milp() -> Iterator[Row]:
    for widths in ((3, 4, 4, 1), (4, 8, 8, 1), (5, 12, 12, 1)):
        original = network(widths)
        copy = original.with_theta(original.theta + 0.02 * np.random.default_rng(1).normal(size=original.parameters))
        found = distance(original, copy, _box(widths[0], 1.0), seconds=30.0)
        yield compare(
            f"distance {'-'.join(map(str, widths))} on [-1, 1]^{widths[0]}",
            lambda: distance(original, copy, _box(widths[0], 1.0), seconds=30.0),  # noqa: B023
            "HiGHS MILP, 60 s limit",
            lambda: milp_gap(original, copy, 30.0),  # noqa: B023
            repeat=1,
            note=_note(found),
        )


def _growth() -> Iterator[Row]:
    for width in (10, 20, 40):
        for radius in (0.1, 0.3, 1.0):
            original = network((3, width, width, 2))
            copy = pruned(original, 0.05)
            box = _box(3, radius)
            found = distance(original, copy, box, seconds=20.0)
            name = f"distance 3-{width}-{width}-2 on [-{radius:g}, {radius:g}]^3"
            yield Row(name, found.seconds, note=_note(found))


def _against_lirpa() -> Iterator[Row]:
    """On the network `g - f` in float64; auto_LiRPA has to be put on the path by hand, as no index has its releases."""
    if importlib.util.find_spec("auto_LiRPA") is None:
        return
    import torch
    from auto_LiRPA import BoundedModule, BoundedTensor, PerturbationLpNorm

    torch.set_default_dtype(torch.float64)  # it makes tensors of its own
    original = network((5, *[50] * 6, 5))
    copy, (low, high) = pruned(original, 0.05), _box(5, 0.01)

    class Difference(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.f, self.g = to_module(original).double(), to_module(copy).double()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.as_tensor(self.g(x) - self.f(x))

    ends = [torch.tensor(end[None], dtype=torch.float64) for end in (low, high)]
    centre = (ends[0] + ends[1]) / 2
    point = BoundedTensor(centre, PerturbationLpNorm(x_L=ends[0], x_U=ends[1]))
    model = BoundedModule(Difference(), centre, device="cpu")
    pair = align(layers_of(original), layers_of(copy))
    ours = bound(pair, low[None], high[None])
    for method in ("CROWN", "CROWN-Optimized"):
        theirs = model.compute_bounds(x=(point,), method=method)
        gap = max(float(end.detach().abs().max()) for end in theirs)
        yield compare(
            "bound of one box, 5-50x6-5 pruned by 5%",
            lambda: bound(pair, low[None], high[None]),
            f"auto_LiRPA, {method}",
            lambda: model.compute_bounds(x=(point,), method=method),  # noqa: B023
            note=f"{max(ours.high.max(), -ours.low.min()):.4g} against {gap:.4g}",
        )


def files(folder: Path) -> Iterator[Row]:
    """Pairs of files in a folder."""
    for other in sorted(folder.glob("*_other.*")):
        first, second = read(other.with_name(other.name.replace("_other", ""))), read(other)
        box = read_box(str(folder / "box.npz"), len(first.to_dag().inputs))
        found = distance(first, second, box, seconds=100.0)
        yield Row(f"distance of {other.name}", found.seconds, note=_note(found))


if __name__ == "__main__":
    for row in files(Path(sys.argv[1])) if len(sys.argv) > 1 else rows():
        ratio = "" if row.ratio is None else f"{row.baseline}: {row.ratio:.2f}x"
        print(f"{row.name:<60} {row.seconds:8.2f} s  {ratio}  {row.note}", flush=True)
