"""Whole crawls of an embedded web, run as a user runs them: complete, in bounds, and polite."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path

import pytest
from lab.marks import later
from lab.webs import FlatWeb, TreeWeb, gaps
from lab.world import LONG, SHARDS, Answers, Links, World, crawler, end, html, links, moved, wait_for, world

from crawler.commands.demo.server import requested_twice
from crawler.commands.demo.web import DemoWeb, Site
from crawler.commands.status import status
from crawler.store.store import Store
from crawler.web.reasons import KINDS, kind


def test_every_reachable_page_is_there_once_with_its_whole_html(tmp_path: Path) -> None:
    with world(DemoWeb(hosts=40, pages=400, seed=7), tmp_path) as w:
        w.crawl()
        assert w.differences() == []
        assert requested_twice(w.log) == {}
        assert w.waiting() == []


def test_requests_and_html5lib_bring_the_same_pages_as_curl_and_turbohtml(tmp_path: Path) -> None:
    with world(DemoWeb(hosts=12, pages=80, seed=3), tmp_path) as w:
        w.crawl("-s", "fetcher=requests", "-s", "parser=html5lib")
        assert w.differences() == []
        assert requested_twice(w.log) == {}


def test_no_host_is_requested_again_before_its_delay_is_over(tmp_path: Path) -> None:
    with world(FlatWeb(hosts=5, pages=8), tmp_path) as w:
        w.run(*w.web.seeds(), "-w", "0.15", "-j", "2", "-t", "8", quick=False)
        assert w.differences() == []
        assert min(gaps(w.log).values()) >= 0.15


def test_without_a_delay_one_host_is_requested_by_all_workers_at_once(tmp_path: Path) -> None:
    with world(TreeWeb(hosts=1, fanout=4, depth=3, delay=0.1), tmp_path) as w:
        w.run(*w.web.seeds(), "-w", "0", "-j", "2", "-t", "8", quick=False)
        assert w.differences() == []
        assert requested_twice(w.log) == {}
        assert min(gaps(w.log).values()) < 0, "requests to the host overlap"
        assert "spread: url" in (w.root / "crawl.yaml").read_text()


def test_robots_txt_is_requested_once_per_host(tmp_path: Path) -> None:
    with world(FlatWeb(hosts=10, pages=3), tmp_path) as w:
        w.crawl()
        requested = [request.host for request in w.log if request.path == "/robots.txt"]
        assert sorted(requested) == sorted(set(requested))
        assert len(requested) == 11


@pytest.mark.parametrize("depth", [0, 2, *later(1, 3)])
def test_a_depth_limit_keeps_exactly_what_is_so_near(tmp_path: Path, depth: int) -> None:
    with world(DemoWeb(hosts=10, pages=60, seed=5), tmp_path) as w:
        w.crawl("--depth", str(depth))
        assert w.differences(depth) == []


def test_a_page_that_turns_out_to_be_nearer_brings_its_links_after_all(tmp_path: Path) -> None:
    # The short way to /x (2 links) is behind a slow host: it is found at depth 4 first.
    pages = {
        "/": ["/1", "http://slow.example/"],
        "/1": ["/2"],
        "/2": ["/3"],
        "/3": ["/x"],
        "http://slow.example/": ["/x"],
        "/x": ["/y"],
        "/y": [],
    }

    class SlowHost(Links):
        def leaf(self, url: str):  # type: ignore[no-untyped-def]
            leaf = super().leaf(url)
            return leaf and leaf.__class__(leaf.links, delay=1.5 if "slow" in url else 0.0)

    with world(SlowHost(pages), tmp_path) as w:
        w.crawl("--depth", "4")
        assert w.urls() == {w.web.url(path) for path in pages}
        assert {record["url"]: record["depth"] for record in w.records()}[w.web.url("/x")] == 2


def test_scope_says_how_far_links_are_followed(tmp_path: Path) -> None:
    pages = {
        "http://www.site.example/docs/": [
            "/docs/a",
            "/top",
            "http://blog.site.example/",
            "http://other.example/",
        ],
        "/docs/a": ["/docs/b/c"],
        "/docs/b/c": [],
        "/top": [],
        "http://blog.site.example/": [],
        "http://other.example/": [],
    }
    reach = {
        "page": {"/docs/"},
        "prefix": {"/docs/", "/docs/a", "/docs/b/c"},
        "host": {"/docs/", "/docs/a", "/docs/b/c", "/top"},
        "domain": {"/docs/", "/docs/a", "/docs/b/c", "/top", "http://blog.site.example/"},
    }
    for scope, paths in reach.items():
        folder = tmp_path / scope
        folder.mkdir()
        with world(Links(pages, "www.site.example"), folder) as w:
            w.crawl("--scope", scope)
            assert w.urls() == {w.web.url(path) for path in paths}, scope


def test_a_seed_that_redirects_takes_the_scope_along(tmp_path: Path) -> None:
    class Moved(Links):
        def leaf(self, url: str):  # type: ignore[no-untyped-def]
            leaf = super().leaf(url)
            return leaf and leaf.__class__(leaf.links, status=301 if url == "http://a.example/" else 200)

    web = Moved(
        {
            "/": ["http://www.a.example/"],
            "http://www.a.example/": ["http://www.a.example/2", "http://b.example/"],
            "http://www.a.example/2": [],
            "http://b.example/": [],
        }
    )
    with world(web, tmp_path) as w:
        w.crawl("--scope", "host")
        assert w.urls() == {"http://a.example/", "http://www.a.example/", "http://www.a.example/2"}


def test_include_and_exclude_choose_links_by_their_url(tmp_path: Path) -> None:
    web = Links({"/": ["/news/1", "/news/2?print=1", "/shop/1"], "/news/1": [], "/news/2?print=1": [], "/shop/1": []})
    with world(web, tmp_path) as w:
        w.crawl("--include", "/news/", "--exclude", r"[?&]print=")
        assert w.urls() == {web.url("/"), web.url("/news/1")}


def test_a_page_limit_is_kept_to_the_page(tmp_path: Path) -> None:
    with world(FlatWeb(hosts=20, pages=5), tmp_path) as w:
        printed = w.crawl("--max-pages", "23", code=4)
        assert len(list((w.root / "htmls").glob("*/[!.]*"))) == 23
        assert "limit" in printed
        w.run(code=4)
        assert len(w.urls()) == 23, "a later run of the same crawl is over its limit already"


def test_a_limit_that_is_reached_when_nothing_is_left_is_the_end_of_the_crawl(tmp_path: Path) -> None:
    with world(Links({"/": ["/a"], "/a": []}), tmp_path) as w:
        assert "the crawl is over" in w.crawl("--max-pages", "2", code=0)


def test_the_first_page_waits_for_the_crawl_delay_of_its_robots_txt(tmp_path: Path) -> None:
    class Slowly(Links):
        def site(self, host: str) -> Site:
            return Site("User-agent: *\nCrawl-delay: 1\n")

    with world(Slowly({"/": ["/a"], "/a": []}), tmp_path) as w:
        w.crawl()
        assert min(gaps(w.log).values()) >= 1.0


def test_max_per_host_is_kept_to_the_page_and_what_is_cut_is_counted(tmp_path: Path) -> None:
    with world(FlatWeb(hosts=6, pages=9), tmp_path) as w:
        w.crawl("--max-per-host", "4")
        kept = {folder.name: len(list(folder.iterdir())) for folder in (w.root / "links").iterdir()}
        assert {count for host, count in kept.items() if host.startswith("flat-")} == {4}
        assert w.status()["skipped"] > 0
        assert w.waiting() == []


def test_a_time_limit_ends_cleanly_and_the_next_run_resumes(tmp_path: Path) -> None:
    with world(TreeWeb(hosts=3, fanout=3, depth=4, delay=0.1), tmp_path) as w:
        w.crawl("--time-limit", "3s", code=4)
        assert w.waiting()
        w.run()
        assert w.differences() == []
        assert requested_twice(w.log) == {}, "nothing was thrown away"


def test_urls_given_later_are_added_and_a_file_may_hold_them(tmp_path: Path) -> None:
    web = Links({"/": [], "/later": ["/found"], "/found": [], "/listed": []})
    with world(web, tmp_path) as w:
        w.crawl()
        listed = tmp_path / "list.txt"
        listed.write_text(f"# more\n\n{web.url('/listed')}\n")
        w.run(web.url("/later"), "-i", str(listed))
        assert w.urls() == {web.url(path) for path in ("/", "/later", "/found", "/listed")}


def order_of(folder: Path, order: str, delay: float) -> list[str]:
    """The paths in the order in which they were requested."""
    folder.mkdir()
    pages = {"/": ["/a", "/b"], "/a": ["/a1"], "/a1": ["/a2"], "/a2": [], "/b": ["/b1"], "/b1": ["/b2"], "/b2": []}
    with world(Links(pages), folder) as w:
        w.run(*w.web.seeds(), "--order", order, "-w", str(delay), "-j", "1", quick=False)
        return [request.path for request in w.log if request.path != "/robots.txt"]


def test_bfs_goes_wide_before_it_goes_deep(tmp_path: Path) -> None:
    assert order_of(tmp_path / "bfs", "bfs", 0.8) == ["/", "/a", "/b", "/a1", "/b1", "/a2", "/b2"]


@pytest.mark.fleet  # for time
def test_dfs_goes_deep_before_it_goes_wide(tmp_path: Path) -> None:
    # With a delay longer than a flush, each page's links are known before the next is requested; how long that takes
    # depends on the machine.
    found: list[str] = []
    for delay in (0.8, 3.0, 10.0):
        found = order_of(tmp_path / str(delay), "dfs", delay)
        if found[2][:2] == found[1]:
            break
    assert found in (["/", "/b", "/b1", "/b2", "/a", "/a1", "/a2"], ["/", "/a", "/a1", "/a2", "/b", "/b1", "/b2"])


def stop_half_way(w: World) -> None:
    """Begin a crawl, and stop it cleanly after some pages."""
    process = w.start(*w.web.seeds())
    w.until(20)
    process.terminate()
    end(process, 3)


def test_a_frontier_that_is_thrown_away_comes_back_from_the_links(tmp_path: Path) -> None:
    with world(TreeWeb(hosts=4, fanout=3, depth=4, delay=0.15), tmp_path) as w:
        stop_half_way(w)
        assert w.waiting()
        shutil.rmtree(w.root / "frontier")
        w.run()
        assert w.differences() == []
        assert requested_twice(w.log) == {}


@pytest.mark.fleet  # for time
def test_pages_links_and_errors_alone_are_enough_to_resume_elsewhere(tmp_path: Path) -> None:
    with world(TreeWeb(hosts=4, fanout=3, depth=4, delay=0.15), tmp_path) as w:
        stop_half_way(w)
        copy = tmp_path / "copy"
        for noun in ("htmls", "links", "errs"):
            shutil.copytree(w.root / noun, copy / noun)
        w.root = copy
        w.run()
        assert w.differences() == []
        assert requested_twice(w.log) == {}


@pytest.mark.fleet  # for time
def test_rehydrate_brings_what_a_wider_setting_now_lets_in(tmp_path: Path) -> None:
    with world(TreeWeb(hosts=2, fanout=3, depth=4), tmp_path) as w:
        w.crawl("--depth", "2")
        settings = w.root / "crawl.yaml"
        settings.write_text(settings.read_text().replace("depth: 2", "depth: null"))
        assert "27 URLs are waiting" in crawler("rehydrate", str(w.root))
        w.run()
        assert w.differences() == []


def states(w: World) -> list[str]:
    """How the workers are, by `crawler status`."""
    return [worker["state"] for worker in status(Store(w.root))["workers"]]


@pytest.mark.fleet  # for time
def test_status_tells_pages_failures_waiting_workers_and_busiest_hosts(tmp_path: Path) -> None:
    with world(DemoWeb(hosts=20, pages=150, seed=2), tmp_path) as w:
        process = w.start(*w.web.seeds(), "-w", "0.5")
        wait_for(lambda: (w.root / "README").exists() and states(w) == ["alive", "alive"])
        wait_for(lambda: status(Store(w.root))["pages"] > 0)
        assert states(w) == ["alive", "alive"]
        end(process)
        found, expected = w.status(), w.web.expected()
        assert found["pages"] == len(expected.pages)
        assert found["redirects"] == len(expected.redirects)
        reasons = list(expected.failures.values())
        assert found["reasons"] == {reason: reasons.count(reason) for reason in set(reasons)}
        assert {name: found[name] for name in KINDS} == {name: [*map(kind, reasons)].count(name) for name in KINDS}
        assert found["waiting"] == 0
        host, pages = next(iter(found["busiest"].items()))
        assert pages == len(list((w.root / "htmls" / host).iterdir()))
        text = crawler("status", str(w.root))
        assert f"{found['pages']:,}" in text
        assert host in text


def test_the_log_file_is_json_lines_with_an_event_for_each_page(tmp_path: Path) -> None:
    with world(Links({"/": ["/a", "/gone"], "/a": []}), tmp_path) as w:
        w.crawl("--log-file", str(tmp_path / "log.jsonl"), "-q")
        lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
        pages = {line["url"] for line in lines if line.get("event") == "page"}
        assert pages == {w.web.url("/"), w.web.url("/a")}
        assert [line["reason"] for line in lines if line.get("event") == "failed"] == ["http-404"]


def test_a_finite_crawl_ends_by_itself_soon_after_its_last_page(tmp_path: Path) -> None:
    with world(FlatWeb(hosts=30, pages=2), tmp_path) as w:
        w.crawl("-s", "dead_after=1h")
        assert time.monotonic() - max(request.end for request in w.log) < LONG, "nobody is waited for to die"
        assert sorted(name.name.split("@")[1] for name in (w.root / "shards").iterdir()) == ["free"] * SHARDS


def test_the_corpus_is_read_with_unix_tools(tmp_path: Path) -> None:
    with world(Links({"/": ["/a", "/b"], "/a": ["/b"], "/b": []}), tmp_path) as w:
        w.crawl()
        records = sorted((w.root / "links" / "a.example").iterdir())
        joined = b"".join(path.read_bytes() for path in records)
        assert joined.isascii()
        assert len(joined.splitlines()) == 3, "cat links/*/* is a JSON Lines file"
        assert {json.loads(line)["url"] for line in joined.splitlines()} == w.urls()


def test_workers_of_one_machine_need_no_heartbeat_to_know_that_all_are_idle(tmp_path: Path) -> None:
    with world(TreeWeb(hosts=1, fanout=3, depth=3, delay=0.05), tmp_path) as w:
        w.crawl("-s", "heartbeat=20m", "-s", "dead_after=2h", "-s", "spread=host")
        assert w.differences() == []


def test_links_lead_to_the_hosts_of_the_seeds_alone_unless_the_operator_says_otherwise(tmp_path: Path) -> None:
    pages = {"a.example/": moved("http://www.a.example/"), "www.a.example/": links("/1", "http://b.example/")}
    pages |= {"www.a.example/1": links("http://sub.a.example/"), "b.example/": links(), "sub.a.example/": links()}
    with world(Answers(pages), tmp_path) as w:
        said = end(w.start_plainly(*w.web.seeds()))
        assert w.urls() == {"http://a.example/", "http://www.a.example/", "http://www.a.example/1"}
        assert {name.partition("/")[0] for name in w.asked()} == {"a.example", "www.a.example"}
        how = f"`crawler set {w.root} scope=any` changes that"
        assert said.splitlines()[0] == f"scope host: links are followed on the hosts of the seeds; {how}"
        assert "scope" not in end(w.start_plainly("-q"))


def test_the_scope_any_crawls_the_web_and_says_so(tmp_path: Path) -> None:
    with world(Answers({"a.example/": links("http://b.example/"), "b.example/": links()}), tmp_path) as w:
        said = w.crawl("--scope", "any")
        assert w.urls() == {"http://a.example/", "http://b.example/"}
        assert "scope any: links are followed to all hosts of the web; " in said


def test_only_links_that_match_as_they_are_written_are_followed_and_recorded(tmp_path: Path) -> None:
    page = "<a href=/wiki/A>x</a><a href=/wiki/Talk:A>x</a><a href=http://a.example/wiki/B>x</a><a href=/wiki/C#1>x</a>"
    with world(Answers({f"a.example{path}": html(page) for path in ("/", "/wiki/A", "/wiki/C")}), tmp_path) as w:
        w.crawl("--follow-match", "^(/wiki/)((?!:).)*$")
        assert w.urls() == {f"http://a.example{path}" for path in ("/", "/wiki/A", "/wiki/C")}
        wanted = ["http://a.example/wiki/A", "http://a.example/wiki/C"]
        assert [record["links"] for record in w.records()] == [wanted] * 3


@pytest.mark.parametrize("order", ["bfs", "dfs"])
def test_urls_that_a_pattern_gives_a_higher_priority_are_requested_first(tmp_path: Path, order: str) -> None:
    pages = ["/last", "/a", "/news/1", "/b", "/news/2", "/c"]
    with world(Links({"/": pages, **{page: [] for page in pages}}), tmp_path) as w:
        given = "priorities={/news/: 9, last: 0}"
        w.crawl("-s", given, "-s", "spread=host", "-j", "1", "-t", "1", "--no-robots", "-s", f"order={order}")
        asked = [name.removeprefix("a.example") for name in w.asked()]
        assert set(asked[1:3]) == {"/news/1", "/news/2"}
        assert asked[-1] == "/last"


def test_only_links_in_the_chosen_part_of_a_page_are_followed_and_recorded(tmp_path: Path) -> None:
    page = "<nav><a href=/menu>x</a></nav><div id=text><a href=/article>x</a></div>"
    with world(Answers({"a.example/": html(page), "a.example/article": html(page)}), tmp_path) as w:
        w.crawl("-s", "links_in=#text")
        assert w.urls() == {"http://a.example/", "http://a.example/article"}
        assert [record["links"] for record in w.records()] == [["http://a.example/article"]] * 2
        assert "a.example/menu" not in w.asked()
