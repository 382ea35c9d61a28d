"""Which hosts a worker has requested lately: what `max_share` is measured by."""

from __future__ import annotations

from collections import Counter, deque

LAST = 1000  # requests that count for a host's share


class RecentRequests:
    """The last requests of a worker: which part of them went to a host."""

    def __init__(self, most: int = LAST) -> None:
        self._most = most
        self._hosts: deque[str] = deque()
        self._counts: Counter[str] = Counter()

    def note(self, host: str) -> None:
        """One more request."""
        self._hosts.append(host)
        self._counts[host] += 1
        if len(self._hosts) > self._most:
            oldest = self._hosts.popleft()
            self._counts[oldest] -= 1
            if not self._counts[oldest]:
                del self._counts[oldest]

    def share(self, host: str) -> float:
        """A host's part of them, from 0 to 1."""
        return self._counts[host] / len(self._hosts) if host in self._counts else 0.0
