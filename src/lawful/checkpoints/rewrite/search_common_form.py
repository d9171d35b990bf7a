"""Two ways to write one model, brought to one form: fused or split layers, folded norms, tied heads, dead biases.

One of the two modules (the host) gives the form. Every tensor of the host is made of tensors of the other module (the
guest) by moving numbers; what the guest has and the host has not (gains, offsets, statistics, biases) stays beside them
under a name of its own and is folded. Each step is a proposal: with random weights in float64, the guest and the host
with the guest's tensors have to compute the same, at several scales, before it is used.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import permutations, product

import torch

from lawful.checkpoints.architecture import CheckpointArchitecture
from lawful.checkpoints.group.trials import chooses, reaching
from lawful.checkpoints.rewrite.common_form import Bridge, FormMatching, NoPlace
from lawful.checkpoints.rewrite.folds import State
from lawful.checkpoints.rewrite.parametrised_operators import Slots, TensorSource, read_slots
from lawful.errors import Unsupported
from lawful.program.domains.dependence import Dependence
from lawful.program.domains.interpret import interpret
from lawful.program.program import Program
from lawful.program.table import OperatorFamily

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
