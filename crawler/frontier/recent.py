"""Which hosts had the last requests of a worker."""

from __future__ import annotations

from collections import Counter, deque

SHARE_OF = 1000  # requests: a host's share is its part of the last so many


class RecentRequests:
    """The last requests of a worker, and each host's part of them, by which `max_share` is measured."""

    def __init__(self, most: int = SHARE_OF) -> None:
        self._most = most
        self._hosts: deque[str] = deque()
        self._counts: Counter[str] = Counter()

    def note(self, host: str) -> None:
        """Add a request."""
        self._hosts.append(host)
        self._counts[host] += 1
        if len(self._hosts) > self._most:
            oldest = self._hosts.popleft()
            self._counts[oldest] -= 1
            if not self._counts[oldest]:
                del self._counts[oldest]

    def share(self, host: str) -> float:
        """Return a host's part of them, from 0 to 1."""
        return self._counts[host] / len(self._hosts) if host in self._counts else 0.0
