"""A guest's manners in whole crawls: robots.txt and where it leads, sitemaps, redirects, paces and shares."""

from __future__ import annotations

import gzip
import os
import signal
import subprocess
import time
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from lab.webs import FlatWeb, gaps
from lab.world import Answers, Links, World, crawler, html, links, moved, plain, world

from crawler.commands.demo.server import serve
from crawler.commands.demo.web import Leaf, WebReply
from crawler.errors import NOTHING
from crawler.frontier.task import robots_task
from crawler.store.mount import Files
from crawler.store.store import Robots
from crawler.store.writer import StoreWriter
from crawler.web import urls
from crawler.web.robots import MAX_ROBOTS_BYTES

CLOSED = plain("User-agent: *\nDisallow: /closed\n")
DAY = 24 * 3600


# ---- robots.txt, by RFC 9309


@pytest.mark.parametrize("status", [401, 404, 418])
def test_where_robots_txt_is_forbidden_there_are_no_rules(tmp_path: Path, status: int) -> None:
    with world(
        Answers({"a.example/": links("/closed"), "a.example/closed": "", "a.example/robots.txt": WebReply(status)}),
        tmp_path,
    ) as w:
        w.crawl()
        assert w.urls() == {"http://a.example/", "http://a.example/closed"}
        assert w.asked() == ["a.example/robots.txt", "a.example/", "a.example/closed"]


@pytest.mark.parametrize("status", [429, 500])
def test_while_robots_txt_cannot_be_fetched_nothing_is_requested_and_then_the_host_is_given_up(
    tmp_path: Path, status: int
) -> None:
    web = Answers(
        {"a.example/": links("http://b.example/", "http://b.example/2"), "b.example/robots.txt": WebReply(status)}
    )
    with world(web, tmp_path) as w:
        w.crawl()
        assert set(w.asked("b.example")) == {"/robots.txt"}
        assert w.asked("b.example").count("/robots.txt") == 3, "as often as a URL is requested"
        assert w.refusals() == dict.fromkeys(["http://b.example/", "http://b.example/2"], f"http-{status}")
        assert all(record["detail"].startswith("robots.txt") for record in w.records("errs"))


def test_robots_txt_is_given_as_much_time_to_come_back_as_a_page(tmp_path: Path) -> None:
    targets = [f"http://b.example/{number}" for number in range(5)]
    web = Answers({"a.example/": links(*targets), "b.example/robots.txt": WebReply(500)})
    with world(web, tmp_path) as w:
        w.crawl("-s", "retry_delay=0.8s")
        first, second, third = (request for request in w.log if request.host == "b.example")
        assert second.start - first.end >= 0.8 and third.start - second.end >= 1.6
        assert w.refusals() == dict.fromkeys(targets, "http-500")


def test_a_robots_txt_that_comes_back_is_obeyed(tmp_path: Path) -> None:
    class Recovers(Answers):
        def reply(self, host: str, path: str) -> WebReply:
            if path == "/robots.txt" and host not in self._requested:
                self._requested.add(host)
                return WebReply(503)
            return super().reply(host, path)

    with world(
        Recovers({"a.example/": links("/closed"), "a.example/closed": "", "a.example/robots.txt": CLOSED}), tmp_path
    ) as w:
        w.crawl()
        assert w.asked() == ["a.example/robots.txt", "a.example/robots.txt", "a.example/"]
        assert w.refusals() == {"http://a.example/closed": "robots"}


def test_an_old_copy_is_better_than_none(tmp_path: Path) -> None:
    with world(Answers({"a.example/": links("/closed"), "a.example/robots.txt": WebReply(503)}), tmp_path) as w:
        w.run("http://b.example/")  # makes the store
        StoreWriter(w.root).put_robots("a.example", Robots(time.time() - 2 * DAY, 200, CLOSED.body))
        w.run("http://a.example/")
        assert w.urls() == {"http://a.example/"}
        assert w.refusals()["http://a.example/closed"] == "robots"


def test_a_copy_of_today_is_not_requested_again(tmp_path: Path) -> None:
    with world(Answers({"a.example/": links("/closed"), "a.example/robots.txt": WebReply(404)}), tmp_path) as w:
        w.run("http://b.example/")
        StoreWriter(w.root).put_robots("a.example", Robots(time.time() - DAY / 2, 200, CLOSED.body))
        w.run("http://a.example/")
        assert w.asked("a.example") == ["/"]
        assert w.refusals()["http://a.example/closed"] == "robots"


def test_a_robots_txt_that_moved_is_found_where_it_is(tmp_path: Path) -> None:
    web = Answers({"a.example/": links("/closed"), "a.example/robots.txt": moved("/1"), "a.example/5": CLOSED})
    web.answers |= {f"a.example/{hop}": moved(f"/{hop + 1}") for hop in range(1, 5)}
    with world(web, tmp_path) as w:
        w.crawl("-w", "0.2")
        assert w.asked() == ["a.example/robots.txt", *(f"a.example/{hop}" for hop in range(1, 6)), "a.example/"]
        assert w.refusals() == {"http://a.example/closed": "robots"}
        assert min(gaps(w.log).values()) >= 0.2, "each hop waits for its turn"


def test_a_robots_txt_that_moves_for_ever_says_no_more_than_none(tmp_path: Path) -> None:
    web = Answers({"a.example/": links("/closed"), "a.example/closed": "", "a.example/robots.txt": moved("/1")})
    web.answers |= {f"a.example/{hop}": moved(f"/{hop + 1}") for hop in range(1, 20)}
    with world(web, tmp_path) as w:
        w.crawl()
        assert len(w.asked()) == 1 + 5 + 2
        assert w.urls() == {"http://a.example/", "http://a.example/closed"}


@pytest.mark.fleet  # for time
def test_a_robots_txt_on_another_host_is_requested_at_that_hosts_own_pace(tmp_path: Path) -> None:
    hosts = [f"h{number}.example" for number in range(8)]
    web = Answers({"a.example/": links("http://b.example/", *(f"http://{host}/" for host in hosts))})
    web.answers |= {f"{host}/robots.txt": moved(f"http://b.example/rules/{host}") for host in hosts}
    web.answers |= {f"b.example/rules/{host}": moved(f"http://b.example/end/{host}") for host in hosts}
    web.answers |= {f"b.example/end/{host}": CLOSED for host in hosts}
    web.answers |= {f"{host}/": links("/closed") for host in [*hosts, "b.example"]}
    web.answers |= {"b.example/closed": ""}
    with world(web, tmp_path) as w:
        w.crawl("-w", "0.2", "-j", "2")
        assert w.refusals() == {f"http://{host}/closed": "robots" for host in hosts}
        assert {f"http://{host}/" for host in hosts} <= w.urls()
        assert min(gaps(w.log).values()) >= 0.2
        assert Counter(w.asked()).most_common(1)[0][1] == 1
        assert w.waiting() == []
        assert not [url for url in w.urls() | w.urls("errs") if "#" in url], (
            "a robots task leaves nothing but its robots.txt"
        )


def test_a_host_that_was_requested_only_for_the_rules_of_others_has_a_past(tmp_path: Path) -> None:
    web = Answers({"a.example/": "", "a.example/robots.txt": moved("http://b.example/r"), "b.example/r": CLOSED})
    with world(web, tmp_path) as w:
        w.crawl()
        assert w.asked("b.example") == ["/r"]
        assert "b.example" in dict(StoreWriter(w.root, Files(w.root, "me")).past()), (
            "who has it next waits for one delay"
        )


@pytest.mark.fleet  # for time
def test_a_host_whose_robots_txt_is_on_a_dead_host_is_left_alone(tmp_path: Path) -> None:
    web = Answers({"a.example/": links("http://b.example/"), "b.example/robots.txt": moved("http://c.example/r")})
    web.answers |= {"c.example/r": WebReply(500)}
    with world(web, tmp_path) as w:
        w.crawl()
        assert set(w.asked("b.example")) == {"/robots.txt"}
        assert w.refusals() == {"http://b.example/": "http-503"}


@pytest.mark.fleet  # for time
@pytest.mark.parametrize("order", ["bfs", "dfs"])
def test_hosts_that_send_each_other_for_their_robots_txt_do_not_wait_for_each_other(tmp_path: Path, order: str) -> None:
    web = Answers({"a.example/": "", "b.example/": "", "c.example/": links("/closed")})
    web.answers |= {
        "a.example/robots.txt": moved("http://b.example/robots.txt"),
        "b.example/robots.txt": moved("http://a.example/robots.txt"),
        "c.example/robots.txt": moved("http://a.example/to-c"),
        "a.example/to-c": moved("http://c.example/rules"),
        "c.example/rules": CLOSED,
    }
    with world(web, tmp_path) as w:
        w.run("http://a.example/", "http://b.example/", "http://c.example/", "-s", f"order={order}")
        assert w.urls() == {"http://a.example/", "http://b.example/", "http://c.example/"}
        assert w.refusals() == {"http://c.example/closed": "robots"}
        assert len(w.asked()) <= 2 * (1 + 5) + 3 + 3, "six requests at most for each robots.txt in a circle"


def test_a_host_that_has_all_its_pages_is_still_requested_for_the_robots_txt_of_others(tmp_path: Path) -> None:
    web = Answers({"b.example/": links("http://a.example/", "/2"), "b.example/rules": CLOSED, "a.example/": ""})
    web.answers |= {"a.example/robots.txt": moved("http://b.example/rules")}
    with world(web, tmp_path) as w:
        w.crawl("-s", "max_per_host=1")
        assert w.urls() == {"http://a.example/", "http://b.example/"}


@pytest.mark.fleet  # for time
def test_an_old_copy_is_better_than_none_where_robots_txt_is_on_a_dead_host_too(tmp_path: Path) -> None:
    web = Answers({"a.example/": links("/closed"), "a.example/robots.txt": moved("http://b.example/r")})
    web.answers |= {"b.example/r": WebReply(500)}
    with world(web, tmp_path) as w:
        w.run("http://c.example/")  # makes the store
        StoreWriter(w.root).put_robots("a.example", Robots(time.time() - 2 * DAY, 200, CLOSED.body))
        w.run("http://a.example/")
        assert w.urls() == {"http://a.example/"}
        assert w.refusals()["http://a.example/closed"] == "robots"


def test_a_robots_task_that_was_sent_twice_is_requested_once(tmp_path: Path) -> None:
    tasks = [robots_task("http://b.example/rules", "a.example", token) for token in ("11111111", "22222222")]
    with world(Answers({"b.example/rules": CLOSED, "c.example/": ""}), tmp_path) as w:
        w.run("http://c.example/")  # makes the store
        w.leave(tasks)
        w.run()
        assert w.asked("b.example") == ["/rules"]


def test_a_robots_txt_behind_a_redirect_too_long_for_a_robots_task_counts_as_none(tmp_path: Path) -> None:
    far = "http://b.example/" + "r" * 1970
    with world(Answers({"a.example/": "", "a.example/robots.txt": moved(far)}), tmp_path) as w:
        w.crawl()
        assert w.asked() == ["a.example/robots.txt", "a.example/"]


def test_a_crawl_delay_is_kept_however_many_other_hosts_come_by(tmp_path: Path) -> None:
    heavy = "User-agent: *\n" + "".join(f"Disallow: /{number:0100d}\n" for number in range(45))
    hosts = [f"h{number}.example" for number in range(200)]
    web = Answers({"slow.example/": replace(html(links("/2")), delay=6.0)})
    web.answers |= {"a.example/": replace(html(links(*(f"http://{host}/" for host in hosts))), delay=2.0)}
    web.answers |= {f"{host}/robots.txt": plain(heavy) for host in hosts}
    web.answers |= {"slow.example/robots.txt": plain("User-agent: *\nCrawl-delay: 1.5\n")}
    with world(web, tmp_path) as w:
        w.run("http://a.example/", "http://slow.example/", "-j", "1", "-s", "max_share=1")
        assert gaps(w.log)["slow.example"] >= 1.5


def test_of_a_long_robots_txt_as_much_is_fetched_as_is_read(tmp_path: Path) -> None:
    start, end = b"User-agent: *\nDisallow: /a\n", b"\nDisallow: /b\n"
    long = start + b"#" * (500 * 1024 - len(start) - len(end)) + end + b"#" * MAX_ROBOTS_BYTES + b"\nDisallow: /c\n"
    web = Answers({"a.example/": links("/a", "/b", "/c"), "a.example/c": "", "a.example/robots.txt": plain(long)})
    with world(web, tmp_path) as w:
        w.crawl()
        assert w.refusals() == {f"http://a.example/{letter}": "robots" for letter in "ab"}
        assert len((w.root / "robots" / "a.example").read_bytes()) < MAX_ROBOTS_BYTES + 100


def test_our_own_group_counts_and_its_crawl_delay_up_to_the_longest(tmp_path: Path) -> None:
    rules = "User-agent: *\nDisallow: /\n\nUser-agent: mybot\nCrawl-delay: 50\nDisallow: /closed\n"
    web = Answers({"a.example/": links("/b", "/closed"), "a.example/b": "", "a.example/robots.txt": plain(rules)})
    with world(web, tmp_path) as w:
        w.crawl("-U", "MyBot/2 (+https://example.org/)", "-s", "max_delay=0.7")
        assert w.urls() == {"http://a.example/", "http://a.example/b"}
        assert gaps(w.log)["a.example"] >= 0.7


def test_a_run_without_a_contact_in_its_user_agent_warns(tmp_path: Path) -> None:
    with world(Links({"/": []}), tmp_path) as w:
        assert "no contact URL" in w.crawl()
    for number, agent in enumerate(("x/1 (+https://example.org/bot)", "x/1 (me@example.org)")):
        (tmp_path / str(number)).mkdir()
        with world(Links({"/": []}), tmp_path / str(number)) as w:
            assert "no contact URL" not in w.crawl("-U", agent)


# ---- robots tags of pages


@pytest.mark.parametrize("how", ["header", "meta", "ours", "not ours", "off"])
def test_a_page_that_says_nofollow_is_kept_but_its_links_are_not_followed(tmp_path: Path, how: str) -> None:
    tags = {
        "header": "noindex, nofollow",
        "ours": "folder-crawler: none",
        "not ours": "otherbot: nofollow",
        "off": "none",
    }
    page = (
        html(links("/b"), ("X-Robots-Tag", tags[how]))
        if how in tags
        else html("<meta name=ROBOTS content=none>" + links("/b"))
    )
    with world(Answers({"a.example/": page, "a.example/b": ""}), tmp_path) as w:
        w.crawl(*(["--no-robots"] if how == "off" else []))
        followed = how in ("not ours", "off")
        assert w.urls() == {"http://a.example/"} | ({"http://a.example/b"} if followed else set())
        (record,) = (record for record in w.records() if record["url"] == "http://a.example/")
        assert record["links"] == ["http://a.example/b"]
        assert record["robots"] == ([] if how == "not ours" else ["nofollow", "noindex"])
        crawler("rehydrate", str(w.root))
        assert w.waiting() == []


# ---- sitemaps

URLSET = "<urlset xmlns='http://www.sitemaps.org/schemas/sitemap/0.9'>{}</urlset>"
INDEX = "<sitemapindex xmlns='http://www.sitemaps.org/schemas/sitemap/0.9'>{}</sitemapindex>"


def entries(tag: str, *locations: str) -> str:
    return "".join(f"<{tag}><loc>{location}</loc></{tag}>" for location in locations)


def sitemap_web() -> Answers:
    pages = [f"http://a.example/{number}" for number in range(6)]
    web = Answers({"a.example/": "nothing links to the rest", **{f"a.example/{number}": "" for number in range(6)}})
    web.answers["a.example/robots.txt"] = plain("Sitemap: http://a.example/index.xml\nUser-agent: *\nDisallow: /5\n")
    parts = entries("sitemap", "http://a.example/1.xml", "http://a.example/2.xml.gz", "http://a.example/3.txt")
    web.answers["a.example/index.xml"] = plain(INDEX.format(parts))
    web.answers["a.example/1.xml"] = plain(URLSET.format(entries("url", *pages[:3])))
    web.answers["a.example/2.xml.gz"] = plain(gzip.compress(URLSET.format(entries("url", *pages[3:5])).encode()))
    web.answers["a.example/3.txt"] = plain(f"\ufeff{pages[5]}\nhttp://b.example/\n")
    return web


def test_the_sitemaps_that_robots_txt_names_are_read(tmp_path: Path) -> None:
    with world(sitemap_web(), tmp_path) as w:
        said = w.crawl("-w", "0.05", "--scope", "host")
        pages = {url for url in w.urls() if "#" not in url}
        assert pages == {"http://a.example/", *(f"http://a.example/{number}" for number in range(5))}
        assert w.refusals() == {"http://a.example/5": "robots"}
        assert w.urls() - pages == {
            "http://a.example/index.xml#sitemap",
            *(f"http://a.example/{name}#sitemap-2" for name in ("1.xml", "2.xml.gz", "3.txt")),
        }
        assert "6 pages" in said and w.status()["sitemaps"] == 4
        assert min(gaps(w.log).values()) >= 0.05


def test_a_frontier_that_is_lost_before_the_sitemaps_were_read_brings_them_back(tmp_path: Path) -> None:
    with world(sitemap_web(), tmp_path) as w:
        w.crawl("--max-pages", "1", code=4)
        for path in (w.root / "frontier").glob("*/*"):
            path.unlink()
        for path in (w.root / "links").glob("*/*"):  # and what was read of them already
            if "#" in StoreWriter(w.root)._json(str(path.relative_to(w.root)))["url"]:  # type: ignore[index]
                path.unlink()
        text = (w.root / "crawl.yaml").read_text()
        (w.root / "crawl.yaml").write_text(text.replace("max_pages: 1\n", "max_pages: null\n"))
        crawler("rehydrate", str(w.root))
        assert w.waiting() == ["http://a.example/index.xml#sitemap"]
        w.run()
        assert {f"http://a.example/{number}" for number in range(5)} <= w.urls()


def test_sitemaps_can_be_left_alone(tmp_path: Path) -> None:
    with world(sitemap_web(), tmp_path) as w:
        w.crawl("-s", "sitemaps=false")
        assert w.asked() == ["a.example/robots.txt", "a.example/"]


def test_a_sitemap_that_the_user_names_lists_seeds(tmp_path: Path) -> None:
    with world(sitemap_web(), tmp_path) as w:
        w.run("--sitemap", "http://a.example/index.xml", "--scope", "page", "--depth", "0", "-s", "sitemaps=false")
        pages = {f"http://a.example/{number}" for number in range(5)} | {"http://b.example/"}
        assert {url for url in w.urls() | w.urls("errs") if "#" not in url} == pages | {"http://a.example/5"}
        said = crawler("add", str(w.root), "--sitemap", "http://a.example/1.xml")
        assert said.startswith("1 URL added")


@pytest.mark.parametrize("scope", ["page", "prefix", "host", "domain"])
def test_what_the_users_sitemap_lists_are_seeds_in_every_scope(tmp_path: Path, scope: str) -> None:
    listed = ["http://a.example/blog/1", "http://a.example/old", "http://c.example/x", "http://c.example/not-this"]
    web = Answers({"a.example/maps/1.xml": plain(URLSET.format(entries("url", *listed)))})
    web.answers |= {
        "a.example/blog/1": links("2"),
        "a.example/blog/2": "",
        "a.example/old": moved("http://d.example/n"),
    }
    web.answers |= {"c.example/x": links("http://e.example/"), "d.example/n": ""}
    with world(web, tmp_path) as w:
        w.run("--sitemap", "http://a.example/maps/1.xml", "--scope", scope, "--exclude", "not-this", "--no-robots")
        pages = {"a.example/maps/1.xml", "a.example/blog/1", "a.example/old", "c.example/x", "d.example/n"}
        assert set(w.asked()) == pages | ({"a.example/blog/2"} if scope != "page" else set())
        assert scope != "page" or len(list((w.root / "seeds").iterdir())) == 1, "no file for each page"


def test_a_depth_limit_counts_a_sitemaps_pages_as_one_link_away(tmp_path: Path) -> None:
    with world(sitemap_web(), tmp_path) as w:
        w.crawl("--depth", "0")
        assert w.urls() == {"http://a.example/"}
    (tmp_path / "1").mkdir()
    with world(sitemap_web(), tmp_path / "1") as w:
        w.crawl("--depth", "1")
        assert "http://a.example/4" in w.urls()


def test_what_a_sitemap_calls_important_or_new_is_requested_first(tmp_path: Path) -> None:
    def entry(number: int, more: str) -> str:
        return f"<url><loc>http://a.example/{number}</loc>{more}</url>"

    parts = [
        entry(1, "<priority>0.1</priority>") + entry(2, "<priority>1.0</priority>") + entry(3, ""),
        entry(4, "<lastmod>2020-01-01</lastmod>") + entry(5, "<lastmod>2026-01-01</lastmod>"),
        entry(6, "<priority>0.9</priority>"),
    ]
    web = Answers({"a.example/": "", **{f"a.example/{number}": "" for number in range(1, 7)}})
    web.answers["a.example/robots.txt"] = plain("\n".join(f"Sitemap: http://a.example/{part}.xml" for part in range(3)))
    web.answers |= {f"a.example/{part}.xml": plain(URLSET.format(text)) for part, text in enumerate(parts)}
    with world(web, tmp_path) as w:
        w.crawl("-w", "0.3", "-j", "1")  # long enough for all three to be read first
        order = [path for path in w.asked("a.example") if path[1:].isdigit()]
        assert order.index("/2") < order.index("/6") < order.index("/5") < order.index("/4") < order.index("/1")


def test_an_index_of_an_index_of_an_index_ends(tmp_path: Path) -> None:
    class Endless(Answers):
        def reply(self, host: str, path: str) -> WebReply:
            if path.startswith("/map/"):
                number = int(path.rpartition("/")[2])
                return plain(
                    INDEX.format(
                        entries("sitemap", *(f"http://a.example/map/{number * 3 + part}" for part in range(3)))
                    )
                )
            return super().reply(host, path)

    with world(Endless({"a.example/": "", "a.example/robots.txt": plain("Sitemap: /map/1")}), tmp_path) as w:
        w.crawl()
        assert len(w.asked()) <= 2 + 1 + 3 + 9


def test_what_is_no_sitemap_has_a_failure_record(tmp_path: Path) -> None:
    web = Answers(
        {
            "a.example/": "",
            "a.example/robots.txt": plain("Sitemap: /a.xml\nSitemap: /gone.xml\n"),
            "a.example/a.xml": links("/b"),
        }
    )
    with world(web, tmp_path) as w:
        w.crawl()
        assert w.refusals() == {
            "http://a.example/a.xml#sitemap": "unreadable",
            "http://a.example/gone.xml#sitemap": "http-404",
        }


def test_a_sitemap_on_a_strangers_host_is_not_requested_out_of_scope(tmp_path: Path) -> None:
    rules = plain(
        "Sitemap: http://b.example/map.xml\nSitemap: http://cdn.a.example/map.xml\nSitemap: http://pic.a.example/map.xml"
    )
    web = Answers({"www.a.example/": "", "www.a.example/robots.txt": rules})
    web.answers |= {
        "cdn.a.example/map.xml": plain(URLSET.format(entries("url", "http://www.a.example/2"))),
        "www.a.example/2": "",
    }
    with world(web, tmp_path) as w:
        w.crawl("--scope", "host", "--exclude", "^http://pic")
        assert w.asked("b.example") == [] and w.asked("pic.a.example") == []
        assert "http://www.a.example/2" in w.urls()


# ---- redirects


def test_a_chain_of_redirects_has_an_end(tmp_path: Path) -> None:
    class Chain(Answers):
        def reply(self, host: str, path: str) -> WebReply:
            return moved(f"/{int(path[1:]) + 1}") if path[1:].isdigit() else super().reply(host, path)

    with world(Chain({"a.example/": links("/1")}), tmp_path) as w:
        w.crawl()
        assert w.refusals() == {"http://a.example/21": "redirect-loop"}
        assert len(w.urls()) == 1 + 20


@pytest.mark.parametrize("flags", [[], ["-w", "0", "--no-robots"]])
def test_a_circle_of_redirects_is_named(tmp_path: Path, flags: list[str]) -> None:
    web = Answers({"a.example/": links("/self", "/1"), "a.example/self": moved("/self")})
    web.answers |= {
        "a.example/1": moved("/2"),
        "a.example/2": moved("http://b.example/3"),
        "b.example/3": moved("http://a.example/1"),
    }
    with world(web, tmp_path) as w:
        w.crawl(*flags)
        assert w.refusals() == dict.fromkeys(["http://a.example/self", "http://b.example/3"], "redirect-loop")


@pytest.mark.parametrize("cookies", ["true", "false"])
def test_a_page_behind_its_own_cookie_is_requested_once_more_with_it(tmp_path: Path, cookies: str) -> None:
    page = moved("/", ("Set-Cookie", "seen=1"))
    with world(Answers({"a.example/": page}), tmp_path) as w:
        w.crawl("-s", f"cookies={cookies}", "--no-robots")
        assert w.asked() == ["a.example/"] * (2 if cookies == "true" else 1)
        assert w.refusals() == {"http://a.example/": "redirect-loop"}


# ---- pace and share


def test_the_delay_may_be_set_by_host_pattern(tmp_path: Path) -> None:
    with world(FlatWeb(3, 6), tmp_path) as w:
        w.crawl("-s", 'delays={"flat-0.*": 0.4, "*": 0.1}', "--no-robots")
        shortest = gaps(w.log)
        assert shortest["flat-0.example"] >= 0.4
        assert min(shortest["flat-1.example"], shortest["flat-2.example"]) >= 0.1


def test_delays_by_host_do_not_go_with_hosts_that_are_split(tmp_path: Path) -> None:
    said = crawler("run", str(tmp_path / "s"), "http://a.example/", "-s", "spread=url", "-s", "delays={'*': 1}", code=2)
    assert "delays needs spread: domain or host" in said
    args = ["http://a.invalid/", "-w", "0", "-s", "delays={'a.*': 0}", "-s", "retries=0"]
    crawler("run", str(tmp_path / "t"), *args, code=NOTHING)
    assert "spread: domain" in (tmp_path / "t" / "crawl.yaml").read_text()


@pytest.mark.fleet  # for time
def test_a_host_that_fails_again_and_again_does_not_hold_up_the_others(tmp_path: Path) -> None:
    sick = [f"http://sick.example/{number}" for number in range(3)]
    well = [f"http://well.example/{number}" for number in range(30)]
    web = Answers({"a.example/": links(*sick, *well), **{url.removeprefix("http://"): "" for url in well}})
    web.answers |= {url.removeprefix("http://"): WebReply(503, (("Retry-After", "1"),)) for url in sick}
    with world(web, tmp_path) as w:
        w.crawl("-s", "retries=1", "-j", "1", "-t", "2")
        requested = [request for request in w.log if request.host == "sick.example" and request.status == 503]
        assert len(requested) == 6 and all(later.start - earlier.end >= 1 for earlier, later in pairwise(requested))
        assert w.refusals() == dict.fromkeys(sick, "http-503")
        assert max(request.end for request in w.log if request.host == "well.example") < requested[-1].start
        assert set(well) <= w.urls()


class StandsStill(FlatWeb):
    """The process that serves it stands still at its first request, for so many seconds."""

    seconds = 6.9
    is_first = True

    def reply(self, host: str, path: str) -> WebReply:
        if self.is_first:
            self.is_first = False
            subprocess.Popen(["sh", "-c", f"sleep {self.seconds}; kill -CONT {os.getpid()}"])
            os.kill(os.getpid(), signal.SIGSTOP)
        return super().reply(host, path)


@pytest.mark.fleet  # for time
def test_a_server_that_stands_still_for_longer_than_we_wait_has_its_delay_too(tmp_path: Path) -> None:
    web = StandsStill(1, 1)
    with serve(web, log=tmp_path / "web.log", process=True) as server:
        w = World(web, server.port, tmp_path)
        w.crawl("-w", "1", "-s", "first_byte_timeout=5s")
        first, second = [request for request in sorted(w.log) if request.path == "/robots.txt"][:2]
        assert first.end - first.start < web.seconds, "we left, and it answered what it found when it went on"
        assert second.start - first.end >= 2, "twice the delay, because it did not answer"
        assert min(gaps(w.log).values()) >= 1


def test_a_host_that_needs_no_delay_is_left_alone_too_when_it_asks_for_it(tmp_path: Path) -> None:
    pages = [f"/{number}" for number in range(40)]
    web = Answers({"a.example/": links("/busy", *pages), "a.example/busy": WebReply(429, (("Retry-After", "2"),))})
    web.answers |= {f"a.example{page}": replace(html(""), delay=0.3) for page in pages}
    with world(web, tmp_path) as w:
        w.crawl("-w", "0", "-j", "1", "-s", "spread=host", "-s", "retries=0", "--no-robots")
        (told,) = (request.end for request in w.log if request.status == 429)
        later = [request for request in w.log if told + 0.2 < request.start < told + 1.9]
        assert later == [], "what was under way then may end"


class Uneven(FlatWeb):
    """One large host, which needs no delay, among many small ones, which do."""

    LARGE = "flat-0.example"

    def __init__(self, large: int, hosts: int, small: int) -> None:
        super().__init__(hosts + 1, small)
        self.sizes = large, small

    def leaf(self, url: str) -> Leaf | None:
        self.pages = self.sizes[urls.host(url) != self.LARGE]
        return super().leaf(url)


def curve(w: World, hosts: int, small: int) -> tuple[list[str], float]:
    """Tenths of the crawl, as lines: small hosts that are done, and the large one's share; its share until all are."""
    log = [request for request in sorted(w.log) if request.host.startswith("flat-") and request.status == 200]
    left = Counter({f"flat-{number}.example": small for number in range(1, hosts + 1)})
    lines, large, share = [], 0, 0.0
    for number, request in enumerate(log, 1):
        large += request.host == Uneven.LARGE
        left[request.host] -= 1
        done = sum(pages <= 0 for host, pages in left.items() if host != Uneven.LARGE)
        share = share or (large / number if done == hosts else 0.0)
        if number * 10 // len(log) > (number - 1) * 10 // len(log):
            lines.append(f"{number:>6} pages: {done:>4} of {hosts} small hosts done, the large one had {large:>5}")
    return lines, share


def crawl_uneven(folder: Path, large: int, hosts: int, small: int, delay: float, share: float) -> float:
    """Crawl one large host among small ones, print the curve, and tell the large one's share while they waited."""
    folder.mkdir()
    with world(Uneven(large, hosts, small), folder) as w:
        delays = f'delays={{"{Uneven.LARGE}": 0, "*": {delay}}}'
        # One worker: each sees to its own hosts, and knows nothing of what waits elsewhere.
        w.crawl("--no-robots", "-j", "1", "-s", delays, "-s", f"max_share={share}", "-s", "durable=false")
        lines, had = curve(w, hosts, small)
        print(f"\nmax_share {share}: the large host had {had:.1%} until all small ones were done", *lines, sep="\n")
        assert len(w.urls()) == large + hosts * small + -(-(hosts + 1) // 50)
        return had


@pytest.mark.fleet  # for time
def test_a_large_host_has_no_more_than_its_share_while_others_wait(tmp_path: Path) -> None:
    assert crawl_uneven(tmp_path / "share", 1500, 60, 8, 0.3, 0.1) < 0.15
    assert crawl_uneven(tmp_path / "free", 1500, 60, 8, 0.3, 1.0) > 0.3


@pytest.mark.bench
def test_small_hosts_finish_early_beside_a_host_of_5000_pages(tmp_path: Path) -> None:
    assert crawl_uneven(tmp_path / "share", 5000, 200, 20, 1.0, 0.1) < crawl_uneven(
        tmp_path / "free", 5000, 200, 20, 1.0, 1.0
    )


# ---- traps


def test_what_traps_have_cut_is_counted_by_rule_and_a_session_id_only_falls_away(tmp_path: Path) -> None:
    session = "PHPSESSID=0123456789abcdef0123456789abcdef"
    targets = [
        f"/p?{session}",
        f"/p?{session[:-1]}0",
        "/a/b/a/b/a/b",
        "/a/b/a/b/a",
        "/calendar/2999/05",
        "/" + "d/e" * 15,
    ]
    with world(Answers({"a.example/": links(*targets), "a.example/p": links("/" + "x" * 1200)}), tmp_path) as w:
        w.crawl("--no-robots")
        assert w.asked() == ["a.example/", "a.example/p"]
        assert w.status()["traps"] == {"repeat": 3, "session": 2, "calendar": 1, "long": 1}
        assert "skipped              5   repeat 3, calendar 1, long 1, session 2 (only the id)" in crawler(
            "status", str(w.root)
        )
        (record,) = (record for record in w.records() if record["url"] == "http://a.example/")
        assert len(record["links"]) == 6, "the record has all links, as they are"
        crawler("rehydrate", str(w.root))
        assert w.waiting() == []


def test_each_trap_can_be_switched_off(tmp_path: Path) -> None:
    with world(Answers({"a.example/": links("/a/a/a", "/calendar/2999/05"), "a.example/a/a/a": ""}), tmp_path) as w:
        w.crawl("--no-robots", "-s", "traps=[calendar, long]")
        assert w.asked() == ["a.example/", "a.example/a/a/a"]
        assert w.status()["traps"] == {"calendar": 1}
