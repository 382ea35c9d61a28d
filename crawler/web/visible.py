"""What a reader sees of a page: its text without markup."""

from __future__ import annotations

import re

import turbohtml

from crawler.web.limits import bounded

# Elements on a line or in a cell of their own: their text is separated from what is around it.
BLOCKS = frozenset(re.findall(r"\w+", """
    address article aside blockquote body br button caption center dd details dialog dir div dl dt fieldset figcaption
    figure footer form h1 h2 h3 h4 h5 h6 head header hgroup hr html legend li main menu nav ol optgroup option p pre
    search section select summary table tbody td textarea tfoot th thead title tr ul"""))  # fmt: skip
NOT_TEXT = frozenset({"script", "style", "template"})
CELLS = frozenset({"td", "th"})  # stay on the line of their row
HIDDEN = NOT_TEXT | {"head", "noscript", "iframe", "object"}


def visible(html: str) -> str:
    """Return the text of a page, a line for each paragraph, row or item, with white space folded."""
    left: list[turbohtml.Node | str] = [turbohtml.parse(bounded(html, "turbohtml")[0])]
    found: list[str] = []
    while left:
        node = left.pop()
        if isinstance(node, str):
            found.append(node)
        elif isinstance(node, turbohtml.Text | turbohtml.CData):
            found.append(re.sub(r"\s+", " ", node.data))
        elif not isinstance(node, turbohtml.Element) or node.tag not in HIDDEN:
            gap = _gap(node)
            left += [*gap, *reversed(list(node.children)), *gap]
    lines = (" ".join(line.split()) for line in "".join(found).split("\n"))
    return "\n".join(filter(None, lines))


def _gap(node: turbohtml.Node) -> list[str]:
    """Return what separates a node from those around it."""
    if not isinstance(node, turbohtml.Element) or node.tag not in BLOCKS:
        return []
    return [" "] if node.tag in CELLS else ["\n"]
