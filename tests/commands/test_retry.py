"""Retry: refused URLs are asked again, by whoever is at work or comes next, and nothing is lost on the way."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from lab.frontiers import frontier_with
from lab.world import Answers, World, crawler, html, links, moved, plain, wait_for, world

from crawler.commands.demo.web import WebReply
from crawler.commands.main import run
from crawler.crawl.start import begin
from crawler.fleet.control import withdraw
from crawler.frontier.task import retry_task
from crawler.store.mount import Files
from crawler.store.records import mark_of, utc
from crawler.store.store import Store
from crawler.store.writer import StoreWriter
from crawler.web import urls
from crawler.web.page import Failure

DOWN, CLOSED = WebReply(500), WebReply(403)
X, GONE = "http://a.example/x", "http://a.example/gone"


def site(**more: str | WebReply) -> Answers:
    """A page that leads to one that is closed and one that is gone."""
    return Answers({"a.example/": links("/x", "/gone"), "a.example/x": CLOSED, **more})


def retry(w: World, *args: str) -> str:
    return crawler("retry", str(w.root), *args)


def test_refused_urls_are_asked_again_by_the_next_run(tmp_path: Path) -> None:
    web = site()
    web.answers |= {"b.example/robots.txt": plain("User-agent: *\nDisallow: /x"), "b.example/": links("/x")}
    web.answers |= {"b.example/x": html("x"), "c.example/robots.txt": DOWN, "c.example/": html("c")}
    web.answers |= {"d.example/": moved("/2"), "d.example/2": moved("/3"), "d.example/3": moved("/")}
    with world(web, tmp_path) as w:
        w.crawl("http://b.example/", "http://c.example/", "http://d.example/", "-s", "retries=0")
        refused = {X: "http-403", GONE: "http-404", "http://b.example/x": "robots", "http://c.example/": "http-500"}
        assert w.refusals() == {**refused, "http://d.example/3": "redirect-loop"}
        assert [refusal["depth"] for refusal in w.records("errs")] == [1, 1, 1, 0, 0]
        assert w.status()["reasons"] == dict.fromkeys(w.refusals().values(), 1)

        web.answers |= {"a.example/x": html("back")}
        web.answers |= {"b.example/robots.txt": plain(""), "c.example/robots.txt": plain("")}
        for reasons in (["http-403", "http-5xx"], ["robots", "redirect-loop"]):
            said = retry(w, *(arg for reason in reasons for arg in ("--reason", reason)))
            assert said.startswith("2 URLs will be requested again: ")
            assert f"; no machine is running; `crawler run {w.root}` resumes the crawl" in said
        assert len(w.refusals()) == 5, "each waits for the owner of its host"
        w.run(quick=False)

        assert w.refusals() == {GONE: "http-404", "http://d.example/3": "redirect-loop"}, "a circle is still one"
        assert w.asked("a.example").count("/gone") == 1
        assert {record["url"]: record["depth"] for record in w.records()}[X] == 1
        assert {"http://b.example/x", "http://c.example/"} < w.urls(), "robots.txt was asked for anew"
        assert w.status()["reasons"] == {"http-404": 1, "redirect-loop": 1}
        assert w.waiting() == []


@pytest.mark.parametrize("spread", ["host", "url"])
def test_a_sitemap_that_failed_is_requested_again_as_a_sitemap(tmp_path: Path, spread: str) -> None:
    web = Answers({"a.example/": "", "a.example/robots.txt": plain("Sitemap: /map.txt\n"), "a.example/map.txt": CLOSED})
    with world(web, tmp_path) as w:
        w.crawl("-s", f"spread={spread}")
        name = "http://a.example/map.txt#sitemap"
        assert w.refusals() == {name: "http-403"}
        web.answers |= {"a.example/map.txt": plain("http://a.example/listed\n"), "a.example/listed": html("x")}
        retry(w)
        explained = json.loads(crawler("explain", str(w.root), name, "--json"))
        assert (explained["url"], explained["failure"]["again"]) == (name, True)
        w.run()
        assert w.refusals() == {}
        assert {"http://a.example/listed", name} <= {record["url"] for record in w.records()}


@pytest.mark.fleet
def test_machines_at_work_ask_a_refused_url_again(tmp_path: Path) -> None:
    slow = WebReply(200, (("Content-Type", "text/html"),), b"late", delay=120.0)
    web = site(**{"b.example/": slow})
    with world(web, tmp_path) as w:
        w.start(*w.web.seeds(), "http://b.example/")  # as long as that takes, the crawl is not over
        wait_for(lambda: len(w.refusals()) == 2)
        web.answers["a.example/x"] = html("back")
        assert "; 1 machine is running" in retry(w, "--host", "A.example")
        wait_for(lambda: X in w.urls())
        wait_for(lambda: w.asked("a.example").count("/gone") == 2)
        wait_for(lambda: w.refusals() == {GONE: "http-404"})


@pytest.mark.fleet
def test_where_a_host_is_split_over_workers_its_urls_are_asked_again_too(tmp_path: Path) -> None:
    pages = [f"/{number}" for number in range(20)]
    web = Answers({"a.example/": links(*pages), **{f"a.example{page}": CLOSED for page in pages}})
    with world(web, tmp_path) as w:
        w.crawl("-s", "spread=url", "-j", "2")
        assert len(w.refusals()) == 20
        web.answers.update({f"a.example{page}": html("back") for page in pages})
        retry(w)
        w.run("-j", "2")
        assert w.refusals() == {}
        assert len(w.urls()) == 21


@pytest.mark.fleet
def test_a_kill_loses_no_url_and_takes_no_later_refusal_back(tmp_path: Path) -> None:
    with world(site(), tmp_path) as w:
        w.crawl()
        refusal = Store(w.root).failure(X)
        assert refusal
        tasks = [retry_task(X, mark_of(refusal), 1)]
        w.leave(tasks)
        (w.root / "errs" / "a.example" / urls.key(X)).unlink()  # a worker was killed here
        w.run()
        assert w.asked("a.example").count("/x") == 2
        assert w.refusals()[X] == "http-403"

        w.leave(tasks)  # another was killed before it could tidy
        w.run()
        assert w.asked("a.example").count("/x") == 2


@pytest.fixture
def resting(tmp_path: Path) -> StoreWriter:
    """A store that nobody is at work on, with refusals of two hosts, one of them eight days old."""
    root = tmp_path / "store"
    begin(root, {"shards": 4, "depth": 3}, ["http://a.example/"], "me", lambda _: None)
    withdraw(Files(root), "me")
    store = StoreWriter(root, Files(root, "me", durable=False))
    for url, reason in ((X, "dns"), ("http://a.example/y", "http-404"), ("http://b.example/z", "http-429")):
        store.put_failure(url, Failure(url, reason), 1)
    old = root / "errs" / "b.example" / urls.key("http://b.example/z")
    facts: dict[str, Any] = json.loads(old.read_text())
    del facts["depth"]
    old.write_text(json.dumps({**facts, "when": utc(time.time() - 8 * 86400)}))
    return store


@pytest.mark.parametrize(
    "args, expected",
    [
        ([], "dns 1, http-404 1, http-429 1"),
        (["--reason", "dns", "--reason", "http-4xx"], "dns 1, http-404 1"),
        (["--reason", "http-404"], "http-404 1"),
        (["--older", "7d"], "http-429 1"),
        (["--host", "b.example", "--host", "https://B.example/"], "http-429 1"),
    ],
)
def test_refusals_are_chosen_by_reason_host_and_age(
    resting: StoreWriter, args: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["retry", str(resting.root), *args]) == 0
    assert f"will be requested again: {expected}; no machine is running" in capsys.readouterr().out


def test_a_refusal_that_does_not_say_how_far_it_is_is_no_seed(resting: StoreWriter) -> None:
    run(["retry", str(resting.root), "--host", "b.example"])
    owner = frontier_with(Files(resting.root, "reader", durable=False), resting.settings())
    owner.own(range(4))
    numbers = [number for batches in owner._batches.values() for number in batches.values()]
    tries = {task.url: task.depth for task in owner.table.of_batches(numbers)}
    assert tries["http://b.example/z"] == 3


def test_asking_twice_is_asking_once(resting: StoreWriter) -> None:
    for _ in range(2):
        run(["retry", str(resting.root)])
    owner = frontier_with(Files(resting.root, "reader", durable=False), resting.settings())
    owner.own(range(4))
    assert owner.table.waiting == 4, "the seed, and three errands"


@pytest.mark.parametrize("spread", ["host", "url"])
def test_a_refusal_that_is_about_to_be_asked_again_is_explained_as_such(
    resting: StoreWriter, spread: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("crawl.yaml", "README"):
        path = resting.root / name
        path.write_text(path.read_text().replace("spread: domain", f"spread: {spread}"))
    run(["retry", str(resting.root), "--reason", "dns"])
    for url, again in ((X, True), ("http://a.example/y", False)):
        capsys.readouterr()
        assert run(["explain", str(resting.root), url]) == 0
        said = capsys.readouterr().out
        assert "failed: " in said
        assert ("; `crawler retry` has queued it again" in said) == again


@pytest.mark.parametrize(
    "args, said",
    [
        (
            ["--reason", "nonsense"],
            "unknown reason 'nonsense'; take one of failed, excluded, unwanted, dns, connect",
        ),
        (["--host", "no host"], "'no host' is not a host"),
        (["--host", "a.example/path"], "'a.example/path' is not a host"),
        (["--older", "soon"], "'soon' must be a duration such as 30s, 5m, 2h or 1d"),
    ],
)
def test_bad_input_gets_a_sentence(
    resting: StoreWriter, args: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["retry", str(resting.root), *args]) == 2
    assert said in capsys.readouterr().err


def test_a_host_of_which_nothing_is_there_is_said(resting: StoreWriter, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["retry", str(resting.root), "--host", "c.example"]) == 1
    assert "nothing of c.example" in capsys.readouterr().err


def test_nothing_to_ask_again_is_said(resting: StoreWriter) -> None:
    assert crawler("retry", str(resting.root), "--reason", "tls").startswith("nothing to retry;")
