"""The limits per host and domain: how much is stored of each, and which of them has enough.

A worker counts in the database of its task table; what others or earlier runs have stored counts once it is looked up.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from functools import cached_property
from typing import NamedTuple

from crawler.settings.settings import Settings
from crawler.store.store import Store
from crawler.terminal import many, size
from crawler.web import urls

MAX_HOSTS = "max_hosts_per_domain"
DOMAIN_LIMITS = ("max_per_domain", "max_bytes_per_domain", MAX_HOSTS)

SCHEMA = """
CREATE TABLE domain(name TEXT PRIMARY KEY, shard INT, hosts INT, pages INT, bytes INT) WITHOUT ROWID;
CREATE INDEX domain_shard ON domain(shard);
"""


class Limits(NamedTuple):
    """The settings that limit a host or a domain; None: no limit."""

    max_per_host: int | None = None
    max_bytes_per_host: int | None = None
    max_per_domain: int | None = None
    max_bytes_per_domain: int | None = None
    max_hosts_per_domain: int | None = None

    def reached_by_host(self, pages: int, bytes: int) -> str | None:
        """Return the limit that a host with so much in the store has reached, by its name."""
        if self.max_per_host is not None and pages >= self.max_per_host:
            return "max_per_host"
        is_large = self.max_bytes_per_host is not None and bytes >= self.max_bytes_per_host
        return "max_bytes_per_host" if is_large else None

    def reached_by_domain(self, pages: int, bytes: int) -> str | None:
        """Return the same for a domain."""
        if self.max_per_domain is not None and pages >= self.max_per_domain:
            return "max_per_domain"
        is_large = self.max_bytes_per_domain is not None and bytes >= self.max_bytes_per_domain
        return "max_bytes_per_domain" if is_large else None

    @property
    def count_domains(self) -> bool:
        """Whether it matters how much is stored of a domain."""
        return self.max_per_domain is not None or self.max_bytes_per_domain is not None


def limits_of(settings: Settings) -> Limits:
    """Return the limits that a crawl has; those of domains need one worker that sees all hosts of a domain."""
    found = Limits(*(getattr(settings, name) for name in Limits._fields))
    return found if settings.spread == "domain" else found._replace(**dict.fromkeys(DOMAIN_LIMITS))


class Domains:
    """The domains of a task table's hosts: how many hosts each has, and how much of it is stored."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        db.executescript(SCHEMA)

    def add(self, name: str, shard: int, hosts: int = 0, pages: int = 0, bytes: int = 0) -> None:
        """Add to what a domain has."""
        more = "hosts = hosts + excluded.hosts, pages = pages + excluded.pages, bytes = bytes + excluded.bytes"
        self._db.execute(
            f"INSERT INTO domain VALUES (?, ?, ?, ?, ?) ON CONFLICT(name) DO UPDATE SET {more}",
            (name, shard, hosts, pages, bytes),
        )

    def count(self, name: str) -> tuple[int, int, int]:
        """Return the hosts, pages and bytes of a domain."""
        found = self._db.execute("SELECT hosts, pages, bytes FROM domain WHERE name = ?", (name,)).fetchone()
        return found or (0, 0, 0)

    def forget(self, shard: int) -> None:
        """Forget the domains of a shard that is no longer ours."""
        self._db.execute("DELETE FROM domain WHERE shard = ?", (shard,))


class StoredLimits:
    """Which limits the hosts and domains of a store have reached, for commands; from listings."""

    def __init__(self, store: Store, settings: Settings) -> None:
        self._store, self._limits = store, limits_of(settings)

    def reached(self, host: str) -> tuple[str, str] | None:
        """Return the limit by which the other URLs of a host are skipped, and a sentence on it; or None."""
        limits, zone = self._limits, urls.zone(host)
        pages, stored = self._store.stored_size(host)
        rule = limits.reached_by_host(pages, stored)
        if rule:
            return rule, self._why(rule, "host", pages, stored)
        most, hosts = limits.max_hosts_per_domain, self._hosts.get(zone, set())
        if most is not None and host not in hosts and len(hosts) >= most:
            return MAX_HOSTS, f"its domain {zone} has {many(len(hosts), 'host')}, and {MAX_HOSTS} is {most:,}"
        pages, stored = self._of_domain(zone)
        rule = limits.reached_by_domain(pages, stored)
        return (rule, self._why(rule, f"domain {zone}", pages, stored)) if rule else None

    def add_waiting(self, hosts: Iterable[str]) -> None:
        """Count hosts of waiting URLs, too: each has its place in its domain before anything of it was requested."""
        if self._limits.max_hosts_per_domain is not None:
            for host in hosts:
                self._hosts.setdefault(urls.zone(host), set()).add(host)

    def _why(self, rule: str, whose: str, pages: int, stored: int) -> str:
        has = f"about {size(stored)}" if "bytes" in rule else many(pages, "page")
        most = getattr(self._limits, rule)
        return f"its {whose} has {has} in the store, and {rule} is {size(most) if 'bytes' in rule else f'{most:,}'}"

    @cached_property
    def _hosts(self) -> dict[str, set[str]]:
        """The hosts of each domain that were requested, or that wait."""
        found: dict[str, set[str]] = {}
        for host in self._store.requested_hosts():
            found.setdefault(urls.zone(host), set()).add(host)
        return found

    def _of_domain(self, zone: str) -> tuple[int, int]:
        if not self._limits.count_domains:
            return 0, 0
        sizes = [self._store.stored_size(host) for host in sorted(self._hosts.get(zone, ()))]
        return sum(pages for pages, _ in sizes), sum(stored for _, stored in sizes)
