"""What a fetch brings and what a parser finds, as frozen plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from crawler.web.text import masked, printable

MAX_DETAIL = 300


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Fetched:
    """A response worth storing: a body, or a redirect (no body, `location` set)."""

    url: str
    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""

    @property
    def content_type(self) -> str:
        """The Content-Type header as received."""
        return self.headers.get("content-type", "")

    @property
    def location(self) -> str | None:
        """The target of a redirect; None for any other response."""
        found = self.headers.get("location") if self.status in REDIRECTS else None
        try:
            return found and found.encode("latin-1").decode("utf-8")  # as browsers decode raw bytes
        except UnicodeError:
            return found


REDIRECTS = frozenset({301, 302, 303, 307, 308})


@dataclass(frozen=True, slots=True)
class Failure:
    """A request that brought no page. `reason` is a name from `reasons`; the detail may come from the web."""

    url: str
    reason: str
    detail: str = ""
    retry_after: float | None = None

    def __post_init__(self) -> None:
        if self.detail:  # stored and shown: bounded, on one line, without passwords
            object.__setattr__(self, "detail", printable(masked(self.detail)[:MAX_DETAIL]))


@dataclass(frozen=True, slots=True)
class Reading:
    """What the parser found in a page."""

    text: str
    charset: str
    title: str
    links: tuple[str, ...]
    robots: tuple[str, ...] = ()  # noindex or nofollow, from X-Robots-Tag or meta robots
    capped: bool = False  # not all was read: too many links, or markup built to exhaust a parser
    visible: str = ""  # the hash of its visible text, if that was wanted


class Unreadable(Exception):
    """The body cannot be parsed as a page or sitemap; it becomes a failure record with reason `unreadable`."""


PRIORITY = 5  # of a URL, in tenths, where no sitemap says otherwise: the default of the sitemap protocol
GIVEN = 20  # is added to a priority that the operator gave: unlike a site's own, it counts more than the depth
LINK_KINDS = ("a", "area", "iframe", "frame", "refresh", "next", "prev", "alternate", "canonical")
FOLLOWED = tuple(kind for kind in LINK_KINDS if kind != "alternate")  # what browsers and search engines follow too
