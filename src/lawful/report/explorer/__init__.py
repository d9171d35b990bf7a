"""The explorer: one self-contained page that trains, rescales and draws a network in the browser."""

from __future__ import annotations

import json
import re
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lawful.components.entries import as_dag
from lawful.fibers.verdict import Different
from lawful.laws.wording import Wording
from lawful.report.network import MAX_EDGES, MAX_NODES, draw_graph

if TYPE_CHECKING:
    from lawful.study.explore import Exploration

HERE = Path(__file__).parent
MOST_LAWS = 400


def facts(found: Exploration) -> dict[str, Any]:
    """What the page holds, in numbers."""
    return {
        "network": found.source,
        "parameters": found.network.parameters,
        "widths": list(found.network.widths),
        "samples": len(found.inputs),
        "laws": None if found.laws is None else found.laws.laws,
        "locked": found.components.log2_components,
        "verdict": None if found.verdict is None else found.verdict.verdict,
    }


def facts_text(found: Exploration) -> str:
    """One line: a notebook shows the page itself."""
    return f"explorer of {found.source}: {found.network.parameters:,} parameters, {len(found.inputs)} samples"


def explorer_html(found: Exploration) -> str:
    """The page; data go in as JSON, and no text of the user's becomes markup."""
    data = json.dumps(explorer_data(found), ensure_ascii=False, allow_nan=False)
    parts = {
        "style": _text("page.css"),
        "title": escape(found.source),
        "picture": _picture(found),
        "data": data.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029"),
        "script": "\n".join(map(_text, ("engine.js", "drawing.js", "panels.js"))),
    }
    return re.sub(r"\{\{(style|title|picture|data|script)\}\}", lambda place: parts[place[1]], _text("page.html"))


def _picture(found: Exploration) -> str:
    """The network as it is given, for readers without scripts; the page draws its own over it."""
    dag = as_dag(found.components.dag)
    small = len(dag.names) <= MAX_NODES and dag.parameters <= MAX_EDGES
    return draw_graph(dag) if small else "<noscript>This page needs scripts to draw so large a network.</noscript>"


def _text(name: str) -> str:
    return (HERE / name).read_text(encoding="utf-8")


def explorer_data(found: Exploration) -> dict[str, Any]:
    """What the scripts read."""
    network = found.network
    dag = as_dag(found.components.dag)
    return {
        "source": found.source,
        "command": found.name,
        "network": _network(network),
        "other": None if found.other is None else _network(found.other),
        "inputs": found.inputs.tolist(),
        "targets": found.targets.tolist(),
        "madeUp": found.made_up,
        "laws": _laws(found),
        "count": None if found.laws is None else {"laws": found.laws.laws, "status": found.laws.status},
        "locked": [
            {
                "edge": lock.edge,
                "barrier": lock.barrier,
                "names": dag.edge_name(lock.edge),
                "set": [dag.names[node] for node in found.components.stable_set(lock)],
            }
            for lock in found.components.locked
        ],
        "hidden": found.hidden,
        "pruned": {
            "before": found.pruning.neurons_before,
            "after": found.pruning.neurons_after,
            "bound": found.pruning.bound,
            "widths": list(getattr(found.pruning.network, "widths", ())),
        },
        "verdict": _verdict(found),
    }


def _network(network: Any) -> dict[str, Any]:
    return {
        "widths": list(network.widths),
        "weights": [weight.tolist() for weight in network.weights],
        "biases": [None if bias is None else bias.tolist() for bias in network.biases],
        "slopes": list(network.slopes),
    }


def _laws(found: Exploration) -> list[dict[str, Any]]:
    if found.laws is None or found.laws.dag is None:
        return []
    wording = Wording(found.laws.dag)
    return [
        {"name": wording.law(law), "terms": [[list(edges), float(factor)] for edges, factor in law.terms.items()]}
        for law in list(found.laws.known)[:MOST_LAWS]
        if law.exponent is None
    ]


def _verdict(found: Exploration) -> dict[str, Any] | None:
    if found.verdict is None:
        return None
    point = None
    if isinstance(found.verdict, Different) and found.verdict.counterexample is not None:
        point = np.asarray(found.verdict.counterexample.point, dtype=float).tolist()
    return {"verdict": found.verdict.verdict, "input": point}
