"""Which kinds of layers there are, and which layer feeds which: what is known of a module before it has an input.

Everything that can name the size of an input reads the exported graph instead (`export`), which sees every call.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Iterator
from typing import Any

import torch
from torch import fx, nn
from torch.nn import functional

CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
LAYERS = (nn.Linear, *CONVOLUTIONS)  # a weight with a row for each unit that it writes
KINKED = (nn.ReLU, nn.LeakyReLU)
UNITWISE = (*KINKED, nn.Identity, nn.Dropout)  # scale with each unit, place by place
POOLS = (nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d, nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d)
PASSING = (
    *UNITWISE, *POOLS, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d,
    nn.AdaptiveAvgPool3d, nn.AdaptiveMaxPool1d, nn.AdaptiveMaxPool2d, nn.AdaptiveMaxPool3d,
)  # positively homogeneous, and every unit keeps to itself  # fmt: skip
KINKED_CALLS = {torch.relu, torch.relu_, functional.relu, functional.relu_, functional.leaky_relu, "relu", "relu_"}
PASSING_CALLS = {
    *KINKED_CALLS, functional.dropout, functional.max_pool1d, functional.max_pool2d, functional.avg_pool2d,
    functional.adaptive_avg_pool2d, "contiguous",
}  # fmt: skip


Link = tuple[str, str | None, bool, str | None]  # layer, reader, kinked, why not


def layer_links(module: nn.Module) -> Iterator[Link]:
    """For every layer the next one that alone reads its units, or why there is none.

    The module's own code is followed symbolically; where that fails, plain sequences are.

    >>> list(layer_links(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))))
    [('0', '2', True, None), ('2', None, False, None)]
    """
    try:
        graph = fx.Tracer().trace(module)
    except Exception:  # any user code may run while tracing, and raise anything
        yield from _sequential_links(module)
        return
    uses = Counter(node.target for node in graph.nodes if node.op == "call_module")
    uses += Counter(str(node.target).rpartition(".")[0] for node in graph.nodes if node.op == "get_attr")
    for node in graph.nodes:
        if node.op == "call_module" and isinstance(module.get_submodule(str(node.target)), LAYERS):
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
        if isinstance(child, LAYERS):
            if uses[node.target] > 1:
                return None, kinked, f"its reader {node.target} is used twice"
            return str(node.target), kinked, None
        if isinstance(child, nn.Flatten) or node.target in (torch.flatten, "flatten"):
            start = child.start_dim if isinstance(child, nn.Flatten) else (*node.args, node.kwargs.get("start_dim"))[1]
            if start != 1:
                return None, kinked, "its output is reshaped"
        elif isinstance(child, PASSING) or node.target in PASSING_CALLS:
            kinked |= isinstance(child, KINKED) or node.target in KINKED_CALLS
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
            if not isinstance(child, LAYERS):
                continue
            kinked = False
            for later in range(at + 1, len(children)):
                step = children[later]
                if isinstance(step, LAYERS):
                    yield names[at], names[later], kinked, None
                    break
                if not isinstance(step, (*PASSING, nn.Flatten)):
                    yield names[at], None, kinked, f"its output goes through {type(step).__name__}"
                    break
                kinked |= isinstance(step, KINKED)
