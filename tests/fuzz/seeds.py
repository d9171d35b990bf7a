"""Small valid files of every kind that the command line reads, and the commands that read them."""

from __future__ import annotations

import io
import json
import struct
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lawful.api.sweeps import Finished, Plan, Store
from lawful.cli import main
from lawful.network import Architecture, Mlp
from lawful.sources.files import write
from lawful.training import integrate, known_laws, problem
from lawful.training.integration.runs import record, save


@dataclass(frozen=True)
class Target:
    """A file that is damaged, and the command that then reads it (in the folder that holds all the others)."""

    file: str
    command: tuple[str, ...]


NETWORK = "net.json"
TARGETS = (
    *(Target(f"net{ending}", ("show", f"net{ending}")) for ending in (".json", ".npz", ".safetensors", ".pt", ".onnx")),
    Target("net.gguf", ("show", "net.gguf")),
    Target("older.pt", ("show", "older.pt")),
    Target("net.json", ("singular", "net.json", "--exist")),
    Target("net.json", ("components", "net.json", "--exact")),
    Target("net.json", ("prune", "net.json")),
    Target("net.npz", ("same", "net.npz", "net.json", "--seconds", "1")),
    Target("net.json", ("distance", "net.json", "other.json", "--box=-1,1", "--seconds", "1")),
    Target("net.npz", ("identifiable", "net.npz")),
    Target("net.json", ("regions", "net.json", "--seconds", "1")),
    Target("net.safetensors", ("canonical", "net.safetensors")),
    Target("net.json", ("symmetries", "net.json")),
    Target("net.json", ("audit", "net.json")),
    Target("net.json", ("explore", "net.json", "--html", "page.html")),
    Target("property.vnnlib", ("check", "net.json", "property.vnnlib", "--seconds", "1")),
    Target("data.npz", ("verify", "separation.proof.json", "data.npz")),
    Target("data.npz", ("truncate", "2-2-2 relu", "--data", "data.npz")),
    Target("data.csv", ("truncate", "2-2-2 relu", "--data", "data.csv")),
    Target("data.csv", ("separate", "--data", "data.csv")),
    Target("metric.json", ("laws", "2-2-1 relu", "--metric", "metric.json")),
    Target("metric.npz", ("laws", "2-2-1 relu", "--metric", "metric.npz")),
    Target("balance.json", ("components", NETWORK, "--balance", "balance.json")),
    Target("balance.json", ("rebalance", NETWORK, "--balance", "balance.json")),
    Target("box.npz", ("prune", NETWORK, "--box", "box.npz")),
    Target("flow.toml", ("flow", "flow.toml", "--max-evaluations", "20", "--until", "0.01", "--snapshots", "3")),
    Target("plan.toml", ("sweep", "plan.toml", "--out", "plan.toml")),  # a file is no folder, so nothing is run
    *(Target(f"run/{name}", ("drift", "run")) for name in ("run.json", "trajectory.npz", "network.json")),
    Target("sweep/results.sqlite", ("sweep", "status", "sweep")),
    Target("sweep/results.sqlite", ("sweep", "report", "sweep")),
    Target("leaky/run.json", ("bottleneck", "leaky")),
    Target("leaky/train.npz", ("bottleneck", "leaky")),
    Target("leaky/depth-2.npz", ("bottleneck", "leaky")),
    *(Target(f"{kind}.proof.json", ("verify", f"{kind}.proof.json")) for kind in
      ("laws", "near", "components", "pruning", "same", "different", "flow", "separation", "geodesic", "identifiable",
       "regions", "canonical", "path", "rebalance", "singular", "distance")),
)  # fmt: skip


def plant(folder: Path) -> None:
    """Write all the files."""
    network = Architecture.parse("2-3-2 relu bias").initialise(seed=0)
    assert isinstance(network, Mlp)
    for ending in (".json", ".npz", ".safetensors", ".pt", ".onnx"):
        write(network, folder / f"net{ending}")
    (folder / "net.gguf").write_bytes(gguf_file())
    write_older(folder / "older.pt")
    write(network.with_theta(1.25 * network.theta), folder / "other.json")
    x = np.array([[0.0, 0.1], [0.2, 0.0], [1.0, 1.1], [1.2, 0.9]])
    y = np.array([0, 0, 1, 1])
    np.savez(folder / "data.npz", x=x, y=y)
    rows = [f"{a},{b},{label}" for (a, b), label in zip(x, y, strict=True)]
    (folder / "data.csv").write_text("\n".join(["a,b,label", *rows]) + "\n")
    (folder / "metric.json").write_text(json.dumps({"diagonal": [1.0, 2.0, 1.0, 0.5, 1.0, 3.0]}))
    np.savez(folder / "metric.npz", np.diag([1.0, 2.0, 1.0, 0.5, 1.0, 3.0]))
    (folder / "balance.json").write_text(json.dumps(dict.fromkeys(("h1.0", "h1.1", "h1.2"), 0.5)))
    np.savez(folder / "box.npz", low=np.array([-1.0, -1.0]), high=np.array([1.0, 1.0]))
    (folder / "flow.toml").write_text('network = "net.json"\ndata = "data.npz"\nloss = "ce"\ntime = 0.1\nseed = 3\n')
    (folder / "plan.toml").write_text(
        'job = "count_laws"\n[grid]\narchitecture = ["2-2-1 relu", "3-2 linear"]\nseed = {range = [0, 3]}\n'
        "rate = {random = 3, low = 0.1, high = 1.0, log = true}\n[limits]\nseconds = 5\nmemory_gb = 1.5\n"
    )
    (folder / "property.vnnlib").write_text(PROPERTY)
    flow = integrate(problem(network, x, y, "ce"), 0.2, snapshots=4)
    save(record(flow, known_laws(network), network, {"loss": "ce", "decay": 0.0, "data": None}), folder / "run")
    store = Store(folder / "sweep", write=True)
    plan = Plan("count_laws", {"architecture": ["2-2-1 relu"], "seed": [0, 1, 2]})
    store.set_plan(plan)
    store.add(
        Finished(task.key, task.job, task.inputs, "ok", {"laws": 2, "matches": True, "dimensions": [4]}, "", "0", 0.1)
        for task in plan.tasks()
    )
    store._base.execute("PRAGMA journal_mode = DELETE")  # one file, so that damage to it is seen
    store.close()
    for command, expected in COMMANDS:
        run(folder, command, expected)


def gguf_file() -> bytes:
    """A GGUF file with a text, a list, a tensor of plain numbers and one of blocks of eight bits."""

    def text(words: str) -> bytes:
        return struct.pack("<Q", len(words)) + words.encode()

    facts = text("general.architecture") + struct.pack("<I", 8) + text("mlp")
    facts += text("widths") + struct.pack("<IIQ3I", 9, 4, 3, 32, 2, 1)
    tensors = text("0.weight") + struct.pack("<IQQIQ", 2, 32, 2, 8, 0)
    tensors += text("2.weight") + struct.pack("<IQQIQ", 2, 2, 1, 0, 96)
    header = b"GGUF" + struct.pack("<IQQ", 3, 2, 2) + facts + tensors
    blocks = (struct.pack("<e", 0.5) + bytes(range(32))) * 2
    return header + bytes(-len(header) % 32) + blocks + bytes(96 - len(blocks)) + struct.pack("<2f", 1.0, -1.0)


def write_older(path: Path) -> None:
    """A state dict as PyTorch 1.5 wrote it."""
    import torch

    state = {"0.weight": torch.ones(2, 3), "2.weight": torch.ones(1, 2)}
    torch.save(state, path, _use_new_zipfile_serialization=False)


PROPERTY = """(declare-const X_0 Real)
(declare-const X_1 Real)
(declare-const Y_0 Real)
(declare-const Y_1 Real)
(assert (>= X_0 -1.0))
(assert (<= X_0 1.0))
(assert (>= X_1 -1.0))
(assert (<= X_1 1.0))
(assert (>= Y_0 100.0))
"""
COMMANDS = (
    (("laws", "2-2-1 relu", "--certificate", "laws.proof.json"), 0),
    (("laws", "net.json", "--near", "--certificate", "near.proof.json"), 0),
    (("components", "net.json", "--certificate", "components.proof.json"), 0),
    (("prune", "net.json", "--tolerance", "0.5", "--certificate", "pruning.proof.json"), 0),
    (("same", "net.json", "net.npz", "--exact", "--certificate", "same.proof.json"), 0),
    (("same", "net.json", "other.json", "--certificate", "different.proof.json"), 1),
    (("flow", "net.json", "--data", "data.npz", "--loss", "ce", "--until", "0.1", "--snapshots", "3",
      "--certificate", "flow.proof.json"), 0),
    (("identifiable", "net.json", "--certificate", "identifiable.proof.json"), None),
    (("regions", "net.json", "--certificate", "regions.proof.json"), 0),
    (("canonical", "net.json", "--certificate", "canonical.proof.json"), 0),
    (("path", "net.json", "other.json", "--certificate", "path.proof.json"), None),
    (("rebalance", "net.json", "--certificate", "rebalance.proof.json"), 0),
    (("singular", "net.json", "--exist", "--certificate", "singular.proof.json"), 0),
    (("distance", "net.json", "other.json", "--box=-1,1", "-t", "2", "--certificate", "distance.proof.json"), None),
    (("separate", "--data", "data.csv", "--out", "separation.proof.json"), 0),
    (("leaky", "--teacher", "2-1-2", "--effective-depth", "2", "--depth", "4", "--width", "3", "--samples", "6",
      "--evaluations", "3000", "--tolerance", "0.005", "--out", "leaky"), 0),
    (("bottleneck", "leaky", "--save", "geodesic.proof.json"), 0),
)  # fmt: skip


def run(folder: Path, command: tuple[str, ...], expected: int | None = None) -> tuple[int, str, str]:
    """The exit code, stdout and stderr of a command in a folder, in this process."""
    import os

    kept = sys.argv, sys.stdout, sys.stderr, Path.cwd()
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    code: object = 0
    try:
        os.chdir(folder)
        sys.argv, sys.stdout, sys.stderr = ["lawful", *command], out, err
        main()
    except SystemExit as stop:
        code = stop.code
    finally:
        sys.argv, sys.stdout, sys.stderr = kept[:3]
        os.chdir(kept[3])
    texts = [stream.buffer.getvalue().decode() for stream in (out, err)]  # type: ignore[attr-defined]
    found = int(code or 0) if isinstance(code, (int, type(None))) else 99
    assert expected is None or found == expected, (command, found, texts)
    return found, texts[0], texts[1]
