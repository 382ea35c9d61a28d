"""A web crawler for several machines and one shared folder.

The map. Each room imports only from those above it (tests/shape/test_imports.py), and manual/design.md has the words.

    errors        exceptions and exit codes
    web/          pure: what URLs, robots.txt, sitemaps, charsets and pages mean
    fetch/        one HTTP request with every limit and guard, and what the operator of this machine allows
    settings/     crawl.yaml: each setting with its default, its check and its one line of help
    terminal      what people see: safe text, colours, progress bars, counts, sizes
    store/        the shared folder: atomic files, pages, records
    frontier/     URLs that wait: batches on the mount, a task table per worker, scope, rehydration
    fleet/        who is alive, who owns which shard, stop and pause
    crawl/        a machine at work; crawl/worker/ is the life of a URL
    commands/     one file or folder per `crawler COMMAND`, and `Crawl` for Python; nothing else imports it
    manual/       the pages that `crawler help TOPIC` shows

An evening's reading, in this order: crawl/worker/visit (the life of a URL), crawl/worker/flush (html, hand over, sync,
records), crawl/worker/upkeep (inboxes, fair share, the end), crawl/worker/in_flight (which visits are started),
frontier/frontier, frontier/table, frontier/task_rows and frontier/hosts (what waits, which host is next), fleet/shards
and fleet/heartbeats (who owns what, who is alive), store/mount (what a mount promises), store/store.
"""

__version__ = "0.1.0"

TYPE_CHECKING = False  # `typing` would delay the moment from which Ctrl-C exits silently
if TYPE_CHECKING:
    from crawler.commands.library import Crawl, Result
    from crawler.store.store import Page, Store

__all__ = ["Crawl", "Page", "Result", "Store", "__version__"]


def __getattr__(name: str) -> object:
    """Load what Python programs import on first use, so that Ctrl-C exits silently while the command starts."""
    if name in ("Store", "Page"):
        from crawler.store import store

        return getattr(store, name)
    if name in ("Crawl", "Result"):
        from crawler.commands import library

        return getattr(library, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
