"""Pairs of ACAS Xu networks (VNN-COMP 2026, isomorphic_acasxu): `python -m benchmarks.acas_pairs FOLDER [FROM [TO]]`.

FOLDER is the benchmark's folder `2.0` with its files unpacked: `onnx/original`, `onnx/perturbed`. The public generator
draws a network for each of 50 instances and adds normal noise of 0.001 to every weight, but with a seed of its own that
nobody wrote down, so only the instances that are stored can be had. The draw of the networks (seed 1) gives the stored
instance; a perturbed network that is missing is made anew by the recipe, with the instance's number as the seed. Every
answer is saved as a certificate and verified. One thread; seconds are of the processor, at most 100 for each pair.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from lawful import Dag, Mlp
from lawful import open as opened
from lawful.bounds.distance import distance
from lawful.bounds.result import Distance, certificate
from lawful.types import Floats
from lawful.verify import verify

LOW = np.array([0.6, -0.5, -0.5, 0.45, -0.5])
HIGH = np.array([0.679857769, 0.5, 0.5, 0.5, -0.45])
WITHIN, NOISE, SECONDS, INSTANCES = 0.05, 0.001, 100.0, 50


def pairs(folder: Path, first: int, last: int) -> Iterator[tuple[str, Mlp | Dag, Mlp | Dag]]:
    """Some instances: name and both networks."""
    draw = random.Random(1)  # noqa: S311
    drawn = [(draw.randint(1, 5), draw.randint(1, 9)) for _ in range(INSTANCES)]
    for number, (tau, action) in list(enumerate(drawn))[first:last]:
        name = f"ACASXU_run2a_{tau}_{action}_batch_2000"
        original = _network(folder / "onnx" / "original" / f"{name}.onnx")
        stored = folder / "onnx" / "perturbed" / f"{name}_perturbed_{number}.onnx"
        other = _network(stored) if stored.exists() else _perturbed(original, number)
        yield f"{number} {tau}_{action}{' (public)' * stored.exists()}", original, other


def _network(path: Path) -> Mlp | Dag:
    found = opened(str(path))
    assert isinstance(found, (Mlp, Dag)), f"{path} is no network of layers"
    return found


def _perturbed(network: Mlp | Dag, seed: int) -> Mlp | Dag:
    noise = np.random.RandomState(seed).normal(0.0, NOISE, network.parameters)
    return network.with_theta(_single(network.theta + noise))


def _single(values: Floats) -> Floats:
    return np.asarray(values, dtype=np.float32).astype(np.float64)


def _ask(first: Mlp | Dag, second: Mlp | Dag) -> Distance:
    """The question, until the processor's time is over."""
    started = time.process_time()

    def stop(lower: float, upper: float) -> None:
        if time.process_time() - started > SECONDS:
            raise KeyboardInterrupt  # as a user would: the bounds so far are kept

    return distance(first, second, (LOW, HIGH), within=WITHIN, seconds=20 * SECONDS, threads=1, tick=stop)


def main(folder: Path, first: int, last: int) -> None:
    """One line for each pair."""
    for name, one, other in pairs(folder, first, last):
        started = time.process_time()
        found = _ask(one, other)
        words = f"{found.status:10} {float(found.lower):.4f} to {found.upper:.4f}, {found.boxes:6,} boxes"
        words += f", {time.process_time() - started:.1f} s"
        if found.status in ("proved", "violated"):
            started = time.process_time()
            verify(json.dumps(certificate(found, one, other)))
            words += f", verified in {time.process_time() - started:.1f} s"
        print(f"{name:20} {words}", flush=True)


if __name__ == "__main__":
    start, end = (*map(int, sys.argv[2:4]), *(0, INSTANCES)[len(sys.argv[2:4]) :])
    main(Path(sys.argv[1]), start, end)
