"""One proposal of how the tensors of one module are made into those of another that is written differently."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import permutations, product

import numpy as np
import torch

from lawful.checkpoints.architecture import CheckpointArchitecture
from lawful.checkpoints.group.spaces import MatrixBlock
from lawful.checkpoints.read_architecture import AGREE as DOUBLE
from lawful.checkpoints.read_architecture import chooses, reaching
from lawful.checkpoints.rewrite.folds import (
    CentreFold,
    DropFold,
    Fold,
    GainFold,
    LinearReader,
    MoveFold,
    State,
    StatisticsFold,
    ValueFold,
    find_folds,
)
from lawful.checkpoints.rewrite.parametrised_operators import (
    FusedLayout,
    HostRows,
    Layouts,
    LinearLayer,
    OptionalSlot,
    Slot,
    Slots,
    TensorSource,
    constant,
    cut_rows,
    match_rows,
    of,
    read_slots,
)
from lawful.checkpoints.rewrite.same_program import narrow_types
from lawful.errors import Unsupported
from lawful.program.domains.dependence import Dependence
from lawful.program.domains.interpret import interpret
from lawful.program.program import Program
from lawful.program.table import OperatorFamily


def places_in(source: TensorSource, bias: str, rows: tuple[int, ...], state: State) -> tuple[int, ...] | None:
    """Where the rows of a bias are in what is made of it."""
    start = 0
    for part in source.parts:
        if part == bias:
            break
        start += part if isinstance(part, int) else len(state[part])
    order = list(source.rows) if source.rows is not None else None
    try:
        return tuple(start + row if order is None else order.index(start + row) for row in rows)
    except ValueError:
        return None


@dataclass(frozen=True, eq=False)
class Bridge:
    """The form that two architectures share, and how the tensors of host and guest are made into it."""

    architecture: CheckpointArchitecture
    host: Mapping[str, TensorSource]
    guest: Mapping[str, TensorSource]
    words: tuple[str, ...]


class NoPlace(Exception):
    """A tensor of the guest that the host has no place for."""


class FormMatching:
    """One proposal: walk both lists of slots in the order of the programs, and say for every tensor of the host of what
    tensors of the guest it is made.

    What the guest has beside the host (a gain, the bias of a layer without one) becomes a tensor of its own in the
    common form, with a neutral value for the host, and a *virtual* fold takes it into a layer before all else. A
    proposal ends in `NoPlace`, or in a form that `agrees` tries; it never decides anything by itself.
    """

    def __init__(
        self,
        host: CheckpointArchitecture,
        guest: CheckpointArchitecture,
        host_slots: Slots,
        guest_slots: Slots,
        layouts: Layouts,
        centred: bool,
    ) -> None:
        self.host, self.guest, self.layouts, self.centred = host, guest, layouts, centred
        self.host_slots, self.guest_slots = host_slots, guest_slots
        self.host_shapes, self.guest_shapes = (_shapes(architecture) for architecture in (host, guest))
        self.guest_sources: dict[str, TensorSource] = {}
        self.host_sources: dict[str, TensorSource] = {}
        self.layers_with: dict[str, list[LinearLayer]] = {}  # of the host, by the weight of the guest they have rows of
        self.loose_biases: dict[str, str] = {}  # biases of the guest for layers of the host that have none
        self.virtual: list[Fold] = []
        self.words: list[str] = []
        self.guest_folds: dict[str, GainFold | StatisticsFold] = {}
        for step in () if guest.program is None else find_folds(guest.program, shared=True):
            if isinstance(step, (GainFold, StatisticsFold)):
                self.guest_folds |= {name: step for name in (step.gain, step.offset) if name is not None}

    def bridge(self) -> Bridge:
        """The form that it proposes, or `NoPlace`."""
        for name, tensor in self.host.state().items():
            self.host_sources[name] = of(name)
            if not tensor.is_floating_point():
                self.guest_sources[name] = TensorSource(constant=0.0, shape=tuple(tensor.shape))
        slots = self.host_slots.needed, self.guest_slots.needed
        if len(slots[0]) != len(slots[1]):
            raise NoPlace(f"{len(slots[0])} and {len(slots[1])} layers")
        epsilons = self.host_slots.epsilons, self.guest_slots.epsilons
        if len(epsilons[0]) == len(epsilons[1]):
            for one, two in zip(*epsilons, strict=True):
                if one != two:
                    raise NoPlace(f"a norm has epsilon {one} in one and {two} in the other")
        for host_slot, guest_slot in zip(*slots, strict=True):
            self._match_needed(host_slot, guest_slot)
        self._match_optional()
        self._fold_loose_biases()
        if self.guest_slots.centring and not self.host_slots.centring:
            self._centre()
        elif self.host_slots.centring and not self.guest_slots.centring:
            raise NoPlace("RMSNorm has no place in a module with LayerNorm")
        self._match_buffers()
        missing = [name for name in self.host_sources if name not in self.guest_sources]
        if missing:
            raise NoPlace(f"nothing is there for {missing[0]}")
        used = {name for source in self.guest_sources.values() for name in source.names}
        left = [name for name, _ in self.guest.module.named_parameters() if name not in used]
        if left:
            raise NoPlace(f"{left[0]} has no place")
        common = replace(
            self.host,
            folds=(*self.virtual, *self.host.folds),
            virtual=tuple(self.virtual),
            notes=tuple(dict.fromkeys((*self.host.notes, *self.guest.notes))),
        )
        return Bridge(common, self.host_sources, self.guest_sources, tuple(dict.fromkeys(self.words)))

    # What has to be in both

    def _match_needed(self, host: Slot, guest: Slot) -> None:
        layers = {"linear", "convolution"}  # other tensors may be looked up or added: the trial decides
        if (host.kind != guest.kind and {host.kind, guest.kind} & layers) or len(host.tensors) != len(guest.tensors):
            raise NoPlace(f"{guest.kind} with {', '.join(_names_in(guest))} where the other has {host.kind}")
        for name, other in zip(host.tensors, guest.tensors, strict=True):
            self._give_tensor(name, other)
        if host.kind == "linear":
            self._match_layers(host.layers, guest.layers)
        elif host.kind == "convolution":
            (mine,), (theirs,) = host.layers, guest.layers
            self._give_tensor(mine.weight, theirs.weight)
            self.layers_with[theirs.weight] = [mine]
            self._give_biases(HostRows(mine, [theirs], None))

    def _match_layers(self, host: list[LinearLayer], guest: list[LinearLayer]) -> None:
        """Linear layers that read one value: rows of the guest's, in some layout, are rows of the host's."""
        if sum(layer.outputs for layer in host) != sum(layer.outputs for layer in guest):
            raise NoPlace(f"{', '.join(layer.weight for layer in guest)}: another number of outputs")
        count = max(len(host), len(guest))
        matched = match_rows(host, guest, self.layouts.get(count, FusedLayout(tuple(range(count)))))
        for piece in cut_rows(host, guest, matched):
            transposed = {part.axis != piece.layer.axis for part in piece.parts}
            if len(transposed) != 1:
                raise NoPlace(f"{piece.layer.weight}: layers of two kinds")
            weights, outputs = tuple(part.weight for part in piece.parts), 1 - piece.layer.axis
            self._give(piece.layer.weight, TensorSource(weights, outputs, transposed.pop(), piece.rows))
            for weight in weights:
                self.layers_with.setdefault(weight, []).append(piece.layer)
            self._give_biases(piece)
        if len(host) != len(guest):
            words = [", ".join(layer.weight for layer in layers) for layers in (guest, host)]
            self.words.append(f"{words[0]} as {words[1]}")

    def _give_biases(self, piece: HostRows) -> None:
        layer = piece.layer
        source = TensorSource(tuple(part.bias or part.outputs for part in piece.parts), rows=piece.rows)
        if not source.names:
            source = constant(0.0, layer.outputs)
        if layer.bias is not None:
            self._give(layer.bias, source)
        elif source.names:
            name = _loose_bias(layer)
            self.guest_sources[name], self.host_sources[name] = source, constant(0.0, layer.outputs)
            self.loose_biases[name] = layer.weight

    # What may be in one alone

    def _match_optional(self) -> None:
        waiting = list(self.host_slots.optional)
        for guest in self.guest_slots.optional:
            host = next((slot for slot in waiting if (slot.kind, slot.place) == (guest.kind, guest.place)), None)
            if host is not None:
                waiting.remove(host)
            self._match_optional_slot(host, guest)
        for host in waiting:
            self._fill_with_neutral(host)

    def _match_optional_slot(self, host: OptionalSlot | None, guest: OptionalSlot) -> None:
        if host is not None and host.epsilon != guest.epsilon:
            raise NoPlace(f"{guest.tensors[0]} is normalised with epsilon {guest.epsilon}, and {host.tensors[0]} "
                          f"with {host.epsilon}")  # fmt: skip
        beside: dict[str, str] = {}  # names in the common form of what the host has no tensor for
        for number, theirs in enumerate(guest.tensors):
            mine = None if host is None else host.tensors[number]
            if theirs is not None and mine is not None:
                self._give_tensor(mine, theirs)
            elif theirs is not None:
                beside[theirs] = f"{theirs} (folded)"
                neutral = constant(self._neutral_value(guest, number), *self.guest_shapes[theirs])
                self.guest_sources[beside[theirs]], self.host_sources[beside[theirs]] = of(theirs), neutral
            elif mine is not None:
                self._give(mine, constant(self._neutral_value(host, number), *self.host_shapes[mine]))
        if not beside:
            return
        step = next((self.guest_folds[name] for name in guest.tensors if name in self.guest_folds), None)
        if step is None:
            raise NoPlace(f"{next(iter(beside))} has no place, and no layer to be folded into")
        if isinstance(step, StatisticsFold):
            self._fold_statistics(step, beside)
        else:
            self._fold_gain(step, beside)

    def _fold_gain(self, step: GainFold, beside: Mapping[str, str]) -> None:
        offset = None if step.offset is None else beside.get(step.offset)
        layers = [layer for reader in step.readers for layer in self.layers_with.get(reader.weight, [])]
        readers = tuple(dict.fromkeys(
            LinearReader(layer.weight, layer.axis, layer.bias if offset is None else self._bias_of(layer))
            for layer in layers
        ))  # fmt: skip
        bare = [reader.weight for reader in readers if not reader.bias]
        if offset is not None and bare:
            raise NoPlace(f"{step.offset} goes into a bias of {bare[0]}, which has none")
        gain = None if step.gain is None else beside.get(step.gain)
        self.virtual.append(GainFold(gain, offset, step.plus if gain else 0.0, readers, centred=False))
        self.words.append(f"{' and '.join(beside)} into {', '.join(reader.weight for reader in readers)}")

    def _bias_of(self, layer: LinearLayer) -> str | None:
        """The bias of a layer of the host, or the one beside the form that goes on from there, or is dead."""
        return layer.bias or (_loose_bias(layer) if _loose_bias(layer) in self.loose_biases else None)

    def _fold_statistics(self, step: StatisticsFold, beside: Mapping[str, str]) -> None:
        writer = None if step.writer is None else self.layers_with.get(step.writer.weight, [None])[0]
        if writer is None or writer.bias is None or len(beside) < 4:
            raise NoPlace(f"{step.gain} has no layer with a bias before it to be folded into")
        gain, offset, mean, variance = (beside[n] for n in (step.gain, step.offset, step.mean, step.variance))
        before = LinearReader(writer.weight, 1 - writer.axis, writer.bias)
        self.virtual.append(StatisticsFold(gain, offset, mean, variance, step.epsilon, before))
        self.virtual.append(MoveFold(offset, writer.bias))
        self.words.append(f"{step.gain} and statistics into {writer.weight}")

    def _fill_with_neutral(self, host: OptionalSlot) -> None:
        """A gain or BatchNorm that the guest has not: one that does nothing; it may take the bias before it."""
        for number, name in enumerate(host.tensors):
            if name is None:
                continue
            source = constant(self._neutral_value(host, number), *self.host_shapes[name])
            if host.kind == "statistics" and number == 1:
                layers = self.host_slots.needed[host.place - 1].layers[:1] if host.place else []
                bias = _loose_bias(layers[0]) if layers else ""
                if bias in self.loose_biases:
                    del self.loose_biases[bias], self.host_sources[bias]
                    source = self.guest_sources.pop(bias)
                    self.words.append(f"{', '.join(source.names)} as {name}")
            self._give(name, source)

    def _neutral_value(self, slot: OptionalSlot | None, number: int) -> float:
        """The value with which a gain, an offset, a mean or a variance does nothing."""
        if slot is None or slot.kind == "gain":
            folds = (*self.host.folds, *self.guest_folds.values())
            gain = None if slot is None else slot.tensors[number]
            plus = next((step.plus for step in folds if isinstance(step, GainFold) and step.gain == gain), 0.0)
            return 1.0 - plus if number == 0 else 0.0
        return (1.0, 0.0, 0.0, 1.0 - (slot.epsilon or 0.0))[number]

    def _fold_loose_biases(self) -> None:
        """Biases without a place: those of values go through attention, others have to be dead."""
        for name, weight in self.loose_biases.items():
            source = self.guest_sources[name]
            for step in self.guest.folds:
                if not isinstance(step, ValueFold) or step.bias not in source.names:
                    continue
                rows = places_in(source, step.bias, step.rows, self.guest.state())
                out = self.layers_with.get(step.reader.weight, [])
                if rows is None or len(out) != 1 or out[0].bias is None:
                    continue
                reader = LinearReader(out[0].weight, out[0].axis, out[0].bias)
                self.virtual.append(ValueFold(name, rows, step.columns, reader))
                self.words.append(f"values in {step.bias} into {out[0].bias}")
            self.virtual.append(DropFold(name))
            self.words.append(f"{', '.join(source.names)}: dead where {weight} has no bias")

    def _centre(self) -> None:
        """Means out of all that writes into a rotated stream (and out of what reads it)."""
        reading = {(layer.weight, layer.axis) for slot in self.host_slots.needed for layer in slot.layers}
        amount = "LayerNorm (centring)"
        for space in self.host.group.spaces:
            for rows in space.members if isinstance(space, MatrixBlock) and space.kind == "O" else ():
                if len(rows.dims) == 1 and (self.centred or (rows.tensor, rows.dims[0]) not in reading):
                    self.virtual.append(CentreFold(rows.tensor, rows.dims[0], amount))
        if not any(isinstance(step, CentreFold) for step in self.virtual):
            raise NoPlace("LayerNorm has no place in a module without it")
        self.guest_sources[amount], self.host_sources[amount] = constant(1.0, 1), constant(0.0, 1)
        self.words.append("LayerNorm as RMSNorm of centred values")

    def _match_buffers(self) -> None:
        """Buffers are those of the same name; without one, the module's own, if no checkpoint has another."""
        theirs, stored = dict(self.guest.module.named_buffers()), self.host.module.state_dict()
        for name, tensor in self.host.module.named_buffers():
            if name in self.guest_sources and tensor.is_floating_point():
                continue
            if name in theirs and theirs[name].shape == tensor.shape:
                self.guest_sources[name] = of(name)
            elif name in stored and (self.host.program is None or name in self.host.program.buffers):
                raise NoPlace(f"nothing is there for {name}")
            else:
                self.guest_sources.pop(name, None)
                self.host_sources.pop(name, None)

    def _give_tensor(self, name: str, theirs: str) -> None:
        """A tensor of the host is one of the guest."""
        if self.guest_shapes[theirs] != self.host_shapes[name]:
            raise NoPlace(f"{name} is {self.host_shapes[name]}, and {theirs} is {self.guest_shapes[theirs]}")
        self._give(name, of(theirs))

    def _give(self, name: str, source: TensorSource) -> None:
        """Of what a tensor of the host is made; a tied one is given several times, and has to be one and the same."""
        before = self.guest_sources.setdefault(name, source)
        if before != source:
            both = dict.fromkeys((*before.names, *source.names))
            raise NoPlace(f"{name} is used twice (tied), and stands for {' and '.join(both)}")
        if source.plain not in (None, name):
            tied = [twin for twin, other in self.guest_sources.items() if other.plain == source.plain and twin != name]
            if tied:
                self.words.append(f"{source.plain}, tied, as {tied[0]} and {name}")


def _shapes(architecture: CheckpointArchitecture) -> dict[str, tuple[int, ...]]:
    return {name: tuple(tensor.shape) for name, tensor in architecture.state().items()}


def _loose_bias(layer: LinearLayer) -> str:
    """What the common form calls the bias of a layer that has none in the host."""
    return f"{layer.weight} (bias)"


def _names_in(slot: Slot) -> list[str]:
    return [*slot.tensors, *(layer.weight for layer in slot.layers)]


# One of the two modules (the host) gives the form. Every tensor of the host is made of tensors of the other module (the
# guest) by moving numbers; what the guest has and the host has not (gains, offsets, statistics, biases) stays beside
# them under a name of its own and is folded. Each step is a proposal: with random weights in float64, the guest and
# the host with the guest's tensors have to compute the same, at several scales, before it is used.

# Two ways to compute one function differ by some 1e-14 of the outputs' size in float64 over a hundred layers, wrong
# layouts by 1e-2 and more, and constants that are rounded to float32 in one of them by 1e-8: these are to be seen.
# Modules that compute in float32 themselves differ by 1e-7 a layer.
AGREE, AGREE_SINGLE = 1e-11, 1e-5
# Of all weights. An ε of 1e-5 beside a variance of 1 changes outputs by 5e-6, which `AGREE_SINGLE` would pass; with
# small weights the variance is near ε, and the constant shows itself in full.
SCALES = (1.0, 1e-3)
MOST_LAYERS = 4  # that are fused: all their orders are tried, 24 of four


def find_bridges(host: CheckpointArchitecture, guest: CheckpointArchitecture) -> list[Bridge]:
    """Forms of the host for checkpoints of the guest, or `Unsupported` with what stands in the way.

    There are two where LayerNorm becomes RMSNorm: what reads centred values may have been centred too, or not.
    """
    if host.program is None or guest.program is None:
        raise Unsupported("what a module computes is not known call by call")
    if apart := sorted({*narrow_types(host.program)} ^ {*narrow_types(guest.program)}):
        raise Unsupported(f"one alone {' and '.join(apart)}")
    slots = read_slots(host.program), read_slots(guest.program)
    acts = activations(host.program), activations(guest.program)
    if alone := sorted(((acts[0] - acts[1]) + (acts[1] - acts[0])).items()):  # a cap that no trial reaches, say
        raise Unsupported(
            f"activations that one alone has: {', '.join(f'{name} {count} times' for name, count in alone)}"
        )
    reasons: list[str] = []
    bridges: list[Bridge] = []
    for centred in (False, True) if slots[1].centring and not slots[0].centring else (False,):
        for layouts in _layouts(*slots):
            try:
                one = FormMatching(host, guest, *slots, layouts, centred).bridge()
            except NoPlace as error:
                reasons.append(str(error))
                break
            if agrees(one, guest):
                bridges.append(one)
                break
    if not bridges:
        raise Unsupported(reasons[0] if reasons else "with the same weights the two modules compute different things")
    return bridges


def agrees(bridge: Bridge, guest: CheckpointArchitecture, seed: int = 0) -> bool:
    """Whether host and guest compute the same with random weights of the guest."""
    generator = torch.Generator().manual_seed(seed)
    names = {name for source in bridge.guest.values() for name in source.names}
    for scale in SCALES:
        theta: State = {}
        for name, tensor in guest.state().items():
            if tensor.is_floating_point() and name in names:
                noise = torch.randn(tensor.shape, generator=generator, dtype=torch.float64)
                if tensor.ndim > 1:  # large enough for every part to matter
                    tensor = scale * 1.5 * noise / tensor[0].numel() ** 0.5
                else:
                    tensor = scale * (tensor.double() + 0.5 * noise)
                tensor = tensor.abs() if name.endswith("running_var") else tensor
            theta[name] = tensor
        many = _inputs(bridge.architecture, guest, theta, seed)
        one = [tensor for outputs in guest.replays(theta, many) for tensor in outputs]
        two = [
            tensor
            for outputs in bridge.architecture.replays(make_tensors(bridge.guest, theta), many)
            for tensor in outputs
        ]
        if [tensor.shape for tensor in one] != [tensor.shape for tensor in two]:
            return False
        size = max((float(tensor.abs().max()) for tensor in one), default=0.0)
        gap = max((float((a - b).abs().max()) for a, b in zip(one, two, strict=True)), default=0.0)
        if not gap <= agreement(bridge.architecture, guest) * size:
            return False
    return True


def _inputs(
    host: CheckpointArchitecture, guest: CheckpointArchitecture, theta: State, seed: int
) -> list[list[torch.Tensor]]:
    """Random inputs; of modules that choose so many that all tensors matter to some output."""
    if not (chooses(host) or chooses(guest)):
        return [guest.draw_inputs(seed)]
    if guest.program is not None and not guest.large:
        many, masks = reaching(guest, theta, seed, lambda masks: all(bool(mask.any()) for mask in masks.values()))
        if all(bool(mask.any()) for mask in masks.values()):
            return many
    raise Unsupported("a module chooses between its parts, and not all of them could be tried")


def agreement(host: CheckpointArchitecture, guest: CheckpointArchitecture) -> float:
    """How closely, of their size, outputs of one function agree: not as well if a module always computes in singles."""
    return AGREE_SINGLE if max(host.tolerance, guest.tolerance) > DOUBLE else AGREE


UNREACHED = float(np.finfo(np.float32).max)  # limits that no number in single precision is beyond: masks have them


def activations(program: Program) -> Counter[str]:
    """What bends values entry by entry, with its constants, and at how many entries: no rewriting changes that.

    Caps and thresholds belong to it: `min(x, 6)` does nothing to small values, and trials see few large ones.
    """
    trained, inputs = set(program.parameters), {node["name"] for node in program.inputs}
    real = {node["name"] for node in program.inputs if node.kind in "fc"}  # ids are only compared before a table
    depends = interpret(program, Dependence(), keep=program.nodes)
    values = {node for node in program.nodes
              if (depends[node] & trained and depends[node] & inputs) or depends[node] & real}  # fmt: skip
    counts: Counter[str] = Counter()
    for node in program.nodes:
        limits = [float(operand["value"].item()) for operand in node.inputs
                  if operand.op == "constant" and operand.size == 1]  # fmt: skip
        bends = node.family is OperatorFamily.ELEMENTWISE
        caps = node.family in (OperatorFamily.CHOICE, OperatorFamily.COMPARISON) and len(node.inputs) == 2
        if node in values and (bends or (caps and all(abs(limit) < UNREACHED for limit in limits))):
            counts[f"{node.op}{dict(node.attributes) or ''}{limits or ''}"] += node.size
    return counts


def make_tensors(sources: Mapping[str, TensorSource], state: Mapping[str, torch.Tensor]) -> State:
    """The tensors of the common form."""
    return {name: source.make(state) for name, source in sources.items()}


def _layouts(host: Slots, guest: Slots) -> Iterator[Layouts]:
    """All layouts that are tried: every order of the layers, one after the other and then alternating by heads."""
    sizes = sorted({max(len(one.layers), len(two.layers)) for one, two in zip(host.needed, guest.needed, strict=False)})
    several = [size for size in sizes if 1 < size <= MOST_LAYERS]
    orders = [list(permutations(range(size))) for size in several]
    for heads in (0, *_head_counts(host, guest)):
        for chosen in product(*orders):
            yield {size: FusedLayout(order, heads) for size, order in zip(several, chosen, strict=True)}


def _head_counts(host: Slots, guest: Slots) -> list[int]:
    """How many heads a fused layer of three may alternate by: divisors of the rows of each."""
    for one, two in zip(host.needed, guest.needed, strict=False):
        if {len(one.layers), len(two.layers)} == {1, 3}:
            rows = max((one, two), key=lambda slot: len(slot.layers)).layers[0].outputs
            return [count for count in range(2, min(rows, 129)) if rows % count == 0]
    return []
