"""An audit of a network as one self-contained page: what was found, what to do, and what that rests on."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from lawful.network import Mlp
from lawful.report.audit.audit import (
    capital,
    conserved_sentence,
    range_sentence,
    same_sentence,
    smallest_words,
    wasted_sentence,
    where_sentence,
)
from lawful.report.audit.form import (
    MOST_LISTED,
    MOST_ROWS,
    RECHECK,
    Form,
    advised,
    locks_answer,
    locks_section,
    rests_on,
    sentence_of,
    take_out,
)
from lawful.report.audit.module_page import blocks_page, module_form
from lawful.report.audit.neurons import Neurons, neurons_of
from lawful.report.page.matrices import columns_of
from lawful.report.page.page import Action, Answer, Block, Chip, Markup, Picture, Section, Table
from lawful.report.page.terms import as_prose
from lawful.report.plain import few
from lawful.report.structure.network import ROOMY, draw_network
from lawful.sentences import audit as says
from lawful.sentences import components as components_says
from lawful.sentences import pruning as pruning_says

if TYPE_CHECKING:
    from lawful.api.audit import Audit
    from lawful.types import Floats

LOCKED, DEAD, LINEAR = "var(--lock,#bf8600)", "var(--dead,#8a94a0)", "var(--straight,#4f7d45)"
MOST_EDGES, MOST_NODES = 800, 14  # of a network that is drawn neuron by neuron
MOST_TILES = 256  # neurons that are drawn as tiles
MOST_LIVE = 6000  # weights that a page takes along, so that its reader can try inputs: 100 kB
MOST_OUTPUTS = 12
MOST_WIDTHS = 12  # of layers, in a heading
SQUARE = range(5, 41)  # sides of inputs that are taken for pictures, where their number is a square
NOTHING = "Nothing was found: no rescaling or pruning that the audit tries makes this network smaller or freer."


def audit_page(audit: Audit) -> str:
    """The self-contained page, of a network or of a module."""
    if audit.symmetries is not None:
        return module_form(audit, audit.symmetries).page(audit)
    return _network_form(audit, neurons_of(audit)).page(audit)


def explore_page(audit: Audit) -> str:
    """What `lawful explore` shows of what cannot be moved in a browser: a module block by block, a graph's audit."""
    return audit_page(audit) if audit.symmetries is None else blocks_page(audit, audit.symmetries)


def _network_form(audit: Audit, facts: Neurons) -> Form:
    locks = components_says.no_lock()
    if facts.where.locked:
        locks = says.locked(facts.where.log2_components).split(":")[0]
    answers = [
        _waste(audit, facts),
        _laws_answer(audit, facts),
        locks_answer(audit, facts.where, locks, "" if facts.where.locked else "the invariant set is connected",
                     _lock_squares(facts)),
        _same(audit, facts),
    ]  # fmt: skip
    if audit.activity:
        answers.append(_on_data(audit))
    return Form(
        f"{_shorten(audit.kind)}, {audit.parameters:,} weights, {facts.hidden:,} hidden neurons",
        _headline(audit, facts), _lead(audit, facts), _removal_chip(audit, facts), _stage(audit, facts),
        _questions(audit), NOTHING, answers, _appendix(audit, facts),
    )  # fmt: skip


def _shorten(kind: str) -> str:
    """The widths of a deep network: the first and the last of them."""
    widths = kind.split("-")
    return kind if len(widths) <= MOST_WIDTHS else f"{'-'.join(widths[:3])}-…-{widths[-1]}, {len(widths) - 1} layers"


# The finding


def _headline(audit: Audit, facts: Neurons) -> str:
    """The first recommendation with its number, or that there is none."""
    if _prunes_everywhere(audit, facts):
        return take_out(_can_go(facts))
    if audit.recommendations:
        return advised(audit)
    if _all_needed(facts):
        return sentence_of(_none_alone(facts))
    return (
        f"0 of {facts.hidden:,} hidden neurons were found that can go." if facts.hidden else "It has 0 hidden neurons."
    )


def _all_needed(facts: Neurons) -> bool:
    decided = facts.pruning.decided
    return bool(facts.hidden) and decided is not None and decided.complete


def _none_alone(facts: Neurons) -> str:
    return pruning_says.all_needed(facts.hidden).partition(":")[0]


def _can_go(facts: Neurons) -> str:
    return facts.removable.partition(" and nothing")[0]


def _prunes_everywhere(audit: Audit, facts: Neurons) -> bool:
    first = audit.recommendations[0].command if audit.recommendations else ""
    return facts.removed > 0 and first.startswith("lawful prune ") and "--box" not in first


def _lead(audit: Audit, facts: Neurons) -> str:
    if _prunes_everywhere(audit, facts):
        return capital(facts.removable.partition(" can go and ")[2])  # the headline has said how many
    if not audit.recommendations:
        return f"{wasted_sentence(facts)} {where_sentence(audit)}"
    _, _, rest = audit.recommendations[0].benefit.partition(", ")  # the headline has said its first part
    return f"{sentence_of(rest) if rest else ''} {where_sentence(audit)}".strip()


def _removal_chip(audit: Audit, facts: Neurons) -> Chip | None:
    if not _prunes_everywhere(audit, facts):
        return None
    verify = f"lawful verify pruned.json {audit.asked}"
    return Chip("proved", "Proved", "for every input", RECHECK, (audit.recommendations[0].command, verify))


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


def _stage(audit: Audit, facts: Neurons) -> Block:
    first = facts.layers[0] if facts.hidden else ()
    widest = max((*map(len, facts.layers), len(facts.dag.inputs)), default=0)
    if widest > ROOMY and isinstance(facts.network, Mlp) and 0 < len(first) <= MOST_TILES:
        return _tiles(audit, facts, facts.network, first)
    return _graph(audit, facts)


def _tiles(audit: Audit, facts: Neurons, network: Mlp, names: Sequence[str]) -> Picture:
    """First-layer neurons by what they look at; a square number of inputs is taken for a picture of pixels."""
    inputs = network.widths[0]
    side = math.isqrt(inputs) if math.isqrt(inputs) ** 2 == inputs and math.isqrt(inputs) in SQUARE else 0
    gone, neurons = facts.gone, []
    for row, name in enumerate(names):
        words = [gone[name]] if name in gone else []
        words += ["has a sign-locked weight"] if name in facts.locked else []
        words.append(f"balance {_short(audit.balance[row])}")
        weights = [_round(value) for value in network.weights[0][row]]
        neurons.append({"name": name, "weights": weights, "gone": name in gone, "words": ", ".join(words)})
    shape = "pixels" if side else "inputs, from left to right"
    note = f"What each first-layer neuron looks at: blue {shape} excite it, red ones inhibit it."
    if gone:
        note += " Dashed ones can go."
    data: dict[str, Any] = {
        "neurons": neurons,
        "side": side,
        "note": note,
        "live": _live(facts, network, side, audit.examples),
    }
    return Picture("tiles", data, f"the incoming weights of {len(names)} neurons")


def _live(facts: Neurons, network: Mlp, side: int, data: Floats | None) -> dict[str, Any] | None:
    """Both networks and a few inputs, so that a reader can see them agree."""
    smaller = facts.pruning.network
    if not (side and facts.removed and isinstance(smaller, Mlp) and network.widths[-1] <= MOST_OUTPUTS):
        return None
    if network.parameters + smaller.parameters > MOST_LIVE:
        return None
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


def _graph(audit: Audit, facts: Neurons) -> Block:
    dag, columns = facts.dag, columns_of(facts.dag)
    if dag.parameters > MOST_EDGES or max(map(len, columns)) > MOST_NODES:
        return Markup(draw_network(dag), "Blue weights are positive, red negative. A row is a neuron.")
    dead, linear = set(facts.summary.dead or ()), set(facts.summary.linear or ())
    locked, gone = facts.locked, facts.gone
    balances = dict(zip(facts.names, audit.balance, strict=True))

    def node_of(name: str) -> dict[str, Any]:
        if name not in balances:
            return {"name": name}
        kinds = ["has a sign-locked weight"] * (name in locked) + ["dead"] * (name in dead)
        kinds += ["never bends"] * (name in linear) + ([gone[name]] if name in gone else [])
        note = f"{name}: balance {_short(balances[name])}" + (", " + ", ".join(kinds) if kinds else "")
        mark = LOCKED if name in locked else DEAD if name in dead else LINEAR if name in linear else ""
        return {"name": name, "note": note, "mark": mark, "hidden": True, "gone": name in gone}

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


def _short(value: float) -> str:
    return as_prose(f"{value:.3g}")


# One answer, one picture, one chip


def _waste(audit: Audit, facts: Neurons) -> Answer:
    if facts.removed:
        heading = _can_go(facts)
    elif _all_needed(facts):
        heading = sentence_of(_none_alone(facts), "")
    else:
        heading = "No neuron was found that can go" if facts.hidden else "It has no hidden neuron"
    known, there = wasted_sentence(facts), range_sentence(audit)
    if facts.removed and _prunes_everywhere(audit, facts):  # the headline and the lead have said what goes
        known = known.removeprefix(facts.removable).strip()
    words = [known, smallest_words(audit), f"On your data's range: {there}" if there else ""]
    return Answer("What can go", heading, " ".join(filter(None, words)), _squares(facts), _waste_chip(audit, facts))


def _waste_chip(audit: Audit, facts: Neurons) -> Chip | None:
    if not facts.hidden:
        return None
    commands: tuple[str, ...] = (f"lawful prune {audit.asked}",)
    if facts.removed:
        command = f"{commands[0]} --certificate pruned.json --out pruned.safetensors"
        commands = (command, f"lawful verify pruned.json {audit.asked}")
    decided = facts.pruning.decided
    if decided is not None and decided.complete:
        return Chip("proved", "Proved", "", RECHECK, commands)
    more = "Of some neurons it is not known whether they are needed. Ask again, with more time:"
    return Chip("open", "Not all were decided", "", more, commands)


def _squares(facts: Neurons) -> Picture | None:
    """Every hidden neuron: stays, can go, or not decided."""
    if not facts.hidden:
        return None
    states = {"needed": "stay", "not decided": "open"}
    state = {name: states.get(verdict, "go") for name, verdict in facts.verdicts.items()}
    styles = {"go": "can go (dashed grey)", "stay": "needed (blue)", "open": "not decided (dotted gold)"}
    counts = [(sum(each == kind for each in state.values()), words) for kind, words in styles.items()]
    note = ", ".join(f"{count:,} {words}" for count, words in counts if count)
    cells = _by_layer(facts, lambda name: (f"{name}: {facts.verdicts[name]}", state[name]))
    return Picture("squares", {"layers": cells, "note": note}, f"{len(state)} hidden neurons: {note}")


def _by_layer(facts: Neurons, cell: Callable[[str], tuple[str, str]]) -> list[dict[str, Any]]:
    """A square for each neuron, layer by layer: its words and its state."""
    return [{"name": f"layer {k}", "cells": [cell(name) for name in layer]} for k, layer in enumerate(facts.layers, 1)]


def _laws_answer(audit: Audit, facts: Neurons) -> Answer:
    laws, commands = audit.laws, _laws(audit)
    if laws is None:
        heading = says.balances(facts.hidden).partition(" (")[0] if facts.hidden else "Not counted"
        more = "An exact count takes time like the cube of the number of weights. To ask for it:"
        chip = Chip("open", "At least", "that there are no others was not counted", more, commands)
    else:
        heading = says.conserved(laws.laws, laws.proved, laws.status).partition(", ")[0]
        chip = Chip("open", capital(laws.status), "that there are no others is not proved", "", commands[:1])
        if laws.proved:
            chip = Chip("proved", "Proved", "and that there are no others of that kind", RECHECK, commands)
    return Answer("What training conserves", heading, conserved_sentence(audit), _pairs(facts), chip)


def _pairs(facts: Neurons) -> Picture | None:
    """Incoming and outgoing weights, squared and summed: training keeps their difference."""
    dag = facts.dag
    squares = dag.theta**2
    into = np.bincount(dag.heads, weights=squares, minlength=len(dag.names))[dag.hidden]
    out = np.bincount(dag.tails, weights=squares, minlength=len(dag.names))[dag.hidden]
    if not np.isfinite(into).all() or not np.isfinite(out).all():
        return None
    order = np.argsort(-np.maximum(into, out), kind="stable")
    shown = sorted(order[:MOST_ROWS].tolist())
    rows = [(facts.names[k], float(into[k]), float(out[k])) for k in shown if into[k] or out[k]]
    zeros = int(np.count_nonzero((into == 0) & (out == 0)))
    rest = facts.hidden - len(rows) - zeros
    notes = [f"the {len(rows)} largest; {rest:,} more are in the table"] if rest else []
    notes += [f"and {zeros:,} neuron{'s' * (zeros != 1)} with 0 on both sides"] if zeros else []
    if not rows:
        return None
    data = {"rows": rows, "left": "goes in, squared", "right": "goes out, squared", "note": "; ".join(notes)}
    return Picture("pairs", data, "squared incoming and outgoing weights of neurons")


def _lock_squares(facts: Neurons) -> Picture | None:
    if not facts.hidden:
        return None
    note = f"0 of {facts.hidden:,} locked (a locked one would be gold)"
    cells = _by_layer(facts, lambda name: (name, "go" if name in facts.gone else "stay"))
    return Picture("squares", {"layers": cells, "note": note}, note)


def _same(audit: Audit, facts: Neurons) -> Answer:
    heading = says.rescaling(facts.hidden, audit.depth is not None)
    words = same_sentence(audit).removeprefix(heading).lstrip(";,. ")
    answer, chip = audit.identifiability, None
    if answer is not None:
        save = f"lawful identifiable {audit.asked} --certificate identifiable.json"
        verify = f"lawful verify identifiable.json {audit.asked}"
        if answer.identifiable is None:
            chip = Chip("open", "Undecided", "whether anything else does", "", (f"lawful identifiable {audit.asked}",))
        else:
            chip = Chip("proved", "Proved", "", RECHECK, (save, verify))
    elif audit.normal_form is not None and facts.hidden:
        more = "Read off the exact weights. The whole set of weights that are this function:"
        chip = Chip("proved", "By theorem", "for one hidden layer", more, (f"lawful fiber {audit.asked}",))
    return Answer("Which other weights are this function", heading, capital(words), _twins(facts), chip)


def _twins(facts: Neurons) -> Picture | None:
    network = facts.network
    if not isinstance(network, Mlp) or len(network.weights) < 2 or not network.widths[1]:
        return None
    into, out = network.weights[0], network.weights[1]
    size = np.abs(into).max(axis=1, initial=0.0) * np.abs(out).max(axis=0, initial=0.0)
    loudest = int(np.argmax(size))
    if not 0 < size[loudest] < np.inf:
        return None
    root = math.isqrt(network.widths[0])
    side = root if root * root == network.widths[0] and root in SQUARE else 0
    name = facts.layers[0][loudest]
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


def _appendix(audit: Audit, facts: Neurons) -> list[Section]:
    sections = []
    if facts.hidden:
        sections.append(Section(f"All {facts.hidden:,} neurons, with numbers", [_neurons(audit, facts)]))
    if facts.where.locked:
        sections.append(locks_section(facts.where))
    if audit.laws is not None and (named := [(line,) for line in audit.laws.summary()[:20]]):
        sections.append(Section("The laws in words", [Table(("conserved",), named)]))
    if audit.activity:
        sections.append(Section("Layers on your data", _data_blocks(audit)))
    return [*sections, *rests_on(audit)]


def _neurons(audit: Audit, facts: Neurons) -> Table:
    rows = [(name, float(c), facts.verdicts[name]) for name, c in zip(facts.names, audit.balance, strict=True)]
    rows.sort(key=lambda row: -abs(row[1]))
    caption = "Balances are conserved by gradient flow, whatever the data and loss; largest first."
    caption += f" The first {MOST_LISTED} of {len(rows):,}." if len(rows) > MOST_LISTED else ""
    return Table(("neuron", "balance", "verdict"), rows[:MOST_LISTED], caption, bars=("balance",))


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
        blocks.append(f"Never fire: {few(never, 20)}.")
    caption = "Samples that a layer keeps whole, cuts in some coordinates, or maps to 0."
    return [*blocks, Table(columns, rows, caption, bars=("whole", "cut", "gone"))]
