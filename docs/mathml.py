"""Mathematics as MathML, written when the site is built: it works offline and needs no script."""

from __future__ import annotations

from typing import Any

from latex2mathml.converter import convert


def inline(self: Any, node: Any) -> None:
    """`$x$`."""
    self.body.append(convert(node.astext()))
    raise _skip()


def block(self: Any, node: Any) -> None:
    """`$$x$$`."""
    formula = convert(node.astext(), display="block")
    self.body.append(f'<div class="math">{formula}</div>')
    raise _skip()


def _skip() -> Exception:
    from docutils.nodes import SkipNode

    return SkipNode()


def setup(app: Any) -> dict[str, bool]:
    """Register the renderer."""
    app.add_html_math_renderer("mathml", (inline, None), (block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
