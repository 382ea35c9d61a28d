"""multiprocessing's resource tracker, which removes the names of a supervisor's semaphores after a `kill -9`.

Left to itself it would then warn of semaphores that were left behind, which nobody has to do anything about.
"""

from __future__ import annotations

import os
import sys
import warnings
from contextlib import suppress
from multiprocessing import resource_tracker
from typing import Any

QUIETLY = "ignore:resource_tracker:UserWarning"


def fork() -> None:
    """Fork the tracker, if there is none yet, from a process that is fit for it: see `fork_server`.

    As an interpreter of its own it takes a tenth of the CPU of a crawl of one page.
    """
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


def start() -> None:
    """Start the tracker as an interpreter of its own, if there is none yet."""
    sys.warnoptions.append(QUIETLY)  # it takes them over
    try:
        resource_tracker.ensure_running()
    finally:
        sys.warnoptions.remove(QUIETLY)


def _be_tracker(reading: int) -> None:
    """Live as the tracker until no process can tell it anything; does not return."""
    try:
        warnings.simplefilter("ignore")
        with suppress(SystemExit):  # from Python 3.13 on it ends so
            resource_tracker.main(reading)
    except BaseException:  # noqa: BLE001 - the stack below is the parent's: nothing may return to it
        sys.excepthook(*sys.exc_info())
    finally:
        with suppress(BaseException):
            sys.stderr.flush()
        os._exit(0)
