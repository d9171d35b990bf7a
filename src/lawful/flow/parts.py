"""Which parts of a PyTorch module have balance laws: layers joined by positively homogeneous activations."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx, nn
from torch.nn import functional

_LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
_KINKED = (nn.ReLU, nn.LeakyReLU)
_PASSING = (
    *_KINKED, nn.Identity, nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.MaxPool1d, nn.MaxPool2d,
    nn.MaxPool3d, nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d, nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d,
    nn.AdaptiveAvgPool3d, nn.AdaptiveMaxPool1d, nn.AdaptiveMaxPool2d, nn.AdaptiveMaxPool3d,
)  # fmt: skip
_KINKED_CALLS = {torch.relu, torch.relu_, functional.relu, functional.relu_, functional.leaky_relu, "relu", "relu_"}
_PASSING_CALLS = {
    *_KINKED_CALLS, functional.dropout, functional.max_pool1d, functional.max_pool2d, functional.avg_pool2d,
    functional.adaptive_avg_pool2d, "contiguous",
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Joint:
    """A layer of hidden units: what writes them, what reads them, and whether a kink stands between."""

    name: str
    reader: str
    below: Any  # nn.Linear or a convolution
    above: Any
    units: int
    kinked: bool

    @torch.no_grad()
    def sides(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Sums of squares of the weights into and out of each unit."""
        weight, bias = self.below.weight, self.below.bias
        into = torch.linalg.vector_norm(weight.flatten(1), dim=1, dtype=torch.float64).square()
        if bias is not None:
            into = into + bias.double().square()
        readers = self.above.weight.double().square().sum(0)  # faster than a norm over a strided dimension
        return into, readers.reshape(self.units, -1).sum(1)


@dataclass(frozen=True, eq=False)
class Parts:
    """The joints of a module, grouped into maximal chains of layers, and what is not understood, with the reason."""

    joints: tuple[Joint, ...]
    chains: tuple[tuple[str, ...], ...]
    ignored: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        lines = ["understood: " + " - ".join(chain) for chain in self.chains] or ["understood: nothing"]
        return "\n".join(
            lines + [f"not understood: {name or 'the module itself'} ({why})" for name, why in self.ignored]
        )


def understand(module: nn.Module) -> Parts:
    """Find every joint: unit u's balance `Σ in² − Σ out²` is conserved if u reaches only homogeneous, unit-wise steps.

    >>> net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 4), nn.LayerNorm(4), nn.ReLU(), nn.Linear(4, 1))
    >>> print(understand(net))
    understood: 0 - 2
    not understood: 3 (LayerNorm)
    not understood: 5 (not joined to another layer)
    """
    refused = _refused(module)
    reasons: dict[str, str] = {}
    joints = []
    for name, reader, kinked, why in _links(module):
        below: Any = module.get_submodule(name)
        if why is None and reader in refused:
            why = f"its reader {reader} {refused[reader]}"
        if name in refused or why is not None or reader is None:
            reasons[name] = refused.get(name) or why or "not joined to another layer"
            continue
        above: Any = module.get_submodule(reader)
        units = len(below.weight)
        if above.weight.shape[1] % units:
            reasons[name] = f"its {units} units do not divide the inputs of {reader}"
            continue
        joints.append(Joint(name, reader, below, above, units, kinked))
    chains = _chains(joints)
    inside = {name for chain in chains for name in chain}
    ignored = []
    for name, child in module.named_modules():
        if name not in inside and any(True for _ in child.parameters(recurse=False)):
            kind = "not joined to another layer" if isinstance(child, _LAYERS) else type(child).__name__
            ignored.append((name, refused.get(name) or reasons.get(name) or kind))
    return Parts(tuple(joints), chains, tuple(ignored))


def _refused(module: nn.Module) -> dict[str, str]:
    """Layers whose weights are not free parameters of their own."""
    layers = {name: child for name, child in module.named_modules() if isinstance(child, _LAYERS)}
    owners = Counter(id(value) for child in module.modules() for value in child.parameters(recurse=False))
    found = {}
    for name, layer in layers.items():
        own = dict(layer.named_parameters(recurse=False))
        if "weight" not in own:
            found[name] = "has a parametrised weight"
        elif not all(value.requires_grad for value in own.values()):
            found[name] = "is frozen"
        elif any(owners[id(value)] > 1 for value in own.values()):
            found[name] = "shares its weight"
        elif getattr(layer, "groups", 1) != 1:
            found[name] = "is a grouped convolution"
    return found


Link = tuple[str, str | None, bool, str | None]  # layer, reader, kinked, why not


def _links(module: nn.Module) -> Iterator[Link]:
    """For every layer the next one, following the traced graph, or plain sequences where tracing fails."""
    try:
        graph = fx.Tracer().trace(module)
    except Exception:  # any user code may run while tracing, and raise anything
        yield from _sequential_links(module)
        return
    uses = Counter(node.target for node in graph.nodes if node.op == "call_module")
    for node in graph.nodes:
        if node.op == "call_module" and isinstance(module.get_submodule(str(node.target)), _LAYERS):
            if uses[node.target] > 1:
                yield str(node.target), None, False, "is used twice"
            else:
                yield (str(node.target), *_reader(module, node, uses))


def _reader(module: nn.Module, node: fx.Node, uses: Counter[Any]) -> tuple[str | None, bool, str | None]:
    kinked = False
    while True:
        if len(node.users) != 1:
            return None, kinked, f"its output is used in {len(node.users)} places"
        node = next(iter(node.users))
        if node.op == "output":
            return None, kinked, None
        child = module.get_submodule(str(node.target)) if node.op == "call_module" else None
        if isinstance(child, _LAYERS):
            if uses[node.target] > 1:
                return None, kinked, f"its reader {node.target} is used twice"
            return str(node.target), kinked, None
        if isinstance(child, nn.Flatten) or node.target in (torch.flatten, "flatten"):
            start = child.start_dim if isinstance(child, nn.Flatten) else (*node.args, node.kwargs.get("start_dim"))[1]
            if start != 1:
                return None, kinked, "its output is reshaped"
        elif isinstance(child, _PASSING) or node.target in _PASSING_CALLS:
            kinked |= isinstance(child, _KINKED) or node.target in _KINKED_CALLS
        else:
            step = type(child).__name__ if child is not None else getattr(node.target, "__name__", str(node.target))
            added = node.target in (operator.add, operator.iadd, torch.add)
            return None, kinked, f"its output goes {'into a sum' if added else 'through ' + step}"


def _sequential_links(module: nn.Module) -> Iterator[Link]:
    """The same for `nn.Sequential` containers alone; layers elsewhere are not understood."""
    for prefix, container in module.named_modules():
        if not isinstance(container, nn.Sequential):
            continue
        names = [f"{prefix}.{name}" if prefix else name for name, _ in container.named_children()]
        children = list(container.children())
        for at, child in enumerate(children):
            if not isinstance(child, _LAYERS):
                continue
            kinked = False
            for later in range(at + 1, len(children)):
                step = children[later]
                if isinstance(step, _LAYERS):
                    yield names[at], names[later], kinked, None
                    break
                if not isinstance(step, (*_PASSING, nn.Flatten)):
                    yield names[at], None, kinked, f"its output goes through {type(step).__name__}"
                    break
                kinked |= isinstance(step, _KINKED)


def _chains(joints: list[Joint]) -> tuple[tuple[str, ...], ...]:
    following = {joint.name: joint.reader for joint in joints}
    starts = [name for name in following if name not in following.values()]
    chains = []
    for name in starts:
        chain = [name]
        while chain[-1] in following:
            chain.append(following[chain[-1]])
        chains.append(tuple(chain))
    return tuple(chains)
