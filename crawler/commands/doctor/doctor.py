"""`crawler doctor`: is this mount fit for a crawl? Every promise that store/mount.py relies on is tested.

The tests run in a child process, because a call into a hung mount cannot be interrupted, not even by killing the
process. The parent touches nothing on the mount, and watches the child's heartbeat.
"""

from __future__ import annotations

import argparse
import json
import math
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
from crawler.commands.doctor.pairing import BUSY, Pairing
from crawler.errors import CrawlerError, DiskFull, StoreError
from crawler.store.mount import Files
from crawler.store.reading import FOLDER
from crawler.terminal import many, say

HANG_TIMEOUT = 45  # seconds without a heartbeat of the tests
TESTS_TIMEOUT = 600  # seconds for all tests, besides --wait

Send = Callable[..., None]


def commands(add: Add) -> None:
    """Add `crawler doctor`."""
    made = add("doctor", run, "crawler doctor /mnt/shared/crawl, on two machines at once")
    made.add_argument("--json", action="store_true", help="one line of JSON per promise")
    made.add_argument(
        "--wait", type=DURATION, default=30.0, metavar="TIME", help="how long to wait for another machine (default 30s)"
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
    """Return the result of each test as it comes, with messages for the operator in between."""
    sys.stdout.flush()
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        _run_tests(str(root.absolute()), wait, writing)
    os.close(writing)
    try:
        yield from _listen(reading, root, time.monotonic() + wait + TESTS_TIMEOUT)
    except (KeyboardInterrupt, GeneratorExit):
        _finish(child, reading)
        raise
    finally:
        os.close(reading)
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)  # not waited for: it may hang


def _listen(reading: int, root: Path, limit: float) -> Iterator[Finding | str]:
    rest = b""
    while True:
        if not select.select([reading], [], [], HANG_TIMEOUT)[0] or time.monotonic() > limit:
            kind = find_mount(str(root.absolute())).kind
            raise StoreError(
                f"{root} does not respond: a call into this mount ({kind}) hangs; check that its server is up, "
                "or mount it again"
            )
        data = os.read(reading, 65536)
        if not data:
            raise _error("the tests were killed; run them again", errors.STOPPED)
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            message = json.loads(line)
            if "end" in message:
                return
            yield from _decode(message)


def _decode(message: dict[str, Any]) -> Iterator[Finding | str]:
    if "error" in message:
        raise _error(message["error"], message["code"])
    if "say" in message:
        yield str(message["say"])
    if "promise" in message:
        yield Finding(**message)


def _error(sentence: str, code: int) -> CrawlerError:
    error = CrawlerError(sentence)
    error.exit_code = code
    return error


def _finish(child: int, reading: int) -> None:
    """Have the tests clean up and end, and wait a little for that."""
    os.kill(child, signal.SIGTERM)
    limit = time.monotonic() + 30
    while time.monotonic() < limit:
        if select.select([reading], [], [], 1)[0] and not os.read(reading, 65536):
            return


def _run_tests(root: str, wait: float, writing: int) -> None:
    """Run the tests and send results to the parent; never return."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches us too, but the parent handles it
    signal.signal(signal.SIGTERM, _stop)
    for descriptor in range(3):  # a child that hangs must not keep the user's pipe open
        os.dup2(os.open(os.devnull, os.O_RDWR), descriptor)

    def send(**what: Any) -> None:
        os.write(writing, json.dumps(what).encode() + b"\n")

    def beat() -> None:
        try:
            send()
        except OSError:  # the parent was killed
            interrupt_main(signal.SIGTERM)

    with suppress(BaseException):  # the parent is told, or gone
        try:
            _test(root, wait, send, beat)
            send(end=True)
        except CrawlerError as error:
            send(error=str(error), code=error.exit_code)
        except Exception:
            send(error=f"a bug in the program; please report it:\n{traceback.format_exc()}", code=errors.BUG)
            raise
    os._exit(0)


def _stop(*_: object) -> None:
    """Clean up and end; once, because the cleanup must not be interrupted."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise KeyboardInterrupt


def _test(root: str, wait: float, send: Send, beat: Callable[[], None]) -> None:
    mount = _check_folder(root)
    pairing = Pairing(root, beat)
    try:
        pairing.enter()
        space = speed.space(pairing.files)
        send(**asdict(mount.finding()))
        send(**asdict(space))
        if not wait:
            pairing.state = BUSY
        for promise, findings in _alone(pairing, mount).items():
            _send_all(send, promise, findings)
        if wait:
            _send_all(send, "between", _with_another(pairing, mount, wait, send))
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        pairing.leave()


def _check_folder(root: str) -> Mount:
    shape = Files(root).root_shape()
    if shape is None:
        raise StoreError(f"{root} does not exist; is the mount there?")
    if shape != FOLDER:
        raise StoreError(f"{root} is a file, not a folder; give the store's folder")
    mount = find_mount(os.path.realpath(root))
    if mount.is_object_store():
        raise StoreError(mount.why_untested())
    return mount


def _alone(pairing: Pairing, mount: Mount) -> dict[str, Iterator[Finding]]:
    """Return the tests that need no other machine; each starts when it is iterated."""
    files, mine = pairing.files, pairing.me
    return {
        "races": alone.races(files, f"{mine}/races", mount),
        "names": alone.names(files, f"{mine}/names"),
        "listing": alone.listing(files, f"{mine}/listing", mount),
        "replace": alone.replaced(files, f"{mine}/replaced"),
        "speed": speed.speeds(files, f"{mine}/speed"),
    }


def _with_another(pairing: Pairing, mount: Mount, wait: float, send: Send) -> Iterator[Finding]:
    if not pairing.look():
        time_left = many(math.ceil(wait), "second")
        send(say=f"run the same command on another machine within {time_left} to test between the two")
    pair = pairing.meet(wait)
    if pair:
        send(say="another machine is here: testing between the two")
        yield from between.between(pairing, pair, mount)
    elif pairing.unresponsive:
        seen = "another doctor is running in this folder, but does not see what we write there"
        yield Finding("between", UNFIT, seen, mount.against_stale())
    else:
        send(
            say="no other machine joined, so nothing was tested between machines; if one did run the same command, it "
            "has another folder mounted, or does not see new files in this one"
        )


def _send_all(send: Send, promise: str, findings: Iterator[Finding]) -> None:
    """Send findings; an error of the store is a finding too, except a full disk."""
    try:
        for finding in findings:
            send(**asdict(finding))
    except DiskFull:
        raise
    except StoreError as error:
        seen, _, advice = str(error).rpartition("; ")
        send(**asdict(Finding(promise, UNFIT, seen, advice)))


def as_line(finding: Finding) -> str:
    """Return a finding as a line for people."""
    advice = f"; {finding.advice}" if finding.advice else ""
    return f"{finding.verdict:<6} {finding.promise:<18} {finding.seen}{advice}"


def verdict(findings: list[Finding]) -> str:
    """Return the summary."""
    unfit, slow = (sum(finding.verdict == kind for finding in findings) for kind in (UNFIT, SLOW))
    if unfit:
        return f"unfit: {unfit} of {len(findings)} promises do not hold; do not crawl on this mount"
    return f"fit, but slow in {slow} of {len(findings)} tests" if slow else "fit"


def exit_code(findings: list[Finding]) -> int:
    """Return 0 for a mount that is fit, even if slow."""
    return errors.STORE if any(finding.verdict == UNFIT for finding in findings) else errors.OVER
