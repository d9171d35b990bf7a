"""The public pairs of ACAS Xu networks (VNN-COMP 2026, isomorphic_acasxu): `python -m benchmarks.acas_pairs FOLDER`.

FOLDER is the benchmark's folder `2.0` with its files unpacked: `instances.csv`, `onnx/original`, `onnx/perturbed`,
`vnnlib`. A perturbed network that is missing is made anew by the same recipe, with the instance's number as the seed:
normal noise of 0.001 on every weight. Every answer is saved as a certificate and verified.
"""

from __future__ import annotations

import csv
import json
import sys
import time
from ast import literal_eval
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from lawful import Dag, Mlp
from lawful import open as opened
from lawful.fibers.distance import Distance, distance
from lawful.fibers.distance.certificate import certificate
from lawful.types import Floats
from lawful.verify import verify

LOW = np.array([0.6, -0.5, -0.5, 0.45, -0.5])
HIGH = np.array([0.679857769, 0.5, 0.5, 0.5, -0.45])
WITHIN, NOISE, SECONDS = 0.05, 0.001, 100.0


def pairs(folder: Path) -> Iterator[tuple[str, Mlp | Dag, Mlp | Dag]]:
    """Every instance: its name and both networks."""
    with (folder / "instances.csv").open(encoding="utf-8") as lines:
        for number, (names, *_) in enumerate(csv.reader(lines)):
            paths = dict(literal_eval(names))
            first = _network(folder / paths["f"])
            second = folder / paths["g"]
            other = _network(second) if second.exists() else _perturbed(first, number)
            yield second.stem.removeprefix("ACASXU_run2a_"), first, other


def _network(path: Path) -> Mlp | Dag:
    found = opened(str(path))
    assert isinstance(found, (Mlp, Dag)), f"{path} is no network of layers"
    return found


def _perturbed(network: Mlp | Dag, seed: int) -> Mlp | Dag:
    noise = np.random.RandomState(seed).normal(0.0, NOISE, network.parameters)
    return network.with_theta(_single(network.theta + noise))


def _single(values: Floats) -> Floats:
    return np.asarray(values, dtype=np.float32).astype(np.float64)


def main(folder: Path) -> None:
    """One line for each pair."""
    for name, first, second in pairs(folder):
        started = time.process_time()
        found: Distance = distance(first, second, (LOW, HIGH), within=WITHIN, seconds=SECONDS)
        spent = time.process_time() - started
        words = (
            f"{found.status:10} {float(found.lower):.4f} to {found.upper:.4f}, {found.boxes:6,} boxes, {spent:.1f} s"
        )
        if found.status in ("proved", "violated"):
            started = time.process_time()
            verify(json.dumps(certificate(found, first, second)))
            words += f", verified in {time.process_time() - started:.1f} s"
        print(f"{name:30} {words}", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
