"""How a run begins: open or make the store, check that flags and crawl.yaml agree, add seeds, mend the frontier.

Also how seeds are added while others run.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from crawler import settings as config
from crawler.errors import Busy, StoreError, UsageError
from crawler.fleet import control, members
from crawler.fleet.shards import inboxes, read_owners
from crawler.frontier import rehydrate
from crawler.frontier.frontier import Frontier, in_parts
from crawler.frontier.scope import Scope, bars
from crawler.frontier.task import Task
from crawler.settings import Settings
from crawler.store.mount import Files
from crawler.store.store import FOLDERS, NEW, Store, new_settings, open_store
from crawler.terminal import many
from crawler.web import urls

HARMLESS = {*FOLDERS, "crawl.yaml", "lost+found"}
PATIENCE = 60.0  # seconds for another machine to make the store
FEW = 1000  # URLs that are looked up one by one
AT_ONCE = 16  # batches that are written at a time


def begin(root: Path, given: dict[str, Any], seeds: Sequence[str], me: str, show: rehydrate.Show) -> Settings:
    """The settings of a store that is ready for workers, with the given URLs waiting in it."""
    files = Files(root, me)
    store = Store(root, files)
    is_new = _is_new(root, store)
    if is_new:
        _make(root, store, given, bool(seeds))
    store = open_store(root, files)
    settings = store.settings()
    _check_agreement(root, settings, given)
    config.check_together(settings)
    if is_new and config.has_secrets(settings):
        show(f"warning: whoever can read {root}/crawl.yaml can read the secrets in its headers or proxy")
    files.share_mode()
    files.durable = settings.durable
    control.sweep(files)
    members.announce(files, me)  # before all that may take long: `crawler stop` must not miss us
    if rehydrate.is_needed(store, settings):
        with store.alone("rehydrating the store"):
            if rehydrate.is_needed(store, settings):
                rehydrate.rehydrate(store, settings, show)
    excluded = _excluded(seeds, settings)
    if excluded:
        show(f"warning: {excluded}")
    _add(store, settings, seeds)
    return settings


def add(store: Store, seeds: Sequence[str]) -> str:
    """Add URLs to a crawl that others may be working on; what came of it, as a sentence.

    They are remembered and handed over before we look who is at work. Machines that are about to end at this very
    moment may leave them to the next run: then they wait, and nothing is lost.
    """
    settings = store.settings()
    store.files.durable = settings.durable
    normalized = _normalized(seeds, settings)
    few = normalized if len(normalized) <= FEW else []
    settled = sum(store.record(url) is not None or store.refusal(url) is not None for url in few)
    added = _add(store, settings, normalized)
    said = f"{many(added, 'URL')} added" if added else "nothing is new: the same URLs were added before"
    known = f" ({settled:,} of them settled before)" if settled and added else ""
    excluded = _excluded(seeds, settings)
    return f"{said}{known}; {f'{excluded}; ' if excluded else ''}{who_takes_them(store, settings)}"


def _excluded(seeds: Sequence[str], settings: Settings) -> str:
    """A sentence about URLs that were given and will not be asked; empty if there are none."""
    scope = Scope("any", exclude=settings.exclude)
    found = [url for url in _normalized(seeds if settings.exclude else (), settings) if bars(scope, Task(url))]
    first = f"{found[0]} and {len(found) - 1:,} more" if len(found) > 1 else "".join(found)
    return f"{first} will not be asked, because of a pattern of exclude in crawl.yaml" if found else ""


def who_takes_them(store: Store, settings: Settings) -> str:
    """Who goes on with what was handed over, and how it goes on if nobody is at work."""
    count = len(members.look(store.files, settings, again=False).at_work)
    who = f"{many(count, 'machine')} {'is' if count == 1 else 'are'} at work" if count else "nobody is at work"
    if control.is_paused(store.files):
        return f"{who}, but paused; `crawler resume {store.root}` goes on"
    return who if count else f"{who}; `crawler run {store.root}` goes on"


def _normalized(seeds: Sequence[str], settings: Settings) -> list[str]:
    """Seeds in the spelling of this crawl, each once."""
    normalized = (urls.normalize_again(seed, settings.tracking) for seed in seeds)
    return list(dict.fromkeys(filter(None, normalized)))


def _is_new(root: Path, store: Store) -> bool:
    if root.is_file():
        raise StoreError(f"{root} is a file, not a folder; name the store's folder")
    if not root.exists() and not root.absolute().parent.is_dir():
        raise StoreError(
            f"{root.absolute().parent} does not exist; is the mount there? (the store's own folder is made for you)"
        )
    return not root.exists() or not store.is_made()


def _make(root: Path, store: Store, given: dict[str, Any], has_seeds: bool) -> None:
    settings = _first_settings(root, store, given)
    config.check_together(settings)
    has_pages = bool(store.files.names("links"))
    if not has_seeds and not has_pages:
        raise UsageError(
            f"{root} is not a store yet; give at least one URL to begin with, such as https://example.org/"
        )
    strange = sorted(set(store.files.names("")) - HARMLESS)
    if strange and not store.is_made():  # another machine may have made it just now
        raise StoreError(
            f"{root} holds other things ({strange[0]} ...) and is no store; name an empty folder or a new one"
        )
    try:
        root.mkdir(exist_ok=True)
        store.files.share_mode()
        _make_alone(store, settings, has_pages)
    except OSError as error:
        raise StoreError(f"{root} cannot be written ({error.strerror}); check the mount and its permissions") from error


def _make_alone(store: Store, settings: Settings, has_pages: bool) -> None:
    """Make the store, unless another machine does; a client may believe in its lock long after it is gone."""
    limit = time.monotonic() + PATIENCE
    while not store.is_made():
        try:
            with store.alone("making the store", seconds=2):
                if not store.is_made():
                    store.make(settings, rehydrate.MARK if has_pages else None)
        except Busy:
            if time.monotonic() > limit:
                raise


def _first_settings(root: Path, store: Store, given: dict[str, Any]) -> Settings:
    """The settings of a store that is made now; a crawl.yaml that came with a copy of pages counts."""
    # By the listing: to ask for a name that is missing lets a client believe for a while that it stays so.
    data = store.files.get("crawl.yaml") if "crawl.yaml" in store.files.names("") else None
    if data is None:
        return new_settings(given)
    copied = Settings(**config.parse(data.decode("utf-8", "replace"), f"{root}/crawl.yaml"))
    _check_agreement(root, copied, given)
    return copied


def _check_agreement(root: Path, settings: Settings, given: dict[str, Any]) -> None:
    for name in config.contradictions(settings, given):
        stored, wanted = (config.show_safely(name, value) for value in (getattr(settings, name), given[name]))
        when = "" if name in config.LIVE else " while no machine runs"
        raise UsageError(
            f"{name} is {stored} in {root}/crawl.yaml, but {wanted} was asked for; "
            f"leave the flag out, or edit crawl.yaml{when}"
        )


def _add(store: Store, settings: Settings, seeds: Sequence[str]) -> int:
    """Seeds are remembered first, with a mark: whoever finds the mark (a run was killed here) hands them over again.

    How many of them were not there yet.
    """
    added = 0
    known = set(store.files.names("seeds"))
    for part in in_parts(map(Task, _normalized(seeds, settings)), 20_000):
        name = urls.key("\n".join(task.url for task in part))  # the same command again adds nothing
        if name not in known:
            store.add_seeds((task.url for task in part), name + NEW)
            added += len(part)
    _hand_over(store, settings)
    return added


def _hand_over(store: Store, settings: Settings) -> None:
    """Hand over the seeds that are marked, to many shards at a time: a mount answers so many in the time of one."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        frontier = Frontier(store.files, settings, pool.map)
        frontier.inboxes = inboxes(read_owners(store.files, settings.shards))
        for name, marked in store.seeds(known=(name for name in store.files.names("seeds") if not name.endswith(NEW))):
            frontier.hand_over(Task(seed) for seed in marked)
            frontier.flush()
            store.seeds_are_handed_over(name)
