"""Cookies that sites set survive a kill and a resume, and are shared by all workers of a host."""

from __future__ import annotations

import json
import signal
import stat
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from lab.marks import later
from lab.session import FORBIDDEN, TO_LOGIN, SessionSite
from lab.world import COMMAND, LONG, crawler, end, wait_for

from crawler import errors

FLAGS = ["-t", "4", "-s", "shards=32", "-s", "heartbeat=0.5", "-s", "dead_after=2m", "-s", "retries=0", "-q"]
SPREAD_OVER_WORKERS, ONE_WORKER = ("-w", "0"), ("-w", "0.01", "-s", "spread=host")


@pytest.fixture
def site() -> Iterator[Callable[..., SessionSite]]:
    made: list[SessionSite] = []

    def make(**how: Any) -> SessionSite:
        made.append(SessionSite(**how))
        return made[-1]

    yield make
    for one in made:
        one.close()


def start(store: Path, server: SessionSite, *flags: str) -> subprocess.Popen[str]:
    command = [*COMMAND, "run", str(store), server.url("/"), "-j", "4", *FLAGS, *flags]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def kept(store: Path, noun: str = "links") -> set[str]:
    """The URLs with a page (or a failure record)."""
    found = [json.loads(path.read_bytes()) for path in (store / noun).glob("*/[!.]*")]
    return {record["url"] for record in found if noun == "errs" or record["sha224"]}


def jars(store: Path) -> list[Path]:
    return sorted(path for path in (store / "cookies").rglob("*") if path.is_file())


@pytest.mark.parametrize("fetcher", ["curl", *later("requests")])
@pytest.mark.parametrize("how", [SPREAD_OVER_WORKERS, *later(ONE_WORKER)])
@pytest.mark.parametrize("ending", ["kill", *later("stop")])
@pytest.mark.parametrize("refuses", [FORBIDDEN, *later(TO_LOGIN)])
def test_a_session_survives_a_kill_and_a_stop_on_four_workers(
    tmp_path: Path, site: Callable[..., SessionSite], fetcher: str, how: tuple[str, ...], ending: str, refuses: str
) -> None:
    server, store = site(refuses=refuses, brake=40), tmp_path / "store"
    flags = (*how, "-s", f"fetcher={fetcher}")
    run = start(store, server, *flags)
    wait_for(lambda: server.count(200) >= 40 and jars(store))
    if ending == "kill":
        run.send_signal(signal.SIGKILL)
        run.communicate(timeout=LONG)
    else:
        crawler("stop", str(store))
        end(run, errors.STOPPED)
    server.brake = None
    assert 0 < len(kept(store)) < len(server.pages)
    end(start(store, server, *flags))
    assert kept(store) == server.pages and not kept(store, "errs")
    assert server.count(403) == server.count(302) == 0, "who requests a page has its cookie"
    assert len(server.sessions) <= 2, "the second, if the landing page was in flight when all was killed"
    assert [stat.S_IMODE(path.stat().st_mode) for path in jars(store)] == [0o600]
    if ending == "kill":  # which may leave temporary files
        crawler("check", str(store), "--repair")
    crawler("check", str(store))


def test_pages_that_were_requested_before_anybody_had_a_session_are_requested_again_with_it(
    tmp_path: Path, site: Callable[..., SessionSite]
) -> None:
    server, store = site(hubs=12, leaves=0), tmp_path / "store"
    server.landing = True  # comes when another page has been refused
    seeds = sorted(server.pages - {server.url("/")})
    end(start(store, server, *seeds, *SPREAD_OVER_WORKERS))
    assert kept(store) == server.pages and not kept(store, "errs")
    refused = [path for path, status in server.paths if status == 403]
    assert refused and len(refused) == len(set(refused)), "each once at most"


@pytest.mark.fleet  # for time
def test_a_bad_jar_is_passed_over_with_a_warning_and_check_finds_it(
    tmp_path: Path, site: Callable[..., SessionSite]
) -> None:
    server, store = site(hubs=2, leaves=0, brake=1), tmp_path / "store"
    run = start(store, server, *ONE_WORKER)
    wait_for(lambda: jars(store))
    run.kill()
    run.communicate(timeout=LONG)
    server.brake = None
    (good,) = jars(store)
    bad = good.with_name("bad-1")
    bad.write_text('{"sid": "S3CR3T"}\n')
    (store / "cookies/b.example").mkdir()
    printed = end(start(store, server, *ONE_WORKER))
    assert kept(store) == server.pages, "the good one counts"
    assert f"cookies/{good.parent.name}/bad-1 is ignored: not a cookie" in printed
    assert "S3CR3T" not in printed
    found = crawler("check", str(store), code=1)
    assert f"cookies     cookies/{good.parent.name}/bad-1: not a cookie (--repair: moved to lost/" in found
    assert "S3CR3T" not in found
    crawler("check", str(store), "--repair")
    assert not bad.exists() and jars(store) == [good]
    crawler("check", str(store))


@pytest.mark.fleet  # for time
def test_a_store_without_the_folder_gets_it(tmp_path: Path, site: Callable[..., SessionSite]) -> None:
    server, store = site(hubs=2, leaves=0), tmp_path / "store"
    end(start(store, server, *ONE_WORKER))
    for path in (*jars(store), *(store / "links").glob("*/*"), *(store / "htmls").glob("*/*")):
        path.unlink()
    (store / f"cookies/127.0.0.1:{server.port}").rmdir()
    (store / "cookies").rmdir()
    crawler("rehydrate", str(store))
    end(start(store, server, *ONE_WORKER))
    assert kept(store) == server.pages and len(jars(store)) == 1


def test_cookies_can_be_off_and_then_none_is_stored(tmp_path: Path, site: Callable[..., SessionSite]) -> None:
    server, store = site(hubs=2, leaves=0), tmp_path / "store"
    end(start(store, server, *SPREAD_OVER_WORKERS, "-s", "cookies=false"))
    assert kept(store) == {server.url("/")} and len(kept(store, "errs")) == 2
    assert not jars(store)
