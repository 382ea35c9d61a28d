"""The function that a Python program gives to be called for each page, and how another process finds it.

Workers are processes of their own, so they import the function by its name. A script that is run as `__main__` is
imported under another name, as multiprocessing does: what its `if __name__ == "__main__":` guards does not run again.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import reduce
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from crawler.crawl import child
from crawler.errors import CrawlerError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from crawler.store.store import Page

    OnPage = Callable[[Page], object]

MAIN, SCRIPT = "__main__", "__mp_main__"  # the second is the name that multiprocessing gives to a script in children
ELSEWHERE = "put it into a file, say handlers.py, and pass it after `from handlers import {name}`"
GUARD = (
    "the script starts its crawl again when a worker imports it; "
    'put the call of run() below `if __name__ == "__main__":`'
)

_is_loading = False  # whether this process is just importing a user's function


class Handler(NamedTuple):
    """A function, named so that another process can import it."""

    module: str
    name: str
    script: str = ""  # the file of a function in `__main__`

    def load(self) -> OnPage:
        """Import the function; UsageError if that fails."""
        try:
            with _loading():
                found: OnPage = reduce(getattr, self.name.split("."), self._import())
        except CrawlerError:
            raise
        except (Exception, SystemExit) as error:
            where = self.script or self.module
            raise UsageError(f"on_page: workers cannot import {self.name} from {where}: {error!r}") from error
        return found

    def check(self) -> None:
        """Import the function in a process of its own, as workers will; UsageError if that fails."""
        pool = child.make_pool(_nothing)
        try:
            child.submit(pool, _try, self).result()
        except CrawlerError as error:
            raise UsageError(str(error)) from None  # without the traceback of the other process
        except BrokenProcessPool:
            raise UsageError(f"on_page: a process that imports {self.name} dies; does the module end it?") from None
        finally:
            pool.shutdown()

    def _import(self) -> Any:
        return _import_script(self.script) if self.script else importlib.import_module(self.module)


def describe(function: Any) -> Handler:
    """Return how workers find a function; UsageError with what to do if they cannot."""
    name, module = getattr(function, "__qualname__", ""), getattr(function, "__module__", "") or ""
    if not callable(function) or not name or inspect.isclass(function):
        raise UsageError(f"on_page must be a function that takes a page, but is {function!r}")
    if inspect.iscoroutinefunction(function):
        raise UsageError(f"on_page: {name} is a coroutine; give a plain function, it is called in a thread of its own")
    if "<" in name or not _is_found(function, module, name):
        what = (
            "a lambda" if "<lambda>" in name else f"{name.replace('<locals>.', '')}, which no module has by that name,"
        )
        raise UsageError(
            f"on_page: {what} cannot be imported by the workers, which are processes of their own; "
            "give a function that is defined at the top level of a module"
        )
    if module != MAIN:
        return Handler(module, name)
    return _in_main(name)


def is_loading() -> bool:
    """Tell whether this process is just importing a user's function: then it must not begin a crawl."""
    return _is_loading


def _is_found(function: Any, module: str, name: str) -> bool:
    try:
        return reduce(getattr, name.split("."), sys.modules[module]) is function
    except (KeyError, AttributeError):
        return False


def _in_main(name: str) -> Handler:
    """Return how to find a function of the script; one typed at a prompt or in a notebook has no file."""
    main = sys.modules[MAIN]
    spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
    if spec is not None and spec.name != MAIN:  # python -m
        return Handler(spec.name, name)
    if not file or not Path(file).is_file():
        raise UsageError(
            f"on_page: {name} was defined at a prompt, in a notebook or on standard input, where workers cannot import "
            f"it; {ELSEWHERE.format(name=name)}"
        )
    return Handler(MAIN, name, str(Path(file).absolute()))


def _import_script(path: str) -> ModuleType:
    """Import a script under another name than `__main__`, and let it be found by both."""
    loader = SourceFileLoader(SCRIPT, path)
    spec = spec_from_loader(SCRIPT, loader)
    assert spec is not None
    module = sys.modules[SCRIPT] = sys.modules[MAIN] = module_from_spec(spec)
    loader.exec_module(module)
    return module


@contextmanager
def _loading() -> Iterator[None]:
    global _is_loading
    _is_loading = True
    try:
        yield
    finally:
        _is_loading = False


def _nothing() -> None:
    """What a process that only tries needs to prepare."""


def _try(handler: Handler) -> None:
    handler.load()
