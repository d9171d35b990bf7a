"""A proved count as a small JSON object that `lawful verify` re-checks with other code."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import numpy as np

from lawful.conservation.known.law import Law
from lawful.conservation.known.rank_one_subnetworks import SAMPLE, Part
from lawful.conservation.law_count import LawCount, RankProof
from lawful.errors import Unsupported
from lawful.formats.queries.metric import metric_json
from lawful.network import Architecture
from lawful.network.assemble import as_mlp
from lawful.network.digest import digest, network_record
from lawful.network.dynamics import GradientFlow, HeavyBall, Metric
from lawful.program.core.straight_line import ProgramStep, StraightLineProgram


def certificate(count: LawCount) -> dict[str, Any]:
    """Everything needed to check a proved count again: network, prime, point, brackets and explicit laws.

    >>> from lawful.conservation import count_laws
    >>> sorted(certificate(count_laws("2-2-2 relu")))[:6]
    ['about', 'brackets', 'dimensions', 'flow', 'kind', 'known']
    """
    if count.proof is not None:
        return module_certificate(count, count.proof)
    if count.theorem and count.proved:
        return theorem_certificate(count)
    if count.dag is None or count.witness is None or why_uncertified(count):
        raise Unsupported(f"no certificate: {why_uncertified(count)}")
    weights = count.region is not None  # at the φ level they do not matter
    body: dict[str, Any] = {
        "kind": "laws",
        "version": 1,
        "about": [digest(count.dag, weights=weights)],
        "laws": count.laws,
        "parameters": count.parameters,
        "states": count.states,
        "dimensions": list(count.dimensions),
        "level": count.level,
        "loss": count.loss,
        "flow": _flow(count),
        "network": network_record(count.dag, weights=weights),
        "prime": count.witness.prime,
        "seed": count.witness.seed,
        "point": count.witness.point.tolist(),
        "brackets": list(count.witness.rows),
        "known": [
            *(_law_record(law) for law in count.known if law.kind != "rest"),
            *(_part(part) for part in count.parts),
        ],
    }
    if count.region is not None:
        gates = [None if np.isnan(gate) else gate for gate in count.region.fixed.tolist()]
        body |= {"inputs": count.region.witnesses.tolist(), "fixed": gates}
        if count.region.groups is not None:
            body["groups"] = count.region.groups.tolist()
        elif count.region.on_data is not None:
            body["every"] = True
    return body


def module_certificate(count: LawCount, proof: RankProof) -> dict[str, Any]:
    """The proof for a module: its program, the point, the fields and brackets, and the explicit laws as polynomials."""
    steps = program_json(proof.program)
    decay = count.flow.decay if isinstance(count.flow, GradientFlow) else 0.0
    more: dict[str, Any] = ({"tokens": proof.tokens} if proof.tokens else {}) | ({"decay": decay} if decay else {})
    if proof.program.draws:
        more["draws"] = _draws(proof.program)
    inputs: list[Any] = proof.inputs.tolist()
    if proof.data is not None:
        more["data"], inputs = proof.data.tolist(), list(proof.samples)
    return more | {
        "kind": "laws-of-module",
        "version": 1,
        "about": [program_name(proof.program)],
        "laws": count.laws,
        "parameters": count.parameters,
        "steps": steps,
        "theta_bits": proof.theta_bits,
        "theta": proof.theta.tolist(),
        "sample_bits": proof.sample_bits,
        "inputs": inputs,
        "weights": proof.weights.tolist(),
        "words": [list(word) for word in proof.words],
        "columns": list(proof.columns),
        "known": [[[list(edges), str(factor)] for edges, factor in law.terms.items()] for law in count.known],
        "classes": proof.classes,
        "precision": proof.precision,
    }


def program_json(program: StraightLineProgram) -> list[dict[str, Any]]:
    """The steps of a program as JSON."""
    return [_step(step) for step in program.steps]


def program_name(program: StraightLineProgram) -> str:
    """The digest of a program, with what it draws at random."""
    steps = program_json(program)
    text = json.dumps([steps, _draws(program)] if program.draws else steps, sort_keys=True, separators=(",", ":"))
    return "program:" + hashlib.sha256(text.encode()).hexdigest()


def _draws(program: StraightLineProgram) -> list[list[Any]]:
    return [[kind, count] for kind, count in program.draws]


def _step(step: ProgramStep) -> dict[str, Any]:
    fields: dict[str, Any] = {"kind": step.kind}
    if step.kind in ("parameters", "input"):
        return fields | {"length": step.length}
    if step.values is not None:
        return fields | {"values": step.values.tolist()}
    fields["sources"] = list(step.sources)
    if step.indices is not None:
        fields["indices"] = step.indices.tolist()
    return fields | ({"sizes": list(step.sizes)} if step.sizes else {})


def why_uncertified(count: LawCount) -> str:
    """Why a count has no certificate, or nothing if it has one."""
    if not count.proved:
        return f"not proved, but {count.status} ({count.reason})"
    if count.region is not None and count.region.nudged:
        return "the weights lie on a boundary between activation patterns, and only those beside it were counted"
    whole = count.proof is not None or bool(count.theorem) or (count.dag is not None and count.witness is not None)
    return "" if whole else "it rests on a theorem, and nothing was computed that could be checked again"


def _law_record(law: Law) -> list[Any]:
    """The kind of a law and its neurons; for a combination, the laws that it adds up and their weights.

    Impulses and resting places come from the same law of gradient flow, which is named once.
    """
    if law.kind == "impulse":
        return _law_record(law.factors[0])
    if law.kind == "still":
        plain = law.factors[0] if law.factors else law  # the verifier applies a metric itself
        return [law.kind, *law.nodes, [[edge, str(factor)] for (edge,), factor in plain.terms.items()]]
    if law.kind != "combination":
        return [law.kind, *law.nodes]
    return [law.kind, [[str(next(iter(part.terms.values()))), part.kind, *part.nodes] for part in law.factors]]


def _part(part: Part) -> list[Any]:
    return ["part", None if part.source == SAMPLE else part.source, part.sink, list(part.inner)]


def _flow(count: LawCount) -> dict[str, Any]:
    match count.flow:
        case HeavyBall(friction, autonomous):
            return {"name": "momentum", "friction": friction, "autonomous": autonomous}
        case Metric():
            return {"name": "metric", **metric_json(count.flow)}
        case GradientFlow(decay) if decay:
            return {"name": "decay", "decay": decay}
    return {"name": "gradient"}


def theorem_certificate(count: LawCount) -> dict[str, Any]:
    """Widths, biases and slope of one hidden layer.

    >>> from lawful.conservation import count_laws
    >>> proof = theorem_certificate(count_laws("60-90-10 relu bias"))
    >>> proof["widths"], proof["biases"], proof["laws"]
    ([60, 90, 10], [True, True], 90)
    """
    if count.architecture is not None:
        source = Architecture.parse(count.architecture)
        widths, biases, slope = source.widths, [source.bias] * 2, source.slope
        graph = source.to_dag()
    else:
        mlp = None if count.dag is None else as_mlp(count.dag)
        if mlp is None or len(mlp.widths) != 3:
            raise Unsupported("no certificate: the network is too large to be written down")
        widths, biases, slope = mlp.widths, [bias is not None for bias in mlp.biases], mlp.slopes[0]
        graph = mlp.to_dag()
    return {
        "kind": "laws-by-theorem",
        "version": 1,
        "about": [digest(graph, weights=False)],
        "widths": list(widths),
        "biases": biases,
        "slope": slope,
        "laws": count.laws,
    }
