"""The demo for people: each step with its verdict, the image that proves the mistake, and three lines to remember."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from textwrap import fill
from typing import TYPE_CHECKING, Any

from lawful.report.audit.audit import capital, to_json
from lawful.report.page.page import Action, Answer, Chip, ChipKind, Markup, Opening, render
from lawful.report.plain import pick
from lawful.types import Floats

if TYPE_CHECKING:
    from lawful.api.demo import ConversionStep, Demo

SHADES = " .:-=+*#%@"
MARKS = {"same": "✓ same", "bounded": "✓ bounded", "different": "✗ DIFFERENT", "undecided": "◐ undecided"}
WIDTH = 80


def _rows(images: Floats) -> list[str]:
    rows = []
    for line in range(8):
        shown = (image.reshape(8, 8)[line] for image in images)
        rows.append("    ".join("".join(2 * SHADES[int(9 * min(max(v, 0.0), 1.0))] for v in row) for row in shown))
    return rows


def demo_text(story: Demo, proved: Mapping[str, str]) -> str:
    """The whole story on one screen; `proved` is what the verifier said of each certificate."""
    steps = [f"  {number}  {step.name:36}{MARKS[step.verdict]}" for number, step in enumerate(story.steps, 1)]
    lines = [*steps, ""]
    for number, step in enumerate(story.steps, 1):
        if not step.passed:
            lines += [f"Step {number} changed the network. The image that proves it:", ""]
            beside = [
                "",
                f"the trained network reads {story.read_as[0]}",
                f"after step {number} it reads {story.read_as[1]}",
                f"an output differs by {story.gap[0]:.3g} here,",
                "in exact arithmetic; on the test set",
                f"accuracy went from {story.accuracy[0]:.1%} to {story.accuracy[1]:.1%}.",
                "Planted: ε = 0.001 where the model says",
                "0.00001, as a converter of Keras would.",
            ]
            lines += [f"  {row}    {word}".rstrip() for row, word in zip(_rows(story.image[None]), beside, strict=True)]
            lines.append("")
    lines += ["What the verifier said of the others, from the certificates alone:"]
    lines += [
        fill(f"{number}. {proved[step.certificate]}", WIDTH, initial_indent="  ", subsequent_indent="     ")
        for number, step in enumerate(story.steps, 1)
        if step.passed
    ]
    return "\n".join([*lines, "", *closing(story)])


def closing(story: Demo) -> list[str]:
    """Three lines to remember, and two pages to open."""
    wrong = ", ".join(str(number) for number, step in enumerate(story.steps, 1) if not step.passed)
    gone = story.channels[0] - story.channels[1]
    folder = shlex.quote(str(story.folder))
    return [
        f"found    step {wrong} of the conversion changed what the network reads; every other step is proved",
        f"removed  {gone} of {story.channels[0]} channels, {story.parameters[0]:,} -> {story.parameters[1]:,} "
        "parameters: the same function, up to rounding",
        f"proved   lawful verify {folder}/pruned.json {folder}/folded.onnx {folder}/pruned.onnx",
        "",
        f"open     {story.folder}/conversion.html and {story.folder}/audit.html",
    ]


def demo_json(story: Demo, proved: Mapping[str, str]) -> dict[str, Any]:
    """The story as one object."""
    return {
        "verdict": "equal" if story.steps[-1].passed else story.steps[-1].verdict,
        "method": "channel pruning, re-checked from its certificate",
        "steps": [_step_json(step, proved) for step in story.steps],
        "wrong": [number for number, step in enumerate(story.steps, 1) if not step.passed],
        "input": story.image.tolist(),
        **pick(story, "read_as difference=gap channels parameters accuracy"),
        "audit": to_json(story.audit),
        "verified": proved[story.steps[-1].certificate],
        "page": str(story.folder / "audit.html"),
        "story": str(story.folder / "conversion.html"),
        "certificate": str(story.folder / "pruned.json"),
    }


def _step_json(step: ConversionStep, proved: Mapping[str, str]) -> dict[str, Any]:
    return {"name": step.name, "command": step.command, "verdict": step.verdict, "proved": proved.get(step.certificate)}


def demo_page(story: Demo, proved: Mapping[str, str]) -> str:
    """A page that tells it: the step that was wrong, the image, and each step with the command that asks again."""
    number, wrong = next((at, step) for at, step in enumerate(story.steps, 1) if not step.passed)
    before, after = story.read_as
    gone, channels = story.channels[0] - story.channels[1], story.channels[0]
    lead = (
        f"A network that reads handwritten digits was exported, folded, quantised and pruned. After step {number} it "
        f"reads this {before} as a {after}; accuracy on the test set only went from {story.accuracy[0]:.1%} to "
        f"{story.accuracy[1]:.1%}. The other steps are proved."
    )
    caption = (
        f"Read as {before} before step {number} and as {after} after it; an output differs by {story.gap[0]:.3g}, in "
        "exact arithmetic."
    )
    opening = Opening(
        file="demo",
        kind=f"a conversion in {len(story.steps)} steps",
        chip=_step_chip(wrong, "an input, in exact arithmetic"),
        stage=Markup(_picture(story.image), caption),
        actions=[
            Action("Ask about the wrong step again", "In the folder of the demo.", wrong.command),
            Action("Check the proof of the last step", f"{gone} of {channels} channels removed, "
                   f"{story.parameters[0]:,} → {story.parameters[1]:,} parameters.",
                   "lawful verify pruned.json folded.onnx pruned.onnx"),
            Action("See what else is known of it", "Laws, locks and symmetries on one page.",
                   "lawful audit folded.onnx --html audit.html"),
        ],
    )  # fmt: skip
    answers = [
        Answer(
            f"Step {at}", f"{capital(step.name)}: {step.verdict}",
            capital(proved.get(step.certificate, step.answer)) + ".", None, _step_chip(step),
        )
        for at, step in enumerate(story.steps, 1)
    ]  # fmt: skip
    title = f"Step {number} of {len(story.steps)} changed the network"
    return render(title, lead, [], opening=opening, answers=answers)


def _step_chip(step: ConversionStep, scope: str = "") -> Chip:
    kind: ChipKind = "open" if step.verdict == "undecided" else "proved"
    return Chip(kind, step.verdict.capitalize(), scope, "To ask again, in the folder of the demo:", (step.command,))


def _picture(image: Floats) -> str:
    """The 8 by 8 pixels, dark on light whatever the theme, as the data set has them."""
    cells = "".join(
        f'<rect x="{column}" y="{row}" width="1.02" height="1.02" fill-opacity="{float(value):.3f}"/>'
        for row, line in enumerate(image.reshape(8, 8))
        for column, value in enumerate(line)
        if value > 0
    )
    return (
        '<svg viewBox="0 0 8 8" width="256" role="img" aria-label="the image" '
        'style="background:#fff;border-radius:8px">'
        f'<g fill="#17202a">{cells}</g></svg>'
    )
