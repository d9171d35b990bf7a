"""The demo for people: each step with its verdict, the image that proves the mistake, and three lines to remember."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from textwrap import fill
from typing import TYPE_CHECKING, Any

from lawful.report.audit.audit import to_json
from lawful.report.page.page import Markup, Section, Table, render
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
    wrong = ", ".join(str(number) for number, step in enumerate(story.steps, 1) if not step.passed)
    lead = (
        f"A network that reads handwritten digits was exported, folded, quantised and pruned. Step {wrong} made it "
        f"read a {story.read_as[0]} as a {story.read_as[1]}; accuracy on the test set only went from "
        f"{story.accuracy[0]:.1%} to {story.accuracy[1]:.1%}. The other steps are proved."
    )
    caption = (
        f"This image is read as {story.read_as[0]} before step {wrong} and as {story.read_as[1]} after it; an output "
        f"differs by {story.gap[0]:.3g}, in exact arithmetic."
    )
    rows = [
        (number, step.name, MARKS[step.verdict], proved.get(step.certificate, step.answer), step.command)
        for number, step in enumerate(story.steps, 1)
    ]
    gone = story.channels[0] - story.channels[1]
    return render(
        f"Step {wrong} of {len(story.steps)} changed the network",
        lead,
        [
            Section("The image that proves it", [Markup(_picture(story.image), caption)]),
            Section(
                "Every step, with what its certificate proves",
                [Table(("step", "what", "verdict", "proved", "command"), rows)],
            ),
            Section(
                f"{gone} of {story.channels[0]} channels were removed",
                [
                    f"{story.parameters[0]:,} parameters became {story.parameters[1]:,}.",
                    f"{proved[story.steps[-1].certificate]}.",
                ],
            ),
        ],
    )


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
