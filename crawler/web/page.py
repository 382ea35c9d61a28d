"""What a fetch brings and what a parser finds, as frozen plain values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple, Protocol

from crawler.web import kinds
from crawler.web.text import masked, printable

MAX_DETAIL = 300


class Place(Protocol):
    """A new file of the store that a body is written to a piece at a time; its calls block."""

    def write(self, data: bytes) -> None:
        """Write more."""

    def finish(self) -> None:
        """Bring it to the disk; nothing is written after this."""

    def publish(self, leaf: str, check: Callable[[], None]) -> None:
        """Give it its name."""

    def discard(self) -> None:
        """Remove it."""

    @property
    def is_sound(self) -> bool:
        """Whether the disk has not lost anything since it was begun."""


class Saved(NamedTuple):
    """A body that is in a file already, because it is large: decoded, whole, on the disk, without its name yet."""

    size: int
    sha224: str
    head: bytes  # its first bytes
    place: Place


@dataclass(frozen=True)
class Fetched:
    """A response worth storing: a body in memory or saved, or a redirect (no body, `location` set)."""

    url: str
    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    saved: Saved | None = None

    @property
    def content_type(self) -> str:
        """The Content-Type header as received."""
        return self.headers.get("content-type", "")

    @cached_property
    def kind(self) -> str:
        """The content type without parameters, in lower case; by the first bytes if the header says nothing."""
        return kinds.sniffed(type_of(self.headers), self.saved.head if self.saved else self.body)

    @property
    def is_file(self) -> bool:
        """Whether it is stored byte for byte: it is no text, or too large for one."""
        return self.saved is not None or not kinds.is_text(self.kind)

    @property
    def location(self) -> str | None:
        """The target of a redirect; None for any other response."""
        found = self.headers.get("location") if self.status in REDIRECTS else None
        try:
            return found and found.encode("latin-1").decode("utf-8")  # as browsers decode raw bytes
        except UnicodeError:
            return found


def type_of(headers: Mapping[str, str]) -> str:
    """Return the content type of headers without its parameters, in lower case; empty if there is none."""
    return headers.get("content-type", "").partition(";")[0].strip().lower()


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


class Reading(NamedTuple):
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
_IN_MARKUP = ("a", "area", "iframe", "frame", "refresh", "next", "prev", "alternate", "canonical")
LINK_KINDS = (*_IN_MARKUP, "feed", "img", "json")
# What browsers and search engines follow too. Images are links where images are kept.
FOLLOWED = tuple(kind for kind in LINK_KINDS if kind not in ("alternate", "img", "json"))
