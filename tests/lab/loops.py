"""Coroutines in tests that are no coroutines: they are run to their end at once, and calls that block just block."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")


async def inline(call: Callable[..., Result], *args: Any, **kwargs: Any) -> Result:
    """Make a call that may block, without a thread; an `Io`."""
    return call(*args, **kwargs)


def run(coroutine: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine to its end; one that waits for something gets an event loop."""
    return asyncio.run(coroutine)


class Blocking:
    """An object whose coroutines are run to their end by those who call them; all else is the object's own."""

    def __init__(self, inner: Any) -> None:
        object.__setattr__(self, "inner", inner)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.inner, name)
        if not inspect.iscoroutinefunction(found):
            return found
        return lambda *args, **kwargs: run(found(*args, **kwargs))

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.inner, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self.inner, name)
