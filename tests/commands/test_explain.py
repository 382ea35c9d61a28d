"""What became of one URL: every state and every rule, told as a user asks for it; nothing is written."""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from lab.frontiers import shard_of_url
from lab.marks import later
from lab.world import SHARDS, Links, crawler, end, kill, wait_for, workers_of, world

from crawler.commands.demo.pages import Leaf
from crawler.commands.demo.web import Site
from crawler.commands.explain.explain import explain
from crawler.crawl.start import begin
from crawler.frontier.batches import Outbox, folder
from crawler.frontier.task import Task, revisit_task
from crawler.store.records import to_json
from crawler.store.store import Store
from crawler.store.writer import StoreWriter
from crawler.web import urls

HEX = "0f3c9a7b5d1e2f4a6b8c0d2e4f6a8b0c"
A = "http://a.example"


class Various(Links):
    """Pages, a redirect, a page that is closed, one that is gone, and one that fails for now."""

    def leaf(self, url: str) -> Leaf | None:
        if url.endswith("/old"):
            return Leaf((self.url("/new"),), status=301)
        return Leaf(status=503) if url.endswith("/busy") else super().leaf(url)

    def site(self, host: str) -> Site:
        return Site("User-agent: *\nDisallow: /private/\nCrawl-delay: 0.02\n")


WEB = {"/": ["/old", "/new", "/private/x", "/gone"], "/new": ["/"]}


@pytest.fixture(scope="module")
def crawled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store of a crawl that is over."""
    with world(Various(WEB), tmp_path_factory.mktemp("crawled")) as w:
        w.crawl()
        return w.root


@pytest.fixture
def root(crawled: Path, tmp_path: Path) -> Path:
    """The same for a test that changes something in it."""
    return Path(shutil.copytree(crawled, tmp_path / "store"))


def told(root: Path, url: str) -> dict[str, Any]:
    """`crawler explain --json`."""
    found: dict[str, Any] = json.loads(crawler("explain", str(root), url, "--json"))
    return found


def edit(root: Path, **settings: object) -> None:
    """Change settings of a store that nobody works on."""
    path = root / "crawl.yaml"
    for name, value in settings.items():
        changed, count = re.subn(rf"(?m)^{name}: .*$", f"{name}: {json.dumps(value)}", path.read_text())
        assert count == 1
        path.write_text(changed)


def put_batch(root: Path, shard: int, *lines: str, name: str = "x-1.1") -> None:
    (root / folder(shard)).mkdir(exist_ok=True)
    (root / folder(shard) / name).write_bytes("".join(lines).encode())


def test_a_kept_page_is_told_with_its_record_and_where_it_is(crawled: Path) -> None:
    found = told(crawled, f"{A}/")
    record = Store(crawled).record(f"{A}/")
    assert record
    assert (found["state"], found["rule"], found["url"], found["key"]) == ("done", None, f"{A}/", urls.key(f"{A}/"))
    assert found["record"]["fetched"] == record["fetched"]
    assert found["record"]["title"] == record["title"]
    assert (found["record"]["status"], found["record"]["links"]) == (200, len(record["links"]))
    assert (crawled / found["paths"]["htmls"]).exists()
    assert found["owner"] == {"id": None, "state": "free"}
    text = crawler("explain", str(crawled), f"{A}/")
    for words in (
        record["title"],
        record["fetched"],
        f"{len(record['links'])} links",
        "free",
        found["key"],
        f"{found['shard']:03d}",
    ):
        assert words in text


def test_the_priority_of_what_is_not_done_is_told_with_its_reason(root: Path) -> None:
    assert told(root, f"{A}/")["priority"] is None
    assert told(root, f"{A}/other")["priority"] == {"number": 5, "by": "the default"}
    edit(root, priorities={"other": 8, "/other/2": 3})
    assert told(root, f"{A}/other/2")["priority"] == {"number": 8, "by": "the setting priorities"}
    crawler("add", str(root), f"{A}/other")
    assert "priority:   8 of 10, by the setting priorities" in crawler("explain", str(root), f"{A}/other")
    edit(root, priorities={})
    again = "`crawler add --priority`, or an earlier setting"
    assert told(root, f"{A}/other")["priority"] == {"number": 8, "by": again}


def test_a_redirect_names_its_target(crawled: Path) -> None:
    assert told(crawled, f"{A}/old")["record"]["redirect"] == f"{A}/new"
    assert f"status 301, to {A}/new" in crawler("explain", str(crawled), f"{A}/old")


@pytest.mark.parametrize(
    ("path", "reason", "meaning"),
    [
        ("/gone", "http-404", "the server has no page for this URL"),
        ("/private/x", "robots", "robots.txt does not allow it"),
    ],
)
def test_a_refusal_is_told_with_its_meaning(crawled: Path, path: str, reason: str, meaning: str) -> None:
    found = told(crawled, A + path)
    assert (found["state"], found["rule"], found["failure"]["reason"]) == ("done", reason, reason)
    assert found["failure"]["attempts"] == 1
    assert meaning in found["why"]
    assert found["robots"]["allowed"] == (reason != "robots")
    assert meaning in crawler("explain", str(crawled), A + path)


@pytest.mark.parametrize(
    ("given", "change"),
    [
        (f"{A}/#part", "fragment"),
        ("http://me:secret@a.example/", "userinfo"),
        (f"{A}/?utm_source=secret", "tracking parameters"),
        (f"{A}/?sid={HEX}", "session id"),
        ("HTTP://A.example:80/x/..", "as browsers write it"),
    ],
)
def test_any_spelling_is_understood_and_what_was_dropped_is_said(crawled: Path, given: str, change: str) -> None:
    text = crawler("explain", str(crawled), given)
    assert f"url:        {A}/\n" in text
    assert re.search(rf"(?m)^normalized: .*{change}$", text)
    assert "state:      done" in text
    assert "secret" not in text + crawler("explain", str(crawled), given, "--json")


def test_a_url_in_its_one_spelling_is_not_said_to_differ(crawled: Path) -> None:
    assert told(crawled, f"{A}/new")["changes"] == []
    assert "normalized:" not in crawler("explain", str(crawled), f"{A}/new")


def test_a_seed_with_a_session_id_was_asked_as_it_is(root: Path) -> None:
    url = f"{A}/?sid={HEX}"
    StoreWriter(root).put_record(url, json.dumps({"url": url, "status": 200, "links": []}).encode())
    assert told(root, url)["url"] == url


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("ftp://me:secret@a.example/", "its scheme is ftp"),
        ("mailto:me:secret@a.example", "not a valid URL: its scheme is mailto; only http and https are supported\n"),
        ("a.example/new", "no scheme); did you mean http://a.example/new?"),
        ("b.example/new", "no scheme); did you mean https://b.example/new?"),
        ("http://me:secret@..", "its host"),
        (f"{A}/" + "x" * 2000, "longer than 2,000"),
        ("", "no scheme"),
    ],
)
def test_what_is_never_asked_is_told_why(crawled: Path, url: str, words: str) -> None:
    assert told(crawled, url)["state"] == "never requested"
    text = crawler("explain", str(crawled), url)
    assert words in text
    assert "secret" not in text


# What keeps a URL out that was never seen: the settings, the URL, the rule, and words of the explanation.
RULES: list[tuple[dict[str, object], str, str | None, str]] = [
    ({}, f"{A}/x", None, "nothing excludes it"),
    ({}, f"{A}/private/y", "robots", "robots.txt does not allow it"),
    ({"robots": False}, f"{A}/private/y", None, "nothing excludes it"),
    ({"scope": "host"}, "http://b.example/", "scope", "outside the scope `host` of the seeds: a.example"),
    ({"scope": "page"}, f"{A}/x", "scope", f"{A}/"),
    ({"include": ["/en/", "/fr/"]}, f"{A}/x", "include", "/en/, /fr/"),
    ({"exclude": ["y$", "x$"]}, f"{A}/x", "exclude", "pattern x$"),
    ({}, f"{A}/a/b/a/b/a/b", "repeat", "one segment three times or more"),
    ({}, f"{A}/calendar/2999/01", "calendar", "date far ahead"),
    ({}, f"{A}/" + "x" * 1000, "long", "longer than 1,000"),
    ({}, f"{A}/" + "/".join(map(str, range(21))), "deep", "more than 20 segments"),
    ({"traps": []}, f"{A}/a/b/a/b/a/b", None, "nothing excludes it"),
    ({"max_per_host": 2}, f"{A}/x", "max_per_host", "its host has 2 pages"),
    ({}, "http://a.example:25/", "bad-port", "port 25"),
    ({}, "http://127.0.0.1/", "private-address", "private network"),
    ({}, "http://[::1]:8000/", "private-address", "private network"),
    ({"depth": 3}, f"{A}/x", None, "links are followed up to 3 away from a seed"),
]


@pytest.mark.parametrize("case", [*RULES[::2], *later(*RULES[1::2])])
def test_the_rule_that_keeps_a_url_out_is_named(
    root: Path, case: tuple[dict[str, object], str, str | None, str]
) -> None:
    settings, url, rule, words = case
    edit(root, **settings)
    found = explain(Store(root), url)
    assert (found["state"], found["rule"]) == ("never seen", rule)
    assert words in crawler("explain", str(root), url)


def test_a_seed_in_the_store_frees_no_private_address(root: Path) -> None:
    StoreWriter(root).add_seeds(["http://127.0.0.1:8000/"], "more")
    assert explain(Store(root), "http://127.0.0.1:8000/x")["rule"] == "private-address"


def test_the_delay_is_the_hosts_own_or_what_robots_txt_asks_for(root: Path) -> None:
    assert told(root, f"{A}/x")["delay"] == 0.02
    edit(root, delays={"a.*": 7.0})
    assert "delay:      7 s between requests to a.example" in crawler("explain", str(root), f"{A}/x")
    text = crawler("explain", str(root), f"{A}/x")
    assert "allowed for folder-crawler, crawl-delay 0.02 s; read 20" in text
    assert "not read yet" in crawler("explain", str(root), "http://b.example/")


@pytest.mark.parametrize(
    ("settings", "path", "rule"),
    [
        ({}, "/calendar/2999/01", "calendar"),
        ({}, "/film.mp4", "extension"),
        ({"exclude": ["/x$"]}, "/x", "exclude"),
        ({"scope": "page"}, "/x", "scope"),
        ({}, "/x", "private-address"),
    ],
)
def test_what_excludes_a_url_comes_before_its_private_network(
    root: Path, settings: dict[str, object], path: str, rule: str
) -> None:
    edit(root, **settings)
    assert explain(Store(root), f"http://127.0.0.1:8000{path}")["rule"] == rule


def test_a_private_host_that_has_pages_was_allowed(root: Path) -> None:
    page = "http://127.0.0.1:8000/"
    put_batch(root, shard_of_url(page, SHARDS), f"1\t0\t0\t{page}w\n")
    assert explain(Store(root), f"{page}w")["rule"] == "private-address"
    StoreWriter(root).put_record(page, json.dumps({"url": page, "status": 200, "links": []}).encode())
    assert explain(Store(root), f"{page}w")["rule"] is None
    assert explain(Store(root), f"{page}x")["rule"] is None


# ---- waiting


def test_a_waiting_url_is_found_among_others_that_begin_or_end_like_it(root: Path) -> None:
    shard = shard_of_url(f"{A}/w", SHARDS)
    others = [f"0\t0\t0\t{A}/w{n}\n0\t0\t0\t{A}/{n}/w\n" for n in range(10_000)]
    put_batch(root, shard, *others)
    assert explain(Store(root), f"{A}/w")["state"] == "never seen"
    put_batch(root, shard, *others[:5000], f"2\t1\t{int(time.time())}+500\t{A}/w\n", *others[5000:], name="x-2.20001")
    found = told(root, f"{A}/w")
    assert (found["state"], found["rule"]) == ("waiting", None)
    assert (found["waiting"]["depth"], found["waiting"]["attempt"]) == (2, 1)
    assert 300 < found["waiting"]["seconds"] <= 500
    said = crawler("explain", str(root), f"{A}/w")
    assert re.search(r"waiting: depth 2, attempt 2, due in \d+ s", said)
    assert "a `--log-file` of the machines has what its last attempt failed with" in said


@pytest.mark.parametrize("line", ["3\t0\t0\t{}\t1\t5\n", "3\t0\t0\t{}\n", "3\t0\t0\t{}"])
def test_a_line_may_have_more_columns_or_lack_its_end(root: Path, line: str) -> None:
    put_batch(root, shard_of_url(f"{A}/w", SHARDS), line.format(f"{A}/w"))
    waiting = told(root, f"{A}/w")["waiting"]
    assert waiting == {"depth": 3, "attempt": 0, "priority": 5, "due": None, "seconds": 0}


def test_the_latest_attempt_counts_and_a_record_comes_before_a_line(root: Path) -> None:
    shard = shard_of_url(f"{A}/w", SHARDS)
    put_batch(root, shard, f"1\t0\t0\t{A}/w\n", f"0\t0\t0\t{A}/new\n")
    put_batch(root, shard, f"1\t2\t0\t{A}/w\n", name="x-2.1")
    assert explain(Store(root), f"{A}/w")["waiting"]["attempt"] == 2
    assert explain(Store(root), f"{A}/new")["state"] == "done"


def test_a_sitemap_and_the_page_of_the_same_address_are_two_things(root: Path) -> None:
    put_batch(root, shard_of_url(f"{A}/w", SHARDS), f"0\t0\t0\t{A}/w#sitemap\n")
    assert explain(Store(root), f"{A}/w")["state"] == "never seen"
    assert explain(Store(root), f"{A}/w#sitemap")["state"] == "waiting"
    assert explain(Store(root), f"{A}/new#sitemap")["url"] == f"{A}/new"


@pytest.mark.parametrize("line", ["{url}\t\t5\t{role}", "{url}#{role}"], ids=["batches of today", "old batches"])
@pytest.mark.parametrize("role", ["sitemap", "sitemap-2", "robots-of-b.example~0123abcd"])
def test_what_is_asked_on_behalf_of_hosts_is_found_by_its_role(root: Path, role: str, line: str) -> None:
    written = line.format(url=f"{A}/w", role=role)
    put_batch(root, shard_of_url(f"{A}/w", SHARDS), f"1\t0\t0\t{A}/w2\n0\t0\t0\t{written}\n")
    assert explain(Store(root), f"{A}/w#{role}")["state"] == "waiting"
    assert explain(Store(root), f"{A}/w")["state"] == "never seen"
    assert explain(Store(root), f"{A}/w2")["state"] == "waiting"


def test_what_waits_at_the_door_of_the_owner_is_found_and_its_silence_is_said(root: Path) -> None:
    edit(root, heartbeat=0.1)
    shard = shard_of_url(f"{A}/w", SHARDS)
    assert shard > 0
    for number in (0, shard):
        (root / f"shards/{number:03d}@free").rename(root / f"shards/{number:03d}@dead")
    put_batch(root, 0, f"1\t0\t0\t{A}/w\n")
    assert told(root, f"{A}/w")["state"] == "waiting"
    assert told(root, f"{A}/w")["owner"]["state"] == "silent"
    assert "owned by worker dead, silent" in crawler("explain", str(root), f"{A}/w")


def test_a_crawl_at_work_is_not_disturbed_and_its_death_is_seen(tmp_path: Path) -> None:
    with world(Various({"/busy": []}), tmp_path) as w:
        process = w.start(*w.web.seeds(), "-j", "1", "-s", "retry_delay=40m", "-s", "dead_after=20s")
        wait_for(lambda: any(request.status == 503 for request in w.log if request.path == "/busy"))
        wait_for(lambda: told(w.root, f"{A}/busy").get("waiting", {}).get("attempt") == 1)
        found = told(w.root, f"{A}/busy")
        assert (found["state"], found["owner"]["state"]) == ("waiting", "alive")
        assert found["waiting"]["seconds"] > 1000
        for pid in [process.pid, *workers_of(process)]:
            kill(pid)
        end(process, -9)
        edit(w.root, dead_after=2.0)
        wait_for(lambda: told(w.root, f"{A}/busy")["owner"]["state"] == "silent")
        assert told(w.root, f"{A}/busy")["waiting"]["attempt"] == 1


# ---- what it does not do


def names(root: Path) -> dict[str, int]:
    """Every name in a store with its time; a folder's changes when any name in it is made or removed."""
    return {str(path): os.stat(path).st_mtime_ns for path in [root, *root.rglob("*")]}


@pytest.mark.parametrize("url", [f"{A}/", f"{A}/w", f"{A}/x", "ftp://x/", f"{A}/?sid={HEX}"])
def test_nothing_is_written(root: Path, url: str) -> None:
    edit(root, heartbeat=0.1, scope="host")
    shard = shard_of_url(f"{A}/", 64)
    (root / f"shards/{shard:03d}@free").rename(root / f"shards/{shard:03d}@dead")
    (root / "workers/dead@000001").write_text("{}")
    os.utime(root / "workers/dead@000001", (1, 1))
    put_batch(root, shard, f"1\t0\t0\t{A}/w\n")
    before = names(root)
    told(root, url)
    assert names(root) == before


def test_control_characters_never_reach_the_terminal(root: Path) -> None:
    record = {"url": f"{A}/c", "status": 200, "title": "a\x1b[2J\nb\ud800", "fetched": "\x07", "links": "no list"}
    StoreWriter(root).put_record(f"{A}/c", json.dumps(record).encode())
    text = crawler("explain", str(root), f"{A}/c")
    assert all(line.isprintable() for line in text.splitlines())
    assert told(root, f"{A}/c")["record"]["title"] == record["title"]


@pytest.mark.parametrize("noun", ["links", "errs"])
@pytest.mark.parametrize("data", [b"", b"{", b"[]"])
def test_a_record_that_cannot_be_read_is_said_to_be_so(root: Path, noun: str, data: bytes) -> None:
    (root / noun / "a.example" / urls.key(f"{A}/c")).write_bytes(data)
    found = told(root, f"{A}/c")
    assert found["state"] == "done"
    assert f"{noun}/a.example/{urls.key(f'{A}/c')} cannot be read" in found["why"]


def test_a_paused_crawl_says_so(root: Path) -> None:
    crawler("pause", str(root))
    assert told(root, f"{A}/x")["paused"]
    assert "paused:" in crawler("explain", str(root), f"{A}/x")


def test_a_store_that_has_only_its_seed_is_explained(tmp_path: Path) -> None:
    begin(tmp_path / "store", {"shards": 2}, [f"{A}/"], "me", lambda _: None)
    assert told(tmp_path / "store", f"{A}/")["state"] == "waiting"
    assert told(tmp_path / "store", f"{A}/x")["state"] == "never seen"
    assert "did you mean http://a.example/x?" in crawler("explain", str(tmp_path / "store"), "a.example/x")


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (["{}/none", f"{A}/"], 5),
        (["{}", f"{A}/"], 5),
        (["{}"], 2),
        (["{}/store", f"{A}/", f"{A}/x"], 2),
        (["{}/store", f"{A}/", "--jsno"], 2),
        ([f"{A}/", "{}/store"], 2),
    ],
)
def test_what_cannot_be_explained_has_an_exit_code_and_a_sentence(tmp_path: Path, args: list[str], code: int) -> None:
    said = crawler("explain", *(arg.format(tmp_path) for arg in args), code=code)
    assert said.startswith("crawler: ")
    assert "Traceback" not in said


def test_seeds_of_a_crawl_that_nobody_has_begun_are_waiting_whatever_their_shard(tmp_path: Path) -> None:
    seeds = [f"http://{number}.example/" for number in range(20)]
    begin(tmp_path / "store", {"shards": 16}, seeds, "me", lambda _: None)
    assert {told(tmp_path / "store", url)["state"] for url in seeds} == {"waiting"}


def test_a_visit_that_is_done_is_not_the_next_one(tmp_path: Path) -> None:
    root, url = tmp_path / "store", f"{A}/"
    begin(root, {"shards": 2}, [url], "me", lambda _: None)
    crawler("set", str(root), "recrawl=7d")
    store = Store(root)
    outbox = Outbox(store.files, store.settings())
    outbox.send([revisit_task(url, 2), Task(f"{A}/other")])
    outbox.send([revisit_task(url, 3, due=time.monotonic() + 1000)])
    record = {"url": url, "status": 200, "fetched": "2026-01-01T00:00:00Z", "depth": 0, "links": []}
    store.files.put(f"links/{urls.host(url)}/{urls.key(url)}", to_json(record))
    assert 990 < told(root, url)["next_visit"]["seconds"] <= 1000
