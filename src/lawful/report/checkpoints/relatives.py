"""Indices of checkpoints and what was found in them, as JSON and as text; computes nothing."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lawful.report.page.page import Action, Chip, Opening, Picture, Section, Table, render
from lawful.report.plain import pick
from lawful.sentences import checkpoints as says

if TYPE_CHECKING:
    from lawful.api.checkpoints.index import Indexed, Relatives
    from lawful.checkpoints.merge import Merged
    from lawful.checkpoints.representative import Representative

SHOWN = 5


def indexed_json(done: Indexed) -> dict[str, Any]:
    """The keys of `lawful fingerprint --index --json`."""
    failed = [{"path": path, "reason": reason} for path, reason in done.failed]
    return {"index": done.index, "added": done.added, "kept": done.kept, "unread": failed}


def indexed_text(result: Mapping[str, Any]) -> str:
    """How many are new, were there, could not be read."""
    lines = [f"{result['index']}: {result['added']} checkpoints added, {result['kept']} unchanged"]
    failed = result["unread"]
    lines += [f"  not read: {file['path']}: {file['reason']}" for file in failed[:SHOWN]]
    return "\n".join(lines + ([f"  … and {len(failed) - SHOWN} more not read"] if len(failed) > SHOWN else []))


def found_json(found: Relatives) -> dict[str, Any]:
    """The keys of `lawful find --json`."""
    relatives = [
        {"path": relative.path, "likeness": round(relative.likeness, 4), "identical": relative.identical}
        for relative in found.relatives
    ]
    return {
        "relatives": relatives,
        **pick(found, "compared indexed=others calibrated"),
        "tree": [{"groups": list(join.groups), "likeness": round(join.likeness, 4)} for join in found.tree],
    }


def found_text(result: Mapping[str, Any]) -> str:
    """The most alike first, and what the numbers mean."""
    if not result["relatives"]:
        return f"undecided: none of the {result['indexed']} checkpoints in the index has this architecture"
    lines = ["likeness  checkpoint"]
    for relative in result["relatives"]:
        same = f"  ({says.identical()})" if relative["identical"] else ""
        lines.append(f"{relative['likeness']:8.3f}  {relative['path']}{same}")
    lines += [
        "",
        f"Of {result['compared']} checkpoints of this architecture. 1: the same up to its symmetries; about 0",
    ]
    lines.append("or below: no more alike than others here. A likeness is a hint, no proof: `lawful diff A B` tests")
    lines.append("whether two are related, and `lawful same A B` whether they are the same function.")
    if not result["calibrated"]:
        lines.append("Too few others to take away what all have in common: trained strangers look alike too.")
    return "\n".join(lines)


def relatives_page(found: Relatives, source: str, options: str = "") -> str:
    """The relatives of a checkpoint as bars, the most alike first; `options` say how commands read checkpoints."""
    shown = found.relatives
    copies = sum(relative.identical for relative in shown)
    head = f"0 of {found.others:,} checkpoints have this architecture"
    if shown:
        best = shown[0]
        head = f"The most alike of {found.compared:,} is {Path(best.path).name}: likeness {best.likeness:.2f}."
    lead = f"{copies:,} of them: {says.identical()}. " if copies else ""
    lead += "A likeness of 1: the same up to symmetries; about 0: no more alike than others here."
    lead += "" if found.calibrated else " Too few others are in the index to say what all of them have in common."
    first = "" if not shown else f"{shlex.quote(source)} {shlex.quote(shown[0].path)}{options}"
    actions = [
        Action("Test whether the two are related", "With a p-value, and what changed.",
               f"lawful diff {first} --html diff.html"),
        Action("Compare their functions", "A proof, or an input that tells them apart.",
               f"lawful same {first} --certificate same.json"),
    ] if shown else []  # fmt: skip
    chip = Chip("here", "A likeness is a hint", "not a proof", "Computed from sketches, in floating point.")
    table = Table(("checkpoint", "likeness", "same weights"), [(e.path, e.likeness, e.identical) for e in shown])
    opening = Opening(source, "relatives in an index", chip, _tree(found, source), actions)
    return render(head, lead, [Section("All of them", [table])] if shown else [], opening=opening)


def _tree(found: Relatives, source: str) -> Picture | None:
    """The checkpoint and those most alike to it; where two lines meet, the groups on them are that much alike."""
    if not found.tree:
        return None
    shown = found.relatives[: len(found.tree)]
    leaves = [
        {"name": Path(source).name, "note": "this one"},
        *({"name": Path(one.path).name, "note": f"{one.likeness:.2f}".replace("-", "−")} for one in shown),
    ]
    left_out = len(found.relatives) - len(shown)
    note = "Lines meet at the mean likeness of what they join: far right the same up to symmetries, far left strangers."
    note += f" {left_out:,} less alike are in the table." if left_out else ""
    joins = [(*join.groups, min(1.0, max(0.0, join.likeness))) for join in found.tree]
    data = {"leaves": leaves, "joins": joins, "note": note}
    return Picture("tree", data, f"a tree of {len(leaves)} checkpoints by likeness")


def merged_json(found: Merged, written: str | None = None) -> dict[str, Any]:
    """The keys of `lawful merge --json`."""
    line = found.line
    way = None
    if line is not None:
        before, after = line.barriers
        way = {
            "steps": line.steps.tolist(),
            "before": line.before.tolist(),
            "after": line.after.tolist(),
            "barrier_before": before,
            "barrier_after": after,
        }
    return {
        "weight": found.weight,
        **pick(found.aligned, "distance_before=before distance_after=after"),
        "line": way,
        "out": written,
    }


def merged_text(result: Mapping[str, Any]) -> str:
    """How far apart the two were, and the loss on the way."""
    lines = [
        f"mean with {result['weight']:g} of B: B is {result['distance_before']:.3g} of A's size away, "
        f"{result['distance_after']:.3g} after alignment"
    ]
    line = result["line"]
    if line is not None:
        lines += ["", "loss on the way from A to B", "  step     as B is     aligned"]
        rows = zip(line["steps"], line["before"], line["after"], strict=True)
        lines += [f"  {step:4.2f}  {one:10.4g}  {two:10.4g}" for step, one, two in rows]
        lines.append(f"barrier {line['barrier_before']:.4g} before, {line['barrier_after']:.4g} after alignment")
    return "\n".join(lines + ([f"written to {result['out']}"] if result["out"] else []))


KINDS = {"exactly": "exactly", "weight by weight": "weights", "copy by weights": "sums"}


def representative_json(found: Representative, out: str | None = None) -> dict[str, Any]:
    """The keys of `lawful rebalance --objective --json`, and of `lawful canonical --json` for modules."""
    verdict = found.verdict
    return {
        "written": out,
        "objective": found.purpose,
        "verdict": verdict.verdict,
        "within": None if verdict.within is None else {"kind": KINDS[verdict.within], "value": verdict.epsilon},
        "norm": {"before": found.norms[0], "after": found.norms[1]},
        "rounding": [
            {"bits": error.bits, "weights_before": error.weights[0], "weights_after": error.weights[1],
             "outputs_before": error.outputs[0], "outputs_after": error.outputs[1]}
            for error in found.errors
        ],
        **pick(found, "measured_on sweeps notes"),
        "certified": verdict.certified,
    }  # fmt: skip


def representative_text(found: Representative, out: str | None = None) -> str:
    """What changed, what did not, and what it is worth in few bits."""
    verdict = found.verdict
    function = says.representative(verdict.verdict, verdict.within if verdict.is_copy else None, verdict.epsilon)
    lines = [f"norm of all weights: {found.norms[0]:.6g} before, {found.norms[1]:.6g} after", function]
    for error in found.errors:
        lines.append(
            f"int{error.bits}: weights off by {error.weights[0]:.2%} -> {error.weights[1]:.2%}, "
            f"outputs by {error.outputs[0]:.2%} -> {error.outputs[1]:.2%} ({found.measured_on})"
        )
    lines += [f"note: {words}" for words in found.notes[:6]]
    return "\n".join([*lines, *([f"{out}: written"] if out else [])])
