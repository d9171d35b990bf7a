"""One proposal of how the tensors of one module are made into those of another that is written differently."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations, product

import torch

from lawful.checkpoints.architecture import CheckpointArchitecture
from lawful.checkpoints.group.spaces import MatrixBlock
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
    LinearLayer,
    OptionalSlot,
    Slot,
    Slots,
    TensorSource,
    constant,
    of,
    read_slots,
)
from lawful.errors import Unsupported
from lawful.program.domains.dependence import Dependence
from lawful.program.domains.interpret import interpret
from lawful.program.program import Program
from lawful.program.table import OperatorFamily


def starts_of(sizes: Sequence[int]) -> list[int]:
    """Where each of several pieces begins when they are joined."""
    return [sum(sizes[:k]) for k in range(len(sizes))]


def map_rows(mine: Sequence[LinearLayer], theirs: Sequence[LinearLayer], order: Sequence[int], dealt: int) -> list[int]:
    """For each row of my layers, joined, the row of theirs: the several ones stand in some order, and their rows may be
    dealt out to so many heads."""
    fusing, splitting = len(mine) < len(theirs), len(mine) > len(theirs)
    several = mine if splitting else theirs
    starts = starts_of([layer.outputs for layer in several])
    pieces = [list(range(starts[k], starts[k] + several[k].outputs)) for k in order]
    places = [row for piece in pieces for row in piece]
    if dealt and (fusing or splitting) and len({len(piece) for piece in pieces}) == 1:
        size = len(pieces[0]) // dealt
        places = [row for head in range(dealt) for piece in pieces for row in piece[head * size : (head + 1) * size]]
    if splitting:  # `places[i]` is where row i of theirs goes
        return sorted(range(len(places)), key=places.__getitem__)
    return places


def pieces_of(
    mine: Sequence[LinearLayer], theirs: Sequence[LinearLayer], places: Sequence[int]
) -> Iterator[tuple[LinearLayer, list[LinearLayer], tuple[int, ...] | None]]:
    """Each of my layers, those of theirs whose rows it has, and which rows of these, joined; None for all in order."""
    owner = [(layer, row) for layer in theirs for row in range(layer.outputs)]
    start = 0
    for layer in mine:
        wanted = [owner[place] for place in places[start : start + layer.outputs]]
        start += layer.outputs
        parts = [each for each in theirs if any(held is each for held, _ in wanted)]
        before = dict(zip(map(id, parts), starts_of([each.outputs for each in parts]), strict=True))
        rows = tuple(before[id(held)] + row for held, row in wanted)
        yield layer, parts, None if rows == tuple(range(sum(each.outputs for each in parts))) else rows


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
    """One proposal."""

    def __init__(
        self,
        host: CheckpointArchitecture,
        guest: CheckpointArchitecture,
        host_slots: Slots,
        guest_slots: Slots,
        layout: Mapping[int, tuple[tuple[int, ...], int]],
        centred: bool,
    ) -> None:
        self.host, self.guest, self.layout, self.centred = host, guest, layout, centred
        self.slots = host_slots, guest_slots
        self.guest_sources: dict[str, TensorSource] = {}  # of the guest
        self.host_sources: dict[str, TensorSource] = {}  # of the host
        self.homes: dict[str, list[LinearLayer]] = {}  # which layers of the host hold rows of a weight of the guest
        self.homeless: dict[str, str] = {}  # biases of the guest beside the form, by the name they have there
        self.virtual: list[Fold] = []
        self.words: list[str] = []

    def bridge(self) -> Bridge:
        """The form that it proposes, or `NoPlace`."""
        for name, tensor in self.host.state().items():
            self.host_sources[name] = of(name)
            if not tensor.is_floating_point():
                self.guest_sources[name] = TensorSource(constant=0.0, shape=tuple(tensor.shape))
        needed = self.slots[0].needed, self.slots[1].needed
        if len(needed[0]) != len(needed[1]):
            raise NoPlace(f"{len(needed[0])} and {len(needed[1])} layers")
        if len(self.slots[0].epsilons) == len(self.slots[1].epsilons):
            for ours, theirs in zip(self.slots[0].epsilons, self.slots[1].epsilons, strict=True):
                if ours != theirs:
                    raise NoPlace(f"a norm has epsilon {ours} in one and {theirs} in the other")
        for one, two in zip(*needed, strict=True):
            self._match_needed(one, two)
        self._optional()
        self._homeless()
        if self.slots[1].centring and not self.slots[0].centring:
            self._centre()
        elif self.slots[0].centring and not self.slots[1].centring:
            raise NoPlace("RMSNorm has no place in a module with LayerNorm")
        self._buffers()
        missing = [name for name in self.host_sources if name not in self.guest_sources]
        if missing:
            raise NoPlace(f"nothing is there for {missing[0]}")
        used = {name for source in self.guest_sources.values() for name in source.names}
        left = [name for name in dict(self.guest.module.named_parameters()) if name not in used]
        if left:
            raise NoPlace(f"{left[0]} has no place")
        joined = replace(
            self.host,
            folds=(*self.virtual, *self.host.folds),
            virtual=tuple(self.virtual),
            notes=tuple(dict.fromkeys((*self.host.notes, *self.guest.notes))),
        )
        return Bridge(joined, self.host_sources, self.guest_sources, tuple(dict.fromkeys(self.words)))

    # What has to be in both

    def _match_needed(self, one: Slot, two: Slot) -> None:
        layers = {"linear", "convolution"}  # other tensors may be looked up or added: the trial decides
        if (one.kind != two.kind and {one.kind, two.kind} & layers) or len(one.tensors) != len(two.tensors):
            raise NoPlace(f"{two.kind} with {', '.join(_names_in(two))} where the other has {one.kind}")
        for host_sources, other in zip(one.tensors, two.tensors, strict=True):
            self._give(host_sources, of(other), self._sizes(self.guest, other))
        if one.kind == "linear":
            self._bundle(one.layers, two.layers)
        elif one.kind == "convolution":
            (mine,), (theirs,) = one.layers, two.layers
            self._give(mine.weight, of(theirs.weight), self._sizes(self.guest, theirs.weight))
            self.homes[theirs.weight] = [mine]
            self._biases([mine], [theirs], tuple(range(mine.outputs)))

    def _bundle(self, mine: list[LinearLayer], theirs: list[LinearLayer]) -> None:
        """Layers that read one value: rows of theirs, joined in some order, are rows of mine."""
        rows = sum(layer.outputs for layer in mine)
        if rows != sum(layer.outputs for layer in theirs):
            raise NoPlace(f"{', '.join(layer.weight for layer in theirs)}: another number of outputs")
        count = max(len(mine), len(theirs))
        places = map_rows(mine, theirs, *self.layout.get(count, (tuple(range(count)), 0)))
        self._rows(mine, theirs, tuple(places))
        if len(mine) != len(theirs):
            words = [", ".join(layer.weight for layer in layers) for layers in (theirs, mine)]
            self.words.append(f"{words[0]} as {words[1]}")

    def _rows(self, mine: list[LinearLayer], theirs: list[LinearLayer], places: tuple[int, ...]) -> None:
        """Row i of my joined layers is row `places[i]` of theirs."""
        for layer, parts, rows in pieces_of(mine, theirs, places):
            turned = {each.axis != layer.axis for each in parts}
            if len(turned) != 1:
                raise NoPlace(f"{layer.weight}: layers of two kinds")
            out = 1 - layer.axis
            source = TensorSource(tuple(each.weight for each in parts), out, turned.pop(), rows)
            self._give(layer.weight, source, None)
            for each in parts:
                self.homes.setdefault(each.weight, []).append(layer)
        self._biases(mine, theirs, places)

    def _biases(self, mine: list[LinearLayer], theirs: list[LinearLayer], places: tuple[int, ...]) -> None:
        for layer, parts, rows in pieces_of(mine, theirs, places):
            if not any(each.bias for each in parts):
                if layer.bias is not None:
                    self._give(layer.bias, constant(0.0, layer.outputs), None)
                continue
            pieces = tuple(each.bias or each.outputs for each in parts)
            source = TensorSource(pieces, rows=rows)
            if layer.bias is not None:
                self._give(layer.bias, source, None)
                continue
            name = f"{layer.weight} (bias)"
            self.guest_sources[name], self.host_sources[name] = source, constant(0.0, layer.outputs)
            self.homeless[name] = layer.weight

    # What may be in one alone

    def _optional(self) -> None:
        waiting = list(self.slots[0].optional)
        folds = self._guest_folds()
        for theirs in self.slots[1].optional:
            mine = next((each for each in waiting if (each.kind, each.place) == (theirs.kind, theirs.place)), None)
            if mine is not None:
                waiting.remove(mine)
            self._pair(mine, theirs, folds)
        for mine in waiting:
            self._neutral(mine)

    def _pair(self, mine: OptionalSlot | None, theirs: OptionalSlot, folds: Mapping[str, Fold]) -> None:
        if mine is not None and mine.epsilon != theirs.epsilon:
            raise NoPlace(f"{theirs.tensors[0]} is normalised with epsilon {theirs.epsilon}, and {mine.tensors[0]} "
                          f"with {mine.epsilon}")  # fmt: skip
        over: list[int] = []
        for number, name in enumerate(theirs.tensors):
            host_sources = None if mine is None else mine.tensors[number]
            if name is not None and host_sources is not None:
                self._give(host_sources, of(name), self._sizes(self.guest, name))
            elif name is not None:
                over.append(number)
            elif host_sources is not None:
                self._give(
                    host_sources, constant(self._resting(mine, number), *self._sizes(self.host, host_sources)), None
                )
        if not over:
            return
        given = next((folds[str(name)] for name in theirs.tensors if name in folds), None)
        if given is None:
            raise NoPlace(f"{theirs.tensors[over[0]]} has no place, and no layer to be folded into")
        beside: dict[str, str] = {}
        for number in over:
            name = str(theirs.tensors[number])
            beside[name] = f"{name} (folded)"
            self.guest_sources[beside[name]] = of(name)
            rest = self._resting(theirs, number)
            self.host_sources[beside[name]] = constant(rest, *self._sizes(self.guest, name))
        if isinstance(given, StatisticsFold):
            self._statistics(given, beside)
        elif isinstance(given, GainFold):
            self._gain(given, beside)

    def _gain(self, given: GainFold, beside: Mapping[str, str]) -> None:
        offset = None if given.offset is None else beside.get(given.offset)
        readers = tuple(
            LinearReader(layer.weight, layer.axis, layer.bias if offset is None else self._bias_of(layer))
            for reader in given.readers
            for layer in self.homes.get(reader.weight, [])
        )
        readers = tuple(dict.fromkeys(readers))
        if offset is not None and not all(reader.bias for reader in readers):
            bare = next(reader.weight for reader in readers if not reader.bias)
            raise NoPlace(f"{given.offset} goes into a bias of {bare}, which has none")
        gain = None if given.gain is None else beside.get(given.gain)
        self.virtual.append(GainFold(gain, offset, given.plus if gain else 0.0, readers, centred=False))
        self.words.append(f"{' and '.join(beside)} into {', '.join(reader.weight for reader in readers)}")

    def _bias_of(self, layer: LinearLayer) -> str | None:
        """The bias of a layer of the host, or the one beside the form that goes on from there, or is dead."""
        beside = f"{layer.weight} (bias)"
        return layer.bias or (beside if beside in self.homeless else None)

    def _statistics(self, given: StatisticsFold, beside: Mapping[str, str]) -> None:
        writer = None if given.writer is None else self.homes.get(given.writer.weight, [None])[0]
        if writer is None or writer.bias is None or len(beside) < 4:
            raise NoPlace(f"{given.gain} has no layer with a bias before it to be folded into")
        gain, offset, mean, variance = (beside[n] for n in (given.gain, given.offset, given.mean, given.variance))
        before = LinearReader(writer.weight, 1 - writer.axis, writer.bias)
        self.virtual.append(StatisticsFold(gain, offset, mean, variance, given.epsilon, before))
        self.virtual.append(MoveFold(offset, writer.bias))
        self.words.append(f"{given.gain} and statistics into {writer.weight}")

    def _neutral(self, mine: OptionalSlot) -> None:
        """A gain or BatchNorm that the guest has not: one that does nothing; it may take the bias before it."""
        for number, name in enumerate(mine.tensors):
            if name is None:
                continue
            source = constant(self._resting(mine, number), *self._sizes(self.host, name))
            if mine.kind == "statistics" and number == 1:
                waiting = self.slots[0].needed[mine.place - 1].layers[:1] if mine.place else []
                beside = f"{waiting[0].weight} (bias)" if waiting else ""
                if beside in self.homeless:
                    del self.homeless[beside], self.host_sources[beside]
                    source = self.guest_sources.pop(beside)
                    self.words.append(f"{', '.join(source.names)} as {name}")
            self._give(name, source, None)

    def _resting(self, slot: OptionalSlot | None, number: int) -> float:
        """The value with which a gain, an offset, a mean or a variance does nothing."""
        if slot is None or slot.kind == "gain":
            host_sources = (*self.host.folds, *self._guest_folds().values())
            named = None if slot is None else slot.tensors[number]
            plus = next((each.plus for each in host_sources if isinstance(each, GainFold) and each.gain == named), 0.0)
            return 1.0 - plus if number == 0 else 0.0
        return (1.0, 0.0, 0.0, 1.0 - (slot.epsilon or 0.0))[number]

    def _homeless(self) -> None:
        """Biases without a place: those of values go through attention, others have to be dead."""
        for name, weight in self.homeless.items():
            source = self.guest_sources[name]
            for each in self.guest.folds:
                if not isinstance(each, ValueFold) or each.bias not in source.names:
                    continue
                rows = places_in(source, each.bias, each.rows, self.guest.state())
                out = self.homes.get(each.reader.weight, [])
                if rows is None or len(out) != 1 or out[0].bias is None:
                    continue
                self.virtual.append(
                    ValueFold(name, rows, each.columns, LinearReader(out[0].weight, out[0].axis, out[0].bias))
                )
                self.words.append(f"values in {each.bias} into {out[0].bias}")
            self.virtual.append(DropFold(name))
            self.words.append(f"{', '.join(source.names)}: dead where {weight} has no bias")

    def _centre(self) -> None:
        """Means out of all that writes into a rotated stream (and out of what reads it)."""
        reading = {(layer.weight, layer.axis) for slot in self.slots[0].needed for layer in slot.layers}
        name = "LayerNorm (centring)"
        for space in self.host.group.spaces:
            for rows in space.members if isinstance(space, MatrixBlock) and space.kind == "O" else ():
                if len(rows.dims) == 1 and (self.centred or (rows.tensor, rows.dims[0]) not in reading):
                    self.virtual.append(CentreFold(rows.tensor, rows.dims[0], name))
        if not any(isinstance(each, CentreFold) for each in self.virtual):
            raise NoPlace("LayerNorm has no place in a module without it")
        self.guest_sources[name], self.host_sources[name] = constant(1.0, 1), constant(0.0, 1)
        self.words.append("LayerNorm as RMSNorm of centred values")

    def _buffers(self) -> None:
        """Buffers are those of the same name; without one, the module's own, if no checkpoint has another."""
        theirs, stored = dict(self.guest.module.named_buffers()), self.host.module.state_dict()
        for name, tensor in self.host.module.named_buffers():
            if name in self.guest_sources and tensor.is_floating_point():
                continue
            if name in theirs and theirs[name].shape == tensor.shape:
                self.guest_sources[name] = of(name)
            elif name in stored and self._is_read(name):
                raise NoPlace(f"nothing is there for {name}")
            else:
                self.guest_sources.pop(name, None)
                self.host_sources.pop(name, None)

    # Helpers

    def _is_read(self, name: str) -> bool:
        return self.host.program is None or name in self.host.program.buffers

    def _guest_folds(self) -> dict[str, Fold]:
        if not hasattr(self, "_folds"):
            self._folds: dict[str, Fold] = {}
            program = self.guest.program
            for each in () if program is None else find_folds(program, shared=True):
                if isinstance(each, GainFold):
                    self._folds |= {name: each for name in (each.gain, each.offset) if name is not None}
                elif isinstance(each, StatisticsFold):
                    self._folds |= dict.fromkeys((each.gain, each.offset), each)
        return self._folds

    def _sizes(self, which: CheckpointArchitecture, name: str) -> tuple[int, ...]:
        return tuple(which.state()[name].shape)

    def _give(self, name: str, source: TensorSource, sizes: Sequence[int] | None) -> None:
        wanted = self._sizes(self.host, name)
        if sizes is not None and tuple(sizes) != wanted:
            raise NoPlace(f"{name} is {wanted}, and {', '.join(source.names)} is {tuple(sizes)}")
        if self.guest_sources.get(name, source) != source:
            both = dict.fromkeys((*self.guest_sources[name].names, *source.names))
            raise NoPlace(f"{name} is used twice (tied), and stands for {' and '.join(both)}")
        self.guest_sources[name] = source
        if source.parts and self.guest_sources[name].plain != name and len(source.names) == 1 and source.rows is None:
            tied = [
                host_sources
                for host_sources, other in self.guest_sources.items()
                if other.plain == source.plain and host_sources != name
            ]
            if tied and source.plain is not None:
                self.words.append(f"{source.plain}, tied, as {tied[0]} and {name}")


def _names_in(slot: Slot) -> list[str]:
    return [*slot.tensors, *(layer.weight for layer in slot.layers)]


# One of the two modules (the host) gives the form. Every tensor of the host is made of tensors of the other module (the
# guest) by moving numbers; what the guest has and the host has not (gains, offsets, statistics, biases) stays beside
# them under a name of its own and is folded. Each step is a proposal: with random weights in float64, the guest and
# the host with the guest's tensors have to compute the same, at several scales, before it is used.

AGREE, AGREE_SINGLE = 1e-8, 1e-5  # of the outputs' size
SCALES = (1.0, 1e-3)  # of all weights: constants such as ε show themselves at one of them
MOST_LAYERS = 4  # in a bundle, whose order is looked for


def find_bridges(host: CheckpointArchitecture, guest: CheckpointArchitecture) -> list[Bridge]:
    """Forms of the host for checkpoints of the guest, or `Unsupported` with what stands in the way.

    There are two where LayerNorm becomes RMSNorm: what reads centred values may have been centred too, or not.
    """
    if host.program is None or guest.program is None:
        raise Unsupported("what a module computes is not known call by call")
    slots = read_slots(host.program), read_slots(guest.program)
    acts = activations(host.program), activations(guest.program)
    if _loose(host, guest) and acts[0] != acts[1]:  # what single precision might hide
        words = [", ".join(f"{count} {name}" for name, count in sorted(counts.items())) or "none" for counts in acts]
        raise Unsupported(f"activations: {words[0]} in one, {words[1]} in the other")
    reasons: list[str] = []
    bridges: list[Bridge] = []
    for centred in (False, True) if slots[1].centring and not slots[0].centring else (False,):
        for layout in _layouts(*slots):
            try:
                one = FormMatching(host, guest, *slots, layout, centred).bridge()
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
        if not gap <= (AGREE_SINGLE if _loose(bridge.architecture, guest) else AGREE) * size:
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


def _loose(host: CheckpointArchitecture, guest: CheckpointArchitecture) -> bool:
    """Whether one of them computes in single precision, whatever it is given."""
    return max(host.tolerance, guest.tolerance) > AGREE


def activations(program: Program) -> Counter[str]:
    """What is applied entry by entry to values, with its constants: no rewriting changes that."""
    trained, inputs = set(program.parameters), {node["name"] for node in program.inputs}
    depends = interpret(program, Dependence(), keep=program.nodes)
    counts: Counter[str] = Counter()
    for node in program.nodes:
        is_value = depends[node] & trained and depends[node] & inputs
        if node.family is OperatorFamily.ELEMENTWISE and is_value and "exponent" not in node.attributes:
            counts[f"{node.op}{dict(node.attributes) or ''}"] += 1
    return counts


def make_tensors(sources: Mapping[str, TensorSource], state: Mapping[str, torch.Tensor]) -> State:
    """The tensors of the common form."""
    return {name: source.make(state) for name, source in sources.items()}


def _layouts(host: Slots, guest: Slots) -> Iterator[dict[int, tuple[tuple[int, ...], int]]]:
    """Orders of the layers in a bundle, by their number, and whether rows are dealt out head by head."""
    sizes = sorted({max(len(one.layers), len(two.layers)) for one, two in zip(host.needed, guest.needed, strict=False)})
    several = [size for size in sizes if 1 < size <= MOST_LAYERS]
    orders = [list(permutations(range(size))) for size in several]
    for dealt in (0, *_head_counts(host, guest)):
        for picked in product(*orders):
            yield {size: (order, dealt) for size, order in zip(several, picked, strict=True)}


def _head_counts(host: Slots, guest: Slots) -> list[int]:
    """Into how many heads the rows of a fused layer may be dealt."""
    for one, two in zip(host.needed, guest.needed, strict=False):
        if {len(one.layers), len(two.layers)} == {1, 3}:
            rows = max((one, two), key=lambda slot: len(slot.layers)).layers[0].outputs
            return [count for count in range(2, min(rows, 129)) if rows % count == 0]
    return []
