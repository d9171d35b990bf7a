"""Dead links of the built site: `python docs/links.py docs/_build` names each, with the page that has it.

Sphinx warns about links between sources; this looks at what was built: pages, pictures, downloads and anchors.
"""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Page(HTMLParser):
    """What a page links to, and the anchors that it has."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Remember where the tag leads, and what it is called."""
        for name, value in attrs:
            if name in ("href", "src") and value:
                self.links.append(value)
            if name in ("id", "name") and value:
                self.anchors.add(value)


def dead_links(folder: Path) -> list[str]:
    """`page: link` for everything on this site that leads nowhere; other sites are not asked."""
    pages = {}
    for path in sorted(folder.rglob("*.html")):
        page = Page()
        page.feed(path.read_text(encoding="utf-8"))
        pages[path.resolve()] = page
    found = []
    for path, page in pages.items():
        if "_static" in path.parts:  # pages of the library itself, which have no links but to their own parts
            continue
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc or link.startswith("#__"):
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            quick = "touch" in target.parts and not (folder / "_static" / "touch").exists()  # made by a full build only
            missing = not target.exists() and not quick
            anchor = unquote(parts.fragment)
            anchor = "" if anchor.startswith("{") else anchor  # the state of a page, not a place on it
            lost = target in pages and anchor and anchor not in pages[target].anchors
            if missing or lost:
                found.append(f"{path.relative_to(folder.resolve())}: {link}")
    return sorted(set(found))


if __name__ == "__main__":
    dead = dead_links(Path(sys.argv[1]))
    print("\n".join(dead), end="\n" if dead else "")
    sys.exit(bool(dead))
