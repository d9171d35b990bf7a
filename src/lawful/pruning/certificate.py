"""A pruning as one JSON object: the networks on the way, and the evidence for each step between two of them."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from lawful.errors import CertificateError, LawfulError
from lawful.network import Dag
from lawful.pruning.prune import Pruning, Stage
from lawful.pruning.verify import verify


def certificate(pruning: Pruning) -> dict[str, Any]:
    """All that is needed to replay the pruning; fractions are text, floats are exact.

    >>> from lawful.pruning.prune import prune
    >>> from lawful.network import Mlp
    >>> proof = certificate(prune(Mlp([[[1.0], [0.0]], [[1.0, 3.0]]], [[0.0, 2.0], [0.0]])))
    >>> proof["statement"]
    '1 of 2 hidden neurons removed, no output moves by more than 0.0'
    >>> verify_certificate(proof)
    """
    networks = [pruning.original.to_dag(), *(stage.after for stage in pruning.stages)]
    return {
        "kind": "pruning",
        "statement": _statement(pruning),
        "neurons_before": pruning.neurons_before,
        "neurons_after": pruning.neurons_after,
        "max_output_change_bound": pruning.bound,
        "rounding_bound": pruning.rounding,
        "box": None if pruning.box is None else [[repr(float(end)) for end in corner] for corner in pruning.box],
        "networks": [_written(network) for network in networks],
        "stages": [
            {
                "kind": stage.kind,
                "evidence": [[name, _encoded(value)] for name, value in stage.evidence.items()],
                "carriers": [[name, _encoded(value)] for name, value in stage.carriers.items()],
                "bound": stage.bound,
                "rounding": stage.rounding,
            }
            for stage in pruning.stages
        ],
    }


def verify_certificate(proof: dict[str, Any]) -> None:
    """Rebuild the networks and replay every step; also the numbers that the certificate states must be the sums."""
    try:
        networks = [_read(network) for network in proof["networks"]]
        stages = tuple(
            Stage(
                stage["kind"], before, after, {name: _decoded(value) for name, value in stage["evidence"]},
                float(stage["bound"]), float(stage["rounding"]),
                {name: _decoded(value) for name, value in stage["carriers"]},
            )
            for stage, before, after in zip(proof["stages"], networks[:-1], networks[1:], strict=True)
        )  # fmt: skip
        ends = None if proof["box"] is None else [np.array([float(end) for end in corner]) for corner in proof["box"]]
        box = None if ends is None else (ends[0], ends[1])
        stated = [
            proof[key] for key in ("neurons_before", "neurons_after", "max_output_change_bound", "rounding_bound")
        ]
        statement = proof["statement"]
        pruning = Pruning(networks[0], networks[-1], stages, box)
    except (LawfulError, KeyError, TypeError, ValueError, IndexError, ZeroDivisionError) as error:
        raise CertificateError(f"not a pruning certificate: {type(error).__name__} {error}") from None
    verify(pruning)
    found = [pruning.neurons_before, pruning.neurons_after, pruning.bound, pruning.rounding]
    if stated != found or statement != _statement(pruning):
        raise CertificateError(f"states {stated}, but its steps give {found}")


def _statement(pruning: Pruning) -> str:
    gone = pruning.neurons_before - pruning.neurons_after
    where = "" if pruning.box is None else " on the box"
    return (
        f"{gone} of {pruning.neurons_before} hidden neurons removed, "
        f"no output moves by more than {pruning.bound!r}{where}"
    )


def _written(dag: Dag) -> dict[str, Any]:
    return {
        "nodes": list(dag.names),
        "roles": dag.roles.tolist(),
        "edges": np.stack([dag.tails, dag.heads], axis=1).tolist(),
        "weights": dag.theta.tolist(),
        "slopes": dag.slopes.tolist(),
    }


def _read(network: dict[str, Any]) -> Dag:
    edges = np.array(network["edges"], dtype=np.intp).reshape(-1, 2)
    return Dag(network["nodes"], network["roles"], edges[:, 0], edges[:, 1], network["weights"], network["slopes"])


def _encoded(value: Any) -> Any:
    return [value[0], str(value[1])] if isinstance(value, tuple) else None if value is None else str(value)


def _decoded(value: Any) -> Any:
    if isinstance(value, list):
        return str(value[0]), Fraction(value[1])
    return None if value is None else Fraction(value)
