"""Runs as plain files: a folder with `run.json`, `trajectory.npz` and, for networks, `network.json`.

`run.json` says what was run and why it stopped. `trajectory.npz` holds, a row per snapshot: `times`, `theta`, `losses`,
`gradient_norms`, `laws` (columns named by `law_names`), `singular_values` (of J, networks only), `velocity` (heavy ball
only); and a row per kink: `kink_times`, `kink_samples`, `kink_neurons`, `kink_kinds`.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lawful.errors import LawfulError
from lawful.flow.quantities import Quantities, singular_values
from lawful.flow.trajectory import Kink, Reason, Stop, Trajectory
from lawful.network import Dag, Mlp
from lawful.network.formats import files as network_files
from lawful.types import Floats

FORMAT = "lawful run 1"
MAX_SPECTRUM = 1000  # hidden neurons up to which singular values are computed for every snapshot


@dataclass(frozen=True, eq=False)
class Run:
    """A trajectory with the laws and singular values along it, and the words that describe it."""

    trajectory: Trajectory
    law_names: tuple[str, ...]
    laws: Floats
    singular_values: Floats | None
    network: Mlp | Dag | None
    about: Mapping[str, Any]

    @property
    def drift(self) -> Floats:
        """How far each law is from its value at the start, decay `e^{−2λt}` included; rows are snapshots."""
        decay = float(self.about.get("decay") or 0.0)
        return np.asarray(self.laws - self.laws[0] * np.exp(-2.0 * decay * self.trajectory.times)[:, None])

    @property
    def max_drift(self) -> float:
        """The largest drift of any law at any snapshot."""
        return float(np.abs(self.drift).max(initial=0.0))

    def ranks(self, tolerance: float = 1e-7) -> tuple[int, ...] | None:
        """Rank of `J = 2 B̃ diag θ` at each snapshot: singular values above `tolerance` times the largest.

        The values come from `J Jᵀ`, so those below 1e-8 of the largest are rounding.
        """
        if self.singular_values is None:
            return None
        found = self.singular_values
        return tuple(int(rank) for rank in (found > tolerance * found[:, :1]).sum(axis=1))


def record(
    trajectory: Trajectory, laws: Quantities, network: Mlp | Dag | None = None, about: Mapping[str, Any] | None = None
) -> Run:
    """Measure the laws and singular values along a trajectory."""
    spectrum = None
    plain = not (about or {}).get("metric")  # under a metric, J is not what stays
    if plain and network is not None and 0 < len(network.to_dag().hidden) <= MAX_SPECTRUM:
        spectrum = np.array([singular_values(network, theta) for theta in trajectory.theta])
    return Run(trajectory, laws.names, laws.along(trajectory.theta), spectrum, network, dict(about or {}))


def save(run: Run, folder: Path) -> None:
    """Write a run to a folder that must not exist yet."""
    if folder.exists():
        raise LawfulError(f"{folder} exists already: name a new folder for the run")
    if not folder.parent.is_dir():
        raise LawfulError(f"{folder.parent} does not exist: make it first")
    folder.mkdir()
    flow = run.trajectory
    arrays: dict[str, Any] = {
        "times": flow.times,
        "theta": flow.theta,
        "losses": flow.losses,
        "gradient_norms": flow.gradient_norms,
        "laws": run.laws,
        "law_names": np.array(run.law_names, dtype=np.str_),
        "kink_times": np.array([kink.time for kink in flow.kinks], dtype=np.float64),
        "kink_samples": np.array([kink.sample for kink in flow.kinks], dtype=np.int64),
        "kink_neurons": np.array([kink.neuron for kink in flow.kinks], dtype=np.str_),
        "kink_kinds": np.array([kink.kind for kink in flow.kinks], dtype=np.str_),
    }
    optional = {"singular_values": run.singular_values, "velocity": flow.velocity}
    arrays |= {name: value for name, value in optional.items() if value is not None}
    np.savez_compressed(folder / "trajectory.npz", **arrays)
    if run.network is not None:
        network_files.write(run.network.to_dag(), folder / "network.json")
    stop = {"reason": str(flow.stop.reason), "time": flow.stop.time, "message": flow.stop.message}
    words = {"format": FORMAT, **run.about, "stop": stop, "evaluations": flow.evaluations, "max_drift": run.max_drift}
    (folder / "run.json").write_text(json.dumps(words, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def load(folder: Path) -> Run:
    """Read a run back, or say what is wrong with the folder."""
    if not folder.is_dir():
        raise LawfulError(f"{folder}: no such run folder (make one with `lawful flow ... --out {folder}`)")
    try:
        about = json.loads((folder / "run.json").read_text(encoding="utf-8"))
        with np.load(folder / "trajectory.npz", allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
    except (OSError, ValueError, zipfile.BadZipFile, EOFError) as error:
        raise LawfulError(f"{folder}: not a run folder ({error})") from None
    if not isinstance(about, dict) or about.get("format") != FORMAT:
        raise LawfulError(f"{folder}: run.json is not of format {FORMAT!r}")
    try:
        return _assembled(folder, about, arrays)
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise LawfulError(f"{folder}: the run is incomplete or damaged ({error})") from None


def _assembled(folder: Path, about: dict[str, Any], arrays: dict[str, Any]) -> Run:
    stop = about.pop("stop")
    kinks = zip(*(arrays[f"kink_{part}"].tolist() for part in ("times", "samples", "neurons", "kinds")), strict=True)
    trajectory = Trajectory(
        arrays["times"],
        arrays["theta"],
        arrays["losses"],
        arrays["gradient_norms"],
        tuple(Kink(*kink) for kink in kinks),
        Stop(Reason(stop["reason"]), float(stop["time"]), str(stop["message"])),
        int(about.pop("evaluations")),
        arrays.get("velocity"),
    )
    names = tuple(arrays["law_names"].tolist())
    shape = (len(trajectory.times), len(names))
    if arrays["laws"].shape != shape or len(arrays["theta"]) != shape[0] or not shape[0]:
        raise ValueError(f"laws have shape {arrays['laws'].shape}, expected {shape}")
    graph = folder / "network.json"
    network = network_files.read(graph) if graph.exists() else None
    return Run(trajectory, names, arrays["laws"], arrays.get("singular_values"), network, about)
