"""The shapes that travel between the parts: frozen, and all of them plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from crawler.web.text import masked, printable

MAX_DETAIL = 300


@dataclass(frozen=True, slots=True)
class Fetched:
    """An answer that is worth keeping: a body, or a redirect (no body, `location` set)."""

    url: str
    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""

    @property
    def content_type(self) -> str:
        """The Content-Type header as it came."""
        return self.headers.get("content-type", "")

    @property
    def location(self) -> str | None:
        """Where a redirect points; None for any other answer."""
        found = self.headers.get("location") if self.status in REDIRECTS else None
        try:
            return found and found.encode("latin-1").decode("utf-8")  # what browsers take raw bytes for
        except UnicodeError:
            return found


REDIRECTS = frozenset({301, 302, 303, 307, 308})


@dataclass(frozen=True, slots=True)
class Failure:
    """A request that brought nothing to keep. `reason` is a name from `reasons`; a detail may come from the web."""

    url: str
    reason: str
    detail: str = ""
    retry_after: float | None = None

    def __post_init__(self) -> None:
        if self.detail:  # it is written and shown: bounded, on one line, and without anybody's password
            object.__setattr__(self, "detail", printable(masked(self.detail)[:MAX_DETAIL]))


@dataclass(frozen=True, slots=True)
class Reading:
    """What the parser found in a page."""

    text: str
    charset: str
    title: str
    links: tuple[str, ...]
    robots: tuple[str, ...] = ()  # of noindex and nofollow, what X-Robots-Tag or the meta robots say
    capped: bool = False  # there was more than we read: too many links, or markup built to exhaust a parser


class Unreadable(Exception):
    """What came is not what a parser reads: no page, no sitemap. The worker makes the refusal `unreadable` of it."""


PRIORITY = 5  # of a URL, in tenths, where no sitemap says otherwise: the default of the sitemap protocol
LINK_KINDS = ("a", "area", "iframe", "frame", "refresh", "next", "prev", "alternate", "canonical")
FOLLOWED = tuple(kind for kind in LINK_KINDS if kind != "alternate")  # what browsers and search engines follow too
