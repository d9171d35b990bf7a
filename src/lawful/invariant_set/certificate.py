"""The evidence for answers about invariant sets, as JSON objects that `lawful verify` re-checks."""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from lawful.errors import Unsupported
from lawful.invariant_set.balance import Balance
from lawful.invariant_set.locks.components import Components, Lock, components
from lawful.invariant_set.module_graph import Balanced, EntryGraph, as_dag
from lawful.invariant_set.paths import Apart, WeightPath, free_flows
from lawful.invariant_set.rebalance import Rebalanced
from lawful.invariant_set.singular.existence import SingularPoints
from lawful.network import Dag, Mlp
from lawful.network.digest import digest, network_record

if TYPE_CHECKING:
    import torch


def certificate(found: Components) -> dict[str, Any]:
    """All that is needed to re-check the answer; the network's weights are in it if the balance is theirs.

    Balance, squares and tolerance are whole multiples of `1 / denominator`.

    >>> from lawful.invariant_set.locks.components import components
    >>> from lawful.network import Architecture
    >>> proof = certificate(components(Architecture.parse("2-2-1").to_dag(), [-3, 1]))
    >>> proof["log2_components"], proof["locked"]
    (1, [{'edge': 4, 'side': 'out', 'nodes': [2]}])
    """
    balance = found.balance
    has_weights = found.dag.weights is not None and _is_own(found)
    open_answer = found.connected and bool(balance.slack or found.beyond)  # "no lock is sure" is not a yes
    return {
        "kind": "components",
        "version": 2,
        "about": [_digest(found.dag) if has_weights else digest(as_dag(found.dag), weights=False)],
        "connected": None if open_answer else found.connected,
        "log2_components": found.log2_components,
        "network": _written(found.dag) if has_weights else network_record(as_dag(found.dag), weights=False),
        "denominator": balance.denominator,
        "tolerance": balance.slack,
        "balance": list(balance.units),
        "locked": [_lock(found, lock) for lock in found.locked],
        "flows": _flows(found),
    }


def _flows(found: Components) -> list[dict[str, Any]]:
    """Points of the polyhedron that are zero on what is free; of modules with other laws none is stated to be."""
    if isinstance(found.dag, EntryGraph):
        edges = [] if found.beyond else free_entries(found)
        flows = list(free_flows(found, edges)) if edges else []
    else:
        flows = list(free_flows(found))
    return [{"squares": [list(pair) for pair in flow.squares.items()], "frees": list(flow.frees)} for flow in flows]


def _lock(found: Components, lock: Lock) -> dict[str, Any]:
    return {"edge": lock.edge, "side": lock.side, "nodes": list(found.stable_set(lock))}


def _is_own(found: Components) -> bool:
    """Whether the balance is exactly that of the weights; a prescribed one speaks of the graph alone."""
    return not any(found.balance.distance(Balance.of(found.dag)))


def path_certificate(start: Mlp | Balanced, stop: Mlp | Balanced, found: WeightPath | Apart) -> dict[str, Any]:
    """A path with its waypoints as exact squares; or the balances that differ, or the locks that two signs stand on.

    >>> from lawful.invariant_set.paths import find_path
    >>> from lawful.network import Architecture
    >>> graph = Architecture.parse("1-2-1").to_dag()
    >>> ends = graph.with_theta([1, 1, 1, 1]), graph.with_theta([1, -1, -1, 1])
    >>> proof = path_certificate(*ends, find_path(*ends))
    >>> proof["joined"], proof["drift"], proof["waypoints"]
    (True, '0', [[]])
    """
    first, last = start.to_dag(), stop.to_dag()
    if isinstance(found, Apart) and found.frozen:
        raise Unsupported("frozen weights that differ are in the files themselves: there is no certificate of them")
    body: dict[str, Any] = {
        "kind": "path",
        "version": 2,
        "about": [_digest(first), _digest(last)],
        "start": _written(first),
        "stop": _written(last),
        "joined": isinstance(found, WeightPath),
        "signs": None,
        "waypoints": None,
        "drift": None,
        "locked": None,
    }
    if isinstance(found, WeightPath):
        waypoints = [[[edge, str(square)] for edge, square in point.items() if square] for point in found.waypoints]
        signs = [signs.astype(int).tolist() for signs in found.signs]
        return body | {"signs": signs, "waypoints": waypoints, "drift": str(found.drift)}
    if found.edges:
        apart = sum(Balance.of(first).distance(Balance.of(last)), Fraction(0))
        locks = components(first, Balance.of(first, tolerance=apart))
        return body | {"locked": [_lock(locks, lock) for lock in locks.locked if lock.edge in found.edges]}
    return body


def _digest(graph: Balanced) -> str:
    return weights_digest(graph.state()) if isinstance(graph, EntryGraph) else digest(graph)


def _written(graph: Balanced) -> dict[str, Any]:
    return written_entries(graph) if isinstance(graph, EntryGraph) else network_record(graph)


def rebalance_certificate(network: Mlp | Balanced, done: Rebalanced) -> dict[str, Any]:
    """Both networks, the factor of every neuron, and how far weights and balances are from what these promise.

    >>> from lawful.invariant_set.rebalance import rebalance
    >>> network = Mlp([[[4.0]], [[1.0]]])
    >>> proof = rebalance_certificate(network, rebalance(network))
    >>> [round(factor, 3) for factor in proof["factors"]], proof["rounding"] < 1e-15
    ([0.5], True)
    """
    before, after = as_dag(network.to_dag()), as_dag(done.dag)
    factors = np.exp(done.log_scales)
    if not (np.isfinite(factors) & (factors > 0)).all():
        raise Unsupported("a factor does not fit into float64: there is no certificate of this rescaling")
    scale = np.ones(len(before.names))
    scale[before.hidden] = factors
    exact, worst = [Fraction(value) for value in scale.tolist()], Fraction(0)
    edges = zip(before.tails.tolist(), before.heads.tolist(), before.theta.tolist(), after.theta.tolist(), strict=True)
    for tail, head, old, new in edges:
        wanted = Fraction(old) * exact[head] / exact[tail]
        worst = max(worst, abs(Fraction(new) - wanted) / abs(wanted) if wanted else Fraction(0))
    place = {node: number for number, node in enumerate(before.hidden.tolist())}
    left = sorted(place[node] for node in done.unreachable)
    pairs = zip(Balance.of(after).fractions, done.target.tolist(), strict=True)
    gaps = [abs(exact - Fraction(asked)) for number, (exact, asked) in enumerate(pairs) if number not in left]
    return {
        "kind": "rebalance",
        "version": 1,
        "about": [digest(before), digest(after)],
        "before": network_record(before),
        "after": network_record(after),
        "factors": factors.tolist(),
        "rounding": _up(worst),
        "target": done.target.tolist(),
        "except": left,
        "residual": _up(max(gaps, default=Fraction(0))),
    }


def _up(value: Fraction) -> float:
    """A float that is not below a fraction."""
    nearest = float(value)
    return nearest if Fraction(nearest) >= value else math.nextafter(nearest, math.inf)


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
        "others": {name: tensor_line(tensor) for name, tensor in state.items() if name not in names},
        "other_laws": bool(graph.beyond),
    }


def weights_digest(state: Mapping[str, torch.Tensor]) -> str:
    """The name of all weights of a module together."""
    text = "".join(f"{json.dumps([name, tensor_line(state[name])])}\n" for name in sorted(state))
    return "weights:" + hashlib.sha256(f"lawful weights 2\n{text}".encode()).hexdigest()


def _tensor(graph: EntryGraph, number: int, tensor: torch.Tensor) -> dict[str, Any]:
    kind = str(tensor.dtype).removeprefix("torch.")
    if kind not in ("float32", "float64"):
        raise Unsupported(f"{graph.scaling.parameters[number]} is stored as {kind}: certificates hold float32, float64")
    here = graph.scaling.owners == number
    data = base64.b64encode(tensor_bytes(tensor)).decode()
    return {
        "name": graph.scaling.parameters[number],
        "tensor": {"dtype": kind, "shape": list(tensor.shape), "data": data},
        "positions": graph.scaling.positions[here].tolist(),
        "tails": graph.tails[here].tolist(),
        "heads": graph.heads[here].tolist(),
    }


def tensor_bytes(tensor: torch.Tensor) -> bytes:
    """Its numbers, as they are stored."""
    import torch

    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""


def tensor_line(tensor: torch.Tensor) -> str:
    """Type, shape and digest of a tensor."""
    kind = str(tensor.dtype).removeprefix("torch.")
    return f"{kind} {list(tensor.shape)} {hashlib.sha256(tensor_bytes(tensor)).hexdigest()}"


def free_entries(found: Components) -> list[int]:
    """Every edge that is not locked: each needs a point that is zero on it."""
    locked = {lock.edge for lock in found.locked}
    return [edge for edge in range(found.dag.parameters) if edge not in locked]


def singular_certificate(
    dag: Dag, found: SingularPoints, balance: Mapping[str, Fraction] | None = None
) -> dict[str, Any]:
    """The network, and the witness or the refutations of `singular_points(dag, exact_balance(dag))`.

    With another `balance` than that of the weights it speaks of the graph alone.

    >>> from lawful.network import Mlp
    >>> from lawful.invariant_set.singular.existence import exact_balance, singular_points
    >>> graph = Mlp([[[1.0], [2.0]], [[1.0, 1.0]]]).to_dag()
    >>> proof = singular_certificate(graph, singular_points(graph, exact_balance(graph)))
    >>> proof["exist"], proof["cut_off"]
    (True, [1])
    """
    if found.exist is None:
        raise Unsupported(f"an undecided answer has no certificate: {found.reason}")
    edge = {dag.edge_name(number): number for number in range(dag.parameters)}
    body: dict[str, Any] = {
        "kind": "singular",
        "version": 1,
        "about": [digest(dag, weights=balance is None)],
        "network": network_record(dag, weights=balance is None),
        "balance": None if balance is None else [str(Fraction(balance[dag.names[node]])) for node in dag.hidden],
        "exist": found.exist,
        "cut_off": None,
        "squares": None,
        "refutations": None,
    }
    if found.witness is not None:
        squares = found.witness.squares.items()
        return body | {
            "cut_off": [dag.index[name] for name in found.witness.cut_off],
            "squares": [[edge[ends], str(square)] for ends, square in squares if square],
        }
    return body | {
        "refutations": [
            {
                "cut_off": [dag.index[name] for name in refutation.cut_off],
                "inside": refutation.inside,
                "blocked": [dag.index[name] for name in refutation.blocked],
                "forward": refutation.forward,
            }
            for refutation in found.refutations
        ]
    }
