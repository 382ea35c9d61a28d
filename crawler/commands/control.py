"""`crawler pause`, `resume`, `stop` and `rehydrate`: what an operator does to a crawl."""

from __future__ import annotations

from argparse import Namespace

from crawler import errors
from crawler.commands.arguments import Add
from crawler.fleet import control
from crawler.store.writer import open_to_write
from crawler.terminal import say

STORE = "/mnt/shared/crawl"


def commands(add: Add) -> None:
    """Add these commands to the program."""
    add("pause", run_pause, f"crawler pause {STORE}")
    add("resume", run_resume, f"crawler resume {STORE}")
    add("stop", run_stop, f"crawler stop {STORE}")
    add("rehydrate", run_rehydrate, f"crawler rehydrate {STORE}")


def run_pause(options: Namespace) -> int:
    """`crawler pause`."""
    say(control.pause(open_to_write(options.store)))
    return errors.OVER


def run_resume(options: Namespace) -> int:
    """`crawler resume`."""
    say(control.resume(open_to_write(options.store)))
    return errors.OVER


def run_stop(options: Namespace) -> int:
    """`crawler stop`."""
    done = control.stop(open_to_write(options.store), say)
    return errors.OVER if done else errors.LIMIT


def run_rehydrate(options: Namespace) -> int:
    """`crawler rehydrate`."""
    from crawler.crawl import whole  # the other commands here need no frontier
    from crawler.frontier import rehydrate
    from crawler.store import origin

    store = open_to_write(options.store)
    settings = store.settings()
    with store.alone("rehydrating or repairing the store", settings, say):
        in_use = whole.is_in_use(store, settings)
        rehydrate.rehydrate(store, settings, say, in_use or whole.may_go_on(store, settings))
        if not in_use:
            whole.recount(store)
            origin.note(store.files)
    return errors.OVER
