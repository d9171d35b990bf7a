"""*Try your own*: a page onto which one drops a file; it is read in the browser and becomes its explorer."""

from __future__ import annotations

import base64
from html import escape
from pathlib import Path

from lawful.formats.tensors import safetensors
from lawful.formats.tensors.arrays import arrays_of
from lawful.network import Architecture
from lawful.report.page.explorer import SCRIPTS, explorer_page, script_text
from lawful.report.page.page import json_text

HERE = Path(__file__).parent
EXAMPLES = {  # what the page offers to those who have no file at hand
    "a plane": ("2-12-8-1 relu bias", 6),
    "a curve": ("1-7-4-1 relu bias", 5),
    "eight inputs": ("8-12-8-2 leaky_relu(0.1) bias", 1),
}


def drop_page(files: str = "files.html") -> str:
    """The whole page; `files` is the address of the page that describes the formats."""
    text = {name: (HERE / name).read_text(encoding="utf-8") for name in ("drop.html", "drop.css")}
    waiting = text["drop.html"].replace("{{examples}}", " ".join(map(_example, EXAMPLES)))
    # The explorer's own scripts wait as text until there is a network for them.
    program = json_text("\n".join(map(script_text, SCRIPTS)))
    return explorer_page(
        title="Try your own",
        headline="Your network",
        style=text["drop.css"],
        before=waiting.replace("{{files}}", escape(files))
        + f'<script type="application/json" id="program">{program}</script>',
        data="null",
        script="\n".join((HERE / name).read_text(encoding="utf-8") for name in ("tensors.js", "layers.js", "drop.js")),
    )


def _example(words: str) -> str:
    text, seed = EXAMPLES[words]
    network = Architecture.parse(text).initialise(seed=seed)
    content = base64.b64encode(safetensors.dump(arrays_of(network), {}, tuple(network.slopes))).decode()
    name = f"{words.replace(' ', '-')}.safetensors"
    return f'<button type="button" data-example="{content}" data-name="{name}">{escape(words)}</button>'
