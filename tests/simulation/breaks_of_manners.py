"""Mutants that sites, operators or memory would notice: politeness, orders, limits, trust; and more that lose data."""

from __future__ import annotations

from crawler.crawl.page_budget import PageBudget
from crawler.crawl.worker import politeness
from crawler.crawl.worker.address_pace import AddressPace
from crawler.crawl.worker.network import Requests
from crawler.crawl.worker.replacing import Replacing
from crawler.crawl.worker.revisits import Revisits
from crawler.crawl.worker.robots_cache import RobotsCache
from crawler.crawl.worker.upkeep import Upkeep
from crawler.crawl.worker.visit import Visits
from crawler.fetch.trust import Trust
from crawler.fleet.shards import Shards
from crawler.frontier.frontier import Frontier
from crawler.frontier.hosts import Hosts
from crawler.store import history, sync
from crawler.store.mount import Files
from simulation.breaks import Change, Mutant

OF_MANNERS = (
    # ---- sites
    Mutant(
        "robots.txt is read and not obeyed",
        "sites",
        (Change(Visits, "visit", "if not rules.allow(task.url):", "if False:"),),
        within=20,
    ),
    Mutant(
        "a new host's robots.txt is not requested",
        "sites",
        (Change(RobotsCache, "of", "return None", "return ALLOW_ALL"),),
        within=5,
    ),
    Mutant(
        "a Crawl-delay is forgotten",
        "sites",
        (
            Change(Visits, "visit", "host.robots_delay = rules.delay", "pass"),
            Change(Visits, "_request_robots", "host.robots_delay = ", "_ = "),
        ),
        within=20,
    ),
    Mutant(
        "no longer rest after a sign of strain",
        "sites",
        (Change(politeness, "next_pace", "if strain else delay", "if False else delay"),),
        within=20,
    ),
    Mutant(
        "Retry-After is not read",
        "sites",
        (
            Change(politeness, "next_pace", "response.retry_after:", "False:"),
            Change(politeness, "retry_after", "header or 0.0", "0.0"),
        ),
        within=40,
    ),
    Mutant(
        "what failed is retried at once",
        "sites",
        (Change(Visits, "_retry", "due=self._clock.monotonic() + wait", "due=0.0"),),
        within=40,
    ),
    Mutant(
        "two requests to a host at a time",
        "sites",
        (Change(Hosts, "take", "if host.busy < host.lanes:", "if True:"),),
        within=5,
    ),
    Mutant(
        "an address is as fast as all its hosts",
        "sites",
        (Change(AddressPace, "admit", "if all(when <= now for when in opens.values()):", "if True:"),),
        within=40,
    ),
    # ---- operators
    Mutant(
        "a pause is not obeyed",
        "orders",
        (Change(Upkeep, "obey_operator", "self._in_flight.paused = PAUSE in self._shards.orders", "pass"),),
        within=20,
        only=("pause",),
    ),
    Mutant(
        "a stop is not obeyed",
        "orders",
        (Change(Upkeep, "obey_operator", "self._scoreboard.drain(OPERATOR_STOP)", "pass"),),
        within=20,
        only=("stop",),
    ),
    Mutant(
        "a retry removes the failure record alone",
        "orders",
        (Change(Visits, "_run_retry_task", "self._frontier.retry(", "bool("),),
        within=40,
        only=("retry_failures",),
    ),
    Mutant(
        "a machine takes the budget that others have",
        "orders",
        (Change(PageBudget, "look", "free = limit - self._others.reserved", "free = limit"),),
        "nfs3",
        60,
        ("join",),
    ),
    # ---- memory and trust
    Mutant("hosts stay in memory", "8", (Change(Hosts, "_make_room", "if excess <= 0:", "if True:"),), within=60),
    Mutant(
        "every URL that was handed over is remembered",
        "8",
        (Change(Frontier, "hand_over", "recent.clear()", "pass"),),
        within=10,
    ),
    Mutant(
        "every robots.txt stays in memory",
        "8",
        (Change(RobotsCache, "_note_rules", "while len(self._rules) > MAX_CACHED", "while False"),),
        within=10,
    ),
    Mutant(
        "every host gets the secrets of one",
        "9",
        (
            Change(
                Trust,
                "headers_for",
                "self.headers.get(urls.origin(url), ()) if self.headers else ()",
                "tuple(line for lines in self.headers.values() for line in lines)",
            ),
        ),
        within=5,
    ),
    Mutant(
        "every host may be on a private network",
        "9",
        (Change(Requests, "get", "host.name in self._trust.private", "bool(self._trust.private)"),),
        within=5,
    ),
    # ---- data
    Mutant(
        "a rename that failed counts as done",
        "1",
        (Change(Files, "publish", "if not self._has_arrived(draft.name, draft.data):", "if False:"),),
        within=100,
        only=("fails_in_a_row",),
    ),
    Mutant(
        "a new file's bytes are not synced on a mount",
        "1",
        (Change(Files, "_write_new", "os.fsync(descriptor)", "pass"),),
        "gluster",
        60,
        ("blackout",),
    ),
    Mutant(
        "the names in a folder are not synced on a mount",
        "1",
        (Change(sync, "sync_names", "os.fsync(handle)", "pass"),),
        "gluster",
        60,
        ("blackout",),
    ),
    Mutant(
        "a shard is released with what waits in it",
        "7",
        (Change(Frontier, "disown", "await self._sort(shards, lost)", "pass"),),
        within=20,
    ),
    Mutant(
        "an older version is removed as soon as it is kept",
        "1",
        (Change(Replacing, "prune", "settings.history, settings.history_age", "0, settings.history_age"),),
        None,
        40,
        ("refresh",),
    ),
    Mutant(
        "an older version is kept in part",
        "1",
        (Change(history, "keep", 'files.put(f"{place}{HTML}", html)', 'files.put(f"{place}{HTML}", html[:10])'),),
        None,
        20,
        ("refresh",),
    ),
    Mutant(
        "a page that has changed is taken for the same",
        "1",
        (Change(Revisits, "is_same", "return ", "return True or "),),
        None,
        20,
        ("refresh",),
    ),
    Mutant(
        "who ends is believed without proof",
        "the end",
        (
            Change(
                Shards,
                "others_proved_the_end",
                "if self.heartbeat.idle and proof.get(self.me) == self.heartbeat.state:",
                "if True:",
            ),
        ),
        None,
        60,
    ),
)
