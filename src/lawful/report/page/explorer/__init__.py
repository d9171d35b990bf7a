"""The explorer: one self-contained page that trains, rescales and draws a network in the browser."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lawful.conservation.wording import Wording
from lawful.fibers.reparametrisations import SymmetryStep
from lawful.fibers.verdict import Different, Equal, step_json
from lawful.invariant_set.module_graph import as_dag
from lawful.network import Mlp
from lawful.pruning.neurons.prune import Pruning
from lawful.report.page.page import POLICY, asset, json_text
from lawful.report.page.terms import as_prose
from lawful.report.structure.network import draw_graph
from lawful.report.structure.pruning import decided_sentence
from lawful.sentences import audit as says
from lawful.sentences.pruning import EVERYWHERE, same_function

if TYPE_CHECKING:
    from lawful.api.explore import Exploration

HERE = Path(__file__).parent
MOST_LAWS = 400
MOST_DRAWN = 60  # weights of a network that is drawn for readers without scripts


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


SCRIPTS = (
    "engine.js", "drawing.js", "frame.js", "model.js", "pieces.js", "raster.js", "plane.js", "still.js", "stage.js",
    "curve.js", "weights.js", "balances.js", "training.js", "evidence.js", "address.js", "loop.js", "questions.js",
    "panels.js",
)  # fmt: skip


def explorer_html(found: Exploration, title: str = "", lead: str = "") -> str:
    """The page, under words of your own; data go in as JSON, and no text of the user's becomes markup."""
    return explorer_page(
        title=found.source,
        headline=title or f"{found.network.parameters:,} weights, one function",
        picture=_picture(found),
        data=json_text(explorer_data(found) | {"title": title, "lead": lead}),
        script="\n".join(map(script_text, SCRIPTS)),
    )


def explorer_page(
    *, title: str, headline: str, data: str, script: str, picture: str = "", style: str = "", before: str = ""
) -> str:
    """The frame of the page: `data` and `script` go in as they are, `before` stands first in its body."""
    parts = {
        "policy": POLICY,
        "style": asset("tokens.css") + script_text("page.css") + style,
        "title": escape(title),
        "headline": escape(headline),
        "kind": "waiting" if before else "",
        "before": before,
        "picture": picture,
        "data": data,
        "script": script,
    }
    names = "|".join(parts)
    return re.sub(rf"\{{\{{({names})\}}\}}", lambda place: parts[place[1]], script_text("page.html"))


def _picture(found: Exploration) -> str:
    """The network as it is given, for readers without scripts; the page draws its own over it."""
    dag = as_dag(found.components.dag)
    small = dag.parameters <= MOST_DRAWN
    return draw_graph(dag) if small else "<noscript>This page needs scripts to draw so large a network.</noscript>"


def script_text(name: str) -> str:
    """A part of the page by its file name."""
    return (HERE / name).read_text(encoding="utf-8")


def explorer_data(found: Exploration) -> dict[str, Any]:
    """What the scripts read."""
    network = found.network
    dag = as_dag(found.components.dag)
    return {
        "source": found.source,
        "asked": found.asked,
        "file": shlex.quote(found.source),
        "editedOptions": f"--activation '{_activation(network)}'",
        "middle": found.targets.mean(axis=0).tolist(),
        "claims": _claims(found),
        "otherCommand": shlex.quote(found.other_source),
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
        "path": _path(found),
        "pruned": _pruning_part(found),
        "verdict": _verdict(found),
    }


def _activation(network: Mlp) -> str:
    """How the command line names the activation between the layers."""
    slope = network.slopes[0] if network.slopes else 1.0
    return {0.0: "relu", 1.0: "linear"}.get(slope, f"leaky_relu({slope!r})")


def _claims(found: Exploration) -> list[dict[str, Any]]:
    """What the page may say, of which weights, and the command that certifies it again."""
    counted, network = found.laws, found.network
    hidden = sum(network.widths[1:-1])
    proved = counted is not None and counted.proved
    of_laws = {
        "kind": "laws",
        "scope": "any",
        "open": not proved,
        "what": says.balances(hidden)
        if counted is None
        else says.conserved(counted.laws, counted.proved, counted.status),
        "holds": "proved for any weights: editing does not touch it" if proved else "that there are no others is open",
        "more": "To save the evidence and have an independent checker verify it:",
        "command": f"lawful laws {found.asked} --certificate laws.json && lawful verify laws.json",
    }
    decided = "decided exactly for the file's weights"
    locked = found.components.log2_components
    of_locks = {
        "kind": "locks",
        "scope": "weights",
        "open": False,
        "what": says.locked(locked) if locked else says.connected(),
        "holds": decided,
        "more": "To save the evidence and have an independent checker verify it:",
        "command": "lawful components {file} --certificate components.json && lawful verify components.json {file}",
    }
    pruned = _pruning_part(found)
    of_pruning = {
        "kind": "pruned",
        "scope": "weights",
        "open": not pruned["complete"],
        "what": f"{pruned['words'].replace(' (ringed on the left)', '')} {pruned['left']}",
        "holds": decided if pruned["complete"] else "not all neurons were decided",
        "more": "To save the evidence and have an independent checker verify it:",
        "command": "lawful prune {file} --out pruned.safetensors --certificate pruned.json"
        " && lawful verify pruned.json",
    }
    of_function = {
        "kind": "function",
        "scope": "weights",
        "open": False,
        "what": f"This is the function of {found.source}.",
        "holds": "these are the file's weights",
        "more": "To compare it with another file:",
        "command": _same_command(found),
    }
    return [claim | {"what": as_prose(str(claim["what"]))} for claim in (of_laws, of_locks, of_pruning, of_function)]


def _same_command(found: Exploration) -> str:
    """Compare the file with the edited weights, which are read by their activation alone."""
    activation = f"--activation '{_activation(found.network)}'"
    taken = shlex.split(found.asked)
    if any(word in taken for word in ("--model", "--input", "--order", "--drop-useless", "--seed")):
        first = f"lawful convert {found.asked} --out given.safetensors"
        return f"{first} && lawful same given.safetensors {{edited}} {activation}"
    return f"lawful same {shlex.quote(found.source)} {{edited}} {activation}"


def _network(network: Any) -> dict[str, Any]:
    return {
        "widths": list(network.widths),
        "weights": [weight.tolist() for weight in network.weights],
        "biases": [None if bias is None else bias.tolist() for bias in network.biases],
        "slopes": list(network.slopes),
    }


def _path(found: Exploration) -> dict[str, Any] | None:
    path = found.path
    if path is None:
        return None
    sizes, signs = ([point.tolist() for point in part] for part in (path.sizes, path.signs))
    flips = int(np.count_nonzero(found.network.theta)) - len(found.components.locked)
    return {"sizes": sizes, "signs": signs, "drift": str(path.drift), "flips": flips}


def _pruning_part(found: Exploration) -> dict[str, Any]:
    """What goes, where it stands in the drawing, and the network without it."""
    pruning, widths = found.pruning, found.network.widths
    hidden = [f"{layer + 1},{unit}" for layer, width in enumerate(widths[1:-1]) for unit in range(width)]
    dag = found.pruning.original.to_dag()
    places = dict(zip((dag.names[node] for node in dag.hidden), hidden, strict=True))
    return {
        "before": pruning.neurons_before,
        "after": pruning.neurons_after,
        "bound": pruning.bound,
        "rounding": pruning.rounding,
        "complete": pruning.decided is not None and pruning.decided.complete,
        "words": as_prose(_pruned_words(pruning)),
        "left": decided_sentence(pruning)[:1].upper() + decided_sentence(pruning)[1:] + ".",
        "removed": [
            {"name": name, "place": places.get(name, ""), "why": stage.kind}
            for stage in pruning.stages
            for name in stage.removed
        ],
        "network": _network(pruning.network) if isinstance(pruning.network, Mlp) else None,
    }


def _pruned_words(pruning: Pruning) -> str:
    removed = pruning.neurons_before - pruning.neurons_after
    if not removed:
        return "No neuron is removed."
    same = same_function(EVERYWHERE, pruning.rounding, "[-1, 1]")
    return f"{removed} of {pruning.neurons_before} hidden neurons can go (ringed on the left): {same}."


def _laws(found: Exploration) -> list[dict[str, Any]]:
    wording = Wording(found.network.to_dag())
    return [
        {"name": wording.law(law), "terms": [[list(edges), float(factor)] for edges, factor in law.terms.items()]}
        for law in list(found.known)[:MOST_LAWS]
        if law.exponent is None
    ]


def _verdict(found: Exploration) -> dict[str, Any] | None:
    verdict = found.verdict
    if verdict is None:
        return None
    if isinstance(verdict, Equal):
        words = f"the same function ({verdict.method})."
        steps = [
            step
            for name, side in (("this", verdict.witness.first), ("other", verdict.witness.second))
            for step in _steps(name, side)
        ]
        return {"verdict": verdict.verdict, "words": words, "input": None, "steps": steps}
    if isinstance(verdict, Different) and verdict.counterexample is not None:
        point = np.asarray(verdict.counterexample.point, dtype=float).tolist()
        words = "the dot is an input on which the exact outputs differ."
        return {"verdict": verdict.verdict, "words": words, "input": point, "steps": []}
    return {"verdict": verdict.verdict, "words": verdict.reason, "input": None, "steps": []}


def _steps(network: str, side: Sequence[SymmetryStep]) -> list[dict[str, str]]:
    """The steps that move something, in words."""
    steps = []
    for step in map(step_json, side):
        what = f"{step.pop('do')} layer {step.pop('layer')}"
        moved = list(step.get("order", step.get("factors", ())))
        if moved and moved in ([1.0] * len(moved), list(range(len(moved)))):
            continue
        how = "; ".join(f"{key} {_short(value)}" for key, value in step.items())
        steps.append({"network": network, "what": what, "how": how})
    return steps


def _short(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return ", ".join(map(_short, value[:12])) + (", ..." if len(value) > 12 else "")
    return f"{value:.4g}" if isinstance(value, float) else str(value)
