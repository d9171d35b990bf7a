"""A pruning as one JSON object: the networks on the way, and the evidence for each step between two of them."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np

from lawful.errors import Unsupported
from lawful.network import Dag
from lawful.network.digest import digest, network_record
from lawful.pruning.neurons.prune import Pruning, Stage
from lawful.pruning.removable.dependent_neurons import NamedStandIn


def certificate(pruning: Pruning) -> dict[str, Any]:
    """All that is needed to replay the pruning; fractions are text, floats are exact.

    Nodes are labelled by their numbers in the original; those that a stage adds or gives another meaning get new ones.

    >>> from lawful.pruning.neurons.prune import prune
    >>> from lawful.network import Mlp
    >>> proof = certificate(prune(Mlp([[[1.0], [0.0]], [[1.0, 3.0]]], [[0.0, 2.0], [0.0]])))
    >>> proof["neurons_before"], proof["neurons_after"], proof["max_output_change_bound"]
    (2, 1, 0.0)
    """
    if pruning.compared is not None:
        raise Unsupported("no replay follows stand-ins and linear relaxations: ask for `replayable`")
    original, result = pruning.original.to_dag(), pruning.network.to_dag()
    labels, new = dict(original.index), itertools.count(len(original.names))
    stages = []
    for stage in pruning.stages:
        old, labels = labels, {name: labels[name] if name in labels else next(new) for name in stage.after.names}
        labels |= {name: next(new) for name in stage.carriers}
        stages.append(_stage(stage, old, labels))
    if stages:
        stages[-1] |= {
            "after": network_record(result),
            "labels": _result_labels(pruning.stages[-1].after, result, labels),
        }
    return {
        "kind": "pruning",
        "version": 2,
        "about": [digest(original), digest(result)],
        "neurons_before": pruning.neurons_before,
        "neurons_after": pruning.neurons_after,
        "max_output_change_bound": _sum(stage.bound for stage in pruning.stages),
        "rounding_bound": _sum(stage.rounding for stage in pruning.stages),
        "box": None if pruning.box is None else [[_end(end) for end in corner] for corner in pruning.box],
        "original": network_record(original),
        "stages": stages,
    }


def _stage(stage: Stage, old: Mapping[str, int], new: Mapping[str, int]) -> dict[str, Any]:
    """One stage: a reason for every neuron that left, and which neuron of the new network is which of the old one."""
    evidence = {name: _reason(stage.kind, value, old) for name, value in stage.evidence.items()}
    evidence |= {name: _side(factor) for name, (_, _, factor) in stage.carriers.items()}
    dag = stage.before
    zero: set[str] = set()
    gone = [dag.names[node] for node in dag.hidden if dag.names[node] not in stage.after.index]
    reads: dict[int, list[str]] = {}
    if set(gone) - set(evidence):
        for tail, head in zip(dag.tails[dag.theta != 0].tolist(), dag.heads[dag.theta != 0].tolist(), strict=True):
            reads.setdefault(head, []).append(dag.names[tail])
        for node in dag.hidden[dag.levels[dag.hidden].argsort(kind="stable")].tolist():
            name = dag.names[node]
            reads_zeros = zero.issuperset(reads.get(node, ()))
            if name in gone and name not in evidence:  # it left with all that it read, or with all its readers
                evidence[name] = "0" if reads_zeros else None
            if (
                evidence.get(name) == "0"
                or (evidence.get(name) == "off" and not dag.slopes[node])
                or (reads_zeros and evidence.get(name) in ("on", "off"))
            ):
                zero.add(name)
    return {
        "evidence": [[old[name], reason] for name, reason in evidence.items()],
        "carriers": [[new[name], new[follower], str(shift)] for name, (follower, shift, _) in stage.carriers.items()],
        "after": network_record(stage.after),
        "labels": [new[name] for name in stage.after.names],
    }


def _reason(kind: str, value: Any, labels: Mapping[str, int]) -> Any:
    """Why a neuron can leave: nothing reads it, a value, a side, a factor and a partner, or a surrogate."""
    if isinstance(value, NamedStandIn):
        return {
            "factors": [[labels[name], str(factor)] for name, factor in value.factors.items()],
            "constant": str(value.constant),
            "layers": [[labels[name] for name in layer] for layer in value.layers],
            "decisions": list(value.decisions),
        }
    if isinstance(value, tuple):
        return [labels[value[0]], str(-value[1] if kind == "opposite" else value[1])]
    if kind in ("linear", "joined"):
        return _side(value)
    return "off" if kind == "dead" else None if value is None else str(Fraction(value))


def _side(factor: Any) -> str:
    """The side of its kink on which a linear neuron stays."""
    return "on" if factor == 1 else "off"


def _result_labels(last: Dag, result: Dag, labels: Mapping[str, int]) -> list[int]:
    """A layered network numbers its neurons anew, level by level: the label of each of its nodes."""
    found = np.full(len(result.names), -1)
    pairs = [(last.inputs, result.inputs), (last.outputs, result.outputs)]
    pairs.append(tuple(dag.hidden[dag.levels[dag.hidden].argsort(kind="stable")] for dag in (last, result)))  # type: ignore[arg-type]
    for theirs, ours in pairs:
        for their, our in zip(theirs.tolist(), ours.tolist(), strict=True):
            found[our] = labels[last.names[their]]
    if result.constant is not None:
        found[result.constant] = len(labels) if last.constant is None else labels[last.names[last.constant]]
    return [int(label) for label in found]


def _sum(bounds: Any) -> float:
    """The sum of floats, rounded upwards."""
    total = sum((Fraction(bound) for bound in bounds), Fraction(0))
    nearest = float(total)
    return nearest if Fraction(nearest) >= total else float(np.nextafter(nearest, np.inf))


def _end(value: Any) -> float | None:
    return float(value) if np.isfinite(value) else None
