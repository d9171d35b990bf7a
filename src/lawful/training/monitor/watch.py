"""The structural laws of a training model, watched: all of them, or a sketch; their start survives a restart."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils._pytree import tree_map

from lawful.errors import LawfulError
from lawful.program.frontends.export import twin_of
from lawful.sources.modules.trained_field import has_hooks
from lawful.symmetry.check import LOOSE, LOOSE_FLOOR, space_error
from lawful.symmetry.inputs import examples
from lawful.symmetry.laws.families import MatrixLaws, ScaleLaws
from lawful.symmetry.module_symmetries import read_symmetries
from lawful.symmetry.result import Space
from lawful.training.monitor.parts import find_joints
from lawful.training.monitor.wrappers import FlatCall, batch_of, exact_arithmetic, is_plain_call, output_tensors
from lawful.training.quantities import Quantities
from lawful.types import Floats

# A law that was read from the graph is only a proposal: training may detach values, hook layers or write its own
# backward pass. So each is held against gradients of the module itself, as training would take them.

SEEN = 8  # samples of a batch that are looked at: a law holds for every loss, so few will do
# Where units are off, a gradient says nothing of them: at three random points all eight samples leave a unit off, which
# is on for half of them, with probability 2^-24.
POINTS = 3
Tensors = dict[str, torch.Tensor]


def slopes_in_training(
    module: nn.Module, inputs: Sequence[Any], keywords: Mapping[str, Any] | None = None
) -> Iterator[tuple[Tensors, Tensors]]:
    """Parameters about the module's own, and there the gradient of a random combination of its outputs; a few times.

    A float64 copy of the module runs in its own mode on the first samples of a batch; detached values, hooks of layers
    and backward passes of one's own take part. What no gradient reaches has slope zero.

    >>> theta, slope = next(slopes_in_training(nn.Linear(2, 1), [torch.zeros(3, 2)]))
    >>> slope["weight"].tolist(), bool(slope["bias"] == 0)
    ([[0.0, 0.0]], False)
    """
    call = (tuple(inputs), dict(keywords or {}))
    whole = batch_of(*call)
    for point in range(POINTS):
        generator = torch.Generator().manual_seed(point)
        twin = twin_of(module).cpu()
        trained = {name: tensor for name, tensor in twin.named_parameters() if tensor.requires_grad}
        with torch.no_grad():
            for tensor in trained.values():
                size = max(float(tensor.square().mean().sqrt()), 0.2) if tensor.numel() else 0.0
                tensor.add_(torch.randn(tensor.shape, generator=generator, dtype=torch.float64), alpha=size / 2)
        with torch.random.fork_rng(devices=[]), torch.enable_grad(), exact_arithmetic():
            shown, named = tree_map(lambda tensor: _first_samples(tensor, whole), call)
            heard = [output for output in output_tensors(twin(*shown, **named)) if output.requires_grad]
            weights = [torch.randn(output.shape, generator=generator, dtype=output.dtype) for output in heard]
            slopes = torch.autograd.grad(heard, list(trained.values()), weights, allow_unused=True) if heard else ()
        theta = {name: tensor.detach() for name, tensor in trained.items()}
        slope = {name: torch.zeros_like(tensor) for name, tensor in theta.items()}
        yield (
            theta,
            slope | {name: gradient for name, gradient in zip(trained, slopes, strict=False) if gradient is not None},
        )


def are_finite(slopes: Iterable[tuple[Tensors, Tensors]]) -> bool:
    """Whether slopes can show anything: NaN compares with nothing."""
    return all(bool(torch.isfinite(tensor).all()) for pair in slopes for values in pair for tensor in values.values())


def _first_samples(value: Any, whole: int) -> Any:
    """The first samples of what a module was given, in float64."""
    if not isinstance(value, torch.Tensor):
        return value
    part = value.detach()[:SEEN] if value.ndim > 0 and len(value) == whole else value.detach()
    return part.cpu().to(torch.float64 if part.is_floating_point() else part.dtype).clone()


# Laws that are watched without being asked for: each record evaluates all of them, on the processor.
MOST = 200_000
KINDS = {"GL": "matrix", "scales": "scales", "shifts": "shifts"}


class LawWatch:
    """Drift of the laws since the start, in float64; `sketch` bounds how many laws are looked at.

    A sketch is made of whole spaces, drawn at random but the same for the same model; models with more than 200,000
    laws are sketched unless asked otherwise. `relative` divides each drift by the size of the law's terms at the start
    (laws that start at zero are left out): for gradient flow it stays at rounding, for steps of size h it grows like h.

    >>> import torch
    >>> model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    >>> watch = LawWatch(model, (torch.ones(4, 2),))
    >>> watch.measure(model)["laws"], watch.measure(model)["drift"]
    (3, 0.0)
    """

    def __init__(
        self,
        model: nn.Module,
        inputs: Sequence[Any],
        keywords: Mapping[str, Any] | None = None,
        sketch: int | None = None,
        output: Any = None,
    ) -> None:
        read, tensors, named, self._prefix = _as_read(model, inputs, _input_keywords(model, keywords or {}), output)
        with exact_arithmetic():
            examined = [] if named and not tensors else examples(read, tensors)
            symmetries, program, _ = read_symmetries(read, examined, named, "train")
        self.total = len(symmetries.laws)
        theta = self._theta(model)
        hooked = {self._prefix + name for name, tensor in model.named_parameters() if has_hooks(tensor)}
        spaces = [space for space in symmetries.spaces if space.count and not hooked & set(space.parameters)]
        self.joints = find_joints(model, spaces, program, self._prefix)
        if sketch is None and self.total > MOST:
            sketch = MOST
        order = np.random.default_rng(0).permutation(len(spaces)).tolist()
        chosen, count = list[Space](), 0
        for place in order if sketch is not None else range(len(spaces)):
            if sketch is None or not count or count + spaces[place].count <= sketch:
                chosen.append(spaces[place])
                count += spaces[place].count
        self.count = count
        self.families = [(space, space.laws) for space in chosen if space.laws is not None]
        self.start = [laws.values(theta) for _, laws in self.families]
        self._sizes = [laws.size_along(theta, theta) for _, laws in self.families]
        self.held = set[int]()  # the laws, by their ids, that a gradient was held against

    @property
    def is_checked(self) -> bool:
        """Whether a gradient was held against laws of it."""
        return bool(self.held)

    def hold_against(self, slopes: Sequence[tuple[Tensors, Tensors]], part: str = "") -> int:
        """Watch only what gradients in training keep; returns how many laws they do not.

        Names in `slopes` are those of a whole in which this model is the part of this name: laws of parameters that
        they do not have are not looked at.
        """
        inside = f"{part}." if part else ""
        slopes_of_part = [
            tuple(
                {self._prefix + name.removeprefix(inside): tensor for name, tensor in values.items()
                 if name.startswith(inside)}
                for values in pair
            )
            for pair in slopes
        ]  # fmt: skip

        def keeps(space: Space) -> bool:
            if not all(name in slopes_of_part[0][0] for name in space.parameters):
                return True
            self.held.add(id(space))
            return all(space_error(space, theta, slope, LOOSE_FLOOR)[0] <= LOOSE for theta, slope in slopes_of_part)

        return self.keep(keeps)

    def keep(self, wanted: Callable[[Space], bool]) -> int:
        """Watch the laws of these spaces alone; returns how many laws are dropped."""
        self.joints = [joint for joint in self.joints if wanted(joint.space)]
        before, are_kept = self.count, [wanted(space) for space, _ in self.families]
        self.families = [family for family, keeps in zip(self.families, are_kept, strict=True) if keeps]
        self.start = [start for start, keeps in zip(self.start, are_kept, strict=True) if keeps]
        self._sizes = [size for size, keeps in zip(self._sizes, are_kept, strict=True) if keeps]
        self.count = sum(laws.count for _, laws in self.families)
        return before - self.count

    def names(self, space: Space) -> set[str]:
        """The parameters that the laws of a space tie, by their names in the model."""
        return {name.removeprefix(self._prefix) for name in space.parameters}

    def _theta(self, model: nn.Module) -> dict[str, torch.Tensor]:
        return {self._prefix + name: tensor.detach() for name, tensor in model.named_parameters()}

    def measure(self, model: nn.Module) -> dict[str, Any]:
        """How far the laws have drifted: largest absolute and relative drift, and the largest by kind of group."""
        theta = self._theta(model)
        moved: dict[str, list[Floats]] = {}
        relative: list[Floats] = []
        for (space, laws), start, size in zip(self.families, self.start, self._sizes, strict=True):
            change = np.abs(laws.values(theta) - start)
            moved.setdefault(_kind(space.group), []).append(change)
            seen = ~(size <= 0)  # a law whose terms all started at zero has no size to compare with
            relative.append(change[seen] / size[seen])
        every = [change for changes in moved.values() for change in changes]
        kinds = {kind: largest(changes) for kind, changes in moved.items()}
        return {
            "laws": self.count, "of": self.total, "drift": largest(every), "relative": largest(relative),
            "by_group": kinds, "checked": self.is_checked,
        }  # fmt: skip

    def save(self, path: Path) -> None:
        """Keep the values at the start, and the sizes of their terms, beside the records."""
        np.save(path, np.stack([np.concatenate([np.zeros(0), *parts]) for parts in (self.start, self._sizes)]))

    def resume(self, path: Path) -> None:
        """Take the values at the start of an earlier run of the same model."""
        values = np.load(path, allow_pickle=False)
        sizes = [len(part) for part in self.start]
        if values.shape != (2, sum(sizes)):
            raise LawfulError(f"{path}: {values.shape[-1]} laws were watched before, and {sum(sizes)} now")
        if sizes:
            self.start, self._sizes = ([np.asarray(part) for part in np.split(row, np.cumsum(sizes)[:-1])]
                                       for row in values)  # fmt: skip


def _kind(group: str) -> str:
    return next((word for key, word in KINDS.items() if group.startswith(key)), "other")


def largest(parts: Sequence[Floats]) -> float:
    """The largest number in some arrays, 0 if there is none; NaN if one of them is, which Python's `max` may lose.

    >>> largest([np.array([1.0, float("nan")]), np.array([2.0])]), largest([])
    (nan, 0.0)
    """
    return float(np.concatenate([np.zeros(1), *parts]).max())


def merge_measures(measures: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The measures of several parts of one model as one; `parts` names them."""
    by_part = list(measures.values())
    kinds = dict.fromkeys(kind for one in by_part for kind in one["by_group"])
    return {
        "laws": sum(one["laws"] for one in by_part),
        "of": sum(one["of"] for one in by_part),
        "drift": largest([np.array([one["drift"] for one in by_part])]),
        "relative": largest([np.array([one["relative"] for one in by_part])]),
        "by_group": {kind: largest([np.array([one["by_group"].get(kind, 0.0) for one in by_part])]) for kind in kinds},
        "checked": all(one["checked"] for one in by_part),
        "parts": list(measures),
    }


def _as_read(
    model: nn.Module, inputs: Sequence[Any], keywords: Mapping[str, Any], output: Any
) -> tuple[nn.Module, list[Any], dict[str, Any], str]:
    """What the graph is read from: the model and its tensors, or, for other calls, the call with its tensors alone.

    The last entry is the prefix that names of parameters have there. A batch of one is doubled: what holds for it may
    be an accident of its size.
    """
    if any(isinstance(value, (str, torch.Size)) or is_size(value) for value in inputs):
        return model, list(inputs), dict(keywords), ""
    whole = batch_of(inputs, keywords)
    if is_plain_call(inputs, keywords, output) and whole != 1:
        return model, list(inputs), dict(keywords), ""
    call = FlatCall(model, inputs, keywords)
    call.__class__ = type(type(model).__name__, (FlatCall,), {})  # errors name the class of what they are about
    tensors = [
        torch.cat([tensor, tensor]) if whole == 1 and tensor.ndim > 0 and len(tensor) == 1 else tensor
        for tensor in call.tensors
    ]
    return call, tensors, {}, "module."


def is_size(value: Any) -> bool:
    """Whether an input is given by its size alone."""
    return isinstance(value, tuple) and all(isinstance(part, int) for part in value)


def _input_keywords(model: nn.Module, keywords: Mapping[str, Any]) -> dict[str, Any]:
    """The keywords that make up the input: labels that may be left out belong to the loss, caches to no training."""
    accepted = inspect.signature(model.forward).parameters
    asked = "labels" in accepted and accepted["labels"].default is inspect.Parameter.empty
    arguments = {name: value for name, value in keywords.items() if (name != "labels" or asked) and value is not None}
    return arguments | ({"use_cache": False} if "use_cache" in accepted else {})


def digest(model: nn.Module) -> str:
    """A short name for the parameters of a model: their names and sizes."""
    text = ";".join(f"{name}{tuple(tensor.shape)}" for name, tensor in model.named_parameters())
    return hashlib.sha256(text.encode()).hexdigest()[:16]


# The laws that a flow of a PyTorch module is measured by, as functions of its trained parameters in its own order.


MOST_NAMED = 10_000  # laws that a flow is measured by: each is a column of a run's table
SHOWN = 2  # inputs that the graph is read with


def module_laws(module: nn.Module, x: Any) -> Quantities:
    """The quadratic laws of the module's symmetries; those of hidden channels are named by the layer that writes them.

    Each is held against gradients at the first inputs, and left out where training does not follow the gradient.

    >>> net = nn.Sequential(nn.Linear(2, 1, bias=False), nn.ReLU(), nn.Linear(1, 1, bias=False))
    >>> laws = module_laws(net, np.ones((1, 2)))
    >>> laws.names, laws.values(np.array([3.0, 4.0, 2.0]))
    (('0.0',), array([21.]))
    """
    inputs = torch.as_tensor(x)
    dtype = next((tensor.dtype for tensor in module.parameters()), torch.float32)
    example = inputs[:SHOWN].to(dtype) if inputs.is_floating_point() else inputs[:SHOWN]
    try:
        symmetries, program, _ = read_symmetries(module, examples(module, example), None, "train")
    except LawfulError:
        return Quantities((), lambda theta: np.zeros(0))
    slopes = list(slopes_in_training(module, (inputs,)))
    layers = {id(joint.space): joint.name for joint in find_joints(module, symmetries.spaces, program)}
    names, families = list[str](), list[MatrixLaws | ScaleLaws]()
    for space in symmetries.spaces:
        laws = space.laws
        if not isinstance(laws, MatrixLaws | ScaleLaws) or len(names) + laws.count > MOST_NAMED:
            continue
        if all(space_error(space, theta, slope, LOOSE_FLOOR)[0] <= LOOSE for theta, slope in slopes):
            families.append(laws)
            names += _name_laws(laws, space.name, layers.get(id(space)), len(laws.values(slopes[0][0])))
    shapes = {name: tensor.shape for name, tensor in module.named_parameters() if tensor.requires_grad}
    ends = np.cumsum([shape.numel() for shape in shapes.values()])

    def values(theta: Floats) -> Floats:
        parts = np.split(theta, ends[:-1])
        named = {name: torch.from_numpy(part.reshape(shape)) for (name, shape), part in zip(shapes.items(), parts,
                                                                                            strict=True)}  # fmt: skip
        return np.concatenate([np.zeros(0), *(family.values(named) for family in families)])

    return Quantities(tuple(names), values)


def _name_laws(laws: MatrixLaws | ScaleLaws, space: str, layer: str | None, count: int) -> list[str]:
    """The balance of channel c of a layer is `layer.c`, a product of two channels `layer.c,d`; others are numbered."""
    if layer is None:
        return [f"{space}:{number}" for number in range(count)]
    if isinstance(laws, ScaleLaws):
        return [f"{layer}.{channel}" for channel in range(count)]
    pairs = zip(*np.triu_indices(laws.size), strict=True)
    return [f"{layer}.{one}" if one == other else f"{layer}.{one},{other}" for one, other in pairs]
