"""What the user named: it sets the scope of the crawl, may be on a private network, and gets the user's headers."""

from __future__ import annotations

from collections.abc import Iterable

from crawler import addresses, urls
from crawler.config import Settings
from crawler.store import Store
from crawler.terms import is_secret

REDIRECT = "redirect-"  # files of seeds that no user named: they widen the scope, and are trusted with nothing


class Seeds:
    """The seeds of a crawl as one worker knows them; `refresh` looks for new ones."""

    def __init__(self, store: Store, settings: Settings) -> None:
        self.store = store
        self.scope = urls.Scope(settings.scope, (), settings.include, settings.exclude)
        self.narrow = settings.scope != "any"
        self._public = tuple(line for line in settings.headers if not is_secret(line))
        self._headers = settings.headers
        self._origins: set[str] = set()  # the seeds' schemes and hosts, kept only when there are secrets to send
        self._private: set[str] = set()
        self._known: set[str] = set()
        self._widened: set[str] = set()

    def refresh(self) -> None:
        """Learn the seeds that have come since, from a new listing: by an old scope, links would be lost for good."""
        self.store.files.freshen("seeds")
        for name, seeds in self.store.seeds(self._known):
            self._known.add(name)
            for url in seeds:
                if self.narrow:
                    self.scope.add(url)
                if not name.startswith(REDIRECT):
                    self._trust(url)

    def _trust(self, url: str) -> None:
        host = urls.host(url)
        if addresses.names_private(host):
            self._private.add(host)
        if self._public != self._headers:
            # Who was named by http may be asked by https too; the other way round, secrets would travel in the open.
            self._origins |= {f"https://{host}", urls.origin(url)}

    def names(self, host: str) -> bool:
        """Whether the user named this very host as one on a private network."""
        return host in self._private

    def headers_for(self, url: str) -> tuple[str, ...]:
        """The user's headers that may go along with a request for this URL."""
        return self._headers if urls.origin(url) in self._origins else self._public

    def widen(self, seeds: Iterable[str]) -> None:
        """A seed's redirect is a seed for the scope (example.org sends us to www.example.org), never for trust."""
        for url in seeds:
            if self.narrow and url not in self._widened and not self.scope.admits(url):
                self.store.add_seeds([url], f"{REDIRECT}{urls.key(url)}")
                self.scope.add(url)
                self._widened.add(url)
