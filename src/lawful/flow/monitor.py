"""Watch the laws while a PyTorch model trains: a context manager that records every k steps, into memory and a file."""

from __future__ import annotations

import json
import math
import os
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import torch
from torch import nn

from lawful.errors import LawfulError
from lawful.flow.jacobian_rank import jacobian_rank
from lawful.flow.parts import OTHERWISE, Joint, Parts, understand
from lawful.flow.sinks import Sink
from lawful.flow.training_slope import slopes_in_training
from lawful.flow.watch import LawWatch, digest
from lawful.network import Mlp
from lawful.network.formats.reading import read_bytes

Record = dict[str, Any]


class Monitor:
    """Records balances, the rank of J, dead and linear neurons, weight norms and any other quantity every k steps.

    Call `step(loss)` after each optimiser step. `quantities` are functions of the flat parameter vector (NumPy, in the
    order of `parameters()`), such as laws found by `lawful.laws`; `locked` is a function of a chain as an `Mlp`, such
    as `lambda network: len(components(network).locked)`. Records go to `records`, to `sinks` (functions of a record)
    and, one JSON object per line, to `file`: each line is handed to the system as it is made, so all of them survive
    `kill -9`. A run that is started again with the same file and model goes on counting steps and drift.

    The structural laws of the model (`lawful.symmetries`) are read from its graph when it first runs, or at once if
    `input` says what it takes; `laws` is False for none, or a number for a sketch of so many.

    >>> model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    >>> with Monitor(model, every=10) as monitor:
    ...     for _ in range(20):
    ...         loss = model(torch.ones(4, 2)).square().mean()
    ...         monitor.step(loss)
    >>> [(record["step"], record["rank"], record["drift"]) for record in monitor.records]
    [(0, 3, 0.0), (10, 3, 0.0), (20, 3, 0.0)]
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        every: int = 100,
        file: str | os.PathLike[str] | None = None,
        quantities: Mapping[str, Callable[[Any], Any]] | None = None,
        locked: Callable[[Mlp], int] | None = None,
        detail: bool = True,
        live: bool | None = None,
        input: Any = None,
        laws: bool | int = True,
        sinks: Sequence[Sink] = (),
    ) -> None:
        if every < 1:
            raise LawfulError(f"a monitor records every k steps with k at least 1, not {every}")
        self.model, self.every, self.detail = model, every, detail
        self.parts: Parts = understand(model)
        self.quantities, self.locked = dict(quantities or {}), locked
        self.live = sys.stderr.isatty() if live is None else live
        self.records: list[Record] = []
        self.steps = 0
        self._path = None if file is None else Path(file)
        self._file: int | None = None
        self._hooks: list[Any] = []
        self._seen: dict[str, tuple[int, int]] = {}
        self._start: dict[str, torch.Tensor] = {}
        self._began = time.perf_counter()
        self.input, self.sinks = input, tuple(sinks)
        self.watch: LawWatch | None = None
        self._wanted = laws
        self._resumed = False
        self._looking = False
        self._unchecked: dict[str, str] = {}  # joints that no gradient was held against yet, and what must run for it

    def __enter__(self) -> Monitor:
        if self._path is not None:
            self._go_on(self._path)
            self._file = _open(self._path)
            start = self._start or self._balances()
            self._write({"kind": "start", "time": time.time(), "model": type(self.model).__name__, "every": self.every,
                         "chains": self.parts.chains, "ignored": self.parts.ignored, "digest": digest(self.model),
                         "balances": {name: values.tolist() for name, values in start.items()}})  # fmt: skip
        for joint in self.parts.joints:
            if joint.kinked:
                self._hooks.append(joint.below.register_forward_hook(self._watch(joint.name)))
        if self._wanted is False:
            self._warn_if_blind(str(self.parts))
        elif self.input is not None:
            self._read_laws(self.input if isinstance(self.input, list) else [self.input], {})
        self._unchecked = {joint.name: _around(joint) for joint in self.parts.joints}
        for prefix in {"", *self._unchecked.values()}:
            self._await_first_run(prefix)
        self._record(None)
        return self

    def _await_first_run(self, prefix: str) -> None:
        """When a part of the model first runs in training, its inputs show whether its laws hold."""

        def hook(part: nn.Module, inputs: tuple[Any, ...], keywords: dict[str, Any], _: Any) -> None:
            if self._looking or torch.compiler.is_compiling() or not torch.is_grad_enabled():
                return  # our own run of a copy, or nobody's training
            handle.remove()
            self._looking = True
            try:
                with torch.random.fork_rng(devices=[]):
                    if not prefix:
                        self._first_run(inputs, keywords)
                    self._hold_against_training(part, prefix, inputs, keywords)
            finally:
                self._looking = False

        part = self.model.get_submodule(prefix.removesuffix("."))
        handle = part.register_forward_hook(hook, with_kwargs=True)
        self._hooks.append(handle)

    def _hold_against_training(
        self, part: nn.Module, prefix: str, inputs: tuple[Any, ...], keywords: dict[str, Any]
    ) -> None:
        """Drop the joints in a part of the model whose balances a gradient of that part does not keep."""
        names = {name for name, around in self._unchecked.items() if around == prefix or not prefix}
        if not names:
            return
        try:
            slopes = list(slopes_in_training(part, inputs, keywords))
        except Exception:  # the model's own code: some of it runs in its own precision or place alone
            return
        self._unchecked = {name: around for name, around in self._unchecked.items() if name not in names}
        asked = [joint for joint in self.parts.joints if joint.name in names]
        wrong = [joint.name for joint in asked if not all(joint.kept_along(*each, prefix) for each in slopes)]
        if wrong:
            self.parts = self.parts.without(wrong, OTHERWISE)
            self._start = {name: values for name, values in self._start.items() if name not in wrong}
            self._seen = {name: counts for name, counts in self._seen.items() if name not in wrong}
            self._write({"kind": "parts", "chains": self.parts.chains, "ignored": self.parts.ignored})
            kind = type(self.model).__name__
            warnings.warn(f"balances of {', '.join(wrong)} in {kind} are not watched: {OTHERWISE}", stacklevel=2)

    def _first_run(self, inputs: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        """Read the model's graph, and hold its laws against a gradient."""
        if self._wanted is False:
            return
        if self.watch is None:
            self._read_from_batch(inputs, keywords)
        if self.watch is None:
            return
        try:
            dropped = self.watch.hold_against_training(self.model, inputs, keywords)
        except Exception:  # as for joints
            return
        if dropped:
            kind = type(self.model).__name__
            warnings.warn(f"{dropped} structural laws of {kind} are not watched: {OTHERWISE}", stacklevel=2)

    def _read_from_batch(self, inputs: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        tensors = [each for each in (*inputs, *keywords.values()) if isinstance(each, torch.Tensor)]
        if any(each.ndim > 0 and len(each) < 2 for each in tensors):  # single numbers have no batch
            self._warn_if_blind("it first ran on a batch of one: give input=(...), a size without the batch")
            return
        try:
            self._read_laws(list(inputs), keywords)
        except LawfulError as error:
            self._warn_if_blind(str(error))

    def _read_laws(self, inputs: list[Any], keywords: dict[str, Any]) -> None:
        sketch = None if self._wanted is True else int(self._wanted)
        self.watch = LawWatch(self.model, inputs, keywords, sketch)
        if not self.watch.count:
            self._warn_if_blind("it has no structural laws")
        if self._path is not None:
            beside = self._path.with_name(self._path.name + ".laws.npy")
            if self._resumed and beside.exists():
                self.watch.resume(beside)
            else:
                self.watch.save(beside)

    def _warn_if_blind(self, why: str) -> None:
        if not self.parts.joints:
            kind = type(self.model).__name__
            warnings.warn(f"this monitor understands nothing of {kind}: {why}", stacklevel=3)

    def _go_on(self, path: Path) -> None:
        """Take step and start from an earlier run of the same model in the same file."""
        last: list[Record] = []
        for each in _lines(path) if path.exists() else ():
            last = [each] if each.get("kind") == "start" else [*last[:1], each]  # a start, and the record it reached
        if last and last[0].get("digest") == digest(self.model):
            self._resumed = True
            self.steps = int(last[-1].get("step", 0))
            first = last[0].get("balances", {})
            self._start = {name: torch.tensor(values, dtype=torch.float64) for name, values in first.items()}

    def _balances(self) -> dict[str, torch.Tensor]:
        sides = {joint.name: joint.sides() for joint in self.parts.joints}
        return {name: (into - out).cpu() for name, (into, out) in sides.items()}

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()
        if self._file is not None:
            os.fsync(self._file)
            os.close(self._file)
            self._file = None
        if self.live and self.records:
            print(file=sys.stderr)

    def step(self, loss: Any = None) -> None:
        """Count one step of the optimiser; every k-th is recorded."""
        self.steps += 1
        if self.steps % self.every == 0:
            self._record(loss)

    def _watch(self, name: str) -> Callable[[nn.Module, Any, torch.Tensor], None]:
        """A hook that, before a recorded step, counts the units that are off, or on, for the whole batch."""

        def hook(_: nn.Module, __: Any, output: torch.Tensor) -> None:
            if self._looking or name not in self._start:
                return
            if (self.steps + 1) % self.every == 0 and self.model.training:
                heights = output.detach().flatten(2).movedim(1, -1) if output.ndim > 2 else output.detach()
                low, high = torch.aminmax(heights.reshape(-1, heights.shape[-1]), dim=0)
                self._seen[name] = (int((high <= 0).sum()), int((low > 0).sum()))

        return hook

    def _record(self, loss: Any) -> None:
        balances, sides = {}, []
        for joint in self.parts.joints:
            into, out = joint.sides()
            balances[joint.name] = (into - out).cpu()
            sides.append((joint, into, out))
        if not self._start:
            self._start = balances
        drifts = [(balances[name] - start).abs().max() for name, start in self._start.items() if name in balances]
        number = None if loss is None else float(loss.detach() if isinstance(loss, torch.Tensor) else loss)
        record: Record = {
            "kind": "record",
            "step": self.steps,
            "seconds": round(time.perf_counter() - self._began, 6),
            "loss": number,
            "drift": float(torch.stack(drifts).max()) if drifts else None,
            "unchecked": sorted(self._unchecked),
            "rank": jacobian_rank(sides, self.parts.chains),
            "hidden": sum(joint.units for joint in self.parts.joints),
            "dead": sum(off for off, _ in self._seen.values()) if self._seen else None,
            "linear": sum(on for _, on in self._seen.values()) if self._seen else None,
            "norms": self._norms(sides),
        }
        if self.detail:
            record["balances"] = {name: values.tolist() for name, values in balances.items()}
        if self.locked is not None:
            networks = [chain_network(self.model, chain, self.parts.joints) for chain in self.parts.chains]
            record["locked"] = sum(self.locked(network) for network in networks if network is not None)
        if self.quantities:
            theta = torch.cat([value.detach().flatten() for value in self.model.parameters()]).double().cpu().numpy()
            record["quantities"] = {name: _plain(measure(theta)) for name, measure in self.quantities.items()}
        if self.watch is not None:
            record["laws"] = self.watch.measure(self.model)
        self.records.append(record)
        self._write(record)
        for sink in self.sinks:
            sink(record)
        if self.live:
            print("\r\x1b[2K" + line(record), end="", file=sys.stderr, flush=True)

    @staticmethod
    def _norms(sides: list[tuple[Joint, torch.Tensor, torch.Tensor]]) -> dict[str, float]:
        """Frobenius norm of each understood layer, biases of hidden units included."""
        norms = {joint.name: math.sqrt(float(into.sum())) for joint, into, _ in sides}
        return norms | {
            joint.reader: math.sqrt(float(out.sum())) for joint, _, out in sides if joint.reader not in norms
        }

    def _write(self, record: Record) -> None:
        if self._file is not None:
            os.write(self._file, (json.dumps(record) + "\n").encode())


def _around(joint: Joint) -> str:
    """The prefix of the smallest part of a model that has both layers of a joint in it."""
    shared = 0
    writer, reader = joint.name.split("."), joint.reader.split(".")
    while shared < min(len(writer), len(reader)) - 1 and writer[shared] == reader[shared]:
        shared += 1
    return "".join(f"{part}." for part in writer[:shared])


def line(record: Mapping[str, Any]) -> str:
    """One record on one line of a terminal.

    >>> line({"step": 200, "loss": 0.5, "drift": 1e-3, "rank": 7, "hidden": 8, "dead": 1, "linear": 0})
    'step 200  loss 0.5  drift 0.001  rank 7/8  dead 1  linear 0'
    """
    words = [f"step {record['step']}"]
    words += [f"{key} {record[key]:.4g}" for key in ("loss", "drift") if record.get(key) is not None]
    words += [f"rank {record['rank']}/{record['hidden']}"] if record.get("rank") is not None else []
    return "  ".join(
        words + [f"{key} {record[key]}" for key in ("dead", "linear", "locked") if record.get(key) is not None]
    )


def read_records(file: str | os.PathLike[str]) -> list[Record]:
    """All complete records of a monitor's file; a line cut off by a kill is left out."""
    return [record for record in _lines(Path(file)) if record.get("kind") == "record"]


def _lines(path: Path) -> list[Record]:
    found = []
    for text in read_bytes(path).decode("utf-8", "replace").splitlines():
        try:
            record = json.loads(text)
        except (ValueError, RecursionError):
            continue  # the writer was killed in the middle of this line
        if isinstance(record, dict):
            found.append(record)
    return found


def chain_network(model: nn.Module, chain: tuple[str, ...], joints: tuple[Joint, ...]) -> Mlp | None:
    """A chain of `nn.Linear` layers as an `Mlp` (linear or ReLU by its joints), or None if it has convolutions."""
    layers: list[Any] = [model.get_submodule(name) for name in chain]
    if not all(isinstance(layer, nn.Linear) for layer in layers):
        return None
    slopes = {joint.name: 0.0 if joint.kinked else 1.0 for joint in joints}
    weights = [layer.weight.detach().double().cpu().numpy() for layer in layers]
    biases = [None if layer.bias is None else layer.bias.detach().double().cpu().numpy() for layer in layers]
    return Mlp(weights, biases, [slopes[name] for name in chain[:-1]])


def _open(path: Path) -> int:
    """Open for appending; a line that a killed run left unfinished is ended first."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0), 0o644)
    if os.fstat(file).st_size:
        os.lseek(file, -1, os.SEEK_END)
        if os.read(file, 1) != b"\n":
            os.write(file, b"\n")
    return file


def _plain(value: Any) -> Any:
    return np.asarray(value, dtype=np.float64).tolist()
