"""A count of laws that rests on a theorem: its hypotheses are checked here, and the number is worked out again.

One hidden layer, fully connected, gradient flow, any loss. Not linear: one law for every hidden neuron, and no other
function of φ is conserved (P1 Example 3.6). Linear without biases: `rk(2r + 1 − rk)/2`, `rk = min(n + m, r)` (P1
Corollary 4.4).
"""

from __future__ import annotations

from typing import Any

from lawful.verify.core.dag import CONSTANT, HIDDEN, INPUT, OUTPUT, CheckedDag
from lawful.verify.core.finding import Finding
from lawful.verify.core.schema import integer, integers, items, limit_cost, number, object_with_keys, require, truth


def check(body: dict[str, Any]) -> Finding:
    """How many laws the theorem gives, for which architecture."""
    parts = object_with_keys(body, "certificate", "widths biases slope laws")
    inputs, hidden, outputs = integers(parts["widths"], "widths", 1, 10_000_000, length=3)
    biases = [truth(item, "biases") for item in items(parts["biases"], "biases", length=2)]
    slope = number(parts["slope"], "slope")
    limit_cost(500.0 * (inputs + outputs + 2) * hidden)
    require(slope != 1 or not any(biases), "the theorem about linear networks has no biases")
    rank = min(inputs + outputs, hidden)
    laws = hidden if slope != 1 else rank * (2 * hidden + 1 - rank) // 2
    stated = integer(parts["laws"], "laws", 0)
    require(stated == laws, f"the theorem gives {laws} laws, not the {stated} stated")
    dag = _wire(inputs, hidden, outputs, biases, slope)
    digest = dag.digest()
    facts = {
        "laws": laws,
        "parameters": len(dag.tails),
        "widths": [inputs, hidden, outputs],
        "theorem": "P1 Example 3.6" if slope != 1 else "P1 Corollary 4.4",
        "claim": "phi" if slope != 1 else "near",
    }
    return Finding(facts, (digest,))


def _wire(inputs: int, hidden: int, outputs: int, biases: list[bool], slope: float) -> CheckedDag:
    """The architecture, edge by edge."""
    constant = inputs + hidden + outputs
    roles = [INPUT] * inputs + [HIDDEN] * hidden + [OUTPUT] * outputs + [CONSTANT] * any(biases)
    first, second = range(inputs, inputs + hidden), range(inputs + hidden, constant)
    edges = [(tail, head) for head in first for tail in range(inputs)]
    edges += [(tail, head) for head in second for tail in first]
    for heads, biased in zip((first, second), biases, strict=True):
        edges += [(constant, head) for head in heads] if biased else []
    tails, heads_ = zip(*edges, strict=True)
    return CheckedDag(tuple(roles), tails, heads_, (slope,) * hidden, None)
