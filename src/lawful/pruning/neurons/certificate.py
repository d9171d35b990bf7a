"""A pruning as one JSON object: the networks on the way, and the evidence for each step between two of them."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np

from lawful.errors import Unsupported
from lawful.network import Dag
from lawful.network.digest import digest, written
from lawful.pruning.neurons.prune import Pruning, Stage
from lawful.pruning.removable.dependent_neurons import NamedStandIn


def certificate(pruning: Pruning) -> dict[str, Any]:
    """All that is needed to replay the pruning; fractions are text, floats are exact.

    Nodes are labelled by their numbers in the original; those that a stage adds get new ones.

    >>> from lawful.pruning.neurons.prune import prune
    >>> from lawful.network import Mlp
    >>> proof = certificate(prune(Mlp([[[1.0], [0.0]], [[1.0, 3.0]]], [[0.0, 2.0], [0.0]])))
    >>> proof["neurons_before"], proof["neurons_after"], proof["max_output_change_bound"]
    (2, 1, 0.0)
    """
    if pruning.compared is not None:
        raise Unsupported("no replay follows stand-ins and linear relaxations: ask for `replayable`")
    original, result = pruning.original.to_dag(), pruning.network.to_dag()
    labels = dict(original.index)
    for stage in pruning.stages:
        for name in stage.after.names:
            labels.setdefault(name, len(labels))
    last = pruning.stages[-1].after if pruning.stages else original
    return {
        "kind": "pruning",
        "version": 1,
        "about": [digest(original), digest(result)],
        "neurons_before": pruning.neurons_before,
        "neurons_after": pruning.neurons_after,
        "max_output_change_bound": _sum(stage.bound for stage in pruning.stages),
        "rounding_bound": _sum(stage.rounding for stage in pruning.stages),
        "box": None if pruning.box is None else [[_end(end) for end in corner] for corner in pruning.box],
        "original": written(original),
        "result": written(result),
        "labels": _result_labels(last, result, labels),
        "stages": [_stage(stage, labels) for stage in pruning.stages],
    }


def _stage(stage: Stage, labels: Mapping[str, int]) -> dict[str, Any]:
    return {
        "kind": stage.kind,
        "evidence": [[labels[name], _encoded(value, labels)] for name, value in stage.evidence.items()],
        "carriers": [[labels[name], _encoded(value, labels)] for name, value in stage.carriers.items()],
        "after": written(stage.after),
        "labels": [labels[name] for name in stage.after.names],
        "bound": float(stage.bound),
        "rounding": float(stage.rounding),
    }


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


def _encoded(value: Any, labels: Mapping[str, int]) -> Any:
    if isinstance(value, NamedStandIn):
        return {
            "factors": [[labels[name], str(factor)] for name, factor in value.factors.items()],
            "constant": str(value.constant),
            "layers": [[labels[name] for name in layer] for layer in value.layers],
            "decisions": list(value.decisions),
        }
    if isinstance(value, tuple):
        return [labels[value[0]], str(value[1])]
    return None if value is None else str(Fraction(value))
