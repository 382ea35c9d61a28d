"""What is answered to whom asks `serve`: files of the web page, facts about the store, metrics."""

from __future__ import annotations

import asyncio
import ipaddress
import json
import platform
import signal
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Any

from crawler.commands.serve import metrics
from crawler.commands.serve.http import Answer, Asked, Readers, Server, Shared, sentence
from crawler.commands.serve.views import Facts, Query, Views, clean
from crawler.crawl.logs import log
from crawler.errors import CrawlerError, StoreError, UsageError
from crawler.store.store import Store
from crawler.terminal import say

FRESH = 1.5  # seconds for which one look at the crawl does for all who ask
STILL = 3.0  # and one at a table or a page
STEADY = 10.0  # seconds after which the crawl is looked at although nobody asks: its charts shall have no holes
HELD_UP = 5.0  # seconds until hosts are counted again after the store did not answer
JSON = "application/json"
HTML = "text/html; charset=utf-8"
TYPES = {
    ".html": HTML,
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
INDEX = "/index.html"
OURS = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; frame-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
)
# A stored page may show its text in its own inline styles, and do nothing.
DRAWN = (
    "sandbox; default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'self'"
)


def serve(store: Store, address: str, port: int, names: Iterable[str]) -> None:
    """Answer at an address, or where these names lead, until a signal says that it is enough."""
    service = Service(Views(store))
    asyncio.run(service.run(Server(service.answer, frozenset({"localhost", *names})), address, port))


class Service:
    """From what is asked to what the store has to say."""

    def __init__(self, views: Views) -> None:
        self._views = views
        self._readers = Readers()
        self._shared = Shared(self._readers)
        self._files = _files()
        self._tables: dict[str, Callable[[Query], Facts]] = {
            "/api/hosts": views.hosts,
            "/api/host": views.host,
            "/api/failures": views.failures,
            "/api/page": views.page,
            "/api/settings": views.settings,
        }

    async def run(self, server: Server, address: str, port: int) -> None:
        """Answer until a signal comes; connections that are open then are cut."""
        enough = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, enough.set)
        try:
            listening = await server.listen(address, port)
        except OSError as error:
            raise UsageError(
                f"port {port} of {address} cannot be had ({error.strerror}); choose another --port or --bind"
            ) from error
        chores = [asyncio.create_task(self._look_steadily()), asyncio.create_task(self._count_hosts())]
        for line in _told(self._views.store, *listening.sockets[0].getsockname()[:2]):
            say(line, sys.stderr if line.startswith("warning") else None)
        await enough.wait()
        listening.close()
        for chore in chores:
            chore.cancel()

    async def answer(self, asked: Asked) -> Answer:
        """The answer to a request; whatever goes wrong is one too."""
        try:
            return await self._answer(asked)
        except UsageError as error:
            return _wrong(400, str(error))
        except CrawlerError as error:
            return _wrong(503, str(error))
        except Exception:  # noqa: BLE001 - a fault of ours is an answer, and the others are still served
            log.exception("crawler: a fault of the program itself; please report it with these lines")
            return _wrong(500, "a fault of the program itself; the terminal of `crawler serve` has more")

    async def _answer(self, asked: Asked) -> Answer:
        if asked.path in self._files:
            return self._files[asked.path]
        if asked.path in self._tables:
            return Answer(200, await self._get(asked, partial(_encoded, self._tables[asked.path])), JSON)
        if asked.path == "/api/now":
            return Answer(200, (await self._look())[1], JSON)
        if asked.path == "/drawn":
            return Answer(200, await self._get(asked, self._views.drawn), HTML, DRAWN)
        if asked.path == "/metrics":
            return Answer(200, await self._metrics(), metrics.TYPE)
        if asked.path == "/healthz":
            await self._look()
            return sentence(200, "ok")
        return sentence(404, "there is nothing here; the page is at /")

    async def _look(self) -> tuple[Facts, bytes]:
        """How the crawl stands, as facts and as JSON: one look for all who ask."""
        found: tuple[Facts, bytes] = await self._shared.get("now", self._look_now, FRESH)
        return found

    def _look_now(self) -> tuple[Facts, bytes]:
        found = self._views.now()
        return found, to_json(self._views.in_short(found))

    async def _get(self, asked: Asked, view: Callable[[Query], bytes]) -> bytes:
        what = (asked.path, *sorted(asked.query.items()))
        found: bytes = await self._shared.get(what, partial(view, asked.query), STILL)
        return found

    async def _metrics(self) -> bytes:
        found = None
        with suppress(StoreError):
            found, _ = await self._look()
        return metrics.text(found).encode()

    async def _look_steadily(self) -> None:
        while True:
            await self.answer(Asked("/api/now", {}))
            await asyncio.sleep(STEADY)

    async def _count_hosts(self) -> None:
        while True:
            rest = HELD_UP
            with suppress(StoreError):
                rest = await self._readers.run(self._views.census.step)
            await asyncio.sleep(rest)


def to_json(value: Any) -> bytes:
    """A value as a browser reads it: texts of others made harmless to the eye."""
    return json.dumps(clean(value), separators=(",", ":")).encode("ascii")


def _encoded(view: Callable[[Query], Facts], query: Query) -> bytes:
    return to_json(view(query))


def _wrong(status: int, text: str) -> Answer:
    return Answer(status, to_json({"error": text}), JSON)


def _files() -> dict[str, Answer]:
    """The files of the web page by their path: they are a part of this package."""
    static = resources.files("crawler.commands.serve") / "static"
    found = [file for file in static.iterdir() if Path(file.name).suffix in TYPES]
    answers = {f"/{file.name}": Answer(200, file.read_bytes(), TYPES[Path(file.name).suffix], OURS) for file in found}
    return {"/": answers.pop(INDEX), **answers}


def _told(store: Store, address: str, port: int) -> list[str]:
    """What the user is told at the start."""
    found = ipaddress.ip_address(address.partition("%")[0])
    name = platform.node() if found.is_unspecified else f"[{address}]" if found.version == 6 else address
    lines = [f"serving {store.root} at http://{name}:{port}/ (metrics at /metrics); Ctrl-C ends it"]
    if not found.is_loopback:
        lines.append(f"warning: whoever reaches {name}:{port} can read all pages of this store; there is no password")
    return lines
