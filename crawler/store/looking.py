"""Look again at a file that another client may be replacing just now: on some mounts readers find none or a part of it.

On sshfs up to one read in twenty does while a file is replaced all the time, and the next look is right.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

WAITS = (0.01, 0.1, 0.5)  # seconds between looks
PATIENCE = 10.0  # seconds that are spent in vain before it is taken that files are as they are: people edit them

Found = TypeVar("Found")


class Patience:
    """How long a reader goes on to look again; begins anew each time that it was worth it."""

    def __init__(self) -> None:
        self._left = PATIENCE

    def look(self, look: Callable[[], Found], is_right: Callable[[Found], bool]) -> Found:
        """Return what a look finds; if that is not right, what a few more do."""
        found = look()
        if is_right(found):
            return found
        for wait in WAITS if self._left > 0 else ():
            time.sleep(wait)
            found = look()
            if is_right(found):
                self._left = PATIENCE
                return found
            self._left -= wait
        return found
