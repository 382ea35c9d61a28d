"""multiprocessing's resource tracker, forked instead of started: what removes the names of locks after a kill.

As an interpreter of its own it takes a tenth of the CPU of a crawl of one page, and after a `kill -9` it warns of
locks that were left behind, which it removes and about which nobody has to do anything.
"""

from __future__ import annotations

import os
import sys
import warnings
from contextlib import suppress
from multiprocessing import resource_tracker
from typing import Any


def begin() -> None:
    """Fork the tracker, if there is none yet; the process must be fit to be forked: see `fork_server`."""
    tracker: Any = resource_tracker._resource_tracker  # it has no public place for a tracker of one's own
    if tracker._fd is not None:
        return
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(writing)
        _be_tracker(reading)
    os.close(reading)
    tracker._fd, tracker._pid = writing, pid


def _be_tracker(reading: int) -> None:
    """Live as the tracker until no process can tell it anything; does not return."""
    try:
        warnings.simplefilter("ignore")
        resource_tracker.main(reading)
    except BaseException:  # noqa: BLE001 - the stack below is the parent's: nothing may return to it
        sys.excepthook(*sys.exc_info())
    finally:
        with suppress(BaseException):
            sys.stderr.flush()
        os._exit(0)
