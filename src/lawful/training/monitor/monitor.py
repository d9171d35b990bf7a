"""Watch the laws while a PyTorch model trains: a context manager that records every k steps, into memory and a file.

Idea: nobody says what a training loop calls, so hooks listen for the first call of every part; the graph of what was
called is read with the batch that it got, and its symmetries give the laws. A law from a graph is a proposal: it is
held against gradients of the module as training takes them, and dropped where optimisers move its weights at different
rates or freeze some. Invariant: the loop computes what it computes without the monitor (copies run on a forked random
state, compiled code is not compiled again), and what cannot be read is said once, never guessed. Cost: three gradients
of eight samples at the start, then per record one pass over the weights; other steps compare learning rates.
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import torch
from torch import nn

from lawful.errors import LawfulError
from lawful.formats.io.reading import read_bytes
from lawful.network import Mlp
from lawful.sentences import training as sentences
from lawful.symmetry.check import CHECKED_SIZE
from lawful.symmetry.inputs import examples
from lawful.training.integration.runs import json_value
from lawful.training.monitor.parts import OTHERWISE, Joint, Parts, jacobian_rank
from lawful.training.monitor.sinks import Sink
from lawful.training.monitor.watch import LawWatch, are_finite, digest, merge_measures, slopes_in_training
from lawful.training.monitor.wrappers import PartCall, StepSizes, TopCalls, sharded_parameters, unwrap

Record = dict[str, Any]
UNREAD = "not read yet: no batch has shown what the model takes"
ALONE = "no channels that it alone writes and one layer reads"
MOST_INSIDE = 50  # parts that are tried where a graph is refused: each may take a second


class Monitor:
    """Records balances, the rank of J, dead and linear neurons, weight norms and any other quantity every k steps.

    Call `step(loss)` after each optimiser step. `quantities` are functions of the flat parameter vector (NumPy, in the
    order of `parameters()`), such as those `lawful.conservation` finds; `locked` is a function of a chain as an `Mlp`,
    such as `lambda network: len(components(network).locked)`. Records go to `records`, to `sinks` (functions of a
    record) and, one JSON object per line, to `file`: each line is handed to the system as it is made, so all of them
    survive `kill -9`. A run that is started again with the same file and model goes on counting steps and drift.

    The structural laws of the model (`lawful.symmetries`) are read from the graph of each part that the training loop
    calls, when it first runs, or at once if `input` says what the model takes; `laws` is False for none, or a number
    for a sketch of so many. `DistributedDataParallel`, `torch.compile` and autocast are looked through. What cannot be
    read, a run whose weights are NaN or infinite, and parameters that one law ties and whose learning rates differ are
    each said in one warning.

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
        self.model, self.every, self.detail = unwrap(model), every, detail
        self.parts = Parts.of(self.model, (), {}, UNREAD)
        self.quantities, self.locked = dict(quantities or {}), locked
        self.live = sys.stderr.isatty() if live is None else live
        self.records: list[Record] = []
        self.steps = 0
        self._path = None if file is None else Path(file)
        self._file: int | None = None
        self._hooks: list[Any] = []
        self._seen: dict[str, tuple[torch.Tensor, torch.Tensor]] = {}  # lowest and highest inputs of kinks in this step
        self._start: dict[str, torch.Tensor] = {}
        self._began = time.perf_counter()
        self.input, self.sinks = input, tuple(sinks)
        self.watches: dict[str, LawWatch] = {}  # by the part of the model that they are of; "" is the whole
        self._declared = input is not None
        self._ran: dict[str, set[int]] = {}  # parts that the loop called, and the parameters that they have
        self._calls: TopCalls | None = None
        self._sizes: StepSizes | None = None
        self._pattern: tuple[int, ...] = ()  # which groups of the optimisers moved at one rate when last looked at
        self._trained = set[str]()
        self._wanted, self._reads, self._hooks_fit = laws, True, True
        self._resumed = self._settled = False
        self._said: set[str] = set()
        self._guessed = False  # the laws were read with an input of a guessed size: the first batch knows better
        self._nested: list[PartCall] = []  # calls inside of the part that the training loop is calling
        self._fresh = set[str]()  # joints that are new in this step: their first batch was not seen
        self._reasons: dict[str, str] = {}  # why layers have no balances

    def __enter__(self) -> Monitor:
        if self._path is not None:
            self._go_on(self._path)
            self._file = _open(self._path)
        if sharded := sharded_parameters(self.model):
            self._reads = self._wanted = False
            self._say(
                f"{sharded[0]} and others are sharded: this process holds parts of them, and laws are of the whole"
            )
        elif self._declared:
            self._read_laws("", self.input if isinstance(self.input, list) else [self.input], {}, None)
        else:
            self._guess_laws()
        self._write({"kind": "start", "time": time.time(), "model": type(self.model).__name__, "every": self.every,
                     "digest": digest(self.model)} | self._describe())  # fmt: skip
        self._calls = TopCalls(self.model, self._look_at)
        self._sizes = StepSizes(self.model, self._look_at_compiled)
        self._record(None)
        return self

    def _guess_laws(self) -> None:
        """Read the laws of a model that states the size of its input, as the first of linear layers does."""
        with suppress(LawfulError):
            inputs = examples(self.model, None)
            watch = LawWatch(self.model, inputs, {}, None if self._wanted is True else int(self._wanted))
            self._guessed, self.watches[""] = True, watch
            self._update_parts()

    def _describe(self) -> Record:
        """What is understood, and the balances that drift is measured from."""
        start = {name: values.tolist() for name, values in self._start.items()}
        return {"chains": self.parts.chains, "ignored": self.parts.ignored, "balances": start}

    def _update_parts(self) -> None:
        """The joints of all that is read; drift of those that are new is measured from now on."""
        joints = []
        for part, watch in self.watches.items():
            inside = f"{part}." if part else ""
            joints += [replace(joint, name=inside + joint.name, reader=inside + joint.reader) for joint in watch.joints]
        watched = {joint.name for joint in self.parts.joints}
        self.parts = Parts.of(self.model, joints, self._reasons, ALONE)
        for joint in joints:
            if joint.name not in self._start:
                into, out = joint.sides()
                self._start[joint.name] = (into - out).cpu()
            if joint.kinked and joint.name not in watched and self._hooks_fit:
                self._fresh.add(joint.name)
                self._hooks.append(joint.below.register_forward_hook(self._watch(joint.name)))

    def _say(self, words: str, about: str | None = None) -> None:
        """Warn, once for each matter."""
        if (about or words) not in self._said:
            self._said.add(about or words)
            warnings.warn(f"{type(self.model).__name__}: {words}", stacklevel=3)

    def _look_at_compiled(self) -> None:
        """Before the optimiser moves the weights: what ran inside `torch.compile` is looked at now."""
        call = None if self._calls is None or self._ran or self._declared else self._calls.compiled_call()
        if call is not None:
            self._hooks_fit = False  # a new hook would compile its layers again
            self._look_at(call)

    def _look_at(self, call: PartCall) -> None:
        """A part of the model ran in training for the first time: its inputs show its graph, and what laws it keeps."""
        if not call.top:
            self._nested += [] if self._settled else [call]
            return
        assert self._calls is not None  # noqa: S101 (calls come from there)
        self._calls.asleep = True
        try:
            with torch.random.fork_rng(devices=[]):
                self._look_at_part(call)
        finally:
            self._calls.asleep = False
            self._nested.clear()

    def _look_at_part(self, call: PartCall) -> None:
        """Read the graph of a part that the training loop calls, and hold its laws against a gradient."""
        part = self.model.get_submodule(call.name)
        trained = {id(value) for value in part.parameters() if value.requires_grad}
        others, self._ran[call.name] = dict(self._ran), trained
        if not self._reads or not trained:
            return
        if self._guessed:
            self._guessed = False
            self.watches.clear()
        if not self._declared:
            self._read_call(call)
        self._check_laws(call)
        for name, values in others.items():
            if shared := values & trained:
                self._drop_shared(shared, f"{name or 'the model'} and {call.name or 'the model'}")

    def _read_call(self, call: PartCall) -> None:
        """Read the laws of a part that ran or, if its graph is refused, those of the parts that ran inside it."""
        try:
            self._read_laws(call.name, call.inputs, call.keywords, call.output)
            return
        except LawfulError as error:
            refusal = error
        inside: list[str] = []
        for nested in sorted(self._nested, key=lambda nested_call: nested_call.name.count("."))[:MOST_INSIDE]:
            if not any(nested.name.startswith(f"{name}.") for name in inside):
                with suppress(LawfulError):
                    self._read_laws(nested.name, nested.inputs, nested.keywords, nested.output)
                    inside.append(nested.name)
        laws = [name for name in inside if self.watches[name].count]
        for name in set(inside) - set(laws):
            del self.watches[name]
        whole = call.name or "the model"
        if not laws:
            self._warn_if_blind(str(refusal), f"structural laws of {whole} are not watched: {refusal}")
        else:
            self._say(f"structural laws of {whole} are watched in {', '.join(laws)} alone: {refusal}")

    def _check_laws(self, call: PartCall) -> None:
        """Drop the laws that a gradient of what ran does not keep."""
        part = self.model.get_submodule(call.name)
        if sum(tensor.numel() for tensor in part.parameters()) > CHECKED_SIZE:
            return
        inside = f"{call.name}." if call.name else ""
        try:
            slopes = [
                (
                    {inside + name: tensor for name, tensor in theta.items()},
                    {inside + name: tensor for name, tensor in slope.items()},
                )
                for theta, slope in slopes_in_training(part, call.inputs, call.keywords)
            ]
        except Exception:  # the model's own code: some of it runs in its own precision or place alone
            return  # `checked` in the records stays false
        if not are_finite(slopes):
            return
        dropped = 0
        for name, watch in self.watches.items():
            if f"{name}.".startswith(inside) or not name or f"{call.name}.".startswith(f"{name}."):
                dropped += watch.hold_against(slopes, name)
        self._tell_dropped(dropped, OTHERWISE)

    def _drop_shared(self, shared: set[int], both: str) -> None:
        """Weights that two parts run: what leaves the one unchanged may change the other."""
        names = {name for name, value in self.model.named_parameters() if id(value) in shared}
        self._drop(lambda tied: bool(tied & names), f"the training loop runs its weights in {both}")

    def _drop(self, refused: Callable[[set[str]], bool], why: str) -> None:
        """Stop watching the laws that tie such parameters."""
        dropped = 0
        for part, watch in self.watches.items():
            prefix = f"{part}." if part else ""
            dropped += watch.keep(lambda space, watch=watch, prefix=prefix:  # type: ignore[misc]
                                  not refused({prefix + name for name in watch.names(space)}))  # fmt: skip
        self._tell_dropped(dropped, why)

    def _tell_dropped(self, laws: int, why: str) -> None:
        """Say that laws, and the balances among them, are no longer watched."""
        before = [joint.name for joint in self.parts.joints]
        self._update_parts()
        after = {joint.name for joint in self.parts.joints}
        names = [name for name in before if name not in after]
        if laws and self._wanted is not False:
            self._say(f"{laws} structural laws are not watched: {why}")
        if names:
            self._reasons |= dict.fromkeys(names, why)
            self._update_parts()
            for by_joint in (self._start, self._seen):
                for name in names:
                    by_joint.pop(name, None)
            self._write({"kind": "parts"} | self._describe())
            self._say(f"balances of {', '.join(names)} are not watched: {why}")

    def _read_laws(self, part: str, inputs: Sequence[Any], keywords: dict[str, Any], output: Any) -> None:
        sketch = None if isinstance(self._wanted, bool) else int(self._wanted)
        watch = self.watches[part] = LawWatch(self.model.get_submodule(part), inputs, keywords, sketch, output)
        if self._path is not None and self._wanted is not False:
            beside = self._path.with_name(f"{self._path.name}{'.' * bool(part)}{part}.laws.npy")
            if self._resumed and beside.exists():
                watch.resume(beside)
            else:
                watch.save(beside)
        self._update_parts()
        self._write({"kind": "parts"} | self._describe())

    def _end_first_step(self) -> None:
        """What the first step has not shown will not be seen: say so, and stop listening."""
        assert self._calls is not None and self._sizes is not None  # noqa: S101, PT018 (entered)
        self._look_at_compiled()
        self._drop_unequal_rates()
        if not self._calls.is_compiled:  # compiled code would be compiled again: it guards the hooks of its modules
            self._calls.close()
        if not self._declared and self._reads and self._wanted is not False:
            self._say_unread()
        if self.watches and not any(watch.count for watch in self.watches.values()):
            parts = (
                f" in {', '.join(list(self._ran)[:5])}, which the loop calls one by one" if len(self._ran) > 1 else ""
            )
            self._warn_if_blind(f"no structural laws were found{parts}")

    def _drop_unequal_rates(self) -> None:
        """A law that ties parameters of different rates is none, in the first step or since a schedule parted them."""
        assert self._sizes is not None  # noqa: S101 (entered)
        # Only which groups are alike is compared: a schedule that moves all of them changes every rate in every step.
        if self._pattern == self._sizes.pattern:
            return
        self._pattern, self._trained = self._sizes.pattern, self._trained_names()
        rates, trained = self._sizes, self._trained
        self._drop(lambda tied: rates.differ(tied & trained), "the optimiser moves its weights at different rates")

    def _drop_frozen(self) -> None:
        """Nor is one that ties what was frozen after the first step to what is still trained."""
        trained = self._trained_names()
        frozen, self._trained = self._trained - trained, trained
        if frozen:
            self._drop(lambda tied: bool(tied & frozen and tied & trained), "some of its weights were frozen meanwhile")

    def _trained_names(self) -> set[str]:
        return {name for name, value in self.model.named_parameters() if value.requires_grad}

    def _say_unread(self) -> None:
        """Name the parameters that no part that ran has."""
        ran = set[int]().union(*self._ran.values())
        left = [name for name, value in self.model.named_parameters() if value.requires_grad and id(value) not in ran]
        if not left:
            return
        hidden = self._calls is not None and self._calls.is_compiled
        why = (
            "what has it ran inside torch.compile, which hides what it was given"
            if hidden
            else "nothing that has it was called with gradients before the first step"
        )
        others = f" and {len(left) - 1} other parameters" if len(left) > 1 else ""
        self._say(f"structural laws of {left[0]}{others} are not watched: {why}; input=(...) says what the model takes")

    def _warn_if_blind(self, why: str, otherwise: str = "") -> None:
        """Say that nothing is watched, if so, or something else."""
        if not self.parts.joints:
            self._say(f"this monitor understands nothing of {type(self.model).__name__}: {why}", "blind")
        elif otherwise:
            self._say(otherwise)

    def _go_on(self, path: Path) -> None:
        """Take step and start from an earlier run of the same model in the same file."""
        last: list[Record] = []  # the last start, what was read after it, and the record that it reached
        for record in _lines(path) if path.exists() else ():
            if record.get("kind") == "start":
                last = [record]
            else:
                last = [*(one for one in last if one.get("kind") != "record"), record]
        if last and last[0].get("digest") == digest(self.model):
            self._resumed = True
            self.steps = int(last[-1].get("step", 0))
            read = [record.get("balances", {}) for record in last if record.get("kind") != "record"]
            first = {name: values for balances in read for name, values in balances.items()}
            self._start = {name: torch.tensor(np.array(values, dtype=np.float64)) for name, values in first.items()}

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and self._reads and not self._ran and not self._declared:
            self._warn_if_blind("no batch has shown what it takes")
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()
        for listener in (self._calls, self._sizes):
            if listener is not None:
                listener.close()
        if self._file is not None:
            os.fsync(self._file)
            os.close(self._file)
            self._file = None
        if self.live and self.records:
            print(file=sys.stderr)

    def step(self, loss: Any = None, *, steps: int = 1) -> None:
        """Count one step of the optimiser, or as many as were made; every k-th is recorded."""
        if steps < 1:
            raise LawfulError(f"a monitor counts at least one step at a time, not {steps}")
        before, self.steps = self.steps, self.steps + steps
        if self._calls is not None and self._sizes is not None and not self._settled:
            self._settled = True
            self._end_first_step()
        elif self._sizes is not None:
            self._drop_unequal_rates()
        if self.steps // self.every > before // self.every:
            self._drop_frozen()
            self._record(loss)
        self._seen.clear()
        self._fresh.clear()

    def _watch(self, name: str) -> Callable[[nn.Module, Any, torch.Tensor], None]:
        """A hook that, before a recorded step, notes the units that are on, and off, somewhere in its batches."""

        def hook(layer: nn.Module, _: Any, output: torch.Tensor) -> None:
            if torch.compiler.is_compiling():  # first of all: what is read here is compiled in, and guarded
                return
            if (self._calls is not None and self._calls.asleep) or name not in self._start:
                return
            if (self.steps + 1) % self.every == 0 and self.model.training and torch.is_grad_enabled():
                # Channels are the last axis of what linear layers and layer norms write, the second of all others.
                last = output.ndim < 3 or isinstance(layer, (nn.Linear, nn.LayerNorm, nn.RMSNorm))
                heights = output.detach().movedim(-1 if last else 1, -1)
                low, high = torch.aminmax(heights.reshape(-1, heights.shape[-1]), dim=0)
                if name in self._seen:  # another part of the batch, where gradients are accumulated
                    low = torch.minimum(low, self._seen[name][0])
                    high = torch.maximum(high, self._seen[name][1])
                self._seen[name] = low, high

        return hook

    def _record(self, loss: Any) -> None:
        balances, sides = {}, []
        for joint in self.parts.joints:
            into, out = joint.sides()
            balances[joint.name] = (into - out).cpu()
            sides.append((joint, into, out))
        drifts = [(balances[name] - start).abs().max() for name, start in self._start.items() if name in balances]
        number = None if loss is None else float(loss.detach() if isinstance(loss, torch.Tensor) else loss)
        lost = self._nonfinite()
        record: Record = {
            "kind": "record",
            "step": self.steps,
            "seconds": round(time.perf_counter() - self._began, 6),
            "loss": number,
            "drift": float(torch.stack(drifts).max()) if drifts else None,
            "nonfinite": lost,
            "unchecked": self._unchecked_joints(),
            "rank": None if lost else jacobian_rank(sides, self.parts.chains),
            "hidden": sum(joint.units for joint in self.parts.joints),
            "dead": self._count(lambda low, high: high <= 0),
            "linear": self._count(lambda low, high: low > 0),
            "norms": self._norms(sides),
        }
        seen = self._fresh | set(self._seen)
        hidden = [joint.name for joint in self.parts.joints if joint.kinked and joint.name not in seen]
        if hidden and self.steps and self._calls is not None and self._calls.is_compiled:
            words = (
                f"dead and linear units of {', '.join(hidden)} are not counted: they are computed inside torch.compile"
            )
            self._say(words, "units")
        if lost:
            self._say(sentences.lost(self.steps, lost[0], len(lost)), "lost")
        if self.detail:
            record["balances"] = {name: values.tolist() for name, values in balances.items()}
        if self.locked is not None:
            networks = [chain_network(self.model, chain, self.parts.joints) for chain in self.parts.chains]
            record["locked"] = sum(self.locked(network) for network in networks if network is not None)
        if self.quantities:
            theta = torch.cat([value.detach().flatten() for value in self.model.parameters()]).double().cpu().numpy()
            record["quantities"] = {name: _plain(measure(theta)) for name, measure in self.quantities.items()}
        if self.watches and self._wanted is not False:
            measures = {part: watch.measure(self.model.get_submodule(part)) for part, watch in self.watches.items()}
            record["laws"] = merge_measures(measures)
        self.records.append(record)
        self._write(record)
        for sink in self.sinks:
            sink(record)
        if self.live:
            print("\r\x1b[2K" + line(record), end="", file=sys.stderr, flush=True)

    def _unchecked_joints(self) -> list[str]:
        """The joints that no gradient was held against yet."""
        held_laws = set[int]().union(*(watch.held for watch in self.watches.values()))
        return sorted(joint.name for joint in self.parts.joints if id(joint.space) not in held_laws)

    def _nonfinite(self) -> list[str]:
        """Parameters with NaN or infinite entries."""
        named = [(name, value.detach()) for name, value in self.model.named_parameters() if value.numel()]
        finite = [torch.isfinite(value).all() for _, value in named]
        return [name for (name, _), fine in zip(named, finite, strict=True) if not bool(fine)]

    def _count(self, which: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> int | None:
        """How many units a batch showed to be so; None if there was none, or one with NaN."""
        if not self._seen or any(bool((low + high).isnan().any()) for low, high in self._seen.values()):
            return None
        return sum(int(which(low, high).sum()) for low, high in self._seen.values())

    @staticmethod
    def _norms(sides: list[tuple[Joint, torch.Tensor, torch.Tensor]]) -> dict[str, float]:
        """Frobenius norm of each understood layer, biases of hidden units included."""
        norms = {joint.name: math.sqrt(float(into.sum())) for joint, into, _ in sides}
        return norms | {
            joint.reader: math.sqrt(float(out.sum())) for joint, _, out in sides if joint.reader not in norms
        }

    def _write(self, record: Record) -> None:
        if self._file is not None:
            os.write(self._file, (json.dumps(json_value(record), allow_nan=False) + "\n").encode())


def line(record: Mapping[str, Any]) -> str:
    """One record on one line of a terminal.

    >>> line({"step": 200, "loss": 0.5, "drift": 1e-3, "rank": 7, "hidden": 8, "dead": 1, "linear": 0})
    'step 200  loss 0.5  drift 0.001  rank 7/8  dead 1  linear 0'
    """
    words = [f"step {record['step']}"]
    words += [f"{key} {record[key]:.4g}" for key in ("loss", "drift") if record.get(key) is not None]
    words += ["weights are not finite"] if record.get("nonfinite") else []
    words += [f"rank {record['rank']}/{record['hidden']}"] if record.get("rank") is not None else []
    return "  ".join(
        words + [f"{key} {record[key]}" for key in ("dead", "linear", "locked") if record.get(key) is not None]
    )


def read_records(file: str | os.PathLike[str]) -> list[Record]:
    """All complete records of a monitor's file; a line cut off by a kill is left out."""
    return [record for record in _lines(Path(file)) if record.get("kind") == "record"]


def _lines(path: Path) -> list[Record]:
    records = []
    for text in read_bytes(path).decode("utf-8", "replace").splitlines():
        try:
            record = json.loads(text)
        except (ValueError, RecursionError):
            continue  # the writer was killed in the middle of this line
        if isinstance(record, dict):
            records.append(record)
    return records


def chain_network(model: nn.Module, chain: tuple[str, ...], joints: tuple[Joint, ...]) -> Mlp | None:
    """A chain of `nn.Linear` layers as an `Mlp`, or None if it has others, or activations with no one slope."""
    layers: list[Any] = [model.get_submodule(name) for name in chain]
    if not all(isinstance(layer, nn.Linear) for layer in layers):
        return None
    slopes = {joint.name: joint.slope for joint in joints if joint.slope is not None}
    if not all(name in slopes for name in chain[:-1]):
        return None
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
