"""Whether a module's or file's graph is a graph of *its own* weights: each edge one trainable number, each used once.

The balance of a neuron is conserved because scaling it moves its weights and nothing else. A convolution's kernel at
many places, a layer called twice, the 1 of a skip, a frozen layer or a folded normalisation are not such edges: read as
if they were, they give locks that training walks through.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lawful.errors import Unsupported

if TYPE_CHECKING:
    from torch import fx, nn

ELEMENTWISE = ("relu", "leaky_relu", "prelu", "dropout", "identity", "clone", "contiguous")
RESHAPES = ("flatten", "view", "reshape")
ONNX_PLAIN = ("Relu", "LeakyRelu", "PRelu", "Identity", "Dropout", "Flatten", "Constant")
REASON = "its weights are not one number an edge, used once and trained: balances of its unrolled graph would be false"


def check_module(module: nn.Module, shape: tuple[int, ...]) -> None:
    """Refuse a module unless it is a chain of Linear layers with their own trained weights; `shape` has no batch.

    >>> from torch import nn
    >>> check_module(nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1)), (2,))
    >>> check_module(nn.Sequential(nn.Conv1d(1, 1, 1), nn.ReLU(), nn.Flatten(), nn.Linear(2, 1)), (1, 2))
    Traceback (most recent call last):
    lawful.errors.Unsupported: Sequential: conv1d shares weights, fixes or folds them; ...
    """
    from lawful.network.modules.convert import DagModule
    from lawful.network.modules.export import export_module, operator_name

    if isinstance(module, DagModule):
        return
    read = export_module(module, [(2, *shape)])
    used: Counter[str] = Counter()
    for call in read.calls:
        name = operator_name(call.target)
        if name == "linear" and _rank(call.args[0]) == 2:
            parts = [str(getattr(part, "name", part)) for part in call.args[1:] if part is not None]
            if not all(part in read.trained and module.get_parameter(read.names[part]).requires_grad for part in parts):
                _refuse(module, "a Linear layer has frozen or computed weights")
            used.update(parts)
        elif name not in (*ELEMENTWISE, *RESHAPES):
            _refuse(module, f"{name} shares weights, fixes or folds them")
    twice = next((read.names[part] for part, times in used.items() if times > 1), None)
    if twice is not None:
        _refuse(module, f"{twice} is used twice")


def _rank(node: Any) -> int:
    value: fx.Node = node
    return len(value.meta["val"].shape)


def _refuse(module: nn.Module, why: str) -> None:
    raise Unsupported(f"{type(module).__name__}: {why}; {REASON}")


def check_onnx(path: Path, parameters: int) -> None:
    """Refuse a file unless it is a chain of plain matrix products and biases whose entries are the network's weights.

    Every sum has a stored bias on one side, so no two branches meet, and `parameters` edges for as many entries leave
    no entry at two edges and no edge without one.
    """
    from lawful.network.formats.onnx_file import parse

    graph = parse(path).graph
    sizes = {tensor.name: _count(tensor.dims) for tensor in graph.initializer}
    used: Counter[str] = Counter()
    for node in graph.node:
        stored = [name for name in node.input if name in sizes]
        scaled = any(part.name in ("alpha", "beta") and part.f != 1.0 for part in node.attribute)
        if node.op_type == "Reshape":
            continue
        plain = node.op_type in ONNX_PLAIN
        if not plain and not (node.op_type in ("Gemm", "MatMul", "Add") and stored and not scaled):
            raise Unsupported(f"{path}: {node.op_type[:40]} shares weights, fixes or folds them; {REASON}")
        if not plain:
            used.update(stored)
    if max(used.values(), default=1) > 1 or sum(sizes[name] for name in used) != parameters:
        raise Unsupported(
            f"{path}: {sum(sizes[name] for name in used):,} stored weights, {parameters:,} edges; {REASON}"
        )


def _count(dims: Any) -> int:
    total = 1
    for size in dims:
        total *= int(size)
    return total
