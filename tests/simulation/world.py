"""Time and scheduling: one queue of steps, each of some process; nothing else decides what happens next.

A process has an event loop (its coroutines are the program's own) and threads: greenlets, which give way at each
operation on the mount. So between any two operations anything else may happen, and a process may be killed there.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter, deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from contextvars import Context, copy_context
from functools import partial
from heapq import heappop, heappush
from itertools import count
from random import Random
from typing import Any

from greenlet import GreenletExit, getcurrent, greenlet

from crawler.store.clock import Clock

EPOCH = 1_700_000_000.0
LAST_EVENTS = 60


class Killed(BaseException):
    """The process is gone: nothing of it goes on, and no `except` of the program is for this."""


class World:
    """The queue of steps, the random numbers, and the log that follows from both."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.now = 1000.0
        self.hub = getcurrent()
        self.current: Process | None = None
        self.events = deque[str](maxlen=LAST_EVENTS)
        self.lines = 0
        self.keep: Callable[[str], object] = lambda line: None
        self.failure: BaseException | None = None
        self._digest = hashlib.sha256()
        self._queue: list[tuple[float, int, Process, Callable[[], object]]] = []
        self._numbers = count()
        self._threads: list[Thread] = []
        self._idle: list[Thread] = []
        self.processes: list[Process] = []  # kept, with all they hold, until the end
        self.steps = 0
        self.effects = Counter[str]()  # what the troubles have done: one that does nothing proves nothing
        self._until, self._limit = _never, 0.0  # of `run`

    def at(self, when: float, process: Process, act: Callable[[], object]) -> None:
        """Let a process do something at this time, unless it is gone by then."""
        heappush(self._queue, (when, next(self._numbers), process, act))

    def run(self, until: Callable[[], bool], limit: float) -> bool:
        """Run until this is true; False if it is not by the time `limit`."""
        queue, self._until, self._limit = self._queue, until, limit
        try:
            while queue and not until():
                when, _, process, act = heappop(queue)
                if process.is_dead:
                    continue
                if process.machine.frozen_until > when:
                    self.at(process.machine.frozen_until, process, act)
                    continue
                if when > limit:
                    heappush(queue, (when, next(self._numbers), process, act))
                    return False
                if when > self.now:
                    self.now = when
                if self.current is not process:
                    self.current = process
                    asyncio._set_running_loop(process.loop)
                self.steps += 1
                act()
                if self.failure:
                    raise self.failure
        finally:
            asyncio._set_running_loop(None)
            self.current = None
        return until()

    def wait(self, until: float) -> None:
        """Let everybody go on until this time."""
        self.run(_never, until)
        self.now = max(self.now, until)

    def note(self, what: str) -> None:
        """Log an event."""
        line = f"{self.now:.4f} {self.current.name if self.current else '-'} {what}"
        self.events.append(line)
        self._digest.update(line.encode() + b"\n")
        self.lines += 1
        self.keep(line)

    @property
    def digest(self) -> str:
        """What all events so far come to."""
        return self._digest.hexdigest()

    # ---- threads

    def thread(
        self, process: Process, call: Callable[[], Any], done: Callable[[Any, BaseException | None], object]
    ) -> None:
        """Make a call that may block in a thread of a process; `done` gets its result or its error."""

        thread = self._idle.pop() if self._idle else Thread(self)
        thread.call, thread.done = call, done
        heappush(self._queue, (self.now, next(self._numbers), process, thread.switch))

    def pause(self, seconds: float) -> None:
        """Let others go on for so long; nothing to wait for outside of a thread."""
        me, process, queue = getcurrent(), self.current, self._queue
        if me is self.hub or process is None:
            return
        when = self.now + seconds
        if (  # nothing would happen before: most of the time the way through the hub would lead back here
            when <= self._limit
            and not (queue and queue[0][0] <= when)
            and not (process.is_dead or process.machine.frozen_until > when or self.failure or self._until())
        ):
            self.steps += 1
            self.now = when
            return
        heappush(queue, (when, next(self._numbers), process, me.switch))
        self.hub.switch()

    def close(self) -> None:
        """End all threads and coroutines that are left."""
        self._queue.clear()
        for process in self.processes:
            process.is_dead = True
            process.loop.close_tasks()
        for thread in self._threads:
            while not thread.dead:  # it may wait again for something, or for its next call
                with suppress(Killed):
                    thread.throw(Killed)
        self._threads.clear()
        self._idle.clear()


class Thread(greenlet):
    """A thread, used for one call after the other: to make one anew costs more than most calls."""

    call: Callable[[], Any] | None
    done: Callable[[Any, BaseException | None], object] | None

    def __init__(self, world: World) -> None:
        super().__init__(parent=world.hub)
        self._world = world
        world._threads.append(self)

    def run(self) -> None:
        """Make calls until one ends with its process."""
        while self._make_call():
            self._world._idle.append(self)
            self._world.hub.switch()

    def _make_call(self) -> bool:
        """Make the call, and forget it; False if this process is gone."""
        call, done = self.call, self.done
        assert call is not None and done is not None
        self.call = self.done = None
        try:
            result = call()
        except (Killed, GreenletExit):
            return False
        except BaseException as error:  # noqa: BLE001 - for who waits for it
            done(None, error)
        else:
            done(result, None)
        return True


class Machine:
    """A computer: it has a clock, and may be frozen."""

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name = world, name
        self.frozen_until = 0.0
        self.skew = 0.0  # of its wall clock
        self.clock = Clock(
            monotonic=lambda: world.now, time=lambda: EPOCH + world.now + self.skew, sleep=lambda s: world.pause(s)
        )


class Process:
    """A process of a machine: an event loop, threads, and random numbers."""

    def __init__(self, machine: Machine, name: str) -> None:
        self.machine, self.world, self.name = machine, machine.world, name
        self.is_dead = False
        self.world.processes.append(self)
        self.loop = Loop(self)
        self.random = Random(self.world.random.random())
        self.token = 0

    def run(self, coroutine: Any, done: Callable[[asyncio.Task[Any]], object]) -> None:
        """Start a coroutine on the loop of this process."""
        self.loop.create_task(coroutine).add_done_callback(done)

    async def io(self, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Make a call that blocks in a thread; an `Io`."""
        future = self.loop.create_future()

        def done(result: Any, error: BaseException | None) -> None:
            if future.done():
                return
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)

        self.world.thread(self, partial(call, *args, **kwargs), done)
        return await future

    def map(self, call: Callable[[Any], Any], items: Iterable[Any], at_once: int = 3) -> list[Any]:
        """Call for each item, a few at a time, from a thread: a `Run`."""
        items = list(items)
        if len(items) < 2 or getcurrent() is self.world.hub:
            return [call(item) for item in items]
        results: list[Any] = [None] * len(items)
        errors: list[BaseException] = []
        left = at_once

        def part(first: int) -> None:
            for number in range(first, len(items), at_once):
                results[number] = call(items[number])

        def done(_: Any, error: BaseException | None) -> None:
            nonlocal left
            left -= 1
            errors.extend([error] if error else [])

        for first in range(at_once):
            self.world.thread(self, partial(part, first), done)
        while left:
            self.world.pause(0.001)
        if errors:
            raise errors[0]
        return results


class Loop(asyncio.AbstractEventLoop):
    """The event loop of a process: its callbacks are steps in the world's queue."""

    def __init__(self, process: Process) -> None:
        self._process, self._world = process, process.world
        self._tasks: set[asyncio.Task[Any]] = set()

    def close_tasks(self) -> None:
        """End the coroutines of a process that is gone."""
        for task in list(self._tasks):
            with suppress(RuntimeError):  # one that would wait for something before it ends
                task.get_coro().close()  # type: ignore[union-attr]

    def time(self) -> float:
        return self._world.now

    def call_soon(self, callback: Any, *args: Any, context: Context | None = None) -> Any:
        handle, world = Handle(callback, args, context), self._world
        heappush(world._queue, (world.now, next(world._numbers), self._process, handle.run))
        return handle

    call_soon_threadsafe = call_soon

    def call_at(self, when: float, callback: Any, *args: Any, context: Context | None = None) -> Any:
        handle, world = Handle(callback, args, context), self._world
        heappush(world._queue, (when, next(world._numbers), self._process, handle.run))
        return handle

    def call_later(self, delay: float, callback: Any, *args: Any, context: Context | None = None) -> Any:
        return self.call_at(self._world.now + delay, callback, *args, context=context)

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, **kwargs: Any) -> asyncio.Task[Any]:
        task = asyncio.Task(coro, loop=self, **kwargs)
        task._log_destroy_pending = False  # type: ignore[attr-defined] # of a process that was killed
        self._tasks.add(task)  # until it is done: the garbage collector must decide nothing here
        task.add_done_callback(self._tasks.discard)
        return task

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        self._world.failure = self._world.failure or context.get("exception") or AssertionError(str(context))


class Handle:
    """A callback that can be cancelled: an `asyncio.Handle` that costs less to make."""

    __slots__ = ("_args", "_callback", "_context", "_is_cancelled")

    def __init__(self, callback: Any, args: tuple[Any, ...], context: Context | None) -> None:
        self._callback, self._args, self._context = callback, args, context or copy_context()
        self._is_cancelled = False

    def run(self) -> None:
        """Call it; what it raises ends the simulation, where asyncio would log it."""
        if not self._is_cancelled:
            self._context.run(self._callback, *self._args)

    def cancel(self) -> None:
        """Do not call it."""
        self._is_cancelled = True

    def cancelled(self) -> bool:
        """Whether it will not be called."""
        return self._is_cancelled


def _never() -> bool:
    return False
