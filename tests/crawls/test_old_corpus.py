"""A folder of the script of sixty lines is taken over: its pages are done, its links wait, and nothing is lost."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from lab import script
from lab.webs import TreeWeb
from lab.world import Answers, World, crawler, end, html, links, world

from crawler.commands.demo.server import requested_twice
from crawler.commands.demo.web import Web
from crawler.crawl.start import begin
from crawler.store.mount import Files
from crawler.store.store import Store, path_of

A, B = "http://a.example", "http://b.example"


def quiet(_: str) -> None:
    """For what `begin` would show."""


def corpus(root: Path, web: Web, pages: int) -> list[str]:
    """What the script had after so many pages; the last of them failed."""
    done = script.half(root, web, pages)
    (root / "links" / script.place(done[-1])).unlink()
    (root / "htmls" / script.place(done[-1])).unlink()
    script.write(root, "errs", done[-1])
    return done


def files(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def all_of(web: TreeWeb) -> Iterator[str]:
    waiting = list(web.seeds())
    while waiting:
        url = waiting.pop()
        yield url
        leaf = web.leaf(url)
        assert leaf
        waiting += leaf.links


def asked(w: World) -> set[str]:
    return {f"http://{name}" for name in w.asked() if not name.endswith("/robots.txt")}


@pytest.mark.fleet  # for time
def test_three_machines_go_on_with_a_folder_of_the_script_and_request_nothing_twice(tmp_path: Path) -> None:
    web = TreeWeb(hosts=3, fanout=4, depth=3)
    with world(web, tmp_path) as w:
        w.root.mkdir()
        old = corpus(w.root, web, 20)
        before = files(w.root)
        machines = [w.start("-s", "dead_after=4s") for _ in range(3)]
        said = "".join(end(machine) for machine in machines)
        assert said.count("this folder was written by the script") == 1
        assert said.count("taken over: 19 pages and 1 failure") == 1
        assert w.urls("errs") == {old[-1]}
        assert {failure["reason"] for failure in w.records("errs")} == {"failed-before"}
        expected = {*all_of(web)} - {url for url in all_of(web) if is_below(url, old[-1])}
        assert w.urls() == expected
        assert asked(w) == expected - set(old)
        assert requested_twice(w.log) == {}
        assert {name: data for name, data in before.items() if name.startswith("htmls/")}.items() <= files(
            w.root
        ).items()
        aside = {f"old/{name}": data for name, data in before.items() if not name.startswith("htmls/")}
        assert aside.items() <= files(w.root).items()
        assert crawler("check", str(w.root)).startswith("no problems")
        assert w.status()["pages"] == len(expected)


def is_below(url: str, top: str) -> bool:
    """Whether a page of the tree is a page or is found through it alone."""
    path, above = url.partition(".example")[2], top.partition(".example")[2]
    return path == above or path.startswith(f"{above.rstrip('/')}/")


def test_pages_are_found_however_the_script_spelled_them(tmp_path: Path) -> None:
    home = html(links("/new"))
    pages = {"a.example/": home, "a.example/new": html("new"), "a.example/x": html("x"), "b.example/": html("b")}
    with world(Answers(pages), tmp_path) as w:
        spelled = [f"{A}/x?utm_source=y", f"{A}/%7Euser", "http://A.example/upper", f"{A}:80/port", f"{A}/part#1"]
        script.keep(w.root, A, "<title>Home</title>", [*spelled, f"{A}/new", f"{B}/"])
        for url in spelled:
            script.keep(w.root, url, f"<p>{url}", [])
        said = w.run("--scope", "any")
        assert "taken over: 6 pages and 0 failures" in said
        known = {f"{A}{path}" for path in ("/", "/x", "/%7Euser", "/upper", "/port", "/part")}
        assert w.urls() == {*known, f"{A}/new", f"{B}/"}
        assert asked(w) == {f"{A}/new", f"{B}/"}
        page = Store(w.root).page(f"{A}/")
        assert page
        assert (page.title, page.html, page.links[0]) == ("Home", "<title>Home</title>", f"{A}/x")
        assert crawler("check", str(w.root)).startswith("no problems")


def test_without_seeds_the_hosts_of_the_old_pages_are_the_scope(tmp_path: Path) -> None:
    with world(Answers({"a.example/new": html(links(f"{B}/")), "b.example/": html("b")}), tmp_path) as w:
        script.keep(w.root, f"{A}/", "old", [f"{A}/new", f"{B}/"])
        end(w.start_plainly())
        assert asked(w) == {f"{A}/new"}
        crawler("set", str(w.root), "scope=any")
        crawler("rehydrate", str(w.root))
        end(w.start_plainly())
        assert asked(w) == {f"{A}/new", f"{B}/"}


def test_a_seed_names_a_page_that_nothing_links_to(tmp_path: Path) -> None:
    with world(Answers({"a.example/2": html("2")}), tmp_path) as w:
        script.keep(w.root, f"{A}/start", "old", [f"{A}/2"])
        assert "taken over: 1 page and 0 failures" in w.run(f"{A}/start", "--scope", "host")
        assert w.urls() == {f"{A}/start", f"{A}/2"}
        assert asked(w) == {f"{A}/2"}


def test_a_page_whose_url_nobody_knows_stays_is_reported_and_its_links_count(tmp_path: Path) -> None:
    pages = {"a.example/2": html(links("/lonely")), "a.example/": html("home")}
    with world(Answers(pages), tmp_path) as w:
        script.keep(w.root, f"{A}/lonely", "<title>Lonely</title>", [f"{A}/2"])
        script.keep(w.root, f"{A}/known", "known", [f"{A}/known"])
        said = w.run("--scope", "any")
        assert "taken over: 1 page and 0 failures; 1 page whose URL no link and no seed names" in said
        assert asked(w) == {f"{A}/2"}, "the link to it was found, and its key told that it is done"
        assert (w.root / path_of("htmls", f"{A}/lonely")).read_text() == "<title>Lonely</title>"
        assert crawler("check", str(w.root)).startswith("no problems")
        crawler("ls", str(w.root))
        crawler("export", str(w.root), str(tmp_path / "all.csv"))
        assert w.status()["pages"] == 3


def test_what_is_not_utf_8_becomes_so_and_the_bytes_are_kept(tmp_path: Path) -> None:
    page = "<meta charset=gbk><title>轮胎</title>".encode("gbk")
    with world(Answers({}), tmp_path) as w:
        script.keep(w.root, f"{A}/", page, [])
        w.run("--scope", "host")
        assert (w.root / "old/htmls" / script.place(f"{A}/")).read_bytes() == page
        stored = Store(w.root).page(f"{A}/")
        assert stored
        assert stored.title == "轮胎"
        assert "轮胎" in stored.html


def test_a_page_without_its_list_of_links_is_read_and_broken_lists_do_no_harm(tmp_path: Path) -> None:
    with world(Answers({"a.example/2": html("2")}), tmp_path) as w:
        script.keep(w.root, f"{A}/", "home", [f"{A}/1", 7, None, "nonsense", "mailto:me", "http://[", f"{A}/3"])  # type: ignore[list-item]
        script.write(w.root, "htmls", f"{A}/1", links("2"))
        script.keep(w.root, f"{A}/3", "three", [])
        (w.root / "links" / script.place(f"{A}/3")).write_bytes(b'["http://a.exam')
        w.run("--scope", "host")
        assert w.urls() == {f"{A}/", f"{A}/1", f"{A}/2", f"{A}/3"}
        assert asked(w) == {f"{A}/2"}


class Killed(BaseException):
    """A kill -9 in the middle."""


def test_a_take_over_that_is_killed_after_any_step_is_done_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tmp_path / "model"
    web = TreeWeb(hosts=2, fanout=2, depth=3)
    corpus(model, web, 5)
    script.keep(model, f"{A}/lonely", "<p>ü".encode("latin-1"), [f"{A}/x"])
    script.keep(model, f"{B}/same", "1", [f"{B}/same/", f"{B}/same?utm_source=1"])
    script.keep(model, f"{B}/same?utm_source=1", "2", [f"{B}/2"])
    whole = tmp_path / "whole"
    shutil.copytree(model, whole)
    steps = taken_over(whole, monkeypatch, None)
    assert steps > 20
    for step in range(steps):
        root = tmp_path / f"killed-{step}"
        shutil.copytree(model, root)
        taken_over(root, monkeypatch, step)
        taken_over(root, monkeypatch, None)
        assert facts(root) == facts(whole), step
        shutil.rmtree(root)


def taken_over(root: Path, monkeypatch: pytest.MonkeyPatch, most: int | None) -> int:
    """Take a corpus over until so many names were made, written or moved; return how many there were."""
    done = 0

    def counted(name: str) -> None:
        real = getattr(Files, name)

        def step(self: Files, *args: object, **how: object) -> object:
            nonlocal done
            if Path(self.root, "README").exists():  # the take-over is over
                return real(self, *args, **how)
            if done == most:
                raise Killed
            done += 1
            return real(self, *args, **how)

        patch.setattr(Files, name, step)

    with monkeypatch.context() as patch:
        for name in ("put", "move", "make"):
            counted(name)
        try:
            begin(root, {"shards": 4, "durable": False}, [], "me", quiet)
        except Killed:
            (root / ".lock").unlink(missing_ok=True)  # its holder is this process, which lives
    return done


def facts(root: Path) -> dict[str, object]:
    """All of a store but what each machine leaves in it, and when."""
    found: dict[str, object] = {}
    for name, data in files(root).items():
        top = name.partition("/")[0]
        if top in ("htmls", "links", "errs", "old", "seeds") and "/." not in name:
            found[name] = json.loads(data) if top == "links" else data
        if top == "errs" and data and "/." not in name:
            found[name] = json.loads(data) | {"when": None}
        if top == "frontier" and data:
            found.setdefault("waiting", set()).update(data.splitlines())  # type: ignore[attr-defined]
    return found
