"""A pruning as one JSON object: the networks on the way, and the evidence for each step between two of them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from lawful.bounds.distance import distance
from lawful.bounds.layers import layers_of
from lawful.bounds.pair import NetworkPair, align
from lawful.bounds.result import certificate as distance_certificate
from lawful.errors import LawfulError, Unsupported
from lawful.network import Dag, Mlp
from lawful.network.digest import digest, network_record, with_layers
from lawful.network.reading import carrying
from lawful.pruning.neurons.bounds import defect_bound, make_box
from lawful.pruning.neurons.prune import UNIT_BOX, Pruning, Stage, prune
from lawful.pruning.neurons.rules import rounding_defects
from lawful.pruning.removable.dependent_neurons import NamedStandIn
from lawful.sources.files import stored_as
from lawful.sources.opening import Source, open_graph
from lawful.types import Floats


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
    numbers = np.full(len(result.names), -1)
    pairs = [(last.inputs, result.inputs), (last.outputs, result.outputs)]
    pairs.append(tuple(dag.hidden[dag.levels[dag.hidden].argsort(kind="stable")] for dag in (last, result)))  # type: ignore[arg-type]
    for theirs, ours in pairs:
        for their, our in zip(theirs.tolist(), ours.tolist(), strict=True):
            numbers[our] = labels[last.names[their]]
    if result.constant is not None:
        numbers[result.constant] = len(labels) if last.constant is None else labels[last.names[last.constant]]
    return [int(label) for label in numbers]


def _sum(bounds: Any) -> float:
    """The sum of floats, rounded upwards."""
    total = sum((Fraction(bound) for bound in bounds), Fraction(0))
    nearest = float(total)
    return nearest if Fraction(nearest) >= total else float(np.nextafter(nearest, np.inf))


def _end(value: Any) -> float | None:
    return float(value) if np.isfinite(value) else None


ROOM = 2.0**-16  # relative: the two networks are bounded as a whole, not step by step


def prune_with_certificate(
    network: Source,
    *,
    tolerance: Any = 0.0,
    keep: int | None = None,
    around: float | None = None,
    seconds: float = 60.0,
    tick: Callable[[str], None] = lambda words: None,
    dtype: str | None = None,
    **options: Any,
) -> tuple[Pruning, dict[str, Any]]:
    """The smaller network, and what `lawful verify` needs to re-check its bound.

    Where stand-ins and linear relaxations remove more than a replay can follow, the bound is that of the two networks'
    distance, found within `seconds`; if it is not, what a replay follows is the answer. A bound `around` samples is
    re-checked on the box around each of them. With a `dtype` all of this is about the network as it is stored then.

    >>> from lawful.network import Architecture
    >>> found, proof = prune_with_certificate(Architecture.parse("2-6-1 relu bias").initialise(seed=0), tolerance=0.2)
    >>> proof["kind"], found.bound <= 0.2
    ('distance', True)
    """
    opened = open_graph(network)
    if around is not None:
        pruned = prune(opened, tolerance=np.asarray(tolerance) / (1 + 2 * ROOM), keep=keep, around=around,
                      seconds=seconds, tick=tick, **options)  # fmt: skip
        if pruned.around is not None:
            return _near_samples(round_to_file(pruned, dtype))
    exact = None
    if keep is None:
        exact = round_to_file(prune(opened, tolerance=tolerance, **options, replayable=True), dtype)
    if exact is not None and exact.box is None:
        return exact, certificate(exact)
    allowed = np.asarray(tolerance) / (1 + 2 * ROOM)
    pruned = round_to_file(prune(opened, tolerance=allowed, keep=keep, seconds=seconds, tick=tick, **options), dtype)
    if exact is not None and pruned.neurons_after >= exact.neurons_after:
        return exact, certificate(exact)
    if pruned.box is None:
        raise AssertionError("what is approximate has a box")
    tick("bounding both networks together")
    asked = Fraction(pruned.bound + pruned.rounding) * Fraction(1 + ROOM)
    measured = distance(pruned.original, pruned.network, pruned.box, within=asked, seconds=seconds)
    if measured.status == "proved":
        stated = np.minimum(np.asarray(pruned.bounds) * (1 + ROOM), float(np.nextafter(float(asked), np.inf)))
    elif exact is None and np.isfinite(measured.upper):
        stated = np.full(len(pruned.bounds), measured.upper)
    elif exact is not None:
        return exact, certificate(exact)
    else:
        raise LawfulError("the two networks could not be bounded as a whole: give more time, or keep more neurons")
    proof = distance_certificate(measured, pruned.original, pruned.network)
    return replace(pruned, compared=tuple(stated.tolist())), proof


def _near_samples(found: Pruning) -> tuple[Pruning, dict[str, Any]]:
    if found.box is None or found.near is None or found.around is None:
        raise AssertionError("a bound around samples has samples")
    stated = tuple(float(np.nextafter(bound * (1 + ROOM), np.inf)) for bound in found.bounds)
    networks = found.original, found.network
    pair = align(*(layers_of(network) for network in networks))
    return replace(found, compared=stated), near_certificate(
        networks, pair, stated, found.box, found.near, found.around
    )


def near_certificate(
    networks: tuple[Mlp | Dag, Mlp | Dag],
    pair: NetworkPair,
    bounds: Sequence[float],
    box: tuple[Floats, Floats],
    samples: Floats,
    radius: float,
) -> dict[str, Any]:
    """Evidence of bounds around samples, of the kind `distance`: both networks, every sample, how far from it."""
    return {
        "kind": "distance",
        "version": 1,
        "about": [digest(network) for network in networks],
        "networks": [with_layers(network) for network in networks],
        "box": [[str(Fraction(float(end))) for end in side] for side in zip(*box, strict=True)],
        "outputs": list(range(len(bounds))),
        "norm": "inf",
        "upper": str(Fraction(max(bounds))),
        "lower": None,
        "matching": [
            {"first": match.first.tolist(), "second": match.second.tolist(), "scale": match.scale.tolist()}
            for match in pair.matches
        ],
        "tree": [],
        "spectral": None,
        "near": {"samples": samples.tolist(), "radius": str(Fraction(radius))},
    }


def round_to_file(pruning: Pruning, dtype: str | None) -> Pruning:
    """The same with the numbers that a file of this type gives back, so that its certificate is about that file.

    >>> from lawful.network import Mlp
    >>> from lawful.pruning.neurons.prune import prune
    >>> found = prune(Mlp([[[1.0], [3.0]], [[0.1, 0.2]]], [[0.0, 0.0], [0.0]]))
    >>> half = round_to_file(found, "float16")
    >>> half.network.weights[1], 0 < half.rounding < 1e-3
    (array([[0.70019531]]), True)
    """
    if dtype is None:
        return pruning
    before = pruning.stages[-1].after if pruning.stages else pruning.original.to_dag()
    after = before.with_theta(stored_as(before.theta, dtype))
    changed = np.flatnonzero(after.theta != before.theta)
    if not len(changed):
        return pruning
    errors = {
        before.edge_name(int(edge)): Fraction(after.theta[edge]) - Fraction(before.theta[edge]) for edge in changed
    }
    box = make_box(before, UNIT_BOX) if pruning.box is None else pruning.box
    rounding = defect_bound(after, rounding_defects(before, after, errors, box))
    small = pruning.network.with_theta(stored_as(pruning.network.theta, dtype))
    compared = pruning.compared
    if compared is not None:
        compared = tuple(float(np.nextafter(bound + rounding, np.inf)) for bound in compared)
    stage = Stage("stored", before, after, {}, 0.0, rounding)
    network = carrying(small, pruning.network.reading)
    return replace(pruning, network=network, stages=(*pruning.stages, stage), compared=compared)
