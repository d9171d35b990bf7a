"""Leaky ResNets (paper 3): `leaky` trains them, `bottleneck` reads the blocks of any network as it reads theirs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Unpack

from lawful.api.inputs import Help, ReadOptions, Samples, Seed, open_options, takes
from lawful.errors import LawfulError
from lawful.result import Shown

if TYPE_CHECKING:
    from lawful.papers.leaky import BlockReadings
    from lawful.papers.leaky.model import TeacherTask
    from lawful.sources.opening import Source

    Depths = str | float | Sequence[float]
    Names = str | Sequence[str]
else:
    Depths = Names = str


@dataclass(frozen=True)
class LeakyRuns(Shown):
    """What training Leaky ResNets reached: for each random start a row per effective depth; the networks are files."""

    folder: str
    starts: tuple[tuple[Mapping[str, Any], ...], ...]

    @property
    def networks(self) -> tuple[Mapping[str, Any], ...]:
        """The rows of all starts."""
        return tuple(network for start in self.starts for network in start)

    @property
    def converged(self) -> bool:
        """Whether all of them are geodesics to the tolerance."""
        return all(bool(network["converged"]) for network in self.networks)


def leaky(
    teacher: Annotated[str | None, Help("Sizes of the random teacher: 20-5-20 has rank 5.")],
    effective_depth: Annotated[Depths, Help("Effective depths, such as 3,5,7,11.")],
    out: Annotated[str | Path, Help("Folder for the run; the same command resumes it.")],
    *,
    data: Annotated[
        Samples | None,
        Help("Instead of a teacher, your own x and y (.npz or .csv); columns are brought to variance 1."),
    ] = None,
    classes: Annotated[bool, Help("y are labels: one target per class.")] = False,
    depth: Annotated[int, Help("Number of layers.")] = 50,
    width: Annotated[int, Help("Neurons per layer.")] = 200,
    samples: Annotated[int, Help("Training samples.")] = 1000,
    steps: Annotated[str, Help("Layer steps: equidistant, irregular or adaptive.")] = "adaptive",
    a: Annotated[float, Help("How irregular, between 0 and 1.")] = 0.9,
    ridge: Annotated[float | None, Help("Weight decay; 0.002 times the number of outputs unless given.")] = None,
    softness: Annotated[float, Help("Half-width of the rounded corner of ReLU; 0 for ReLU.")] = 0.01,
    method: Annotated[str, Help("solver, or paper for Adam and SGD.")] = "solver",
    tolerance: Annotated[float, Help("Stationarity at which a path counts as a geodesic.")] = 1e-3,
    evaluations: Annotated[int, Help("Most gradient evaluations per effective depth.")] = 5000,
    grids: Annotated[int, Help("Start with depth / 2^(grids-1) layers, and double them.")] = 1,
    seeds: Annotated[int, Help("Random starts; each has its folder, and their spread is shown.")] = 1,
    maps: Annotated[str, Help("Linear maps in and out: fixed, or learned with a penalty.")] = "fixed",
    penalty: Annotated[float | None, Help("Weight decay of learned maps; that of the weights unless given.")] = None,
    seed: Seed = 0,
    watch: Callable[[float, Any], None] | None = None,
) -> LeakyRuns:
    """Train Leaky ResNets to geodesics in a folder; the same call resumes it (P3)."""
    from lawful.api.training.leaky_runs import LeakyPlan, own_data, run_leaky
    from lawful.papers.leaky.model import parse_teacher

    depths = _depths(effective_depth)
    if (teacher is None) == (data is None):
        raise LawfulError("give either --teacher 20-5-20 or --data FILE with x and y")
    if not 1 <= seeds <= 100:
        raise LawfulError(f"--seeds takes 1 to 100, not {seeds}")
    digest, task = ("", None) if data is None else own_data(_own_task(data, classes))
    outputs = task.targets.shape[1] if task is not None else parse_teacher(teacher or "")[-1]
    weight = 0.002 * outputs if ridge is None else ridge
    plans = [
        LeakyPlan(teacher or "", samples if task is None else len(task), depth, width, steps, a, weight, softness,
                  method, tolerance, evaluations, seed + number, digest, grids, maps,
                  weight if penalty is None and maps == "learned" else penalty or 0.0)
        for number in range(seeds)
    ]  # fmt: skip
    folders = [Path(out)] if seeds == 1 else [Path(out) / f"seed-{plan.seed}" for plan in plans]
    runs = (run_leaky(plan, depths, folder, watch, task) for plan, folder in zip(plans, folders, strict=True))
    return LeakyRuns(str(out), tuple(map(tuple, runs)))


def _depths(effective_depth: Depths) -> tuple[float, ...]:
    words = effective_depth.split(",") if isinstance(effective_depth, str) else effective_depth
    try:
        depths = tuple(float(word) for word in (words if isinstance(words, Sequence) else [words]))
    except ValueError:
        depths = ()
    if not depths or not all(math.isfinite(depth) and depth > 0 for depth in depths):
        raise LawfulError(f"--effective-depth takes positive numbers like 3,5,7,11, not {str(effective_depth)[:40]!r}")
    return depths


def _own_task(data: Samples, classes: bool) -> TeacherTask:
    import numpy as np

    from lawful.api.training.samples import as_data, with_targets
    from lawful.papers.leaky.model import TeacherTask

    where = f"{data}: " if isinstance(data, (str, Path)) else ""
    if not classes:
        samples, targets = with_targets(data)
        return TeacherTask(samples.x, targets.reshape(len(samples.x), -1))
    samples = as_data(data)
    if samples.classes is None:
        raise LawfulError(f"{where}--classes needs labels: `y` with one whole number per sample")
    names, numbers = np.unique(samples.classes, return_inverse=True)
    if len(names) < 2:
        raise LawfulError(f"{where}one class only: there is nothing to tell apart")
    return TeacherTask(samples.x, np.eye(len(names))[numbers])


@takes(ReadOptions)
def bottleneck(
    network: Source,
    data: Annotated[
        Samples | None, Help("Samples: .npz with x (and y for Leaky ResNets), or .csv; a run has its own.")
    ],
    *,
    blocks: Annotated[Names | None, Help("Names of the blocks of a module, separated by commas.")] = None,
    gamma: Annotated[
        float | None, Help("γ / ‖K‖ of the stable energies: by default 1e-5, for networks of another kind 1e-3.")
    ] = None,
    seed: Seed = 0,
    **reading: Unpack[ReadOptions],
) -> BlockReadings:
    """Effective dimension and movement of any network's blocks on data, token ids if it takes those (P3)."""
    from lawful.api.training.samples import as_data
    from lawful.papers.leaky.streams.instruments import GAMMA, read_blocks
    from lawful.papers.leaky.streams.stream import as_inputs
    from lawful.sources.modules.convert import to_module
    from lawful.sources.modules.module_network import ModuleNetwork
    from lawful.sources.opening import open, open_graph
    from lawful.sources.provenance import with_provenance

    if data is None:
        raise LawfulError("a network needs samples to be read on: give --data FILE (.npz with x, or .csv)")
    opened = open(network, **open_options(reading))
    if isinstance(opened, ModuleNetwork):
        module, shape = opened.module, opened.input_shape
    else:  # a graph that was read from a module has lost its blocks: those of the module are asked
        opened = open_graph(opened, seed=seed)
        behind = getattr(opened.reading, "module", None)
        module, shape = to_module(opened) if behind is None else behind, None
    samples, where = as_data(data), f"{data}: " if isinstance(data, (str, Path)) else ""
    if shape is not None and math.prod(shape) != samples.x.shape[1]:
        raise LawfulError(f"an input of size {shape} does not fit the {samples.x.shape[1]} columns of the data")
    inputs = as_inputs(module, samples.reshape(shape), where, " (see --input)")
    names = None if blocks is None else tuple(blocks.split(",") if isinstance(blocks, str) else blocks)
    try:
        answer = read_blocks(module, inputs, blocks=names, gamma_ratio=GAMMA if gamma is None else gamma, seed=seed)
    except (RuntimeError, ValueError, TypeError, IndexError) as error:
        raise LawfulError(f"the network does not run on these samples: {str(error)[:150]} (see --input)") from None
    return with_provenance(answer, opened)
