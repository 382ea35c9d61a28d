"""What sites are promised, held to at each request: ownership, delays, robots.txt, addresses, secrets, stop and pause.

Each worker keeps what it promises by what it knows. So what is asked of a worker after a response is asked only while
it has the host without a break; of the next owner it is the delay alone.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass

from crawler.web import urls
from crawler.web.page import Failure, Fetched
from simulation.disk import Disk
from simulation.web import PRIVATE, SECRET, SECRETS_OF, Tree
from simulation.world import Process, World

CLOSE = 1e-6
OBEYED = 3.0  # seconds after which every worker of an undisturbed fleet has seen an order


@dataclass(slots=True)
class Rest:
    """What a response asks of the worker that got it."""

    process: Process
    until: float
    why: str


class Manners:
    """Watches the requests of a fleet."""

    def __init__(
        self, world: World, disk: Disk, tree: Tree, delay: float, shard_of: Callable[[str], str], per_address: int
    ) -> None:
        self._world, self._disk, self._tree, self._delay, self._shard_of = world, disk, tree, delay, shard_of
        self._per_address = per_address
        self.owned_since: dict[str, float] = {}  # shard -> when its owner took it
        self._last: dict[str, tuple[float, bool]] = {}  # host -> when it was requested, and whether by its owner
        self._open: dict[str, Process] = {}  # host -> who waits for its response
        self._rests: dict[str, Rest] = {}  # by host
        self._retries: dict[str, Rest] = {}  # by URL
        self._has_rules: set[str] = set()  # hosts whose robots.txt somebody has had
        self._sent: dict[tuple[str, str], deque[float]] = defaultdict(deque)  # (worker, address) -> when
        self._paused_since: float | None = None
        self._stopped: dict[str, float] = {}  # worker -> since when it has an order to stop
        self.is_disturbed: Callable[[], bool] = lambda: False
        self.fail: Callable[[str], object] = lambda what: None

    # ---- orders

    def pause(self) -> None:
        """From now on no requests are to be sent."""
        self._paused_since = self._world.now

    def resume(self) -> None:
        """They may be sent again."""
        self._paused_since = None

    def stop(self, workers: set[str]) -> None:
        """These workers are to stop."""
        for worker in workers:
            self._stopped.setdefault(worker, self._world.now)

    def _check_orders(self, process: Process, url: str) -> None:
        if self.is_disturbed():
            return
        since = self._paused_since
        if since is not None and self._world.now - since > OBEYED:
            self.fail(f"{url} was requested by {process.name} {self._world.now - since:.1f} s after `crawler pause`")
        since = self._stopped.get(process.name)
        if since is not None and self._world.now - since > 2 * OBEYED:
            self.fail(f"{url} was requested by {process.name} {self._world.now - since:.1f} s after `crawler stop`")

    # ---- requests

    def request(self, process: Process, url: str, headers: tuple[str, ...], is_private: bool, address: str) -> None:
        """A request is sent."""
        host, now = urls.host(url), self._world.now
        self._world.note(f"request {url}")
        self._check_orders(process, url)
        owners = self._owners(self._shard_of(host))
        owns = process.name in owners
        if self._has_ended(process.name):
            self.fail(f"{url} was requested by {process.name}, whose last heartbeat says that it has ended or is dead")
        if owners and not owns:
            self.fail(f"{url} was requested by {process.name}, which does not own it")
        before, owned = self._last.get(host, (-1e9, False))
        is_page = url in self._tree.links
        delay = max(self._delay, self._tree.crawl_delay(host)) if is_page else self._delay
        if owns and owned and now < before + delay - CLOSE:
            self.fail(f"{host} was requested after {now - before:.3f} s by its owner {process.name}")
        self._check_rests(process, host, url)
        if is_page:
            self._check_rules(host, url)
        self._check_trust(host, url, headers, is_private, is_page)
        self._check_address(process, address)
        self._last[host] = now, owns
        self._open[host] = process

    def _owners(self, shard: str) -> set[str]:
        """Who owns a shard by its names; nobody if somebody has removed them."""
        folder = self._disk.find("shards")
        names = folder.entries if folder else ()
        return {name.partition("@")[2] for name in names if name.startswith(f"{shard}@")}

    def _has_ended(self, worker: str) -> bool:
        """Whether a worker has signed off, or others have marked it dead because it was silent."""
        folder = self._disk.find("workers")
        names = folder.entries if folder else ()
        return any(name.startswith(f"{worker}@") and name.endswith(".end") for name in names)

    def _check_rests(self, process: Process, host: str, url: str) -> None:
        if self._open.get(host) is process:
            self.fail(f"{url} was requested while another request to its host is open")
        for rest in (self._rests.get(host), self._retries.get(url)):
            if rest and rest.process is process and self._world.now < rest.until - CLOSE:
                self.fail(f"{url} was requested {rest.until - self._world.now:.3f} s too soon {rest.why}")

    def _check_rules(self, host: str, url: str) -> None:
        if host not in self._has_rules:
            self.fail(f"{url} was requested before the robots.txt of its host")
        if url in self._tree.forbidden:
            self.fail(f"{url} was requested, which robots.txt forbids")

    def _check_trust(self, host: str, url: str, headers: tuple[str, ...], is_private: bool, is_page: bool) -> None:
        if (SECRET in headers) != (host == SECRETS_OF and is_page):
            self.fail(f"{url} was requested with the headers {headers}")
        if is_private != (host == PRIVATE):
            self.fail(f"{url} may be on a private network: {is_private}")

    def _check_address(self, process: Process, address: str) -> None:
        sent, now = self._sent[process.name, address], self._world.now
        while sent and sent[0] <= now - 1.0 + CLOSE:
            sent.popleft()
        sent.append(now)
        if len(sent) > self._per_address:
            self.fail(f"{address} was requested {len(sent)} times within a second by {process.name}")

    # ---- responses

    def response(self, process: Process, url: str, response: Fetched | Failure) -> None:
        """A response has come: its host rests, for longer after a sign of strain."""
        host, now = urls.host(url), self._world.now
        if self._open.get(host) is process:
            del self._open[host]
        if rules_of := self._tree.rules_of(url):
            self._has_rules |= {rules_of} if isinstance(response, Fetched) else set()
        delay, why = self._delay, "after its last response"
        if isinstance(response, Failure) and response.reason == "http-503":
            delay, why = max(2 * delay, response.retry_after or 0.0), "after a sign of strain"
            if url in self._tree.links:
                wait = max(self._tree.retry_delay, response.retry_after or 0.0)
                self._retries[url] = Rest(process, now + wait, "after it failed")
        self._rests[host] = Rest(process, now + delay, why)

    def owner_changed(self, shard: str) -> None:
        """A shard has another owner, who knows nothing of these responses, and neither does one who comes back."""
        self.owned_since[shard] = self._world.now
        for rests in (self._rests, self._retries):
            for name in [it for it in rests if self._shard_of(urls.host(it) if ":" in it else it) == shard]:
                del rests[name]  # type: ignore[attr-defined]
