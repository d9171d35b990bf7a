"""How two checkpoints are related, as JSON and as text; computes nothing."""

from __future__ import annotations

from typing import Any

from lawful.checkpoints.relations.block_matching import Correspondence, OtherSize
from lawful.checkpoints.relations.kinship import KeptBlocks, Kinship, TensorChange
from lawful.outward import at_least, at_most
from lawful.report.checkpoints.checkpoints import profile, wrap
from lawful.report.checkpoints.lineage import lineage_json
from lawful.report.plain import pick

LISTED = 6


def kinship_json(found: Kinship) -> dict[str, Any]:
    """The keys of `lawful diff --json` for checkpoints of modules."""
    return {
        "verdict": "undecided" if found.kept is not None or found.settings else found.verdict.verdict,
        **pick(found, "relation relation_word=word reason settings"),
        **lineage_json(found.lineage),
        **pick(found, "share null"),
        "held": None if found.held is None else [list(found.held.of_first), list(found.held.of_second)],
        "agreements": [
            {"space": agreement.space, "units": agreement.units, "agree": agreement.agree, "null": agreement.null}
            for agreement in found.agreements
        ],
        "changes": [
            {"tensor": change.tensor, "distance": change.relative, "rank": change.rank, "zeroed": change.zeroed,
             "levels": change.levels, "rounded": change.rounded} for change in found.changes
        ],
        "depth_cut": None if found.kept is None else {
            "of": found.kept.container, "blocks": found.kept.count,
            "kept": [{"block": block.block, "of": block.of, "distance": block.distance, "second": block.second}
                     for block in found.kept.blocks],
        },
        **profile(found.verdict.comparison),
    }  # fmt: skip


def kinship_text(found: Kinship) -> str:
    """The relation first, then why, then what changed."""
    alike = found.lineage is not None and found.lineage.found == "alike"
    lines = [
        found.word.upper()
        + (", ALIKE UP TO A SYMMETRY" if alike else "")
        + ("" if found.kept is None else _order_words(found.kept))
    ]
    lines += _cut_lines(found.kept) if found.kept is not None else []
    lines += wrap(found.reason + ".")
    for title, picked in (
        ("low-rank differences", [change for change in found.changes if change.rank is not None]),
        ("entries set to zero", [change for change in found.changes if change.zeroed]),
        ("on a grid of few levels", [change for change in found.changes if change.levels is not None]),
        ("rounded", [change for change in found.changes if change.rounded is not None]),
    ):
        if picked:
            named = ", ".join(_change_words(change) for change in picked[:6])
            lines += wrap(f"{title}: {named}{', ...' if len(picked) > 6 else ''}.")
    lines += [f"  {change.relative:9.1e}  {change.tensor}" for change in found.changes[:6]]
    if len(found.changes) > 6:
        lines.append(f"  and {len(found.changes) - 6} more tensors that changed")
    return "\n".join(lines)


def _change_words(each: TensorChange) -> str:
    if each.rounded is not None:
        return f"{each.tensor} ({each.rounded})"
    if each.rank is not None:
        return f"{each.tensor} (rank {each.rank})"
    return f"{each.tensor} ({each.zeroed:.0%})" if each.zeroed else f"{each.tensor} ({each.levels})"


def _order_words(cut: KeptBlocks) -> str:
    if len(cut.blocks) == cut.count:
        return " WITH BLOCKS IN ANOTHER ORDER"
    return " WITH FEWER BLOCKS" if len(cut.blocks) < cut.count else " WITH MORE BLOCKS"


def _cut_lines(cut: KeptBlocks) -> list[str]:
    origins = ", ".join(str(block.of) for block in cut.blocks)
    nearest = at_most(max(block.distance for block in cut.blocks), 2)
    second = at_least(min(block.second for block in cut.blocks), 2)
    return wrap(
        f"B has {len(cut.blocks)} blocks, made of the {cut.count} blocks of A's {cut.container}: {origins}. By "
        f"sketches that no disguise changes, these are within {nearest}, all others {second} or more apart (1 is "
        "nothing in common). What follows is about A with these blocks."
    )


def correspondence_json(found: Correspondence) -> dict[str, Any]:
    """The same keys where the architectures differ."""
    return {
        "verdict": "undecided",
        "relation": "undecided",
        "reason": f"different architectures: {found.reason}",
        "spaces_apart": [_size_json(space) for space in found.spaces],
        "sizes_apart": [_size_json(tensor) for tensor in found.tensors],
        "only": [list(found.only_first), list(found.only_second)],
        "tensors": [{"tensor": name, "distance": distance} for name, distance in found.common],
    }


def _size_json(each: OtherSize) -> dict[str, Any]:
    return {"name": each.name, "sizes": [list(each.first), list(each.second)]}


def correspondence_text(found: Correspondence) -> str:
    """Which sizes differ, then what corresponds."""
    lines = ["UNDECIDED: different architectures", *wrap(found.reason + ".")]
    for title, sizes in (("hidden space", found.spaces), ("tensor", found.tensors)):
        lines += [f"  {title} {size.name}: {_by(size.first)} in A, {_by(size.second)} in B" for size in sizes[:LISTED]]
        lines += [f"  and {len(sizes) - LISTED} more"] * (len(sizes) > LISTED)
    for which, names in (("A", found.only_first), ("B", found.only_second)):
        if names:
            lines += wrap(f"Only {which} has {', '.join(names[:LISTED])}{', ...' if len(names) > LISTED else ''}.")
    if found.common:
        same = sum(not distance for _, distance in found.common)
        lines += wrap(f"{len(found.common)} tensors have one name and one size; as stored, {same} are the same.")
        others = sorted((pair for pair in found.common if pair[1]), key=lambda pair: pair[1])
        lines += [f"  {distance:9.1e}  {name}" for name, distance in others[:LISTED]]
    return "\n".join(lines)


def _by(size: tuple[int, ...]) -> str:
    return " × ".join(map(str, size))
