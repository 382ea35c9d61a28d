"""robots.txt: from bytes to rules. Pure; who asks for it, and when, is the worker's business."""

from __future__ import annotations

from protego import Protego

from crawler.records import Failure

LONGEST = 512 * 1024  # bytes that are read of a robots.txt: RFC 9309 asks for 500 KiB at least


class Rules:
    """What one host's robots.txt says to us."""

    def __init__(self, body: bytes, agent: str) -> None:
        text = body.decode("utf-8-sig", "replace")
        self._rules = Protego.parse(text)
        self._token = token(agent)

    def allow(self, url: str) -> bool:
        """Whether we may ask this URL."""
        return bool(self._rules.can_fetch(url, self._token))

    def why_not(self, url: str) -> Failure:
        """Why a URL is refused."""
        return Failure(url, "robots")

    @property
    def sitemaps(self) -> tuple[str, ...]:
        """The sitemaps it names, as it writes them."""
        return tuple(self._rules.sitemaps)

    @property
    def delay(self) -> float:
        """The crawl-delay it asks for, in seconds."""
        return float(self._rules.crawl_delay(self._token) or 0)


def allows(robots: bytes, agent: str, url: str) -> bool:
    """Whether a robots.txt allows a user agent to ask a URL."""
    return Rules(robots, agent).allow(url)


def token(agent: str) -> str:
    """The product token of a user agent: what robots.txt knows us by."""
    return agent.split("/", 1)[0].split(" ", 1)[0] or "*"
