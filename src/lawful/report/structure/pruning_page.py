"""What pruning removed, as a page: neurons or channels that went, why, and what proves that nothing changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any

from lawful.pruning.neurons.prune import Pruning
from lawful.report.page.page import Action, Chip, Opening, Picture, Section, Table, render
from lawful.report.structure.pruning import WHY

MOST_CELLS = 600  # neurons that are drawn one by one
ROLES = {True: "go", False: "stay"}


def pruning_page(
    result: Mapping[str, Any],
    words: str,
    asked: str,
    source: str,
    layers: Mapping[str, Sequence[str]],
    how: str = "",
) -> str:
    """The page of `lawful prune --html`, from its JSON, its text, and the units of each layer.

    `asked` names the network as a command does, `how` are the options that say what may go.
    """
    parts = "channels" if "channels_before" in result else "neurons"
    before, after = result[f"{parts}_before"], result[f"{parts}_after"]
    gone = _removed(result)
    lines = [line.strip() for line in words.splitlines()]
    noun = parts if before != 1 else parts[:-1]
    headline = f"{before - after:,} of {before:,} hidden {noun} removed."  # the lead says what that changes
    verified = bool(result["verified"])
    proof = f"lawful prune {asked}{how} --out small.safetensors --certificate pruned.json"
    chip = (
        Chip("proved", "Proved", "replayed in rational arithmetic")
        if verified
        else Chip("open", "Not re-checked", "", "To save the evidence and have an independent checker verify it:",
                  (proof, "lawful verify pruned.json"))
    )  # fmt: skip
    actions = [Action("Write the smaller network", f"{after:,} {noun}, with the proof beside it.", proof)]
    if parts == "neurons":
        actions.append(Action("Let outputs move a little", "Every size, with a bound on every output.",
                              f"lawful prune {asked} --curve"))  # fmt: skip
    actions.append(Action("See what else is known of it", "Laws, locks and symmetries on one page.",
                          f"lawful audit {asked} --html audit.html"))  # fmt: skip
    opening = Opening(
        file=source,
        kind=f"{result['parameters_before']:,} weights",
        chip=chip,
        stage=_stage(layers, gone, before, after, parts),
        actions=actions,
    )
    folded = [Section("What was said", lines)]
    if gone:
        rows = [(name, why) for name, why in gone.items()]
        folded.insert(0, Section(f"All {len(rows):,} that went, with the reason", [Table((parts[:-1], "why"), rows)]))
    lead = f"{result['parameters_before']:,} → {result['parameters_after']:,} parameters. {_sentence(words)}"
    return render(headline, lead, [], opening=opening, folded=folded)


def hidden_layers(pruning: Pruning) -> dict[str, list[str]]:
    """The hidden neurons of the given network by layer: what stands before the dot of their names."""
    dag = pruning.original.to_dag()
    layers: dict[str, list[str]] = {}
    for node in dag.hidden:
        layers.setdefault(dag.names[node].rpartition(".")[0], []).append(dag.names[node])
    return layers


def _sentence(words: str) -> str:
    """What holds of the outputs: the second sentence of the text, which may run over several lines."""
    first, *rest = words.splitlines()[1:]
    more = takewhile(lambda line: line.startswith("  "), rest)
    text = " ".join(line.strip() for line in (first, *more))
    return text[:1].upper() + text[1:] + "."


def _removed(result: Mapping[str, Any]) -> dict[str, str]:
    """Each unit that went, and why."""
    if "steps" in result:
        return {name: WHY[step["kind"]] for step in result["steps"] for name in step["removed"]}
    return {f"{each['layer']} {each['channel']}".strip(): str(each["kind"]) for each in result["removed"]}


def _stage(
    layers: Mapping[str, Sequence[str]], gone: Mapping[str, str], before: int, after: int, parts: str
) -> Picture:
    """Every unit as a square, those that went dashed; two bars where there are too many to draw."""
    label = f"hidden {parts}, layer by layer; those that were removed are dashed"
    if 0 < sum(map(len, layers.values())) <= MOST_CELLS:
        rows = [
            {"name": name, "cells": [(unit, ROLES[unit in gone]) for unit in units]} for name, units in layers.items()
        ]
        return Picture("squares", {"layers": rows, "note": "Dashed: removed. Filled: left."}, label)
    counts = [(f"{parts} that stay", float(after)), (f"{parts} that go", float(before - after))]
    return Picture("bars", {"rows": counts, "note": ""}, label)
