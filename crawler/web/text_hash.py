"""The hash of a page's visible text, by which a change that a reader would notice is told from a new nonce.

What counts is the text between the tags. What does not: attributes, comments, scripts, styles, templates, what only
browsers without scripts show, footers, and times of day with seconds ("generated at 12:01:59"). White space is
collapsed. A new date in a footer is no change; one in the text is.
"""

from __future__ import annotations

import hashlib
import re

import turbohtml

from crawler.web.limits import bounded

FOOTER = "footer, [role=contentinfo], #footer, .footer, .site-footer, .page-footer"
HIDDEN = f"script, style, template, noscript, {FOOTER}"
# With or without the date before it, a fraction and a zone: 2026-11-18T12:01:59.123+01:00, 12:01:59 PM
_TIME = re.compile(
    r"(?:\d{4}-\d\d-\d\d[T ])?\b\d{1,2}:\d\d:\d\d(?:\.\d{1,9})?(?: ?[AaPp][Mm]\b|Z\b| ?(?:UTC|GMT)\b| ?[+-]\d\d:?\d\d)?"
)


def text_that_counts(text: str, is_markup: bool = True) -> str:
    """Return the text of a page that counts; of a page without markup all of it."""
    if is_markup:
        text = " ".join(_strings(text))
    return " ".join(_TIME.sub("", text).split())


def _strings(text: str) -> list[str]:
    page = turbohtml.parse(bounded(text, "turbohtml")[0])
    for node in page.select(HIDDEN):
        node.decompose()
    return list(page.strings)


def visible_hash(text: str, is_markup: bool = True) -> str:
    """Return the hash of a page's visible text."""
    return hashlib.sha224(text_that_counts(text, is_markup).encode("utf-8", "replace")).hexdigest()
