"""How a run starts: open or create the store, check flags against crawl.yaml, repair the frontier, add seeds.

Also how seeds are added while machines run.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from crawler.crawl import old_corpus
from crawler.crawl.visit_planner import plan_at_start
from crawler.crawl.whole import make_whole
from crawler.errors import StoreError, UsageError
from crawler.fetch.trust import Trust
from crawler.fleet import control, members
from crawler.fleet.shards import inboxes, read_owners
from crawler.frontier import rehydrate
from crawler.frontier.batches import COMMON_SHARD, Outbox, in_parts
from crawler.frontier.scope import SEED_PRIORITY, Scope, bars, seed_tasks
from crawler.frontier.task import Task
from crawler.settings.settings import FIXED, Settings, as_pair, check_together, contradictions, show_setting
from crawler.store import kept, origin
from crawler.store.history import HISTORY
from crawler.store.mount import Files
from crawler.store.reading import FILE, FOLDER
from crawler.store.store import FOLDERS, Store, check_store
from crawler.store.writer import NOT_HANDED_OVER, StoreWriter, new_settings
from crawler.terminal import many
from crawler.web import addresses, urls
from crawler.web.text import masked

HARMLESS = {*FOLDERS, HISTORY, "crawl.yaml", "lost+found", old_corpus.OLD}
MAX_LOOKUPS = 1000  # more added URLs than this are not looked up one by one
WRITERS = 16  # batches that are written concurrently
FEW_SEEDS = 2000  # in a file: one batch of them is faster than a folder for the shard of each


def begin(
    root: Path,
    given: dict[str, Any],
    seeds: Sequence[str],
    me: str,
    show: rehydrate.Show,
    trust: Trust | None = None,
    accept_defaults: bool = False,
) -> Settings:
    """Prepare the store for workers, add the given URLs, and return its settings.

    Pages that were copied without any settings need some, unless the defaults are accepted.
    """
    trust = trust or Trust()
    files = Files(root, me)
    store = StoreWriter(root, files)
    is_new = _is_new(root, store)
    if is_new:
        _make(root, store, _first_settings(root, store, given, show, accept_defaults), seeds, show, trust)
    check_store(store)
    settings = store.settings()
    _check_agreement(root, settings, given)
    check_together(settings, trust)
    files.share_mode()
    files.durable = settings.durable
    control.sweep(files)
    members.announce(files, me)  # before anything slow, so that `crawler stop` finds us
    make_whole(store, settings, me, show)
    plan_at_start(store, settings, me, show)
    store.keep_settings(settings)
    excluded = _excluded(seeds, settings)
    if excluded:
        show(f"warning: {excluded}")
    _add(store, settings, _normalized(seeds, settings))
    _warn_of_private(store, trust, show)
    _warn_of_http(store, trust, show)
    return settings


def _warn_of_http(store: Store, trust: Trust, show: rehydrate.Show) -> None:
    """Name a seed whose login is not sent, because it is one of http and the operator did not name it."""
    given = (seed for _, seeds in store.seeds() for seed in seeds) if trust.logins else iter(())
    seed = next(filter(trust.lacks_plain, given), "")
    if seed:
        show(
            f"warning: the login of --netrc is sent by https only, so not to {urls.origin(seed)}; to send it in plain "
            "text, name that URL on the command line again"
        )


def _warn_of_private(store: Store, trust: Trust, show: rehydrate.Show) -> None:
    """Name the seeds that this machine will not request, because its operator did not name their private host."""
    given = (seed for name, seeds in store.seeds() if not name.startswith(kept.REDIRECT) for seed in seeds)
    host = next(filter(trust.excludes, map(urls.host, given)), "")
    is_metadata = addresses.reach_of_host(host) == addresses.METADATA
    allow = "give --allow-metadata" if is_metadata else "name the seeds again, or give --allow-private"
    if host:
        show(
            f"warning: this machine requests nothing on private networks ({host} ...): URLs there, also those that "
            f"wait, get the failure record private-address; {allow}, and they are requested after all"
        )


def add(store: StoreWriter, seeds: Sequence[str], priority: int | None = None) -> str:
    """Add URLs to a crawl that may be running, and return a sentence about the result.

    They are stored and handed over before we look which machines run. Machines that are just about to exit may leave
    them for the next run; nothing is lost.
    """
    settings = store.settings()
    store.files.durable = settings.durable
    normalized = _normalized(seeds, settings)
    few = normalized if len(normalized) <= MAX_LOOKUPS else []
    done = sum(store.record(task.name) is not None or store.failure(task.name) is not None for task in few)
    added = _add(store, settings, normalized, priority)
    said = f"{many(added, 'URL')} added" if added else "nothing new: the same URLs were added before"
    known = f" ({done:,} of them already done)" if done and added else ""
    notes = "".join(f"{note}; " for note in (_excluded(seeds, settings), _private(normalized)) if note)
    return f"{said}{known}; {notes}{describe_machines(store, settings)}"


def _private(seeds: Sequence[Task]) -> str:
    """Return a note about the first URL on a private network; empty if there is none."""
    found = next((task.url for task in seeds if addresses.names_private(task.host)), "")
    return found and f"{found} is on a private network: only machines whose own command allows it will request it"


def _excluded(seeds: Sequence[str], settings: Settings) -> str:
    """Return a warning about given URLs that an exclude pattern matches; empty if there are none."""
    scope = Scope("any", exclude=settings.exclude)
    found = [task.name for task in _normalized(seeds if settings.exclude else (), settings) if bars(scope, task)]
    first = f"{found[0]} and {len(found) - 1:,} more" if len(found) > 1 else "".join(found)
    return f"{first} will not be requested: an exclude pattern in crawl.yaml matches" if found else ""


def describe_machines(store: Store, settings: Settings) -> str:
    """Return a sentence about the machines that will take the added URLs, or how to start one."""
    count = len(members.look(store.files, settings, again=False).at_work)
    who = f"{many(count, 'machine')} {'is' if count == 1 else 'are'} running" if count else "no machine is running"
    if control.is_paused(store.files):
        return f"{who}, and the crawl is paused; `crawler resume {store.root}` resumes it"
    return who if count else f"{who}; `crawler run {store.root}` resumes the crawl"


def _normalized(seeds: Sequence[str], settings: Settings) -> list[Task]:
    """Return the seeds as tasks with normalized URLs, without duplicates."""
    normalized = (
        (task, urls.normalize(task.url, tracking=settings.removed_parameters)) for task in map(Task.named, seeds)
    )
    return list(dict.fromkeys(task._replace(url=url) for task, url in normalized if url))


def _is_new(root: Path, store: StoreWriter) -> bool:
    shape = store.files.root_shape()
    if shape == FILE:
        raise StoreError(f"{root} is a file, not a folder; name the store's folder")
    if shape is None and root.is_symlink():
        raise StoreError(f"{root} is a symbolic link to {root.readlink()}, which does not exist; is the mount there?")
    if shape is None and Files(root.absolute().parent).root_shape() != FOLDER:
        raise StoreError(
            f"{root.absolute().parent} does not exist; is the mount there? (only the store's own folder is created)"
        )
    return shape is None or not store.is_made()


def _make(
    root: Path, store: StoreWriter, settings: Settings, seeds: Sequence[str], show: rehydrate.Show, trust: Trust
) -> None:
    check_together(settings, trust)
    has_pages = bool(store.files.names("links")) or old_corpus.is_here(store.files)
    if not seeds and not has_pages:
        raise UsageError(
            f"{root} is not a store yet; give at least one URL to start from, such as https://example.org/"
        )
    others = sorted(set(store.files.names("")) - HARMLESS)
    if others and not store.is_made():  # another machine may have just created it
        raise StoreError(f"{root} is not a store and not empty ({others[0]} ...); give an empty or a new folder")
    try:
        root.mkdir(exist_ok=True)
        store.files.share_mode()
    except OSError as error:
        raise StoreError(f"{root} cannot be written ({error.strerror}); check the mount and its permissions") from error
    with store.alone("creating the store", settings, show) as lock:
        if store.is_made():
            return
        is_old = old_corpus.is_here(store.files)
        if is_old:
            normalized = _normalized(seeds, settings)
            old_corpus.take_over(store, settings, [task.url for task in normalized], show)
            _store_seeds(store, normalized)  # before links are compared with the scope
        store.make(settings, rehydrate.MARK if has_pages else None, lock.check)
        if is_old or not has_pages:  # otherwise it is checked first
            origin.note(store.files)


def _first_settings(
    root: Path, store: Store, given: dict[str, Any], show: rehydrate.Show, accept_defaults: bool
) -> Settings:
    """Return the settings for a new store; those that came with copied pages count."""
    # By listing: after opening a missing name, an NFS client may believe for a while that it stays missing.
    if "crawl.yaml" in store.files.names(""):
        data, where = store.files.get("crawl.yaml"), f"{root}/crawl.yaml"
    else:
        data, where = store.files.get(kept.SETTINGS), f"{root}/{kept.SETTINGS}"
    if data is not None:
        copied = Settings(**kept.parse_stored(data, where, by_hand=True))
        _check_agreement(root, copied, given, where)
        if where.endswith(kept.SETTINGS):
            show(f"using the settings that came with the pages, in {where}")
        return copied
    if not (given or accept_defaults or old_corpus.is_here(store.files)) and store.files.names("links"):
        raise UsageError(
            f"{root} has pages but no crawl.yaml; give the settings of that crawl (-c FILE, --scope host ...), "
            "or --accept-defaults"
        )
    return new_settings(given)


def _check_agreement(root: Path, settings: Settings, given: dict[str, Any], where: str = "") -> None:
    for name in contradictions(settings, given):
        stored, flag = (show_setting(name, value) for value in (getattr(settings, name), given[name]))
        command = shlex.join(["crawler", "set", str(root), masked(as_pair(name, given[name]))])
        change = "use a new store, because it cannot change" if name in FIXED else f"change it: {command}"
        raise UsageError(
            f"{name} is {stored} in {where or f'{root}/crawl.yaml'}, but {flag} was given; omit the flag, or {change}"
        )


def _add(store: StoreWriter, settings: Settings, seeds: Sequence[Task], priority: int | None = None) -> int:
    """Store the seeds, hand them over, and return how many are new."""
    added = _store_seeds(store, seeds, priority)
    _hand_over(store, settings)
    return added


def _store_seeds(store: StoreWriter, seeds: Sequence[Task], priority: int | None = None) -> int:
    """Store the seeds with a mark, and return how many are new.

    A later run that finds the mark (this one was killed) hands them over.
    """
    added = 0
    known = set(store.files.names("seeds"))
    for part in in_parts(seeds, 20_000):
        name = urls.key("\n".join(task.name for task in part))  # the same command again adds nothing
        name += "" if priority is None else f"{SEED_PRIORITY}{priority}"
        if name not in known:
            store.add_seeds((task.name for task in part), name + NOT_HANDED_OVER)
            added += len(part)
    return added


def _hand_over(store: StoreWriter, settings: Settings) -> None:
    """Hand over the marked seeds, to many shards concurrently, because each write to a mount has latency."""
    owners = inboxes(read_owners(store.files, settings.shards))
    # Nobody is at work: whoever comes first hands on what is not for it. A region's shards may stay without an owner.
    one_for_all = {} if owners or settings.regions else dict.fromkeys(range(settings.shards), COMMON_SHARD)
    with ThreadPoolExecutor(WRITERS) as pool:
        outbox, few = (Outbox(store.files, settings, homes, pool.map) for homes in (owners, owners or one_for_all))
        known = (name for name in store.files.names("seeds") if not name.endswith(NOT_HANDED_OVER))
        for name, marked in store.seeds(known):
            (few if len(marked) <= FEW_SEEDS else outbox).send(seed_tasks(name, marked, settings))
            store.seeds_are_handed_over(name)
