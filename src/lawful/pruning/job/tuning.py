"""Training after the cut, asked for by `--tune`: a function, a command, or distillation to the original's outputs.

A run that is killed and started again ends with the same bytes. All before the tuning is deterministic; the tuning
starts from the same seed, and may keep its own progress in a file that outlives it where the job has a plan. What it
ended with is kept beside the plan too, under the digest of all that it started from.
"""

from __future__ import annotations

import copy
import hashlib
import inspect
import io
import shlex
import subprocess
import tempfile
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save, save_file
from torch import nn

from lawful.errors import LawfulError
from lawful.formats.io.writing import write_bytes
from lawful.pruning.job.case import JobSamples
from lawful.pruning.job.network import ModuleSubject, module_outputs

# (small, original, samples, labels) trains in place or returns a module; one with a parameter `checkpoint` gets a path.
Tune = Callable[..., nn.Module | None]
EPOCHS, RATE, BATCH = 10, 1e-3, 64  # of distillation: the short training of the comparison in the docs, twice as long


def tune_small(
    tune: Tune, small: ModuleSubject, original: ModuleSubject, samples: JobSamples, plan: Path | None, seed: int
) -> ModuleSubject:
    """What the tuning makes of a small network, in evaluation mode."""
    student = copy.deepcopy(small.module)
    start = _digest(student, samples, tune, seed)
    done = None if plan is None else plan.with_name(f"{plan.stem}.tuned.safetensors")
    if done is not None and (known := _read_finished(done, start)) is not None:
        student.load_state_dict(known)
        return ModuleSubject(student.eval(), small.whole)
    student.train()
    labels = None if samples.labels is None else torch.as_tensor(samples.labels)
    with nullcontext() if plan is not None else tempfile.TemporaryDirectory() as folder, torch.random.fork_rng():
        torch.manual_seed(seed)
        options: dict[str, Any] = {}
        if "checkpoint" in inspect.signature(tune).parameters:
            # one for each start: progress of another network, or on other data, is none here
            options["checkpoint"] = (
                Path(str(folder)) / "tuning" if plan is None else plan.with_name(f"{plan.stem}.{start[:12]}.tuning")
            )
        result = tune(student, original.module, small.batch(samples.x), labels, **options)
    trained = result if isinstance(result, nn.Module) else student
    trained.eval()
    if done is not None and trained.state_dict().keys() == student.state_dict().keys():
        write_bytes(done, save(_apart(trained), {"start": start}))
    return ModuleSubject(trained, small.whole)


def _digest(student: nn.Module, samples: JobSamples, tune: Tune, seed: int) -> str:
    """What a tuning starts from: its own code, the weights, the samples; a change of any of them starts anew."""
    code = tune.source() if isinstance(tune, (Distillation, TuningCommand)) else _source(tune)
    whole = hashlib.sha256(f"{code} {seed}".encode())
    for name, tensor in sorted(student.state_dict().items()):
        whole.update(name.encode() + tensor.double().numpy().tobytes())
    labels = b"" if samples.labels is None else np.ascontiguousarray(samples.labels).tobytes()
    whole.update(np.ascontiguousarray(samples.x).tobytes() + labels)
    return whole.hexdigest()


def _source(tune: Tune) -> str:
    try:
        return inspect.getsource(tune)
    except (OSError, TypeError):
        return f"{getattr(tune, '__module__', '')}:{getattr(tune, '__qualname__', type(tune).__qualname__)}"


def _read_finished(path: Path, start: str) -> dict[str, torch.Tensor] | None:
    """The weights that a tuning from this start ended with."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "pt") as file:
            return load_file(path) if (file.metadata() or {}).get("start") == start else None
    except (OSError, SafetensorError):
        return None


def read_tune(text: str) -> Tune:
    """`distil` (or `distil:20` epochs), `module:function`, or a command with `{small}`, `{data}` and `{out}`.

    >>> read_tune("distil:3")
    distil(epochs=3)
    >>> read_tune("python train.py {small} {data} {out}")
    python train.py {small} {data} {out}
    """
    name, _, rest = text.strip().partition(":")
    if name == "distil":
        if rest and not (rest.isdecimal() and 0 < int(rest) < 10**6):
            raise LawfulError(f"distil takes a number of epochs, not {rest[:40]!r}")
        return Distillation(int(rest or EPOCHS))
    if "{out}" in text:
        return TuningCommand(text)
    return _import_function(text)


class Distillation:
    """Adam on the mean squared difference to the original's outputs; every epoch ends in a checkpoint."""

    def __init__(self, epochs: int = EPOCHS) -> None:
        self.epochs = epochs

    def __repr__(self) -> str:
        return f"distil(epochs={self.epochs})"

    source = __repr__

    def __call__(
        self, small: nn.Module, original: nn.Module, x: torch.Tensor, labels: torch.Tensor | None, checkpoint: Path
    ) -> None:
        """Train in place."""
        with torch.no_grad():
            wanted = _outputs(original, x)
        optimiser = torch.optim.Adam(small.parameters(), lr=RATE)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, self.epochs)
        start = 0
        if checkpoint.exists():
            state = torch.load(checkpoint, weights_only=True)
            start = state["epoch"]
            small.load_state_dict(state["small"])
            optimiser.load_state_dict(state["optimiser"])
            schedule.load_state_dict(state["schedule"])
        for epoch in range(start, self.epochs):
            # the order of an epoch depends on its number alone, so that none has to be kept
            order = torch.randperm(len(x), generator=torch.Generator().manual_seed(epoch))
            # As many batches of nearly one size: batch normalisation refuses a last one of a single sample.
            for rows in order.tensor_split(-(-len(x) // BATCH)):
                optimiser.zero_grad()
                (module_outputs(small, x[rows]) - wanted[rows]).square().mean().backward()  # type: ignore[no-untyped-call]
                optimiser.step()
            schedule.step()
            progress = {
                "small": small.state_dict(),
                "optimiser": optimiser.state_dict(),
                "schedule": schedule.state_dict(),
            }
            _save(checkpoint, {**progress, "epoch": epoch + 1})
        checkpoint.unlink(missing_ok=True)


class TuningCommand:
    """A command: `{small}` are the weights that it starts from, `{data}` samples with the original's outputs.

    It writes `{out}`, weights of the same names and sizes.
    """

    def __init__(self, command: str) -> None:
        self.command = command

    def __repr__(self) -> str:
        return self.command

    def source(self) -> str:
        """The command, with what the files that it names hold."""
        files = [Path(word) for word in shlex.split(self.command) if Path(word).is_file()]
        return " ".join([self.command, *(hashlib.sha256(file.read_bytes()).hexdigest() for file in files)])

    def __call__(
        self, small: nn.Module, original: nn.Module, x: torch.Tensor, labels: torch.Tensor | None, checkpoint: Path
    ) -> None:
        """Run it in this folder, without a shell; its own progress may lie in `{checkpoint}`, which outlives it."""
        with tempfile.TemporaryDirectory() as folder, torch.no_grad():
            files = {"small": "small.safetensors", "data": "data.npz", "out": "tuned.safetensors"}
            paths = {name: str(Path(folder) / file) for name, file in files.items()} | {"checkpoint": str(checkpoint)}
            save_file(_apart(small), paths["small"])
            arrays: dict[str, Any] = {"x": x.numpy(), "outputs": _outputs(original, x).numpy()}
            np.savez(paths["data"], **arrays | ({} if labels is None else {"y": labels.numpy()}))
            words = [_fill_paths(word, paths) for word in shlex.split(self.command)]
            try:
                ended = subprocess.run(words, check=False, stdout=subprocess.DEVNULL).returncode  # noqa: S603 - the user's own
            except OSError as error:
                raise LawfulError(f"{words[0][:60]} cannot be run: {error.strerror}") from None
            if ended:
                raise LawfulError(f"the tuning command ended with exit code {ended}: {self.command[:80]}")
            try:
                small.load_state_dict(load_file(paths["out"]))
            except Exception as error:  # no file, no safetensors, other names or sizes
                raise LawfulError(f"the tuning command wrote no weights of this network: {str(error)[:120]}") from None


def _fill_paths(word: str, paths: dict[str, str]) -> str:
    for name, path in paths.items():
        word = word.replace("{" + name + "}", path)
    return word


def _apart(module: nn.Module) -> dict[str, torch.Tensor]:
    """Its tensors, none in the memory of another: the format has no tied weights."""
    return {
        name: tensor.detach().clone(memory_format=torch.contiguous_format)
        for name, tensor in module.state_dict().items()
    }


def _outputs(module: nn.Module, x: torch.Tensor) -> torch.Tensor:
    module.eval()
    return torch.cat([module_outputs(module, x[start : start + 256]) for start in range(0, len(x), 256)])


def _save(path: Path, content: dict[str, Any]) -> None:
    """Whole or not at all: a run may end at any time."""
    buffer = io.BytesIO()
    torch.save(content, buffer)
    write_bytes(path, buffer.getvalue())


def _import_function(name: str) -> Tune:
    """A function by `module:function`; the current folder counts."""
    import importlib
    import os
    import sys

    where, _, what = name.partition(":")
    if not what or not where:
        raise LawfulError(
            f"tuning is distil, module:function, or a command with {{small}}, {{data}} and {{out}}, not {name[:60]!r}"
        )
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        function = getattr(importlib.import_module(where), what)
    except (ImportError, AttributeError) as error:
        raise LawfulError(f"{name[:60]} cannot be imported: {str(error)[:120]}") from None
    if not callable(function):
        raise LawfulError(f"{name[:60]} is no function")
    return function  # type: ignore[no-any-return]
