"""From a module to an architecture: its graph, what can be folded in it, and the group that acts on the rest."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import nn

from lawful.checkpoints.align.lazy_tensors import MadeTensors, folded_tensors
from lawful.checkpoints.architecture import CheckpointArchitecture, read_program
from lawful.checkpoints.group.axis_actions import as_rows
from lawful.checkpoints.group.random_members import random_member
from lawful.checkpoints.group.read_spaces import read_group
from lawful.checkpoints.group.spaces import GroupedUnits, HeadSpace, HiddenSpace, OrbitGroup, UnitSpace, members_of
from lawful.checkpoints.rewrite.folds import (
    DropFold,
    Fold,
    Folding,
    GainFold,
    LinearReader,
    State,
    StatisticsFold,
    ValueFold,
    find_folds,
    numbers_after,
)
from lawful.errors import LawfulError, Unsupported
from lawful.program.domains.dependence import Dependence, read_entries
from lawful.program.domains.evaluate import evaluate
from lawful.program.domains.interpret import interpret
from lawful.program.frontends.export import copy_module, export_module
from lawful.program.frontends.torch_export import padded_rows
from lawful.program.passes.fold import LayerReader, factors, substitute
from lawful.program.program import Node, Program
from lawful.program.table import OperatorFamily
from lawful.symmetry.demands.reading import read_demands, trained_names
from lawful.symmetry.inputs import Input, examples

# Permutations, signs, heads that change places, rotary phases and folds are proposals until random members of the group
# have acted on random weights in float64 and the outputs have stayed. A proposal that fails is weakened, never kept:
# a symmetry too few costs an *undecided*, one too many a false *equal*.

# Modules that choose (experts, by the largest of some numbers): what a trial did not reach, it did not try.

MOST_INPUTS = 24  # after which what was never chosen is let go
Masks = Mapping[str, torch.Tensor]  # of each tensor the entries on which outputs depend


def chooses(architecture: CheckpointArchitecture) -> bool:
    """Whether whole numbers (places, yes or no) are made of numbers that depend on weights, or pick whole matrices; if
    what it computes is not known, it may."""
    return architecture.program is None or chooses_by_weights(architecture.program)


def chooses_by_weights(program: Program) -> bool:
    """The same of a program.

    >>> from torch import nn
    >>> from lawful.program.frontends.torch_export import read_module
    >>> class Largest(nn.Linear):
    ...     def forward(self, x):
    ...         return super().forward(x).topk(1).values
    >>> [chooses_by_weights(read_module(net, [(2, 3)])) for net in (Largest(3, 4), nn.Linear(3, 4), nn.ReLU())]
    [True, False, False]
    """
    trained = set(program.parameters)
    depends = interpret(program, Dependence(), keep=program.nodes)
    for node in program.nodes:
        if node.family is OperatorFamily.LEAF or not any(depends[operand] & trained for operand in node.inputs):
            continue
        sorts = node.family is OperatorFamily.CHOICE and "axis" in node.attributes
        if sorts or (node.kind != "f" and not _compares_with_infinity(node)):
            return True
        if node.family is OperatorFamily.LOOKUP and node.inputs[0].op == "parameter" and node.inputs[0].rank > 2:
            return True
    return False


def _compares_with_infinity(node: Node) -> bool:
    """Attention asks whether a mask has left nothing of a row: of finite numbers that is never so."""
    constants = [operand["value"] for operand in node.inputs if operand.op == "constant"]
    return node.family is OperatorFamily.COMPARISON and any(bool(np.isinf(value).all()) for value in constants)


def reached_entries(program: Program, tensors: Mapping[str, torch.Tensor], inputs: Sequence[torch.Tensor]) -> Masks:
    """The entries of parameters along which outputs have a derivative, in float64.

    >>> from torch import nn
    >>> from lawful.program.frontends.torch_export import read_module
    >>> net = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 1))
    >>> sizes = {"0.weight": (2, 2), "0.bias": (2,), "2.weight": (1, 2), "2.bias": (1,)}
    >>> given = {name: torch.ones(size) for name, size in sizes.items()} | {"0.weight": torch.eye(2) * 2}
    >>> reached_entries(read_module(net, [(1, 2)]), given, [torch.tensor([[1.0, -1.0]])])["0.weight"].tolist()
    [[True, True], [False, False]]
    """
    leaves = {name: tensors[name].detach().double().requires_grad_() for name in program.parameters}
    others = {name: tensors.get(name, program.tensors[name]) for name in program.buffers}
    try:
        with torch.enable_grad():
            outputs = evaluate(program, *inputs, tensors={**others, **leaves})
            sums = [
                output.sin().sum() for output in outputs if output.requires_grad
            ]  # a plain sum misses what is centred
            slopes: Sequence[torch.Tensor | None] = [None] * len(leaves)
            if sums:
                slopes = torch.autograd.grad(sums, list(leaves.values()), allow_unused=True)
    except (RuntimeError, NotImplementedError) as error:
        raise Unsupported(f"no derivatives: {error}") from None
    return {
        name: torch.zeros_like(leaf, dtype=torch.bool) if slope is None else slope.isfinite() & (slope != 0)
        for (name, leaf), slope in zip(leaves.items(), slopes, strict=True)
    }


def is_seen(space: HiddenSpace, masks: Masks) -> bool:
    """Whether outputs depend on some numbers of a space in each of its tensors; its units all go the same way."""
    met = (as_rows(masks[rows.tensor], rows.dims)[torch.as_tensor(np.unique(rows.places))]
           for rows in members_of(space) if rows.tensor in masks)  # fmt: skip
    return all(bool(entries.any()) for entries in met)


def reaching(
    architecture: CheckpointArchitecture,
    tensors: Mapping[str, torch.Tensor],
    seed: int,
    enough: Callable[[Masks], bool],
) -> tuple[list[list[torch.Tensor]], Masks]:
    """Random inputs, more and more of them until what they reach together is enough (or for long enough)."""
    if architecture.program is None:
        raise Unsupported("what the module computes is not known call by call")
    many = [architecture.draw_inputs(seed)]
    masks = reached_entries(architecture.program, tensors, many[0])
    for more in range(1, MOST_INPUTS):
        if enough(masks):
            break
        inputs = architecture.draw_inputs(seed + more)
        more_masks = reached_entries(architecture.program, tensors, inputs)
        if any(name not in masks or bool((more_masks[name] & ~masks[name]).any()) for name in more_masks):
            many.append(inputs)
            masks = {
                **masks,
                **{name: masks[name] | mask if name in masks else mask for name, mask in more_masks.items()},
            }
    return many, masks


FAILURES = 6  # spaces that look alike of which none is what was proposed, from which the others are not tried
BESIDE = 4  # sets of spaces that are tried at a time: memory for more outputs buys no more speed
# Of the outputs' size, with gains and biases around 30: what a layer multiplies by 30 carries its rounding along, some
# 1e-16 · 30^7 after seven layers. A proposal that is wrong moves outputs by their own size there.
FAR_OUT = 1e-5


def keep_true_symmetries(architecture: CheckpointArchitecture, seed: int) -> CheckpointArchitecture:
    """Drop what changes the outputs: if all together do, signs are tried on top of the rest, that space by space."""
    probe = _Probe(architecture, seed)
    notes: list[str] = []
    if chooses(architecture):
        architecture, notes = _drop_unreached(architecture, probe)
    spaces = architecture.group.spaces
    plain = [_without_signs(space) for space in spaces]
    whole = probe.first(architecture.group)
    settled: dict[int, HiddenSpace]
    signed: dict[int, HiddenSpace] = {}
    if whole:
        settled = dict(enumerate(spaces))
    elif probe.stays(architecture.folds, replace(architecture.group, spaces=tuple(plain))):
        settled = dict(enumerate(plain))
        turned = [number for number, space in enumerate(spaces) if plain[number] is not space]
        signed = probe.settle({number: _signs(spaces[number]) for number in turned})
    else:
        if not probe.stays(architecture.folds, replace(architecture.group, spaces=())):
            raise LawfulError("a fold changed the outputs: the graph of this module is not understood")
        settled, signed = {}, probe.settle({number: _weaker(space) for number, space in enumerate(spaces)})
        notes += [
            f"{space.name}: what was read of its symmetries changed the outputs and is not used"
            for number, space in enumerate(spaces)
            if number not in signed
        ]
    settled |= signed
    group = replace(architecture.group, spaces=tuple(settled[number] for number in sorted(settled)))
    if signed and not probe.stays(architecture.folds, group):
        raise LawfulError("members of the group change the outputs: the graph of this module is not understood")
    if architecture.group.left_out:
        notes.append(f"{architecture.group.left_out} scales that several spaces share are not used")
    return replace(architecture, group=group, notes=tuple(notes))


def _drop_unreached(architecture: CheckpointArchitecture, probe: _Probe) -> tuple[CheckpointArchitecture, list[str]]:
    """Without what no trial of a module that chooses tries; if that is not known, without signs: trials decide them."""
    unseen = probe.unseen(architecture.group.spaces)
    if unseen is None:
        spaces = [_without_signs(space) for space in architecture.group.spaces]
        notes = ["it chooses between its parts, and which of them a trial reaches is not known: no signs are used"]
    else:
        spaces = [space for space in architecture.group.spaces if space not in unseen]
        notes = [f"{space.name}: no trial has chosen all of it, and it is not used" for space in unseen]
    return replace(architecture, group=replace(architecture.group, spaces=tuple(spaces))), notes


def _signature(space: HiddenSpace) -> object:
    """What spaces of layers that look alike have in common."""
    rows = [(member.dims, member.places.shape, member.powers, member.odd) for member in members_of(space)]
    if isinstance(space, UnitSpace):
        return space.size, space.scales, space.permutes, space.signed, *rows
    if isinstance(space, GroupedUnits):
        return space.count, *(_signature(slot) for slot in space.slots)
    if isinstance(space, HeadSpace):
        return len(space.heads), space.copies, *rows
    return space.kind, space.size, *rows


def _without_signs(space: HiddenSpace) -> HiddenSpace:
    if isinstance(space, UnitSpace) and space.signed:
        return replace(space, signed=False)
    if isinstance(space, GroupedUnits) and any(slot.signed for slot in space.slots):
        return replace(space, slots=tuple(replace(slot, signed=False) for slot in space.slots))
    return space


def _signs(space: HiddenSpace) -> list[HiddenSpace]:
    """A space with its signs; of several slots with those of all, then of each alone."""
    if not isinstance(space, GroupedUnits) or len(space.slots) == 1:
        return [space]
    one = [tuple(replace(slot, signed=slot.signed and n == k) for n, slot in enumerate(space.slots))
           for k in range(len(space.slots))]  # fmt: skip
    return [space, *(replace(space, slots=slots) for slots in one)]


def _weaker(space: HiddenSpace) -> list[HiddenSpace]:
    """A space, then less and less of it."""
    if isinstance(space, GroupedUnits):
        bare = _without_signs(space)
        inner = replace(space, permutes=False)
        return [*_signs(space), bare, *_signs(inner), _without_signs(inner)]
    if isinstance(space, UnitSpace):
        return [space, *(replace(space, signed=s, permutes=p) for p, s in ((space.permutes, False), (False, False)))]
    if isinstance(space, HeadSpace):
        return [space, replace(space, permutes=False)]
    return [space]


@dataclass(frozen=True, eq=False)
class _Trial:
    """Random weights and what the module computes with them; `near` is how much of that may change by rounding."""

    theta: Mapping[str, torch.Tensor]
    inputs: list[torch.Tensor]
    outputs: list[torch.Tensor]
    near: float

    def keeps(self, after: list[torch.Tensor]) -> bool:
        gap = max(float((one - two).abs().max()) for one, two in zip(self.outputs, after, strict=True))
        return gap <= self.near


class _Probe:
    """Outputs at random weights before and after.

    The weights have nothing to do with those that the module has: near zero even GELU is odd. They are of ordinary size
    once, and once with gains and biases so large that activations are seen far out. A module that chooses is tried with
    more inputs, those that reach what the others did not.
    """

    def __init__(self, architecture: CheckpointArchitecture, seed: int) -> None:
        self.architecture, self.seed = architecture, seed
        self.many = [architecture.draw_inputs(seed)]
        self.state = architecture.state()
        self.numbers = {name: number for number, name in enumerate(self.state)}
        self.noise = MadeTensors(self.state, self._noise)
        self.trials: list[_Trial] = []

    def first(self, group: OrbitGroup) -> bool:
        """Whether the outputs stay with a group: trials and members beside each other, so that the random numbers of
        each tensor are drawn once."""
        architecture = self.architecture
        usual, far_out = (self._theta(vectors) for vectors in (0.25, 30.0))
        plans = [
            (usual, self.many[0], architecture.tolerance),
            (far_out, self.many[0], max(FAR_OUT, architecture.tolerance)),
        ]
        plans += [(usual, inputs, architecture.tolerance) for inputs in self.many[1:]]
        runs = [(theta, inputs) for theta, inputs, _ in plans]
        runs += [
            (self._member(architecture.folds, group, theta, n), inputs) for n, (theta, inputs, _) in enumerate(plans)
        ]
        outputs = architecture.beside(runs)
        for (theta, inputs, near), tensors in zip(plans, outputs, strict=False):
            if all(bool(torch.isfinite(tensor).all()) for tensor in tensors):
                size = max((float(tensor.abs().max()) for tensor in tensors), default=0.0)
                self.trials.append(_Trial(theta, inputs, tensors, near * size))
        if not self.trials:
            raise LawfulError("the module computes no finite numbers with random weights")
        if len(self.trials) < len(plans):
            return self.stays(architecture.folds, group)
        return all(trial.keeps(after) for trial, after in zip(self.trials, outputs[len(plans) :], strict=True))

    def unseen(self, spaces: Sequence[HiddenSpace]) -> list[HiddenSpace] | None:
        """The spaces that no trial tries, if that is known; inputs are added for as long as they reach more."""
        if self.architecture.program is None or self.architecture.large:
            return None

        def left(masks: Masks) -> list[HiddenSpace]:
            return [space for space in spaces if not is_seen(space, masks)]

        try:
            self.many, masks = reaching(self.architecture, self._theta(0.25), self.seed, lambda masks: not left(masks))
        except Unsupported:
            return None
        return left(masks)

    def _noise(self, name: str) -> State:
        """Random numbers for one tensor, uniform because these are drawn fastest; rows of matrices are about as long as
        1."""
        tensor = self.state[name]
        random = np.random.Generator(np.random.SFC64([self.seed, self.numbers[name]]))
        noise = torch.as_tensor(random.random(tuple(tensor.shape)))
        width = tensor[0].numel() if tensor.ndim > 1 else 1
        return {name: noise.sub_(0.5).mul_((12 / width) ** 0.5)}

    def _theta(self, vectors: float) -> Mapping[str, torch.Tensor]:
        """Random weights; vectors (gains, biases) vary by so much around 1."""
        parameters = dict(self.architecture.module.named_parameters())
        folds = [step for step in self.architecture.folds if isinstance(step, StatisticsFold)]
        statistics = {name for step in folds for name in (step.mean, step.variance)}

        def make(name: str) -> State:
            tensor = self.state[name]
            if not tensor.is_floating_point() or not (name in parameters or name in statistics):
                return {name: tensor.double() if tensor.is_floating_point() else tensor}
            if name in statistics:
                return {name: self.noise[name].abs().mul_(0.5).add_(0.5)}
            return {name: self.noise[name] if tensor.ndim > 1 else self.noise[name].mul(vectors).add_(1)}

        return MadeTensors(self.state, make)

    def _member(
        self, folds: tuple[Fold, ...], group: OrbitGroup, theta: Mapping[str, torch.Tensor], number: int
    ) -> Mapping[str, torch.Tensor]:
        shifted = bool(group.spaces) or not self.architecture.group.spaces
        folded = folded_tensors(theta, folds)
        return random_member(group, folded, self.seed, shifted=shifted, trial=number % 2, mirrored=True)

    def stays(self, folds: tuple[Fold, ...], group: OrbitGroup) -> bool:
        """Whether the outputs stay after folds, members of the group that try all of it, and random shifts."""
        for number, trial in self._each():
            state = self._member(folds, group, trial.theta, number)
            if not trial.keeps(self.architecture.replays(state, [trial.inputs])[0]):
                return False
        return True

    def _each(self) -> list[tuple[int, _Trial]]:
        """All trials with their numbers: at least two, since two members generate the group."""
        return [(n, self.trials[n % len(self.trials)]) for n in range(max(2, len(self.trials)))]

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
        for numbers, whole, all_kept in zip(alike.values(), wholes, self._keep_outputs(wholes), strict=True):
            if all_kept:
                settled.update(zip(numbers, whole, strict=True))
                continue
            failed = 0
            for number in numbers:
                left = proposals[number] if len(numbers) > 1 else proposals[number][1:]  # one alone has failed already
                weaker_spaces = self._first_kept([(space,) for space in left])
                if weaker_spaces is not None:
                    settled[number] = weaker_spaces[0]
                failed += settled.get(number) is not proposals[number][0]
                if failed == (1 if self.architecture.large else FAILURES) and failed == 1 + numbers.index(number):
                    rest = numbers[failed:]
                    again = self._first_kept(list(zip(*(proposals[other][1:] for other in rest), strict=True)))
                    settled.update(zip(rest, again or (), strict=False))
                    break
        return settled

    def _keep_outputs(self, sets: list[tuple[HiddenSpace, ...]]) -> list[bool]:
        """Which sets of spaces keep the outputs, a few of them tried beside each other."""
        remaining = list(range(len(sets)))
        for number, trial in self._each():
            stable: list[int] = []
            for few in (remaining[start : start + BESIDE] for start in range(0, len(remaining), BESIDE)):
                groups = [replace(self.architecture.group, spaces=sets[place]) for place in few]
                states = [self._member(self.architecture.folds, group, trial.theta, number) for group in groups]
                outputs = self.architecture.beside([(state, trial.inputs) for state in states])
                stable += [place for place, after in zip(few, outputs, strict=True) if trial.keeps(after)]
            remaining = stable
        return [place in remaining for place in range(len(sets))]

    def _first_kept(self, proposals: list[tuple[HiddenSpace, ...]]) -> tuple[HiddenSpace, ...] | None:
        """The first of several sets of spaces that keeps the outputs."""
        for spaces in proposals:
            if spaces and self.stays(self.architecture.folds, replace(self.architecture.group, spaces=spaces)):
                return spaces
        return None


# Of the outputs' size. Float64 leaves 1e-14 to 1e-12 of a true symmetry in deep networks, and a wrong one moves outputs
# by 1e-3 and more of themselves: weights are random, so nothing is nearly symmetric. Modules without a program compute
# in their own precision, and lose 1e-7 a layer.
AGREE, AGREE_SINGLE = 1e-8, 1e-3
NO_PROGRAM = "its calls cannot be carried out one by one: no symmetries are read"


def read_for(
    states: Sequence[Mapping[str, torch.Tensor]],
    module: nn.Module,
    input: Input | Sequence[Input] | None = None,
    *,
    folding: Folding = "all",
) -> CheckpointArchitecture:
    """Read a module so that its folds can be carried out on these checkpoints: a gain that is 0 may have to stay."""
    architecture = read_architecture(module, input, folding=folding)
    gains = [step for step in architecture.folds if isinstance(step, GainFold)]
    stuck = {str(step.gain) for step in gains if not all(map(step.fits, states))}
    return read_architecture(module, input, folding=folding, besides=stuck) if stuck else architecture


def read_architecture(
    module: nn.Module,
    input: Input | Sequence[Input] | None = None,
    *,
    folding: Folding = "all",
    besides: Collection[str] = (),
    seed: int = 0,
) -> CheckpointArchitecture:
    """Read a module (in evaluation; itself it stays in training if it is) once for all its checkpoints.

    Gains that are named in `besides` are not folded.

    >>> found = read_architecture(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)), (3,))
    >>> [(type(space).__name__, space.size, space.permutes, space.signed) for space in found.group.spaces]
    [('UnitSpace', 4, True, False)]
    """
    module = in_evaluation(module)
    inputs = tuple(examples(module, input))
    if any(tensor.is_meta for tensor in module.parameters()):
        raise LawfulError("a module on the meta device has no weights to compare")
    exported = export_module(module, list(inputs))
    program = read_program(module, exported)
    if program is None:  # nothing to read a group from: tensors are compared as they are
        shapes = {name: tuple(tensor.shape) for name, tensor in module.named_parameters()}
        tolerance = AGREE_SINGLE if exported.rounds else AGREE
        return CheckpointArchitecture(
            module, exported, None, inputs, (), OrbitGroup((), (), shapes, 0), tolerance, (NO_PROGRAM,)
        )
    folds: tuple[Fold, ...] = find_folds(program, kinds=folding, besides=besides)
    readers = _readers(program)
    biases = {name: reader.bias for name, reader in readers.items() if reader.bias is not None}
    left = substitute(program, numbers_after(folds))  # without what was folded, in normal form again
    demands = read_demands(left, trained_names(exported), padded=padded_rows(exported))
    group = read_group(demands, set(factors(left)), biases)
    folds += _value_folds(group, readers) if folding == "all" else ()
    folds += _never_read(module, program) if folding == "all" else ()
    tolerance = AGREE
    architecture = CheckpointArchitecture(module, exported, program, inputs, folds, group, tolerance, ())
    return keep_true_symmetries(architecture, seed)


def _never_read(module: nn.Module, program: Program) -> tuple[Fold, ...]:
    """Parameters of which no output reads an entry: whatever they hold, the function is the same."""
    read = {name for name, entries in read_entries(program).items() if entries.any()}
    return tuple(DropFold(name) for name, tensor in module.named_parameters() if name not in read and tensor.ndim)


def in_evaluation(module: nn.Module) -> nn.Module:
    """The module, or one with its tensors that does not train."""
    if not any(part.training for part in module.modules()):
        return module
    return copy_module(module, shared=True).eval()


def _readers(program: Program) -> dict[str, LinearReader]:
    """The linear layers with a bias by the name of their weight, where nothing else reads weight or bias."""
    reader, readers = LayerReader(program), {}
    for node in program.nodes:
        layer = reader.layer(node)
        if layer is None or layer.is_convolution or layer.bias is None:
            continue
        if reader.is_read_once(layer.weight) and reader.is_read_once(layer.bias):
            name = str(layer.weight["name"])
            readers[name] = LinearReader(name, layer.axis, str(layer.bias["name"]))
    return readers


def _value_folds(group: OrbitGroup, readers: dict[str, LinearReader]) -> tuple[Fold, ...]:
    value_folds: list[Fold] = []
    for space in group.spaces:
        for block in (block for head in space.heads for block in head) if isinstance(space, HeadSpace) else ():
            biases = [rows for rows in block.members if len(group.shapes[rows.tensor]) == 1]
            for rows in biases:
                others = [member for member in block.members if member.powers[0] == -rows.powers[0]]
                if len(others) != 1 or rows.places.shape[1] != 1 or block.kind != "GL":
                    continue
                reader = readers.get(others[0].tensor)
                if reader is None or others[0].dims != (reader.axis,) or others[0].tensor == rows.tensor:
                    continue
                columns = tuple(tuple(int(row) for row in copy) for copy in others[0].places.T)
                value_folds.append(
                    ValueFold(rows.tensor, tuple(int(row) for row in rows.places[:, 0]), columns, reader)
                )
    return tuple(value_folds)
