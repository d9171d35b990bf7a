"""Prune whatever a user has to a size: data and target read, the network opened as a job takes it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lawful.api.pruning.by_channels import channel_file, convolutional_file, entangled_module
from lawful.errors import LawfulError, Unsupported
from lawful.formats.queries.data import Data, read_data
from lawful.network import Mlp
from lawful.sources.modules.module_network import ModuleNetwork
from lawful.sources.opening import Source
from lawful.sources.provenance import Opened

if TYPE_CHECKING:
    from torch import nn

    from lawful.pruning.job.bounded import BoundedPruning
    from lawful.pruning.job.case import JobSamples
    from lawful.pruning.job.job import PruningJob
    from lawful.pruning.job.network import Subject
    from lawful.pruning.job.tuning import Tune

UNUSED = "y is not used, and no accuracy is measured: labels are one whole number for each sample"


def prune_to(
    network: Source,
    opened: Callable[[], Opened],
    target: str,
    data: Any,
    *,
    given: Any = None,
    held_out: Any = None,
    tune: str | Tune | None = None,
    plan: str | Path | None = None,
    **options: Any,
) -> PruningJob:
    """Run a pruning job; `data` is a file or `(x, labels)`, `tune` a function or what `--tune` takes."""
    from lawful.pruning.job.job import prune_to_target
    from lawful.pruning.job.sizes import read_target
    from lawful.pruning.job.tuning import read_tune

    wanted = read_target(target)
    subject, size, layered = _subject(network, opened, given)
    samples, unused = _samples(data, size, "a target")
    outside = None
    if held_out is not None:
        outside, also = _samples(held_out, tuple(samples.x.shape[1:]), "a target")
        unused = unused or also
    function = read_tune(tune) if isinstance(tune, str) else tune
    found = prune_to_target(
        subject, samples, wanted, held_out=outside, tune=function,
        plan=None if plan is None else Path(plan), **options,
    )  # fmt: skip
    found = replace(found, notes=(*unused, *found.notes))
    if layered and found.module is not None:
        from lawful.sources.modules.convert import from_module

        found = replace(found, network=from_module(found.module))
    return found


def prune_bounded(
    network: Source,
    opened: Callable[[], Opened],
    tolerance: float,
    data: Any,
    *,
    given: Any = None,
    box: Any = None,
    **options: Any,
) -> BoundedPruning:
    """Remove channels within a tolerance: on a box, `around` samples, or by statistics of samples."""
    from lawful.formats.queries.box import box_of
    from lawful.pruning.job.bounded import prune_within
    from lawful.pruning.job.network import ModuleSubject

    subject, size, _ = _subject(network, opened, given)
    if not isinstance(subject, ModuleSubject):
        raise Unsupported("tolerances are for modules and networks of layers: an ONNX file takes a --target")
    samples, unused = _samples(data, size, "a tolerance for the channels of a module")
    if isinstance(box, str):
        box = box_of(box, Mlp([np.zeros((1, samples.x[0].size))]))
    found = prune_within(subject, samples, tolerance, box=box, **options)
    return replace(found, notes=(*unused, *found.notes))


def _subject(network: Source, opened: Callable[[], Opened], given: Any) -> tuple[Subject, tuple[int, ...] | None, bool]:
    """What is pruned, the size of its samples if that is stated, and whether it is a network of layers."""
    from lawful.pruning.job.network import ModuleSubject, OnnxSubject

    file = convolutional_file(network)
    if file is None:
        file = channel_file(network)
    if file is not None:
        return OnnxSubject(file), _size(given), False
    found = opened()
    if isinstance(found, Mlp) and entangled_module(found) is None:
        held = None if found.reading is None else found.reading.module
        if held is not None:
            return ModuleSubject.of(held), _size(given), False
        return ModuleSubject.of(_float_module(found)), (found.widths[0],), True
    module = found.module if isinstance(found, ModuleNetwork) else entangled_module(found)
    if module is None and found.reading is not None:
        module = found.reading.module
    if module is None:
        raise Unsupported("a graph of single neurons is pruned by --tolerance or --keep; a target is for layers")
    whole = isinstance(given, str) and given.strip().endswith(":int")
    size = _size(given.strip().removesuffix(":int") if whole else given)
    return ModuleSubject.of(module, whole), size or getattr(found, "input_shape", None), False


def _float_module(network: Mlp) -> nn.Module:
    """A network of layers in PyTorch, in float64, as it is held."""
    from lawful.sources.modules.convert import to_module

    return to_module(network)


def _size(given: Any) -> tuple[int, ...] | None:
    if isinstance(given, str):
        parts = given.split(",")
        return tuple(map(int, parts)) if all(part.strip().isdigit() for part in parts) else None
    if hasattr(given, "shape"):
        return tuple(given.shape[1:])
    return tuple(given) if isinstance(given, tuple) and all(isinstance(each, int) for each in given) else None


def _samples(data: Any, size: tuple[int, ...] | None, what: str) -> tuple[JobSamples, tuple[str, ...]]:
    """Samples in the size that the network takes, as stated or as they came; and what of them is not used."""
    from lawful.pruning.job.case import JobSamples

    if data is None:
        raise LawfulError(f"{what} needs data: samples of what the network is for (.npz with x and perhaps y, .csv)")
    if isinstance(data, (str, Path)):
        read = read_data(Path(data))
    else:
        x, y = data if isinstance(data, tuple) else (data, None)
        rows = np.asarray(x, dtype=np.float64)
        if rows.ndim < 2 or not len(rows) or not np.isfinite(rows).all():
            raise LawfulError("data are finite numbers, a row for each sample")
        labels = None if y is None else np.asarray(y, dtype=np.float64)
        if labels is not None and len(labels) != len(rows):
            raise LawfulError(f"{len(rows)} samples, but {len(labels)} labels")
        read = Data(rows.reshape(len(rows), -1), labels, sample=rows.shape[1:] if rows.ndim > 2 else None)
    unused = read.y is not None and read.classes is None
    return JobSamples(read.reshape(size), read.classes), (UNUSED,) if unused else ()
