"""Is this mount fit for a crawl? Each promise that `files` relies on is tried out, alone and between two machines.

The tests run in a process of their own, because a call into a hung mount cannot be interrupted, not even by the end
of the process: this one touches nothing on the mount, watches the other's signs of life, and has the last word.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import signal
import sys
import time
import traceback
from _thread import interrupt_main
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from crawler import errors
from crawler.commands.arguments import DURATION, Add
from crawler.commands.doctor import alone, between, speed
from crawler.commands.doctor.kinds import SLOW, UNFIT, Finding, Mount, find_mount
from crawler.commands.doctor.pairing import BUSY, Lobby
from crawler.errors import CrawlerError, DiskFull, StoreError
from crawler.terminal import say

HUNG = 45  # seconds without a sign of life from the tests
LONGEST = 600  # seconds for all tests, above the waiting

Tell = Callable[..., None]


def commands(add: Add) -> None:
    """Add `crawler doctor`."""
    made = add("doctor", run, "crawler doctor /mnt/shared/crawl, on two machines at once")
    made.add_argument("--json", action="store_true", help="for scripts: a line of JSON for each promise")
    made.add_argument(
        "--wait", type=DURATION, default=30.0, metavar="TIME", help="for the same on another machine (default 30s)"
    )


def run(options: argparse.Namespace) -> int:
    """`crawler doctor`."""
    findings = []
    with closing(examine(options.store, options.wait)) as told:
        for found in told:
            if isinstance(found, str):
                say(found, sys.stderr)
                continue
            findings.append(found)
            say(json.dumps(asdict(found)) if options.json else as_line(found))
    if not options.json:
        say(verdict(findings))
    return exit_code(findings)


def examine(root: Path, wait: float) -> Generator[Finding | str, None, None]:
    """Each promise as it is found, and words for the operator in between; errors when nothing can be tested."""
    sys.stdout.flush()
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        _be_the_child(str(root.absolute()), wait, writing)
    os.close(writing)
    try:
        yield from _listen(reading, root, time.monotonic() + wait + LONGEST)
    except (KeyboardInterrupt, GeneratorExit):
        _finish(child, reading)
        raise
    finally:
        os.close(reading)
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)  # and no waiting for it: it may hang


def _listen(reading: int, root: Path, limit: float) -> Iterator[Finding | str]:
    rest = b""
    while True:
        if not select.select([reading], [], [], HUNG)[0] or time.monotonic() > limit:
            kind = find_mount(str(root.absolute())).kind
            raise StoreError(
                f"{root} does not answer: a call into this mount ({kind}) hangs; see that its server is up, "
                "or mount it again"
            )
        data = os.read(reading, 65536)
        if not data:
            raise _error("the tests were killed before their end; run them again", errors.STOPPED)
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            told = json.loads(line)
            if "end" in told:
                return
            yield from _understand(told)


def _understand(told: dict[str, Any]) -> Iterator[Finding | str]:
    if "error" in told:
        raise _error(told["error"], told["code"])
    if "say" in told:
        yield str(told["say"])
    if "promise" in told:
        yield Finding(**told)


def _error(sentence: str, code: int) -> CrawlerError:
    error = CrawlerError(sentence)
    error.exit_code = code
    return error


def _finish(child: int, reading: int) -> None:
    """Have the tests tidy up and end, and wait for that a little."""
    os.kill(child, signal.SIGTERM)
    limit = time.monotonic() + 30
    while time.monotonic() < limit:
        if select.select([reading], [], [], 1)[0] and not os.read(reading, 65536):
            return


def _be_the_child(root: str, wait: float, writing: int) -> None:
    """Run the tests and tell the parent; never returns."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches us too, but the parent decides
    signal.signal(signal.SIGTERM, _stop)
    for descriptor in range(3):  # a child that hangs must not keep the user's pipe open
        os.dup2(os.open(os.devnull, os.O_RDWR), descriptor)

    def tell(**what: Any) -> None:
        os.write(writing, json.dumps(what).encode() + b"\n")

    def beat() -> None:
        try:
            tell()
        except OSError:  # the parent was killed
            interrupt_main(signal.SIGTERM)

    with suppress(BaseException):  # the parent hears of it, or is gone
        try:
            _test(root, wait, tell, beat)
            tell(end=True)
        except CrawlerError as error:
            tell(error=str(error), code=error.exit_code)
        except Exception:
            tell(error=f"a fault of the program itself; please report it:\n{traceback.format_exc()}", code=errors.BUG)
            raise
    os._exit(0)


def _stop(*_: object) -> None:
    """Tidy up and end; once, because tidying up must not be interrupted."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise KeyboardInterrupt


def _test(root: str, wait: float, tell: Tell, beat: Callable[[], None]) -> None:
    """All tests in their order."""
    mount = _check_folder(root)
    lobby = Lobby(root, beat)
    try:
        lobby.enter()
        room = speed.room(lobby.files)
        tell(**asdict(mount.finding()))
        tell(**asdict(room))
        if not wait:
            lobby.state = BUSY
        for promise, findings in _alone(lobby, mount).items():
            _tell_all(tell, promise, findings)
        if wait:
            _tell_all(tell, "between", _with_another(lobby, mount, wait, tell))
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        lobby.leave()


def _check_folder(root: str) -> Mount:
    if not os.path.exists(root):
        raise StoreError(f"{root} does not exist; is the mount there?")
    if not os.path.isdir(root):
        raise StoreError(f"{root} is a file, not a folder; name the store's folder")
    mount = find_mount(os.path.realpath(root))
    if mount.is_object_store():
        raise StoreError(mount.refusal())
    return mount


def _alone(lobby: Lobby, mount: Mount) -> dict[str, Iterator[Finding]]:
    """The tests that need no other machine; each begins when it is asked for its first finding."""
    files, mine = lobby.files, lobby.me
    return {
        "races": alone.races(files, f"{mine}/races", mount),
        "names": alone.names(files, f"{mine}/names"),
        "listing": alone.listing(files, f"{mine}/listing", mount),
        "replace": alone.replaced(files, f"{mine}/replaced"),
        "speed": speed.speeds(files, f"{mine}/speed"),
    }


def _with_another(lobby: Lobby, mount: Mount, wait: float, tell: Tell) -> Iterator[Finding]:
    if not lobby.look():
        tell(say=f"run the same command on another machine within {wait:.0f} seconds to test between the two")
    pair = lobby.meet(wait)
    if pair:
        tell(say="another machine is here: testing between the two")
        yield from between.between(lobby, pair, mount)
    elif lobby.deaf:
        seen = "another doctor lives in this folder, but does not see what we write there"
        yield Finding("between", UNFIT, seen, mount.against_stale())
    else:
        tell(
            say="no other machine came, so nothing was tested between machines; if one did run the same command, it "
            "has another folder mounted, or new files in this one are not seen there"
        )


def _tell_all(tell: Tell, promise: str, findings: Iterator[Finding]) -> None:
    """A call that fails where it must not is a finding too, but for a full disk."""
    try:
        for finding in findings:
            tell(**asdict(finding))
    except DiskFull:
        raise
    except StoreError as error:
        seen, _, advice = str(error).rpartition("; ")
        tell(**asdict(Finding(promise, UNFIT, seen, advice)))


def as_line(finding: Finding) -> str:
    """A finding for people."""
    advice = f"; {finding.advice}" if finding.advice else ""
    return f"{finding.verdict:<6} {finding.promise:<18} {finding.seen}{advice}"


def verdict(findings: list[Finding]) -> str:
    """The last word."""
    unfit, slow = (sum(finding.verdict == kind for finding in findings) for kind in (UNFIT, SLOW))
    if unfit:
        return f"unfit: {unfit} of {len(findings)} promises do not hold, so do not crawl on this mount"
    return f"fit, but slow in {slow} of {len(findings)} lines" if slow else "fit"


def exit_code(findings: list[Finding]) -> int:
    """0 for a mount that is fit, even if slow."""
    return errors.STORE if any(finding.verdict == UNFIT for finding in findings) else errors.OVER
