"""Answers about checkpoints as JSON and as text; computes nothing."""

from __future__ import annotations

import textwrap
from typing import Any

from lawful.checkpoints.compare.decide import CheckpointVerdict, OutputReplay
from lawful.checkpoints.compare.entries import WeightComparison
from lawful.checkpoints.group.spaces import GroupedUnits, HeadSpace, HiddenSpace, UnitSpace
from lawful.checkpoints.placement import Aligned
from lawful.checkpoints.rewrite.folds import CentreFold, GainFold, MoveFold, StatisticsFold, ValueFold
from lawful.checkpoints.verdict import ApartVerdict
from lawful.report.checkpoints.relatives import KINDS
from lawful.report.plain import pick
from lawful.sentences import checkpoints as sentences

WIDTH = 80


def verdict_json(found: CheckpointVerdict) -> dict[str, Any]:
    """The keys of `lawful same --json`, and those that checkpoints add."""
    within = None if found.within is None else {"kind": KINDS[found.within], "value": found.epsilon}
    return {
        "verdict": found.verdict,
        "within": within,
        "method": "alignment",
        "reason": found.reason,
        "domain": None,
        "witness": _witness(found.comparison) if found.is_copy else None,
        "counterexample": _counterexample(found.replay) if found.verdict in ("different", "rounded") else None,
        "certified": found.certified,
        "tolerance": found.epsilon,
        "seconds": round(found.seconds, 4),
        **profile(found.comparison),
        "rewritten": list(found.rewritten),
    }


def apart_json(found: ApartVerdict) -> dict[str, Any]:
    """The same keys for modules without a common form."""
    return {
        "verdict": found.verdict,
        "within": None,
        "method": "replay",
        "reason": found.reason,
        "domain": None,
        "witness": None,
        "counterexample": _counterexample(found.replay) if found.verdict == "different" else None,
        "certified": found.certified,
        "tolerance": None,
        "seconds": round(found.seconds, 4),
    }


def _counterexample(replay: OutputReplay | None) -> dict[str, Any] | None:
    if replay is None:
        return None
    return {
        "input": [tensor.tolist() for tensor in replay.inputs],
        **pick(replay, "outputs gap error rounding"),
    }


def _witness(found: WeightComparison) -> dict[str, Any]:
    return {
        "spaces": len(found.architecture.group.spaces),
        "folds": _folds(found),
        "shifted": sorted(found.shifts),
        "conditioning": found.conditioning,
    }


def profile(found: WeightComparison) -> dict[str, Any]:
    """Folds, spaces, and how far every tensor is after alignment."""
    return {
        "folds": _folds(found),
        "notes": list(found.architecture.notes),
        "spaces": [_space_words(space) for space in found.architecture.group.spaces],
        "tensors": [
            {
                **pick(distance, "tensor distance=relative entry fits"),
                "relative_to": distance.beside or distance.tensor,
            }
            for distance in found.distances
        ],
    }


def _folds(found: WeightComparison) -> list[str]:
    words = []
    for fold in found.architecture.folds:
        if isinstance(fold, GainFold):
            words.append(f"{fold.gain or 'norm'} into {', '.join(reader.weight for reader in fold.readers)}")
        elif isinstance(fold, StatisticsFold):
            words.append(f"{fold.gain} and statistics into {fold.writer.weight if fold.writer else fold.offset}")
        elif isinstance(fold, ValueFold):
            words.append(f"values in {fold.bias} into {fold.reader.bias}")
        elif isinstance(fold, MoveFold):
            words.append(f"{fold.source} into {fold.target}")
        elif isinstance(fold, CentreFold):
            words.append("means out of what writes the stream")
        else:
            words.append(f"{fold.tensor} is dead")
    return list(dict.fromkeys(words))


def _space_words(space: HiddenSpace) -> str:
    if isinstance(space, UnitSpace):
        acts = [word for word, on in (("permutations", space.permutes), ("scales", space.scales),
                                      ("signs", space.signed)) if on]  # fmt: skip
        return f"{space.name}: {space.size} units, {' and '.join(acts) or 'fixed'}"
    if isinstance(space, GroupedUnits):
        sizes = " and ".join(str(slot.size // space.count) for slot in space.slots)
        acts = [word for word, on in (("permutations", space.permutes), ("permutations inside", any(
            slot.permutes for slot in space.slots)), ("scales", any(slot.scales for slot in space.slots)),
            ("signs", any(slot.signed for slot in space.slots))) if on]  # fmt: skip
        return f"{space.name}: {space.count} groups of {sizes} units, {' and '.join(acts) or 'fixed'}"
    if isinstance(space, HeadSpace):
        acting = [block for block in space.heads[0] if block.kind != "still"]
        kinds = " and ".join(dict.fromkeys(f"{block.kind}({block.size})" for block in acting)) or "as they are"
        grouped = f" of {space.copies} queries" if space.copies > 1 else ""
        return f"{space.name}: {len(space.heads)} heads{grouped}, {kinds}{', permutations' if space.permutes else ''}"
    return f"{space.name}: {space.kind.replace('O', f'O({space.size})', 1).replace('GL', f'GL({space.size})', 1)}"


def verdict_text(found: CheckpointVerdict) -> str:
    """Verdict first, then what it rests on, then where the two differ most."""
    head = _head(found)
    lines = [head + _taken(found.seconds), *wrap(found.reason + ".")]
    if found.verdict in ("different", "rounded"):
        lines += _replay_lines(found.replay, found.retraced)
    lines += [f"  rewritten: {words}" for words in found.rewritten[:6]]
    lines += [f"  and {len(found.rewritten) - 6} more"] * (len(found.rewritten) > 6)
    return "\n".join([*lines, *_profile_lines(found.comparison)])


def _head(found: CheckpointVerdict) -> str:
    if found.within is None:
        return found.verdict.upper()
    if found.within == "exactly":
        return sentences.equal_exactly()
    words = sentences.rounded if found.verdict == "rounded" else sentences.equal_within
    return words(found.within, found.epsilon or 0.0)


def apart_text(found: ApartVerdict) -> str:
    """Verdict first, then why there is no common form."""
    lines = [found.verdict.upper() + _taken(found.seconds), *wrap(found.reason + ".")]
    return "\n".join([*lines, *(_replay_lines(found.replay, found.retraced) if found.verdict == "different" else [])])


def _taken(seconds: float) -> str:
    return f" ({seconds:.2f} s)" if seconds else ""


def _replay_lines(replay: OutputReplay | None, retraced: bool) -> list[str]:
    if replay is None:
        return []
    words = sentences.apart(replay.outputs, replay.gap)
    if replay.rounding >= replay.gap:  # a rounded copy: what rounding does is what is seen
        return wrap(f"{words} The arithmetic explains {replay.error:.1e} (estimated).")
    surely = " The steps to both can be saved (--certificate), and carried out again in balls." if retraced else ""
    return wrap(
        f"{words} Rounding the weights would explain {replay.rounding:.1e}, the arithmetic {replay.error:.1e} (both "
        f"estimated).{surely}"
    )


def _profile_lines(found: WeightComparison) -> list[str]:
    lines = [f"  aligned: {words}" for words in map(_space_words, found.architecture.group.spaces[:6])]
    more = len(found.architecture.group.spaces) - 6
    lines += [f"  and {more} more spaces"] * (more > 0)
    if folds := _folds(found):
        lines.append(f"  folded: {'; '.join(folds[:3])}" + (f"; and {len(folds) - 3} more" if len(folds) > 3 else ""))
    lines += [f"  note: {words}" for words in found.architecture.notes]
    worst = sorted(found.distances, key=lambda each: -each.relative)[:4]
    lines += [
        f"  {distance.relative:9.1e}  {distance.tensor}{'' if distance.fits else '   *'}"
        for distance in worst
        if distance.relative
    ]
    if any(not distance.fits for distance in worst):
        lines.append("  (relative distance after alignment; * more than rounding explains)")
    return lines


def wrap(text: str) -> list[str]:
    """Lines of a paragraph, set in."""
    return textwrap.wrap(text, WIDTH, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False)


def aligned_json(found: Aligned, out: str | None = None) -> dict[str, Any]:
    """The keys of `lawful align --json`."""
    return {
        "written": out,
        **pick(found, "before after"),
        "passes": found.comparison.alignment.passes,
        **pick(found.comparison, "fits conditioning"),
        **profile(found.comparison),
    }


def aligned_text(found: Aligned, out: str | None = None) -> str:
    """How far apart they were and are, space by space."""
    lines = [f"distance of B from A: {found.before:.2e} before, {found.after:.2e} after alignment"]
    lines += _profile_lines(found.comparison)
    return "\n".join([*lines, *([sentences.aligned(out)] if out else [])])
