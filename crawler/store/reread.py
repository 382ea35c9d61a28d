"""Read a file again that another client may be replacing just now: on some mounts readers find none or a part of it.

On sshfs up to one read in twenty does while a file is replaced all the time, and the next one is right.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

WAITS = (0.01, 0.1, 0.5)  # seconds before each further read
MAX_WAITED = 10.0  # seconds in vain, after which files are taken as they are: people edit them

Found = TypeVar("Found")


class Reread:
    """Reads again what looks wrong, until so much waiting in a row was in vain."""

    def __init__(self) -> None:
        self._waited = 0.0  # in vain

    def __call__(self, read: Callable[[], Found], is_right: Callable[[Found], bool]) -> Found:
        """Return what is read; if that is not right, what a few more reads find."""
        found = read()
        if is_right(found):
            return found
        for wait in WAITS if self._waited < MAX_WAITED else ():
            time.sleep(wait)
            found = read()
            if is_right(found):
                self._waited = 0.0
                return found
            self._waited += wait
        return found
