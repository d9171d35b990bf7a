"""An architecture ready for comparison: its module, what can be folded in it, and the group that acts on what is left.

What was only proposed (permutations, signs, heads that change places, rotary phases, folds) is tried before it is
used: random members of the group act on random weights in float64, and the outputs have to stay.
"""

from __future__ import annotations

import copy
import warnings
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import fx, nn

from lawful.checkpoints.align import plus, pulled
from lawful.checkpoints.element import draw, frames, moved
from lawful.checkpoints.find_folds import Folding, find_folds, gains_of
from lawful.checkpoints.folds import Fold, LinearReader, State, StatisticsFold, ValueFold, fold
from lawful.checkpoints.group import HeadSpace, HiddenSpace, OrbitGroup, UnitSpace, members_of
from lawful.checkpoints.read_group import read_group
from lawful.checkpoints.replay import replay_beside
from lawful.checkpoints.streamed import MadeTensors, folded_tensors
from lawful.errors import LawfulError
from lawful.network.modules.calling import called_with
from lawful.network.modules.export import ExportedModule, copied, export_module, operator_name
from lawful.symmetry.check import casts, random_inputs, tensors_in
from lawful.symmetry.inputs import Input, examples
from lawful.symmetry.reading import read_graph
from lawful.symmetry.rules import RULES

MANY_NUMBERS = 2**25  # parameters from which a module is large
FAILURES = 6  # spaces that look alike of which none is what was proposed, from which the others are not tried
BESIDE = 4  # sets of spaces that are tried at a time
FAR_OUT = 1e-5  # and with large gains and biases
AGREE, AGREE_SINGLE = 1e-8, 1e-3  # of the outputs' size, in float64 and where the module itself computes in less


@dataclass(frozen=True, eq=False)
class CheckpointArchitecture:
    """What two checkpoints of one architecture have in common."""

    module: nn.Module
    exported: ExportedModule
    inputs: tuple[torch.Tensor, ...]
    folds: tuple[Fold, ...]
    group: OrbitGroup
    tolerance: float
    notes: tuple[str, ...]
    wide: bool  # whether its graph can be carried out in float64, whatever the module itself computes in
    virtual: tuple[Fold, ...] = ()  # the first folds, of tensors that another way to write it has beside its own

    def state(self, given: Mapping[str, torch.Tensor] | None = None) -> State:
        """The tensors of the module (or of a state dict that fits it), each under the first of its names."""
        own = dict(self.module.named_parameters()) | dict(self.module.named_buffers())
        names = self.module.state_dict(keep_vars=True)
        found = {}
        for name, tensor in own.items():
            source: torch.Tensor = tensor
            if given is not None:
                alias = next((each for each, other in names.items() if other is tensor and each in given), None)
                source = given[name] if name in given else tensor if alias is None else given[alias]
            found[name] = source.detach()
        return found

    @property
    def large(self) -> bool:
        """Whether its tensors should not all be in memory at once."""
        return _large(self.module)

    def replays(
        self,
        state: Mapping[str, torch.Tensor],
        many: Sequence[Sequence[torch.Tensor]],
        kind: torch.dtype = torch.float64,
    ) -> list[list[torch.Tensor]]:
        """The outputs for several inputs of the examples' sizes, in float64 throughout if the graph can be carried out
        (or in what is asked for).

        Its tensors are fetched one by one then.
        """
        return self.beside([(state, inputs) for inputs in many], kind)

    def beside(
        self,
        runs: Sequence[tuple[Mapping[str, torch.Tensor], Sequence[torch.Tensor]]],
        kind: torch.dtype = torch.float64,
    ) -> list[list[torch.Tensor]]:
        """The same for states and inputs, all of them beside each other."""
        if not self.wide:
            return [self.outputs(state, inputs) for state, inputs in runs]
        if self.virtual:
            known = {id(state): folded_tensors(state, self.virtual) for state, _ in runs}
            runs = [(known[id(state)], inputs) for state, inputs in runs]
        return replay_beside(self.exported, runs, kind)

    def outputs(self, state: Mapping[str, torch.Tensor], inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """What the module computes with these tensors, in float64."""
        wide = {name: tensor.double() if tensor.is_floating_point() else tensor for name, tensor in state.items()}
        wide = fold(wide, self.virtual) if self.virtual else wide
        with torch.no_grad(), torch.random.fork_rng(devices=[]), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.manual_seed(0)
            found = called_with(self.module, wide, tuple(inputs))
        return [tensor.double() for tensor in tensors_in(found)]

    def draw_inputs(self, seed: int) -> list[torch.Tensor]:
        """Random inputs of the right sizes and kinds."""
        return random_inputs(list(self.inputs), self.exported, torch.Generator().manual_seed(seed))


def _large(module: nn.Module) -> bool:
    return sum(tensor.numel() for tensor in module.parameters()) > MANY_NUMBERS


def read_architecture(
    module: nn.Module, input: Input | Sequence[Input] | None = None, *, folding: Folding = "all", seed: int = 0
) -> CheckpointArchitecture:
    """Read a module (in evaluation; itself it stays in training if it is) once for all its checkpoints.

    >>> found = read_architecture(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)), (3,))
    >>> [(type(space).__name__, space.size, space.permutes, space.signed) for space in found.group.spaces]
    [('UnitSpace', 4, True, False)]
    """
    module = _in_evaluation(module)
    inputs = tuple(examples(module, input))
    if any(tensor.is_meta for tensor in module.parameters()):
        raise LawfulError("a module on the meta device has no weights to compare")
    whole = export_module(module, list(inputs), known=RULES)
    exported = replace(whole, graph=copy.deepcopy(whole.graph))
    readers = _readers(exported)
    folds = find_folds(exported, kinds=folding)
    biases = {name: reader.bias for name, reader in readers.items() if reader.bias is not None}
    group = read_group(read_graph(exported), gains_of(exported), biases)
    folds += _value_folds(group, readers) if folding == "all" else ()
    wide = _carried_out(whole)
    tolerance = AGREE_SINGLE if casts(whole) and not wide else AGREE
    found = CheckpointArchitecture(module, whole, inputs, folds, group, tolerance, (), wide)
    return _tried(found, seed)


def _in_evaluation(module: nn.Module) -> nn.Module:
    """The module, or one with its tensors that does not train."""
    if not any(part.training for part in module.modules()):
        return module
    return copied(module, shared=True).eval()


def _carried_out(exported: ExportedModule) -> bool:
    """Whether a graph is made of calls alone."""
    return all(node.op in ("placeholder", "call_function", "output") for node in exported.graph.nodes)


def _readers(exported: ExportedModule) -> dict[str, LinearReader]:
    """The linear layers of a graph by the name of their weight, where nothing else reads weight or bias."""
    found = {}
    for node in exported.calls:
        name = operator_name(node.target)
        if name == "linear":
            weight, axis, bias = node.args[1], 1, node.args[2] if len(node.args) > 2 else None
        elif name == "addmm":
            weight, axis, bias = node.args[2], 0, node.args[0]
        else:
            continue
        names = [
            exported.names.get(each.name) if isinstance(each, fx.Node) and len(each.users) == 1 else None
            for each in (weight, bias)
        ]
        if names[0] is not None and names[1] is not None:
            found[names[0]] = LinearReader(names[0], axis, names[1])
    return found


def _value_folds(group: OrbitGroup, readers: dict[str, LinearReader]) -> tuple[Fold, ...]:
    found: list[Fold] = []
    for space in group.spaces:
        for block in (block for head in space.heads for block in head) if isinstance(space, HeadSpace) else ():
            biases = [rows for rows in block.members if len(group.shapes[rows.tensor]) == 1]
            for rows in biases:
                others = [each for each in block.members if each.powers[0] == -rows.powers[0]]
                if len(others) != 1 or rows.places.shape[1] != 1 or block.kind != "GL":
                    continue
                reader = readers.get(others[0].tensor)
                if reader is None or others[0].dims != (reader.axis,) or others[0].tensor == rows.tensor:
                    continue
                columns = tuple(tuple(int(row) for row in copy) for copy in others[0].places.T)
                found.append(ValueFold(rows.tensor, tuple(int(row) for row in rows.places[:, 0]), columns, reader))
    return tuple(found)


# Trying


def _tried(given: CheckpointArchitecture, seed: int) -> CheckpointArchitecture:
    """Drop what changes the outputs: if all together do, signs are tried on top of the rest, that space by space."""
    probe = _Probe(given, seed)
    notes: list[str] = []
    spaces = given.group.spaces
    plain = [replace(space, signed=False) if isinstance(space, UnitSpace) else space for space in spaces]
    whole, unsigned = probe.first(given.group, replace(given.group, spaces=tuple(plain)))
    settled: dict[int, HiddenSpace]
    signed: dict[int, HiddenSpace] = {}
    if whole:
        settled = dict(enumerate(spaces))
    elif unsigned:
        settled = dict(enumerate(plain))
        turned = [number for number, space in enumerate(spaces) if isinstance(space, UnitSpace) and space.signed]
        signed = probe.settle({number: [spaces[number]] for number in turned})
    else:
        if not probe.stays(given.folds, replace(given.group, spaces=())):
            raise LawfulError("a fold changed the outputs: the graph of this module is not understood")
        settled, signed = {}, probe.settle({number: _weaker(space) for number, space in enumerate(spaces)})
        notes = [
            f"{space.name}: what was read of its symmetries changed the outputs and is not used"
            for number, space in enumerate(spaces)
            if number not in signed
        ]
    settled |= signed
    group = replace(given.group, spaces=tuple(settled[number] for number in sorted(settled)))
    if signed and not probe.stays(given.folds, group):
        raise LawfulError("members of the group change the outputs: the graph of this module is not understood")
    if given.group.left_out:
        notes.append(f"{given.group.left_out} scales that several spaces share are not used")
    return replace(given, group=group, notes=tuple(notes))


def _signature(space: HiddenSpace) -> object:
    """What spaces of layers that look alike have in common."""
    rows = [(each.dims, each.places.shape, each.powers, each.odd) for each in members_of(space)]
    if isinstance(space, UnitSpace):
        return space.size, space.scales, space.permutes, space.signed, *rows
    if isinstance(space, HeadSpace):
        return len(space.heads), space.copies, *rows
    return space.kind, space.size, *rows


def _weaker(space: HiddenSpace) -> list[HiddenSpace]:
    """A space, then less and less of it."""
    if isinstance(space, UnitSpace):
        return [space, *(replace(space, signed=s, permutes=p) for p, s in ((space.permutes, False), (False, False)))]
    if isinstance(space, HeadSpace):
        return [space, replace(space, permutes=False)]
    return [space]


@dataclass(frozen=True, eq=False)
class _Trial:
    """Random weights and what the module computes with them; `near` is how much of that may change by rounding."""

    theta: Mapping[str, torch.Tensor]
    outputs: list[torch.Tensor]
    near: float

    def kept(self, after: list[torch.Tensor]) -> bool:
        gap = max(float((one - two).abs().max()) for one, two in zip(self.outputs, after, strict=True))
        return gap <= self.near


class _Probe:
    """Outputs at random weights before and after.

    The weights have nothing to do with those that the module has: near zero even GELU is odd. They are of ordinary size
    once, and once with gains and biases so large that activations are seen far out.
    """

    def __init__(self, given: CheckpointArchitecture, seed: int) -> None:
        self.given, self.seed = given, seed
        self.inputs = given.draw_inputs(seed)
        self.own = given.state()
        self.numbers = {name: number for number, name in enumerate(self.own)}
        self.noise = MadeTensors(self.own, self._noise)
        self.trials: list[_Trial] = []

    def first(self, *groups: OrbitGroup) -> list[bool]:
        """Whether the outputs stay with each of these groups: trials and members beside each other, so that the random
        numbers of each tensor are drawn once."""
        given = self.given
        thetas = [self._theta(vectors) for vectors in (0.25, 30.0)]
        members = [self._member(given.folds, group, theta, n) for group in groups for n, theta in enumerate(thetas)]
        outputs = given.beside([(state, self.inputs) for state in (*thetas, *members)])
        for theta, found, near in zip(thetas, outputs, (given.tolerance, max(FAR_OUT, given.tolerance)), strict=False):
            if all(bool(torch.isfinite(tensor).all()) for tensor in found):
                size = max((float(tensor.abs().max()) for tensor in found), default=0.0)
                self.trials.append(_Trial(theta, found, near * size))
        if not self.trials:
            raise LawfulError("the module computes no finite numbers with random weights")
        if len(self.trials) < len(thetas):
            return [self.stays(given.folds, group) for group in groups]
        pairs = [outputs[place : place + 2] for place in range(2, len(outputs), 2)]
        return [all(trial.kept(after) for trial, after in zip(self.trials, pair, strict=True)) for pair in pairs]

    def _noise(self, name: str) -> State:
        """Random numbers for one tensor; rows of matrices are about as long as 1."""
        tensor = self.own[name]
        generator = torch.Generator().manual_seed(self.seed * len(self.own) + self.numbers[name])
        noise = torch.randn(tensor.shape, generator=generator, dtype=torch.float32).double()
        return {name: noise.mul_(tensor[0].numel() ** -0.5) if tensor.ndim > 1 else noise}

    def _theta(self, vectors: float) -> Mapping[str, torch.Tensor]:
        """Random weights; vectors (gains, biases) vary by so much around 1."""
        parameters = dict(self.given.module.named_parameters())
        folds = [each for each in self.given.folds if isinstance(each, StatisticsFold)]
        statistics = {name for each in folds for name in (each.mean, each.variance)}

        def make(name: str) -> State:
            tensor = self.own[name]
            if not tensor.is_floating_point() or not (name in parameters or name in statistics):
                return {name: tensor.double() if tensor.is_floating_point() else tensor}
            if name in statistics:
                return {name: self.noise[name].abs().mul_(0.5).add_(0.5)}
            return {name: self.noise[name] if tensor.ndim > 1 else self.noise[name].mul(vectors).add_(1)}

        return MadeTensors(self.own, make)

    def _member(
        self, folds: tuple[Fold, ...], group: OrbitGroup, theta: Mapping[str, torch.Tensor], number: int
    ) -> Mapping[str, torch.Tensor]:
        shifted = bool(group.spaces) or not self.given.group.spaces
        folded = folded_tensors(theta, folds)
        return random_member(group, folded, self.seed, shifted=shifted, trial=number, mirrored=True)

    def stays(self, folds: tuple[Fold, ...], group: OrbitGroup) -> bool:
        """Whether the outputs stay after folds, members of the group that try all of it, and random shifts."""
        for number in range(2):
            trial = self.trials[number % len(self.trials)]
            state = self._member(folds, group, trial.theta, number)
            if not trial.kept(self.given.replays(state, [self.inputs])[0]):
                return False
        return True

    def settle(self, proposals: Mapping[int, list[HiddenSpace]]) -> dict[int, HiddenSpace]:
        """Of each space by its number the first proposal that keeps the outputs, if there is one.

        Layers that look alike are tried together, and one by one if that fails, until many of them have failed; those
        of a large module are let go with the first of them.
        """
        settled: dict[int, HiddenSpace] = {}
        alike: dict[object, list[int]] = defaultdict(list)
        for number, weaker in proposals.items():
            alike[_signature(weaker[0])].append(number)
        wholes = [tuple(proposals[number][0] for number in numbers) for numbers in alike.values()]
        for numbers, whole, all_kept in zip(alike.values(), wholes, self._kept(wholes), strict=True):
            if all_kept:
                settled.update(zip(numbers, whole, strict=True))
                continue
            failed = 0
            for number in numbers:
                left = proposals[number] if len(numbers) > 1 else proposals[number][1:]  # one alone has failed already
                kept = self._first_kept([(space,) for space in left])
                if kept is not None:
                    settled[number] = kept[0]
                failed += settled.get(number) is not proposals[number][0]
                if failed == (1 if self.given.large else FAILURES) and failed == 1 + numbers.index(number):
                    rest = numbers[failed:]
                    again = self._first_kept(list(zip(*(proposals[each][1:] for each in rest), strict=True)))
                    settled.update(zip(rest, again or (), strict=False))
                    break
        return settled

    def _kept(self, sets: list[tuple[HiddenSpace, ...]]) -> list[bool]:
        """Which sets of spaces keep the outputs, a few of them tried beside each other."""
        kept = list(range(len(sets)))
        for number in range(2):
            trial, found = self.trials[number % len(self.trials)], []
            for few in (kept[start : start + BESIDE] for start in range(0, len(kept), BESIDE)):
                groups = [replace(self.given.group, spaces=sets[place]) for place in few]
                states = [self._member(self.given.folds, group, trial.theta, number) for group in groups]
                outputs = self.given.beside([(state, self.inputs) for state in states])
                found += [place for place, after in zip(few, outputs, strict=True) if trial.kept(after)]
            kept = found
        return [place in kept for place in range(len(sets))]

    def _first_kept(self, proposals: list[tuple[HiddenSpace, ...]]) -> tuple[HiddenSpace, ...] | None:
        """The first of several sets of spaces that keeps the outputs."""
        for spaces in proposals:
            if spaces and self.stays(self.given.folds, replace(self.given.group, spaces=spaces)):
                return spaces
        return None


def random_member(
    group: OrbitGroup,
    folded: Mapping[str, torch.Tensor],
    seed: int,
    *,
    shifted: bool = True,
    trial: int | None = None,
    mirrored: bool = False,
) -> Mapping[str, torch.Tensor]:
    """Folded tensors after a random member of the group (that of a trial; large rotations may be reflections), and
    random shifts."""
    rng = np.random.default_rng(seed)
    acting = frames(group, draw(group, rng, trial=trial, mirrored=mirrored))
    turned = MadeTensors(folded, lambda name: moved(folded, acting, [name]))
    return plus(turned, random_shifts(group, rng) if shifted else {})


def random_shifts(group: OrbitGroup, rng: np.random.Generator) -> dict[str, list[torch.Tensor]]:
    """Random steps along directions that no operation sees."""
    found: dict[str, list[torch.Tensor]] = {}
    shapes = {name: torch.Size(shape) for name, shape in group.shapes.items()}
    for laws in group.shifts:
        zeros = {name: torch.zeros((), dtype=torch.float64).expand(shapes[name]) for name in laws.parameters}
        steps = rng.normal(scale=0.3, size=len(laws.values(zeros)))
        for name, piece in pulled(laws, steps, shapes):
            found.setdefault(name, []).append(piece)
    return found
