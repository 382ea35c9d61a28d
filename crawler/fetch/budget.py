"""How much memory the bodies in flight may take: many small ones, but only a few large ones at a time.

With hundreds of requests open, a limit per body is not enough: servers that all send the largest body allowed would
fill the memory. A body that grows past a step waits until one of the places above that step is free. Those above the
last step always go on, so the others get their turn; one that waits too long meets the deadline of its request.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

# Bytes, and how many bodies may be larger than that at a time.
STEPS = ((256 << 10, 64), (1 << 20, 16), (4 << 20, 4))


class Budget:
    """Places for large bodies; for one event loop, not for threads."""

    def __init__(self, steps: tuple[tuple[int, int], ...] = STEPS) -> None:
        self._sizes = [size for size, _ in steps]
        self._free = [places for _, places in steps]
        self._waiting: list[deque[Callable[[], None]]] = [deque() for _ in steps]

    def grow(self, step: int, size: int, when_free: Callable[[], None]) -> int | None:
        """Return the step that a body of this size reaches, or None if it has to wait until `when_free` is called.

        `step` is what the last call returned, at first 0; `release` gives all of them back.
        """
        while step < len(self._sizes) and size > self._sizes[step]:
            if not self._free[step]:
                self._waiting[step].append(when_free)
                return None
            self._free[step] -= 1
            step += 1
        return step

    def release(self, step: int) -> None:
        """Give back the places that a body has, and let those that wait for them try again."""
        for number in range(step):
            self._free[number] += 1
            if self._waiting[number]:
                self._waiting[number].popleft()()
