"""Components, paths and rebalanced networks as text and as JSON objects."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path as File
from textwrap import fill
from typing import TYPE_CHECKING, Any

from lawful.invariant_set import (
    Apart,
    Components,
    EntryGraph,
    OutputMeaning,
    Rebalanced,
    Unsettled,
    WeightPath,
    locked_outputs,
)
from lawful.invariant_set.module_graph import Balanced
from lawful.outward import at_most
from lawful.report.plain import few, pick
from lawful.sentences import components as sentences

if TYPE_CHECKING:
    from lawful.api.invariant_set import SingularityReport
    from lawful.invariant_set.singular.existence import SingularPoints

MOST = 12  # rows shown to people; JSON has them all


def components_json(found: Components, meanings: Sequence[OutputMeaning], exact: bool) -> dict[str, Any]:
    """The documented keys of `lawful components --json`."""
    dag = found.dag
    show = (lambda number: number) if exact else _number
    return {
        "connected": None if found.connected and (found.marginal or found.beyond) else found.connected,
        "log2_components": found.log2_components,
        "locked": [
            {
                "edge": list(dag.edge_name(lock.edge)),
                "sign": lock.sign or None,
                "barrier": lock.barrier,
                "minimum": show(lock.minimum),
                "exact_minimum": str(lock.minimum),
                "side": lock.side,
                "certificate": [dag.names[node] for node in found.stable_set(lock)],
            }
            | ({"entry": dag.entry(lock.edge)} if isinstance(dag, EntryGraph) else {})
            for lock in found.locked
        ],
        "free_bottlenecks": [list(dag.edge_name(edge)) for edge in found.free_bottlenecks],
        "marginal": [list(dag.edge_name(edge)) for edge in found.marginal],
        "balance": {
            dag.names[node]: show(number) for node, number in zip(dag.hidden, found.balance.fractions, strict=True)
        },
        "tolerance": _number(found.balance.tolerance),
        "exact": not found.balance.slack,
        "outputs": [_meaning_json(dag, meaning) for meaning in meanings],
        "beyond": list(found.beyond),
    }


def found_json(found: Components) -> dict[str, Any]:
    """Components with what their locks mean, in floating point."""
    return components_json(found, locked_outputs(found), exact=False)


def found_text(found: Components) -> str:
    """Components for people, with what their locks mean."""
    return components_text(found, locked_outputs(found))


def components_text(found: Components, meanings: Sequence[OutputMeaning]) -> str:
    """The answer, the locked weights with their proofs, and what they mean."""
    dag = found.dag
    bottlenecks = len(found.locked) + len(found.free_bottlenecks)
    if found.connected and found.beyond:
        lines = [f"undecided: its {len(dag.hidden):,} balances lock no weight, but training keeps more than these"]
    elif found.connected and found.marginal:
        lines = [f"undecided: {len(found.marginal)} bottleneck edges are locked, or free, within the tolerance given"]
    elif found.connected:
        entries = isinstance(dag, EntryGraph)
        lines = [sentences.connected_entries(len(dag.hidden)) if entries else sentences.connected(bottlenecks)]
    else:
        lines = [sentences.disconnected(found.log2_components)]
        lines.append(f"  {'locked weight':24} {'sign':>4} {'|weight| is at least':>20}  proof: balance sum over")
        for lock in found.locked[:MOST]:
            nodes = [dag.names[node] for node in found.stable_set(lock)]
            sign = {1: "+", -1: "-", 0: "?"}[lock.sign]
            lines.append(
                f"  {edge_words(dag, lock.edge):24} {sign:>4} {sentences.barrier(lock.minimum):>20}  {few(nodes)}"
            )
        if len(found.locked) > MOST:
            lines.append(f"  ... and {len(found.locked) - MOST} more")
        lines.append(f"{len(found.free_bottlenecks)} other bottleneck edges are free")
    lines += [line for meaning in meanings for line in _meaning_text(dag, meaning)]
    lines += [f"beyond balances: {reason}" for reason in found.beyond]
    if found.locked and found.marginal:
        lines.append(f"{len(found.marginal)} more are left open by the tolerance given; without it they are locked")
    if found.balance.slack:
        lines.append(f"balance trusted to a total of {float(found.balance.tolerance):.2g}")
    else:
        lines.append("decided exactly: weights and balances are rational numbers")
    return "\n".join(lines)


def edge_words(dag: Balanced, edge: int) -> str:
    """An edge for people: its two ends, or the entry of the module that it is."""
    return dag.entry(edge) if isinstance(dag, EntryGraph) else " -> ".join(dag.edge_name(edge))


def _number(exact: Fraction) -> float | Fraction:
    """A float, or the fraction itself where a float would be infinite or lose a number to zero."""
    try:
        near = float(exact)
    except OverflowError:
        return exact
    return near if near or not exact else exact


def _meaning_json(dag: Balanced, meaning: OutputMeaning) -> dict[str, Any]:
    return {
        "output": dag.names[meaning.output],
        "confined": meaning.confined,
        "locked": [
            {"neuron": dag.names[neuron.neuron], "sign": neuron.lock.sign or None, "factor": neuron.factor}
            for neuron in meaning.locked
        ],
    }


def _meaning_text(dag: Balanced, meaning: OutputMeaning) -> list[str]:
    name = dag.names[meaning.output]
    lines = [sentences.signs_kept(name, len(meaning.locked))]
    if meaning.confined:
        lines.append(f"  {sentences.one_side(name, meaning.confined)}")
    factors = [neuron.factor for neuron in meaning.locked if neuron.factor is not None]
    if factors:
        lines.append(f"  {sentences.freed(max(factors))}:")
        lines.append("  lawful rebalance NETWORK --balance unlock --out FILE")
    return lines


def path_json(answer: WeightPath | Apart | Unsettled, points: int = 50) -> dict[str, Any]:
    """The documented keys of `lawful path --json`; a path is checked at so many points."""
    if not isinstance(answer, WeightPath):
        return {
            "connected": False if isinstance(answer, Apart) else None,
            "reason": answer.reason,
            "locked": [list(answer.dag.edge_name(edge)) for edge in answer.edges],
            "balance_differs": [answer.dag.names[node] for node in answer.nodes] if isinstance(answer, Apart) else [],
        }
    return {
        "connected": True,
        "reason": None,
        "pieces": answer.pieces,
        "points": points,
        "max_residual": answer.residual(points),
        "drift": _number(answer.drift),
        "locked": [],
        "balance_differs": [],
    }


def path_text(answer: WeightPath | Apart | Unsettled, points: int = 50) -> str:
    """Whether there is a path, and what it is like."""
    if not isinstance(answer, WeightPath):
        names = [edge_words(answer.dag, edge) for edge in answer.edges]
        if isinstance(answer, Apart):
            names = names or [answer.dag.names[node] for node in answer.nodes]
        word = "no path" if isinstance(answer, Apart) else "undecided"
        return f"{word}: {answer.reason}" + (f"\n  {few(names)}" if names else "")
    pieces = "1 piece" if answer.pieces == 1 else f"{answer.pieces} pieces"
    exactly = "inside H(c) exactly" if not answer.drift else f"which differ by {float(answer.drift):.1e} in balance"
    return (
        f"a path of {pieces} joins them, {exactly}\n"
        f"in float64 its balance is off by at most {at_most(answer.residual(points), 2)} at {points} points"
    )


def rebalance_json(done: Rebalanced, locked: tuple[int, ...], change: float, out: File | None) -> dict[str, Any]:
    """The documented keys of `lawful rebalance --json`."""
    return rebalanced_json(done) | {
        "function_change": change,
        "log2_components_before": locked[0],
        "log2_components_after": locked[1],
        "written": None if out is None else str(out),
    }


def rebalanced_json(done: Rebalanced) -> dict[str, Any]:
    """What a rescaling reached."""
    return {
        **pick(done, "reached residual steps"),
        "unreachable": [done.dag.names[node] for node in done.unreachable],
        "largest_factor": _largest(done),
        "log2_components_after": done.locked,
    }


def rebalanced_text(done: Rebalanced) -> str:
    """What a rescaling reached, for people."""
    return (
        f"balance reached to {at_most(done.residual, 2)} in {done.steps} Newton steps"
        if done.reached
        else f"out of reach for {len(done.unreachable)} neurons"
    ) + f"\nneurons rescaled by factors up to {at_most(_largest(done))}; locked weights now: {done.locked}"


def rebalance_text(done: Rebalanced, locked: tuple[int, ...], change: float, out: File | None) -> str:
    """What was reached, at what cost."""
    lines = [f"balance reached to {at_most(done.residual, 2)} in {done.steps} Newton steps"]
    if not done.reached:
        names = [done.dag.names[node] for node in done.unreachable]
        lines = [
            f"out of reach for {len(names)} neurons, whose weights are all zero on one side: {few(names)}",
            f"all others reached it to {at_most(done.residual, 2)} in {done.steps} Newton steps",
        ]
    lines.append(
        f"neurons rescaled by factors up to {at_most(_largest(done))}; outputs changed by {change:.1e} (relative)"
    )
    lines.append(f"locked weights: {locked[0]} before, {locked[1]} after")
    lines.append("not written (give --out FILE)" if out is None else f"written to {out}")
    return "\n".join(lines)


def _largest(done: Rebalanced) -> float:
    return math.exp(max(map(abs, done.log_scales.tolist()), default=0.0))


BLOCKS = "▁▂▃▄▅▆▇█"


def report_json(found: SingularityReport) -> dict[str, Any]:
    """The documented keys of `lawful singular --json`."""
    at, values = found.singularity, found.spectrum
    result = {
        **pick(at, "rank hidden singular"),
        "tolerance": found.tolerance,
        "cut_off": list(at.cut_off),
        "groups": [list(group) for group in at.groups],
        "rank_by_singular_values": None if values is None else values.rank,
        "singular_values": None if values is None else values.values,
        "null": None if values is None else values.null(),
        "gap": None if values is None else values.gap,
        **pick(found, "scores beyond"),
    }
    return result if found.exist is None else result | {"exist": existence_json(found.exist)}


def existence_json(found: SingularPoints) -> dict[str, Any]:
    """Whether the invariant set has singular points at all."""
    answer = {True: "yes", False: "no", None: "undecided"}[found.exist]
    witness = None
    if found.witness is not None:
        witness = {"cut_off": list(found.witness.cut_off), "parameter": found.witness.parameter}
    return {"answer": answer, "reason": found.reason, "witness": witness}


def singular_text(result: Mapping[str, Any]) -> str:
    """What `lawful singular` found, answer first."""
    rank, hidden = result["rank"], result["hidden"]
    cut = result["cut_off"]
    word = "singular" if rank < hidden else "regular"
    lines = [f"{word}: rank J = {rank} of {hidden} hidden neurons"]
    if result["tolerance"]:
        lines[0] += f" (weights up to {result['tolerance']:g} read as 0)"
    if cut:
        lines.append(list_names(f"{len(cut)} cut off from every input and output", cut))
    values = result["singular_values"]
    if values is not None and len(values):
        lines.append(f"singular values of J: {values[-1]:.3g} to {values[0]:.3g}, {result['null']} below 0.001")
        lines.append("  " + sparkline(values))
        lines.append(f"rank by singular values: {result['rank_by_singular_values']}")
    elif values is None:
        lines.append("singular values: too many neurons to compute them all")
    for reason in result["beyond"]:
        lines.append(fill(f"of the balances alone: {reason}", 79, subsequent_indent="  "))
    exist = result.get("exist")
    if exist is not None:
        lines.append(fill(f"singular points on H(c): {exist['answer']}: {exist['reason']}", 79, subsequent_indent="  "))
    return "\n".join(lines)


def sparkline(values: Sequence[float], width: int = 60) -> str:
    """Values as a row of blocks, largest first; at most `width` of them, evenly chosen."""
    step = max(1, -(-len(values) // width))
    chosen = list(values)[::step]
    top = max(chosen) or 1.0
    shares = (1.0 if value == top else value / top for value in chosen)  # the top may be infinite
    return "".join(BLOCKS[min(7, int(8 * share))] for share in shares)


def list_names(head: str, names: Sequence[str], shown: int = 8) -> str:
    """Names after a head line, the first few of them."""
    tail = ", ..." if len(names) > shown else ""
    return fill(f"{head}: {', '.join(names[:shown])}{tail}", 79, subsequent_indent="    ")
