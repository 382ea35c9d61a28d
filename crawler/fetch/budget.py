"""How much memory the bodies of responses may take: many small ones, but only a few large ones at a time.

With hundreds of requests open, a limit per body is not enough: servers that all send the largest body allowed would
fill the memory. A body that grows past a step waits until one of the places above that step is free, and keeps its
places until it has been read and is gone. Those above the last step always go on, so the others get their turn; one
that waits too long meets the deadline of its request.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

# Bytes, and how many bodies may be larger than that at a time.
STEPS = ((256 << 10, 64), (1 << 20, 16), (4 << 20, 4))


class Budget:
    """Places for large bodies; for one event loop, not for threads."""

    def __init__(self, steps: tuple[tuple[int, int], ...] = STEPS) -> None:
        self.sizes = [size for size, _ in steps]
        self.free = [places for _, places in steps]
        self.waiting: list[deque[Callable[[], None]]] = [deque() for _ in steps]


class Places:
    """The places that one body has."""

    def __init__(self, budget: Budget) -> None:
        self._budget, self._count = budget, 0

    def grow(self, size: int, when_free: Callable[[], None]) -> bool:
        """Tell whether there is a place for a body of this size; if not, `when_free` is called when to try again."""
        budget = self._budget
        while self._count < len(budget.sizes) and size > budget.sizes[self._count]:
            if not budget.free[self._count]:
                budget.waiting[self._count].append(when_free)
                return False
            budget.free[self._count] -= 1
            self._count += 1
        return True

    @property
    def for_body(self) -> Callable[[], None] | None:
        """What is to be called when the body is gone; None for a small one, which has no place."""
        return self.release if self._count else None

    def release(self) -> None:
        """Give all places back, and let those who wait for them try again."""
        count, self._count = self._count, 0
        for step in range(count):
            self._budget.free[step] += 1
            if self._budget.waiting[step]:
                self._budget.waiting[step].popleft()()
