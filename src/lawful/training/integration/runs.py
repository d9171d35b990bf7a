"""Runs as plain files: a folder with `run.json`, `trajectory.npz` and, for networks, `network.json`.

`run.json` says what was run and why it stopped. `trajectory.npz` holds, a row per snapshot: `times`, `theta`, `losses`,
`gradient_norms`, `laws` (columns named by `law_names`), `singular_values` (of J, networks only), `velocity` (heavy ball
only); and a row per kink: `kink_times`, `kink_samples`, `kink_neurons`, `kink_kinds`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from lawful.errors import LawfulError
from lawful.formats.io.limits import check_bytes
from lawful.formats.io.reading import naming, read_json
from lawful.formats.io.writing import new_folder, write_text
from lawful.formats.tensors.npz import load_arrays
from lawful.network import Dag, Mlp
from lawful.network.digest import digest, network_record
from lawful.result import Shown
from lawful.sources import files as network_files
from lawful.training.integration.trajectory import Kink, Reason, Stop, Trajectory
from lawful.training.quantities import Quantities, singular_values
from lawful.types import Floats

FORMAT = "lawful run 1"
MAX_WORDS = 1_000_000  # laws or kinks of a stored run: each becomes an object
RANK_TOLERANCE = 1e-7  # of the largest singular value; those from J Jᵀ are rounding below 1e-8 of it
MAX_SPECTRUM = 1000  # hidden neurons up to which singular values are computed for every snapshot


@dataclass(frozen=True, eq=False)
class Run(Shown):
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

    def ranks(self, tolerance: float = RANK_TOLERANCE) -> tuple[int, ...] | None:
        """Rank of `J = 2 B̃ diag θ` at each snapshot: singular values above `tolerance` times the largest.

        The values come from `J Jᵀ`, so those below 1e-8 of the largest are rounding.
        """
        if self.singular_values is None:
            return None
        values = self.singular_values
        return tuple(int(rank) for rank in (values > tolerance * values[:, :1]).sum(axis=1))


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
    """Write a run to a folder that must not exist yet; it appears whole or not at all."""
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
    check_bytes("the run (ask for fewer snapshots)", sum(array.nbytes for array in arrays.values()))
    stop = {"reason": str(flow.stop.reason), "time": flow.stop.time, "message": flow.stop.message}
    words = {"format": FORMAT, **run.about, "stop": stop, "evaluations": flow.evaluations, "max_drift": run.max_drift}
    with new_folder(folder) as draft:
        np.savez_compressed(draft / "trajectory.npz", **arrays)
        if run.network is not None:
            network_files.write(run.network.to_dag(), draft / "network.json")
        write_text(draft / "run.json", json.dumps(json_value(words), indent=1, ensure_ascii=False) + "\n")


def load(folder: Path) -> Run:
    """Read a run back, or say what is wrong with the folder."""
    if not folder.is_dir():
        raise LawfulError(f"{folder}: no such run folder (make one with `lawful flow ... --out {folder}`)")
    with naming(folder):
        about = read_json(folder / "run.json")
        if not isinstance(about, dict) or about.get("format") != FORMAT:
            raise LawfulError(f"run.json is not of format {FORMAT!r}")
        arrays = load_arrays(folder / "trajectory.npz", kinds="fiU")
        graph = folder / "network.json"
        network = network_files.read(graph) if graph.exists() else None
        try:
            return _assemble(about, arrays, network)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise LawfulError(f"the run is incomplete or damaged ({error})") from None


def _assemble(about: dict[str, Any], arrays: dict[str, Any], network: Mlp | Dag | None) -> Run:
    """A run whose parts have the sizes and kinds that they must have together."""
    rows, parameters = _matrix(arrays, "theta").shape
    names = tuple(" ".join(name.split()) for name in _words(arrays, "law_names"))
    if not rows or (network is not None and network.to_dag().parameters != parameters):
        raise ValueError(f"theta has shape {(rows, parameters)}")
    columns = {"theta": parameters, "laws": len(names)} | {
        name: parameters if name == "velocity" else _matrix(arrays, name).shape[1]
        for name in ("velocity", "singular_values")
        if name in arrays
    }
    for name, count in columns.items():
        if _matrix(arrays, name).shape != (rows, count):
            raise ValueError(f"{name} have shape {arrays[name].shape}, expected {(rows, count)}")
    for name in ("times", "losses", "gradient_norms"):
        if arrays[name].shape != (rows,) or arrays[name].dtype.kind != "f":
            raise ValueError(f"{name} have shape {arrays[name].shape}, expected {(rows,)}")
    if not (np.isfinite(arrays["theta"][0]).all() and np.isfinite(arrays["times"]).all()):
        raise ValueError("the start or the times are not finite")
    if (decay := about.get("decay")) is not None and not 0 <= float(decay) < np.inf:
        raise ValueError("decay is not a number of at least 0")
    if not all(isinstance(name, str) for name in about.get("kinks_not_located") or ()):
        raise ValueError("kinks_not_located are not names")
    stop, evaluations = about.pop("stop"), about.pop("evaluations")
    if not isinstance(evaluations, int) or not 0 <= evaluations < 2**53:
        raise ValueError("evaluations are not a number")
    trajectory = Trajectory(
        arrays["times"],
        arrays["theta"],
        arrays["losses"],
        arrays["gradient_norms"],
        _kinks(arrays),
        Stop(Reason(stop["reason"]), float(stop["time"]), " ".join(str(stop["message"]).split())),
        evaluations,
        arrays.get("velocity"),
    )
    return Run(trajectory, names, arrays["laws"], arrays.get("singular_values"), network, about)


def _kinks(arrays: dict[str, Any]) -> tuple[Kink, ...]:
    times, samples = arrays["kink_times"], arrays["kink_samples"]
    neurons, kinds = _words(arrays, "kink_neurons"), _words(arrays, "kink_kinds")
    if times.ndim != 1 or times.dtype.kind != "f" or samples.ndim != 1 or samples.dtype.kind != "i":
        raise ValueError("kinks are not lists of times and samples")
    return tuple(Kink(*kink) for kink in zip(times.tolist(), samples.tolist(), neurons, kinds, strict=True))


def _matrix(arrays: dict[str, Any], name: str) -> Floats:
    array: Floats = arrays[name]
    if array.ndim != 2 or array.dtype.kind != "f":
        raise ValueError(f"{name} is not a matrix of numbers")
    return array


def _words(arrays: dict[str, Any], name: str) -> list[str]:
    array = arrays[name]
    if array.ndim != 1 or (array.dtype.kind != "U" and len(array)) or len(array) > MAX_WORDS:
        raise ValueError(f"{name} is not a list of at most {MAX_WORDS:,} names")
    words: list[str] = array.tolist()
    return words


def json_value(value: Any) -> Any:
    """The same with null for NaN and infinities, which JSON has not.

    >>> json_value({"drift": [1.0, float("nan")]})
    {'drift': [1.0, None]}
    """
    if isinstance(value, Mapping):
        return {key: json_value(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [json_value(item) for item in value]
    return None if isinstance(value, float) and not np.isfinite(value) else value


# Evidence for a run: a few snapshots, where the loss stood at each and how far the balances strayed.


POINTS = 4  # snapshots kept in a certificate, each with all weights: the first, the last and two between
ROOM = 1e-9  # relative round-off of a loss
# Of a balance, relative to the squares of the weights: a sum of n of these is off by n units of 2^-53 at most, and
# 1e-12 is nine thousand of them.
BALANCE_ROOM = 1e-12


def certificate(
    network: Mlp | Dag, x: ArrayLike, y: ArrayLike, loss: str, trajectory: Trajectory, decay: float = 0.0
) -> dict[str, Any]:
    """Graph, data, snapshots, an interval for the loss at each, and the drift of the balances `B̃θ²` over them.

    With a weight decay λ the balances are compared with `e^{-2λt}` times the first ones.
    """
    if trajectory.velocity is not None:
        raise LawfulError("certificates are for gradient flows, not for heavy balls")
    dag = network.to_dag()
    short = _short(trajectory)
    theta, times = trajectory.theta[short], trajectory.times[short]
    values = (dag.hidden_incidence @ (theta**2).T).T
    drift = np.abs(values - values[0] * np.exp(-2.0 * decay * times)[:, None]).max(initial=0.0)
    labels = loss == "ce"
    targets = np.asarray(y, dtype=np.int64 if labels else np.float64).reshape(
        (-1,) if labels else (-1, len(dag.outputs))
    )
    size = float((targets**2).mean()) if loss == "mse" else 1.0
    return {
        "kind": "flow",
        "version": 1,
        "about": [digest(dag.with_theta(weights)) for weights in (theta[0], theta[-1])],
        "network": network_record(dag, weights=False),
        "x": np.asarray(x, dtype=np.float64).tolist(),
        "y": targets.tolist(),
        "loss": loss,
        "decay": float(decay),
        "times": times.tolist(),
        "theta": theta.tolist(),
        "losses": [_interval(value, size) for value in trajectory.losses[short].tolist()],
        "drift": float(drift + BALANCE_ROOM * (theta**2).sum(axis=1).max()),
    }


def _short(trajectory: Trajectory) -> list[int]:
    """A few snapshots, the first and the last among them."""
    return sorted(set(np.linspace(0, len(trajectory.times) - 1, POINTS).round().astype(int).tolist()))


def _interval(loss: float, size: float) -> list[float]:
    if not np.isfinite(loss):
        raise LawfulError("a loss along the run is not finite: there is no interval to certify")
    room = ROOM * (loss + 1e-6 * size)
    return [max(0.0, loss - room), loss + room]
