"""Singularities and prunings as text for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import fill
from typing import Any

BLOCKS = "▁▂▃▄▅▆▇█"
WHY = {
    "silent": "all outgoing weights lead nowhere",
    "constant": "constant for every input; folded into biases",
    "dead": "never active",
    "duplicate": "a multiple of another neuron; merged",
    "opposite": "the opposite of another; unfolded into it and direct edges",
    "linear": "linear; replaced by direct edges",
    "joined": "linear; joined with others of its layer",
    "near": "nearly constant or nearly a duplicate",
}


def singular_text(result: Mapping[str, Any]) -> str:
    """What `lawful singular` found, answer first."""
    rank, hidden = result["rank"], result["hidden"]
    cut = result["cut_off"]
    word = "singular" if rank < hidden else "regular"
    lines = [f"{word}: rank J = {rank} of {hidden} hidden neurons"]
    if result["tolerance"]:
        lines[0] += f" (weights up to {result['tolerance']:g} read as 0)"
    if cut:
        lines.append(_named(f"{len(cut)} cut off from every input and output", cut))
    values = result["singular_values"]
    if values is not None and len(values):
        lines.append(f"singular values of J: {values[-1]:.3g} to {values[0]:.3g}, {result['null']} below 0.001")
        lines.append("  " + sparkline(values))
        lines.append(f"rank by singular values: {result['rank_by_singular_values']}")
    elif values is None:
        lines.append("singular values: too many neurons to compute them all")
    exist = result.get("exist")
    if exist is not None:
        lines.append(fill(f"singular points on H(c): {exist['answer']}: {exist['reason']}", 79, subsequent_indent="  "))
    return "\n".join(lines)


def pruning_text(result: Mapping[str, Any]) -> str:
    """What `lawful prune` did, answer first."""
    before, after = result["neurons_before"], result["neurons_after"]
    lines = [
        f"{before - after} of {before} hidden neurons removed, {after} left; "
        f"{result['parameters_before']:,} -> {result['parameters_after']:,} parameters"
    ]
    where = "for every input" if result["box"] is None else "for every input in the box"
    bound = result["max_output_change_bound"]
    if bound == 0:
        lines.append(f"the function is the same {where}")
    else:
        lines.append(f"no output moves by more than {bound:.3g} {where}")
    if result["rounding_bound"]:
        inside = "[-1, 1]" if result["box"] is None else "the box"
        lines.append(f"storing folded weights as float64 adds at most {result['rounding_bound']:.1g} on {inside}")
    lines.append(f"measured on {result['samples']} random inputs: {result['measured_change']:.3g}")
    lines.append(f"rank J = {result['rank']} before")
    for step in result["steps"]:
        lines.append(_named(f"  {len(step['removed'])} {step['kind']} ({WHY[step['kind']]})", step["removed"]))
    if result["written"]:
        lines.append(f"written to {result['written']}")
    return "\n".join(lines)


def sparkline(values: Sequence[float], width: int = 60) -> str:
    """Values as a row of blocks, largest first; at most `width` of them, evenly chosen."""
    step = max(1, -(-len(values) // width))
    chosen = list(values)[::step]
    top = max(chosen) or 1.0
    return "".join(BLOCKS[min(7, int(8 * value / top))] for value in chosen)


def _named(head: str, names: Sequence[str], shown: int = 8) -> str:
    tail = ", ..." if len(names) > shown else ""
    return fill(f"{head}: {', '.join(names[:shown])}{tail}", 79, subsequent_indent="    ")
