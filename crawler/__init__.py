"""A web crawler for several machines and one shared folder.

The map. A module imports only from rows above its own (tests/test_imports.py holds this to be true). Read `worker`
next: it is the life of a URL.

    errors, reasons, records, version      what can go wrong, why a URL is refused, the shapes that travel
    traps, addresses, urls, charset, terms pure: spelling of URLs, endless ones, public addresses, charsets, terms
    robots, armour                         pure: what robots.txt and robots tags say to us; how much of a page is read
    deadlines                              the end of a request from outside
    logs, show, progress                   log lines; what reaches the user's terminal; how a run goes on
    slate, cores                           what workers show their supervisor; a core for each worker
    syncs, places, files, config           to the disk; folders of a mount; all that we ask of it; crawl.yaml
    politeness, parse, sitemap, cookies    pure: a host's pace; the links of a page, of a sitemap; what a host gets back
    receipts, store, table                 records as JSON; from noun to path to bytes; a worker's waiting URLs
    room                                   what a worker must have before it asks: room in the store, open files
    edits                                  what machines at work make of edits of crawl.yaml
    fetch (fetch_curl, fetch_requests)     one request with all its limits and guards
    seeds, frontier, survey                what the user named; batches, hand-over, inbox, tidy; what waits for what
    trace, pulses, shards                  who died on this machine; who owns what, who is alive, when all is done
    roster, control                        who is at work; an operator's word: stop, pause, resume
    rehydrate, report, explain             the frontier made again; how a crawl stands; what became of one URL
    outlook, top*                          what watchers see, again and again; the same in a terminal
    forms, sheets                          rows as JSON Lines, CSV and the like; a file of rows, whole or not there
    export*                                pages as rows of a file or a database: which, in what form, to where
    findings, check*, repair               is a store sound: each file, and what they say together; how it is mended
    desk                                   what a worker's visitors share
    permits                                what each host allows: its robots.txt, and how a worker comes by it
    housekeeping                           a worker's inbox, pulse, fair share and end
    begin, worker                          how a run begins; the life of a URL
    retry                                  refused URLs are asked again
    machine                                the pool of workers, signals, progress
    browse                                 what is in a store: its pages, a page, its links, its hosts
    plan*                                  what a crawl of so many pages will take
    manual, completion                     what --help shows; scripts that complete commands in a shell
    rules, trees, readers                  what is wanted; a page to look in; a pool that reads a store
    harvest, extract                       from pages to rows; `crawler extract`
    web*, demo                             the embedded web, which knows what a crawl of it must contain
    doctor*                                is a mount fit: each promise of `files` tried out, alone and between two
    serve*, metrics                        a crawl as a web page; what Prometheus reads of it
    crawl, cli                             `run` and `add`; arguments to calls, errors to exit codes
"""

__version__ = "0.1.0"

TYPE_CHECKING = False  # so that `typing` need not be loaded before Ctrl-C ends the command without a word
if TYPE_CHECKING:
    from crawler.store.store import Page, Store

__all__ = ["Page", "Store", "__version__"]


def __getattr__(name: str) -> object:
    """`Store` is loaded when it is asked for: the command must be able to end quietly from its first moment on."""
    if name not in ("Store", "Page"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from crawler.store import store

    return getattr(store, name)
