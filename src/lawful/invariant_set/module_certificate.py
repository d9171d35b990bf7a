"""A module's scaling graph in a certificate: its tensors, and which of their entries are edges."""

from __future__ import annotations

import base64
import hashlib
import json
from typing import TYPE_CHECKING, Any

import numpy as np

from lawful.errors import Unsupported
from lawful.invariant_set.locks.components import Components
from lawful.invariant_set.module_graph import Balanced, EntryGraph
from lawful.network import Mlp

if TYPE_CHECKING:
    import torch

LARGEST = 1_000_000  # edges: a certificate is text


def refuse_large(graph: Balanced | Mlp) -> None:
    """Refuse what no certificate holds: known before the work."""
    if isinstance(graph, EntryGraph) and graph.parameters > LARGEST:
        raise Unsupported(f"a certificate lists every entry: {graph.parameters:,} are more than {LARGEST:,}")


def written_entries(graph: EntryGraph) -> dict[str, Any]:
    """The graph as `lawful verify` reads it; `nodes` are numbered from 1, between the two ends that do not scale."""
    refuse_large(graph)
    scaling, state = graph.scaling, graph.state()
    if not np.array_equal(scaling.edge_values(state), graph.weights):
        raise Unsupported("its tensors cannot hold these weights exactly: there is no certificate of them")
    names = [name for number, name in enumerate(scaling.parameters) if (scaling.owners == number).any()]
    return {
        "nodes": len(graph.hidden),
        "tensors": [_tensor(graph, scaling.parameters.index(name), state[name]) for name in names],
        "others": {name: _line(tensor) for name, tensor in state.items() if name not in names},
        "other_laws": bool(graph.beyond),
    }


def entries_digest(graph: EntryGraph) -> str:
    """The name of all weights of the module together."""
    state = graph.state()
    text = "".join(f"{json.dumps([name, _line(state[name])])}\n" for name in sorted(state))
    return "weights:" + hashlib.sha256(f"lawful weights 2\n{text}".encode()).hexdigest()


def _tensor(graph: EntryGraph, number: int, tensor: torch.Tensor) -> dict[str, Any]:
    kind = str(tensor.dtype).removeprefix("torch.")
    if kind not in ("float32", "float64"):
        raise Unsupported(f"{graph.scaling.parameters[number]} is stored as {kind}: certificates hold float32, float64")
    here = graph.scaling.owners == number
    data = base64.b64encode(tensor.detach().cpu().contiguous().numpy().tobytes()).decode()
    return {
        "name": graph.scaling.parameters[number],
        "tensor": {"dtype": kind, "shape": list(tensor.shape), "data": data},
        "positions": graph.scaling.positions[here].tolist(),
        "tails": graph.tails[here].tolist(),
        "heads": graph.heads[here].tolist(),
    }


def _line(tensor: torch.Tensor) -> str:
    import torch

    kind = str(tensor.dtype).removeprefix("torch.")
    raw = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    return f"{kind} {list(tensor.shape)} {hashlib.sha256(raw).hexdigest()}"


def free_entries(found: Components) -> list[int]:
    """Every edge that is not locked: each needs a point that is zero on it."""
    locked = {lock.edge for lock in found.locked}
    return [edge for edge in range(found.dag.parameters) if edge not in locked]
