"""An audit of a network as one self-contained page: what was found, what to do, and what that rests on."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from lawful.invariant_set.module_graph import as_dag
from lawful.network import Mlp
from lawful.outward import at_least
from lawful.pruning.removable.dependent_neurons import names_by_layer
from lawful.report.audit.audit import (
    conserved_sentence,
    range_sentence,
    rank_sentence,
    same_sentence,
    smallest_words,
    wasted_sentence,
    where_sentence,
)
from lawful.report.audit.form import RECHECK, Form, assumed_section, is_of_module, list_names, sentence_of
from lawful.report.audit.module_page import module_form
from lawful.report.page.matrices import columns_of
from lawful.report.page.page import (
    Action,
    Answer,
    Block,
    Chip,
    Markup,
    Picture,
    Section,
    Table,
)
from lawful.report.page.terms import as_prose
from lawful.report.structure.network import ROOMY, draw_network
from lawful.sentences import audit as says
from lawful.sentences import components as components_says
from lawful.sentences import pruning as pruning_says

if TYPE_CHECKING:
    from lawful.api.audit import Audit
    from lawful.api.module_audit import ModuleAudit

LOCKED, DEAD, LINEAR = "var(--lock,#bf8600)", "var(--dead,#8a94a0)", "var(--straight,#4f7d45)"
MOST_LISTED = 200
SHOWN = 5  # digits of a number in a table: a barrier is rounded downwards to them
MOST_ROWS = 10  # of a picture whose values are labelled one by one
MOST_EDGES, MOST_NODES = 800, 14  # of a network that is drawn neuron by neuron
MOST_TILES = 256  # neurons that are drawn as tiles
MOST_LIVE = 6000  # weights that a page takes along, so that its reader can try inputs: 100 kB
MOST_OUTPUTS = 12
SQUARE = range(5, 41)  # sides of inputs that are taken for pictures, where their number is a square
NOTHING = "Nothing was found: no rescaling or pruning that the audit tries makes this network smaller or freer."


def audit_page(audit: Audit | ModuleAudit) -> str:
    """The self-contained page, of a network or of a module."""
    return (module_form(audit) if is_of_module(audit) else _network_form(audit)).page(audit)


def _network_form(audit: Audit) -> Form:
    summary = audit.summary
    answers = [_waste(audit), _laws_answer(audit), _locks_answer(audit), _same(audit)]
    if audit.activity:
        answers.append(_on_data(audit))
    return Form(
        f"{summary.name}, {summary.parameters:,} weights, {summary.hidden:,} hidden neurons",
        _headline(audit), _lead(audit), _removal_chip(audit), _stage(audit), _questions(audit), NOTHING,
        answers, _appendix(audit),
    )  # fmt: skip


# The finding


def _count_removed(audit: Audit) -> int:
    return audit.pruning.neurons_before - audit.pruning.neurons_after


def _headline(audit: Audit) -> str:
    """The first recommendation with its number, or that there is none."""
    if not audit.recommendations:
        hidden, decided = audit.summary.hidden, audit.pruning.decided
        if hidden and decided is not None and decided.complete:
            return sentence_of(_none_alone(hidden))
        return f"0 of {hidden:,} hidden neurons were found that can go." if hidden else "It has 0 hidden neurons."
    first = audit.recommendations[0]
    if _prunes_everywhere(audit):
        return f"{_can_go(audit)}. Take {'it' if _count_removed(audit) == 1 else 'them'} out."
    if any(c.isdigit() for c in first.title):
        return sentence_of(first.title)
    return f"{sentence_of(first.title, '')}: {first.benefit.split(',')[0]}."


def _none_alone(hidden: int) -> str:
    return pruning_says.all_needed(hidden).partition(":")[0]


def _removable(audit: Audit) -> str:
    remaining, parameters = audit.pruning.network.parameters, audit.summary.parameters
    return says.removable(_count_removed(audit), audit.summary.hidden, remaining, parameters, audit.pruning.rounding)


def _can_go(audit: Audit) -> str:
    return _removable(audit).partition(" and nothing")[0]


def _prunes_everywhere(audit: Audit) -> bool:
    first = audit.recommendations[0] if audit.recommendations else None
    return first is not None and _count_removed(audit) > 0 and first.command.startswith("lawful prune ") and (
        "--box" not in first.command
    )  # fmt: skip


def _lead(audit: Audit) -> str:
    if _prunes_everywhere(audit):
        words = _removable(audit).partition(" can go and ")[2]  # the headline has said how many
        return words[:1].upper() + words[1:]
    if not audit.recommendations:
        return f"{wasted_sentence(audit)} {where_sentence(audit)}"
    _, _, rest = audit.recommendations[0].benefit.partition(", ")  # the headline has said its first part
    return f"{sentence_of(rest) if rest else ''} {where_sentence(audit)}".strip()


def _removal_chip(audit: Audit) -> Chip | None:
    if not _prunes_everywhere(audit):
        return None
    first = audit.recommendations[0]
    verify = f"lawful verify pruned.json {audit.asked}"
    return Chip("proved", "Proved", "for every input", RECHECK, (first.command, verify))


def _questions(audit: Audit) -> list[Action]:
    """What else can be asked of it."""
    actions = [
        Action("Prove that the list of laws is complete", f"The audit skipped it: {part.reason}.", _laws(audit)[0])
        for part in audit.skipped
        if part.part.startswith("proof that there are no other laws")
    ]
    if isinstance(audit.network, Mlp):
        gain = "Drag creases and weights, slide along the fiber, train it in the browser."
        actions.append(Action("Touch it", gain, f"lawful explore {audit.asked} --html explorer.html"))
    return actions


def _laws(audit: Audit) -> tuple[str, str]:
    return f"lawful laws {audit.asked} --certificate laws.json", "lawful verify laws.json"


# The thing itself


def _stage(audit: Audit) -> Block:
    dag = as_dag(audit.components.dag)
    first = names_by_layer(dag)[0] if len(dag.hidden) else ()
    wide = max((len(layer) for layer in names_by_layer(dag)), default=0) > ROOMY or len(dag.inputs) > ROOMY
    if wide and isinstance(audit.network, Mlp) and 0 < len(first) <= MOST_TILES:
        return _tiles(audit, audit.network, first)
    return _graph(audit)


def _tiles(audit: Audit, network: Mlp, names: tuple[str, ...]) -> Picture:
    """First-layer neurons by what they look at; a square number of inputs is taken for a picture of pixels."""
    inputs = network.widths[0]
    side = math.isqrt(inputs) if math.isqrt(inputs) ** 2 == inputs and math.isqrt(inputs) in SQUARE else 0
    gone = _kinds_removed(audit)
    locked = _locked_names(audit)
    neurons = []
    for row, name in enumerate(names):
        words = [gone[name]] if name in gone else []
        words += ["has a sign-locked weight"] if name in locked else []
        words.append(f"balance {_short(audit.balance[row])}")
        weights = [_round(value) for value in network.weights[0][row]]
        neurons.append({"name": name, "weights": weights, "gone": name in gone, "words": ", ".join(words)})
    shape = "pixels" if side else "inputs, from left to right"
    note = f"What each first-layer neuron looks at: blue {shape} excite it, red ones inhibit it."
    if gone:
        note += " Dashed ones can go."
    data: dict[str, Any] = {"neurons": neurons, "side": side, "note": note, "live": _live(audit, network, side)}
    return Picture("tiles", data, f"the incoming weights of {len(names)} neurons")


def _live(audit: Audit, network: Mlp, side: int) -> dict[str, Any] | None:
    """Both networks and a few inputs, so that a reader can see them agree."""
    smaller = audit.pruning.network
    if not (side and _count_removed(audit) and isinstance(smaller, Mlp) and network.widths[-1] <= MOST_OUTPUTS):
        return None
    if network.parameters + smaller.parameters > MOST_LIVE:
        return None
    data = audit.examples
    examples = _ring(side) if data is None or not np.isfinite(data).all() else data
    return {
        "before": _weights(network),
        "after": _weights(smaller),
        "examples": [[_round(value) for value in example] for example in examples],
        "largest": float(np.abs(examples).max()) or 1.0,
    }


def _ring(side: int) -> np.ndarray:
    """Something to look at where there are no data: a ring, and a stroke."""
    across, down = np.meshgrid(np.arange(side), np.arange(side))
    middle = (side - 1) / 2
    ring = np.exp(-((np.hypot(across - middle, down - middle) - side / 3) ** 2))
    stroke = np.exp(-((across - middle) ** 2))
    return np.stack([ring.ravel(), stroke.ravel()])


def _weights(network: Mlp) -> dict[str, Any]:
    return {
        "weights": [weight.tolist() for weight in network.weights],
        "biases": [None if bias is None else bias.tolist() for bias in network.biases],
        "slopes": list(network.slopes),
    }


def _round(value: float) -> float:
    """Enough digits for a picture."""
    return float(f"{value:.3g}")


def _graph(audit: Audit) -> Block:
    dag = as_dag(audit.components.dag)
    if dag.parameters > MOST_EDGES or max(map(len, columns_of(dag))) > MOST_NODES:
        return Markup(draw_network(dag), "Blue weights are positive, red negative. A row is a neuron.")
    dead, linear = set(audit.summary.dead or ()), set(audit.summary.linear or ())
    locked, gone = _locked_names(audit), _kinds_removed(audit)
    balances = dict(zip((dag.names[node] for node in dag.hidden), audit.balance, strict=True))

    def node_of(name: str) -> dict[str, Any]:
        if name not in balances:
            return {"name": name}
        kinds = ["has a sign-locked weight"] * (name in locked) + ["dead"] * (name in dead)
        kinds += ["never bends"] * (name in linear) + ([gone[name]] if name in gone else [])
        note = f"{name}: balance {_short(balances[name])}" + (", " + ", ".join(kinds) if kinds else "")
        mark = LOCKED if name in locked else DEAD if name in dead else LINEAR if name in linear else ""
        return {"name": name, "note": note, "mark": mark, "hidden": True, "gone": name in gone}

    columns = columns_of(dag)
    place = {int(node): (column, row) for column, nodes in enumerate(columns) for row, node in enumerate(nodes)}
    theta = dag.theta
    edges = [
        (*place[tail], *place[head], _round(value))
        for tail, head, value in zip(dag.tails.tolist(), dag.heads.tolist(), theta.tolist(), strict=True)
    ]
    data = {
        "columns": [[node_of(dag.names[node]) for node in column] for column in columns],
        "edges": edges,
        "largest": float(np.abs(theta).max(initial=0.0)) or 1.0,
    }
    return Picture("graph", data, f"the network: {dag.parameters:,} weights, blue positive, red negative")


def _kinds_removed(audit: Audit) -> dict[str, str]:
    return {name: f"can go ({stage.kind})" for stage in audit.pruning.stages for name in stage.removed}


def _locked_names(audit: Audit) -> set[str]:
    dag = as_dag(audit.components.dag)
    return {
        dag.names[node] for lock in audit.components.locked for node in (dag.tails[lock.edge], dag.heads[lock.edge])
    }


def _short(value: float) -> str:
    return as_prose(f"{value:.3g}")


# One answer, one picture, one chip


def _waste(audit: Audit) -> Answer:
    pruning, hidden = audit.pruning, audit.summary.hidden
    decided, removed = pruning.decided, _count_removed(audit)
    if removed:
        heading = _can_go(audit)
    elif hidden and decided is not None and decided.complete:
        heading = sentence_of(_none_alone(hidden), "")
    else:
        heading = "No neuron was found that can go" if hidden else "It has no hidden neuron"
    there = range_sentence(audit)
    known = wasted_sentence(audit)
    if removed and _prunes_everywhere(audit):  # the headline and the lead have said what goes
        known = known.removeprefix(_removable(audit)).strip()
    words = [known, smallest_words(audit), f"On your data's range: {there}" if there else ""]
    command = f"lawful prune {audit.asked} --certificate pruned.json --out pruned.safetensors"
    verify = f"lawful verify pruned.json {audit.asked}"
    complete = decided is not None and decided.complete
    more = (
        RECHECK if complete else "Of some neurons it is not known whether they are needed. Ask again, with more time:"
    )
    chip = Chip("proved" if complete else "open", "Proved" if complete else "Not all were decided", "", more,
                (command, verify) if removed else (f"lawful prune {audit.asked}",)) if hidden else None  # fmt: skip
    return Answer("What can go", heading, " ".join(filter(None, words)), _squares(audit), chip)


def _squares(audit: Audit) -> Picture | None:
    """Every hidden neuron: stays, can go, or not decided."""
    dag = as_dag(audit.components.dag)
    if not len(dag.hidden):
        return None
    decided, gone = audit.pruning.decided, _kinds_removed(audit)
    needed = set() if decided is None else set(decided.needed)
    layers = names_by_layer(dag)
    state = {name: "go" if name in gone else "stay" if name in needed else "open" for layer in layers for name in layer}
    words = {"go": "can go", "stay": "needed", "open": "not decided"}
    counts = [
        (words[kind], sum(1 for state_kind in state.values() if state_kind == kind)) for kind in ("go", "stay", "open")
    ]
    styles = {"can go": "dashed grey", "needed": "blue", "not decided": "dotted gold"}
    note = ", ".join(f"{count:,} {kind} ({styles[kind]})" for kind, count in counts if count)
    cells = [
        {
            "name": f"layer {number}",
            "cells": [(f"{name}: {gone.get(name, words[state[name]])}", state[name]) for name in layer],
        }
        for number, layer in enumerate(layers, 1)
    ]
    return Picture("squares", {"layers": cells, "note": note}, f"{len(state)} hidden neurons: {note}")


def _laws_answer(audit: Audit) -> Answer:
    laws = audit.laws
    if laws is None:
        hidden = audit.summary.hidden
        heading = says.balances(hidden).partition(" (")[0] if hidden else "Not counted"
        more = "An exact count takes time like the cube of the number of weights. To ask for it:"
        chip = Chip("open", "At least", "that there are no others was not counted", more, _laws(audit))
    else:
        heading = says.conserved(laws.laws, laws.proved, laws.status).partition(", ")[0]
        if laws.proved:
            chip = Chip("proved", "Proved", "and that there are no others of that kind", RECHECK, _laws(audit))
        else:
            chip = Chip(
                "open", laws.status.capitalize(), "that there are no others is not proved", "", _laws(audit)[:1]
            )
    return Answer("What training conserves", heading, conserved_sentence(audit), _pairs(audit), chip)


def _pairs(audit: Audit) -> Picture | None:
    """Incoming and outgoing weights, squared and summed: training keeps their difference."""
    dag = as_dag(audit.components.dag)
    if not len(dag.hidden):
        return None
    squares = dag.theta**2
    into = np.bincount(dag.heads, weights=squares, minlength=len(dag.names))[dag.hidden]
    out = np.bincount(dag.tails, weights=squares, minlength=len(dag.names))[dag.hidden]
    if not np.isfinite(into).all() or not np.isfinite(out).all():
        return None
    order = np.argsort(-np.maximum(into, out), kind="stable")
    shown = sorted(order[:MOST_ROWS].tolist())
    rows = [(dag.names[dag.hidden[k]], float(into[k]), float(out[k])) for k in shown if into[k] or out[k]]
    zeros = int(np.count_nonzero((into == 0) & (out == 0)))
    rest = len(dag.hidden) - len(rows) - zeros
    notes = [f"the {len(rows)} largest; {rest:,} more are in the table"] if rest else []
    notes += [f"and {zeros:,} neuron{'s' * (zeros != 1)} with 0 on both sides"] if zeros else []
    if not rows:
        return None
    data = {"rows": rows, "left": "goes in, squared", "right": "goes out, squared", "note": "; ".join(notes)}
    return Picture("pairs", data, "squared incoming and outgoing weights of neurons")


def _locks_answer(audit: Audit) -> Answer:
    components = audit.components
    commands = (
        f"lawful components {audit.asked} --certificate components.json",
        f"lawful verify components.json {audit.asked}",
    )
    chip = Chip("proved", "Proved", "" if components.locked else "the invariant set is connected", RECHECK, commands)
    if not components.locked:
        words = where_sentence(audit)
        return Answer("What is locked", components_says.no_lock(), words, _lock_squares(audit), chip)
    heading = says.locked(components.log2_components).split(":")[0]
    return Answer("What is locked", heading, where_sentence(audit), _barriers(audit), chip)


def _lock_squares(audit: Audit) -> Picture | None:
    dag = as_dag(audit.components.dag)
    layers = names_by_layer(dag)
    if not layers:
        return None
    gone = _kinds_removed(audit)
    cells = [
        {"name": f"layer {number}", "cells": [(name, "go" if name in gone else "stay") for name in layer]}
        for number, layer in enumerate(layers, 1)
    ]
    note = f"0 of {len(dag.hidden):,} locked (a locked one would be gold)"
    return Picture("squares", {"layers": cells, "note": note}, note)


def _barriers(audit: Audit) -> Picture:
    components = audit.components
    dag = as_dag(components.dag)
    ranked = sorted(components.locked, key=lambda lock: -lock.barrier)[:MOST_ROWS]
    rows = [
        (" → ".join(dag.edge_name(lock.edge)), float(at_least(lock.barrier, 3)), float(abs(dag.theta[lock.edge])))
        for lock in ranked
    ]
    more = f" The {len(rows)} highest of {len(components.locked):,}." if len(components.locked) > len(rows) else ""
    note = "Gold: how close to zero the weight can come. Mark: its size now." + more
    return Picture("bars", {"rows": rows, "note": note, "marked": "now"}, "locked weights and their barriers")


def _same(audit: Audit) -> Answer:
    heading = says.rescaling(audit.summary.hidden, audit.depth is not None)
    words = same_sentence(audit).removeprefix(heading).lstrip(";,. ")
    answer, chip = audit.identifiability, None
    if answer is not None:
        save = f"lawful identifiable {audit.asked} --certificate identifiable.json"
        verify = f"lawful verify identifiable.json {audit.asked}"
        if answer.identifiable is None:
            chip = Chip("open", "Undecided", "whether anything else does", "", (f"lawful identifiable {audit.asked}",))
        else:
            chip = Chip("proved", "Proved", "", RECHECK, (save, verify))
    elif audit.normal_form is not None and audit.summary.hidden:
        more = "Read off the exact weights. The whole set of weights that are this function:"
        chip = Chip("proved", "By theorem", "for one hidden layer", more, (f"lawful fiber {audit.asked}",))
    return Answer("Which other weights are this function", heading, sentence_of(words, ""), _twins(audit), chip)


def _twins(audit: Audit) -> Picture | None:
    network = audit.network
    if not isinstance(network, Mlp) or len(network.weights) < 2 or not network.widths[1]:
        return None
    into, out = network.weights[0], network.weights[1]
    size = np.abs(into).max(axis=1, initial=0.0) * np.abs(out).max(axis=0, initial=0.0)
    loudest = int(np.argmax(size))
    if not 0 < size[loudest] < np.inf:
        return None
    root = math.isqrt(network.widths[0])
    side = root if root * root == network.widths[0] and root in SQUARE else 0
    name = names_by_layer(as_dag(audit.components.dag))[0][loudest]
    data = {
        "name": name,
        "incoming": [_round(value) for value in into[loudest]],
        "outgoing": [_round(value) for value in out[:, loudest][:64]],
        "side": side,
    }
    return Picture("twins", data, f"neuron {name} at three scales: the same function")


def _on_data(audit: Audit) -> Answer:
    heading = says.silent_on_data(sum(len(layer.never) for layer in audit.activity))
    if len(audit.activity) == 1:
        only = audit.activity[0]
        words = f"The {only.width:,} hidden neurons have an effective dimension of {only.dimension:.3g} there."
        shown = [t for t in only.truncated if t.label != "all"] or list(only.truncated)
        rows = [(f"{t.label}: samples cut in some coordinates", float(t.partially)) for t in shown[:MOST_ROWS]]
        picture: Block = Picture("bars", {"rows": rows, "note": ""}, "samples that the layer cuts, by class")
    else:
        words = "The effective dimension of each hidden layer on your data: a dip is a bottleneck."
        rows = [(f"layer {layer.layer}: effective dimension", layer.dimension) for layer in audit.activity[:MOST_ROWS]]
        picture = Picture("bars", {"rows": rows, "note": ""}, "effective dimension of each layer")
    return Answer(
        "On your data", heading, words, picture, Chip("here", "Measured on your data", "", "In floating point.")
    )


# Folded


def _appendix(audit: Audit) -> list[Section]:
    sections = [Section(f"All {audit.summary.hidden:,} neurons, with numbers", [_neurons(audit)])] * bool(
        audit.summary.hidden
    )
    if audit.components.locked:
        sections.append(Section("Locked weights", [_locks(audit)]))
    if audit.laws is not None and (named := [(line,) for line in audit.laws.summary()[:20]]):
        sections.append(Section("The laws in words", [Table(("conserved",), named)]))
    if audit.activity:
        sections.append(Section("Layers on your data", _data_blocks(audit)))
    if rank := rank_sentence(audit):
        sections.append(Section("Rank of the balances", [rank]))
    reading = getattr(audit, "reading", None)
    sections.append(assumed_section(reading.assumed if reading is not None else (), audit.skipped))
    return sections


def _neurons(audit: Audit) -> Table:
    dag = as_dag(audit.components.dag)
    gone, decided = _kinds_removed(audit), audit.pruning.decided
    needed = set() if decided is None else set(decided.needed)
    rows = [
        (name, float(value), gone.get(name, "needed" if name in needed else "not decided"))
        for name, value in zip((dag.names[node] for node in dag.hidden), audit.balance, strict=True)
    ]
    rows.sort(key=lambda row: -abs(row[1]))
    caption = "Balances are conserved by gradient flow, whatever the data and loss; largest first."
    caption += f" The first {MOST_LISTED} of {len(rows):,}." if len(rows) > MOST_LISTED else ""
    return Table(("neuron", "balance", "verdict"), rows[:MOST_LISTED], caption, bars=("balance",))


def _locks(audit: Audit) -> Table:
    components = audit.components
    rows = [
        (
            *components.dag.edge_name(lock.edge),
            "+" if lock.sign > 0 else "−",
            float(components.dag.theta[lock.edge]),
            float(at_least(lock.barrier, SHOWN)),
        )
        for lock in sorted(components.locked, key=lambda lock: -lock.barrier)[:MOST_LISTED]
    ]
    caption = "Weights whose sign training keeps, and the barrier that each can never pass on its way to zero."
    caption += (
        f" The {MOST_LISTED} highest of {len(components.locked):,}." if len(components.locked) > MOST_LISTED else ""
    )
    return Table(("from", "to", "sign", "weight", "barrier"), rows, caption, bars=("barrier",))


def _data_blocks(audit: Audit) -> list[Block]:
    rows = [
        (layer.layer, layer.width, layer.dimension, len(layer.never), len(layer.always), t.label, t.untruncated,
         t.partially, t.fully)
        for layer in audit.activity for t in layer.truncated
    ]  # fmt: skip
    columns = ("layer", "neurons", "effective dimension", "never fire", "always fire", "class", "whole", "cut", "gone")
    blocks: list[Block] = []
    never = [name for layer in audit.activity for name in layer.never]
    if never:
        blocks.append(f"Never fire: {list_names(never, 20)}.")
    caption = "Samples that a layer keeps whole, cuts in some coordinates, or maps to 0."
    return [*blocks, Table(columns, rows, caption, bars=("whole", "cut", "gone"))]
