"""`ls`, `cat`, `links`, `hosts`: what is in a store, for people and for pipes."""

from __future__ import annotations

import io
import json
import os
import shlex
import shutil
import subprocess
import time
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from lab import stores
from lab.world import (
    COMMAND,
    LONG,
    Answers,
    Links,
    call_program,
    crawler,
    end,
    html,
    links,
    moved,
    plain,
    wait_for,
    world,
)
from test_terminal import EVIL, evil_in, on_a_terminal

from crawler import Store
from crawler.commands.main import run
from crawler.settings.settings import Settings
from crawler.store.mount import Files
from crawler.store.writer import StoreWriter
from crawler.web import urls

A, B = "http://a.example", "http://b.example"
ONE = "<title>The first</title>\r\n\t<p>caf\u00e9</p>\n\n"
WEB = {
    "a.example/": links("/one", "/old", "/gone", "/one?b=2&a=1", f"{B}/"),
    "a.example/one": ONE,
    "a.example/one?b=2&a=1": "<title></title>",
    "a.example/old": moved("/one"),
    "a.example/robots.txt": plain(f"Sitemap: {A}/map.txt"),
    "a.example/map.txt": plain(f"{A}/one\n"),
    "b.example/": html(f"<meta charset=utf-8><title>{EVIL}</title><p>{EVIL}</p><a href='{A}/one'>x</a>"),
}
PAGES = [f"{A}/", f"{A}/one", f"{A}/one?b=2&a=1", f"{B}/"]


@pytest.fixture(scope="module")
def little(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of four pages on two hosts, a redirect, a sitemap and a refusal; not to be changed."""
    with world(Answers(WEB), tmp_path_factory.mktemp("little")) as w:
        w.crawl()
        return w.root


@pytest.fixture
def copy(little: Path, tmp_path: Path) -> Path:
    """A copy of it, to do with as one likes."""
    return Path(shutil.copytree(little, tmp_path / "store"))


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    """A store that was made, and nothing crawled."""
    root = tmp_path / "empty"
    root.mkdir()
    StoreWriter(root, Files(root, "maker")).make(Settings(shards=4))
    return root


def printed(*args: object, code: int = 0) -> bytes:
    """What a command prints, and what it says if it fails; in this process, for there are many of them."""
    out, err = io.BytesIO(), io.StringIO()
    with redirect_stdout(io.TextIOWrapper(out, "utf-8")) as text, redirect_stderr(err):
        assert run([*map(str, args)]) == code, err.getvalue()
        text.flush()
        return out.getvalue() + err.getvalue().encode()


def rows(*args: object) -> list[list[str]]:
    """The lines that a command prints, in columns."""
    return [line.split("\t") for line in printed(*args).decode().splitlines()]


def objects(*args: object) -> list[dict[str, Any]]:
    """The JSON lines that a command prints."""
    return [json.loads(line) for line in printed(*args, "--json").splitlines()]


def sentence(*args: object, code: int) -> str:
    """The sentence of a command that fails."""
    said = printed(*args, code=code).decode()
    assert said.startswith("crawler: ")
    assert said.count("\n") == 1
    return said


def in_shell(command: str) -> tuple[int, str]:
    """The exit code of our part of a pipe, and what is said on standard error."""
    words = f"{command.replace('crawler', shlex.join(COMMAND), 1)}; exit ${{PIPESTATUS[0]}}"
    how = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}  # as users have it
    done = subprocess.run(["bash", "-c", words], capture_output=True, text=True, env=how, timeout=LONG, check=False)
    return done.returncode, done.stderr


# ---- ls


def test_each_page_is_a_line_of_time_status_bytes_url_and_title(little: Path) -> None:
    lines = [line.split("\t") for line in crawler("ls", str(little)).splitlines()]
    found = {line[3]: line for line in lines}
    assert sorted(found) == PAGES
    record = Store(little).record(f"{A}/one") or {}
    assert found[f"{A}/one"] == [record["fetched"], "200", str(len(ONE.encode())), f"{A}/one", "The first"]
    assert {len(line) for line in lines} == {5}


def test_a_whole_crawl_is_listed_in_the_order_of_its_folders(crawled_once: Path) -> None:
    listed = [row[3] for row in rows("ls", crawled_once)]
    kept = sorted(path.relative_to(crawled_once / "htmls") for path in crawled_once.glob("htmls/*/*"))
    assert [Path(urls.host(url), urls.key(url)) for url in listed] == kept


@pytest.mark.parametrize("given", ["b.example", "B.Example.", f"{B}/", "b.example:80", "b.example:443"])
def test_a_host_may_be_given_in_any_spelling(little: Path, given: str) -> None:
    assert [row[3] for row in rows("ls", little, given)] == [f"{B}/"]


def test_several_hosts_may_stand_anywhere_among_the_flags(little: Path) -> None:
    found = [record["url"] for record in objects("ls", little, "b.example", "--json", "A.example")]
    assert found[0] == f"{B}/"
    assert sorted(found) == PAGES


def test_redirects_sitemaps_and_refusals_are_listed_on_demand(little: Path) -> None:
    everything = {row[3]: row for row in rows("ls", little, "--all")}
    assert everything[f"{A}/old"][1::3] == ["302", f"-> {A}/one"]
    assert everything[f"{A}/map.txt#sitemap"][4] == "sitemap"
    assert len(everything) == 7
    refused = rows("ls", little, "--failed", "a.example")
    assert [row[1:4] for row in refused] == [["http-404", "-", f"{A}/gone"]]
    assert everything[f"{A}/gone"] == refused[0]


def test_a_json_line_is_the_record_and_says_where_its_files_are(little: Path) -> None:
    for found in objects("ls", little):
        record = Store(little).record(found["url"]) or {}
        assert found == {**record, "links": len(record["links"]), "host": found["host"], "key": found["key"]}
        assert (little / "htmls" / found["host"] / found["key"]).exists()
    (refusal,) = objects("ls", little, "--failed")
    assert (refusal["reason"], refusal["host"]) == ("http-404", "a.example")


@pytest.mark.parametrize(
    ("given", "code", "said"),
    [
        ("c.example", 1, "has nothing of c.example; `crawler hosts"),
        ("a.example/one", 2, "'a.example/one' is not a host; give one such as example.org"),
        ("not a host", 2, "is not a host"),
        ("", 2, "is not a host"),
        ("..", 2, "is not a host"),
    ],
)
def test_a_host_that_is_not_there_is_said(little: Path, given: str, code: int, said: str) -> None:
    assert said in sentence("ls", little, given, code=code)


def test_records_that_somebody_spoilt_are_passed_over(copy: Path) -> None:
    folder = copy / "links" / "a.example"
    for number, text in enumerate(['{"url": "..", "sha224": "x"}', '{"url": 7, "sha224": "x"}', "[]", "{", ""]):
        (folder / f"{number:024x}").write_text(text)
    (folder / f"{9:024x}").write_text('{"url": "http://a.example/x", "sha224": "x", "title": 7, "links": 7}')
    assert len(rows("ls", copy)) == 5
    assert len(objects("ls", copy, "--all")) == 8
    assert [page.title for page in Store(copy).pages("a.example") if page.url.endswith("/x")] == ["7"]


# ---- cat and links


def test_a_page_is_printed_byte_for_byte(little: Path, crawled_once: Path) -> None:
    program = subprocess.run([*COMMAND, "cat", little, f"{A}/one"], stdout=subprocess.PIPE, timeout=LONG, check=True)
    assert program.stdout == ONE.encode()
    for path in crawled_once.glob("htmls/*/*"):
        record = json.loads((crawled_once / "links" / path.relative_to(crawled_once / "htmls")).read_text())
        assert printed("cat", crawled_once, record["url"]) == path.read_bytes()


@pytest.mark.parametrize(
    "given", ["HTTP://A.Example:80/one#top", "http://a.example./x/../one?utm_source=x", "http://me:pw@a.example/one"]
)
def test_a_url_may_be_given_in_any_spelling(little: Path, given: str) -> None:
    assert printed("cat", little, given) == ONE.encode()


def test_a_page_as_json_is_its_record_with_the_html(little: Path) -> None:
    (found,) = objects("cat", little, f"{A}/one")
    assert found.pop("html") == ONE
    assert found == Store(little).record(f"{A}/one")
    (found,) = objects("cat", little, f"{A}/old")
    assert (found["html"], found["links"]) == (None, [f"{A}/one"])


@pytest.mark.parametrize(
    ("url", "code", "said"),
    [
        (f"{A}/old", 1, f"{A}/old is a redirect and has no html; it leads to {A}/one"),
        (f"{A}/map.txt#sitemap", 1, "is a sitemap: only its links are kept"),
        (f"{A}/gone", 1, "failed: HTTP 4xx: the server has no page for this URL"),
        (f"{A}/gone", 1, "(http-404)"),
        (f"{A}/new", 1, "it was never seen: nothing excludes it, but no page links to it"),
        ("a.example/one", 2, "did you mean https://a.example/one?"),
        ("ftp://a.example/", 2, "only http and https are supported"),
    ],
)
def test_what_became_of_a_page_that_is_not_there_is_said(little: Path, url: str, code: int, said: str) -> None:
    assert said in sentence("cat", little, url, code=code)


def test_a_page_that_waits_or_is_gone_is_said(copy: Path) -> None:
    printed("add", copy, "http://c.example/")
    waits = f"http://c.example/ has no page in {copy}: it is waiting: nothing excludes it"
    assert waits in sentence("cat", copy, "http://c.example/", code=1)
    (copy / "htmls" / "b.example" / urls.key(f"{B}/")).unlink()
    assert "the html of http://b.example/ is gone" in sentence("cat", copy, f"{B}/", code=1)


def test_the_links_of_a_page_are_a_line_each(little: Path) -> None:
    record = Store(little).record(f"{A}/") or {}
    assert crawler("links", str(little), f"{A}/#x").splitlines() == record["links"]
    assert objects("links", little, f"{A}/") == [record]
    assert rows("links", little, f"{A}/map.txt#sitemap") == [[f"{A}/one"]]
    assert rows("links", little, f"{A}/one") == []
    assert "failed: HTTP 4xx" in sentence("links", little, f"{A}/gone", code=1)


def test_who_links_to_a_page_is_found_in_all_records(little: Path) -> None:
    everybody = {f"{A}/", f"{A}/old", f"{A}/map.txt#sitemap", f"{B}/"}
    assert {row[0] for row in rows("links", little, f"{A}/one", "--to")} == everybody
    assert {found["url"] for found in objects("links", little, "--to", f"{A}/one?utm_source=x")} == everybody
    assert f"links to {A}/new" in sentence("links", little, f"{A}/new", "--to", code=1)


# ---- hosts


def test_each_host_is_a_line_of_pages_refusals_waiting_bytes_and_name(copy: Path) -> None:
    printed("add", copy, "http://c.example/", f"{B}/new", f"{A}/gone", "--sitemap", f"{A}/new")
    (copy / "frontier" / "000" / "hand-made.5").write_text(f"0\t0\t0\t{B}/new\n" * 3 + f"0\t0\t0\t{B}/\nnot a line\n")
    for folder in ("htmls", "errs", "links"):
        (copy / folder / "b.example").mkdir(exist_ok=True)
        (copy / folder / "b.example" / ".temporary").write_text("x" * 1000)
    a, b = (sum(path.stat().st_size for path in copy.glob(f"htmls/{host}.example/[!.]*")) for host in "ab")
    assert [line.split("\t") for line in crawler("hosts", str(copy)).splitlines()] == [
        ["3", "1", "1", str(a), "a.example"],
        ["1", "0", "1", str(b), "b.example"],
        ["0", "0", "1", "0", "c.example"],
    ]
    assert objects("hosts", copy)[2] == {"pages": 0, "failures": 0, "waiting": 1, "bytes": 0, "host": "c.example"}


@pytest.mark.parametrize("column", ["pages", "failures", "waiting", "bytes"])
def test_hosts_are_sorted_by_any_column_largest_first(crawled_once: Path, column: str) -> None:
    found = objects("hosts", crawled_once, "--sort", column)
    assert found == sorted(found, key=lambda row: (-row[column], row["host"]))
    assert sum(row["pages"] for row in found) == len(list(crawled_once.glob("htmls/*/*")))
    assert "invalid choice: 'size'" in sentence("hosts", crawled_once, "--sort", "size", code=2)


def test_hosts_that_wait_in_a_crawl_that_was_stopped_are_counted(tmp_path: Path) -> None:
    with world(Links({"/": [f"/{n}" for n in range(30)] + ["http://c.example/"]}), tmp_path) as w:
        w.crawl("--max-pages", "1", code=4)
        assert {row["host"]: row["waiting"] for row in objects("hosts", w.root)} == {"a.example": 30, "c.example": 1}


# ---- all of them


@pytest.mark.parametrize("command", ["ls", "ls --all", "ls --failed", "hosts", "hosts --sort bytes"])
def test_an_empty_store_gives_no_lines(empty: Path, command: str) -> None:
    name, *flags = command.split()
    assert printed(name, empty, *flags) == printed(name, empty, *flags, "--json") == b""


def test_an_empty_store_has_no_page(empty: Path) -> None:
    assert "has nothing of a.example" in sentence("ls", empty, "a.example", code=1)
    for command in ("cat", "links"):
        assert "it was never seen" in sentence(command, empty, f"{A}/", code=1)
    assert "no page in" in sentence("links", empty, f"{A}/", "--to", code=1)


@pytest.mark.parametrize("command", ["ls", "hosts", "cat", "links"])
def test_what_is_no_store_is_said_in_a_sentence(tmp_path: Path, command: str) -> None:
    url = [f"{A}/"] if command in ("cat", "links") else []
    assert "does not exist; is the mount there?" in sentence(command, tmp_path / "no", *url, code=5)
    assert "is not a store" in sentence(command, tmp_path, *url, code=5)
    if command != "hosts":
        assert f"write crawler {command} STORE {A}" in sentence(command, f"{A}/", *url, code=2)


@pytest.mark.fleet
def test_a_store_in_use_is_read_and_the_crawl_not_disturbed(tmp_path: Path) -> None:
    tree = {"/": [f"/{n}" for n in range(30)], **{f"/{n}": [f"/{n}/{m}" for m in range(3)] for n in range(30)}}
    tree |= {f"/{n}/{m}": [] for n in range(30) for m in range(3)}
    with world(Links(tree), tmp_path) as w:
        crawl = w.start(*w.web.seeds())
        counts = []
        wait_for(lambda: w.root.exists() and Store(w.root).exists() and Store(w.root).record(f"{A}/"))
        while crawl.poll() is None:
            pages = len(rows("ls", w.root))
            (row,) = objects("hosts", w.root)
            assert pages <= row["pages"]
            assert row["waiting"] < len(tree)
            counts.append(row["pages"])
            assert printed("cat", w.root, f"{A}/").strip().endswith(b"</html>")
            assert [f"{A}/29"] in rows("links", w.root, f"{A}/")
        end(crawl)
        assert counts
        assert counts == sorted(counts)
        assert w.differences() == []
        assert len(rows("ls", w.root)) == len(tree)


@pytest.mark.parametrize("command", ["ls {} --json", "hosts {}", "cat {} {url}", "--help"])
def test_a_closed_pipe_ends_a_command_quietly(crawled_once: Path, command: str) -> None:
    url = next(Store(crawled_once).pages()).url
    assert in_shell(f"crawler {command.format(crawled_once, url=url)} | true") == (0, "")


def test_what_is_too_much_for_a_pipe_at_once_ends_quietly_too(tmp_path: Path) -> None:
    root = stores.large(tmp_path / "large", 2000, hosts=3).root
    assert in_shell(f"crawler ls {root} | head -1") == (0, "")


def test_output_that_nobody_gets_is_no_fault(little: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert in_shell(f"crawler cat {little} {A}/one >&-") == (0, "")
    no_room = "crawler: no space left for the output; free some, or print to another place\n"
    assert in_shell(f"crawler ls {little} > /dev/full") == (6, no_room)
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    assert "\\ufffd" in call_program(["ls", str(little), "b.example"], None)[1]


@pytest.mark.parametrize("args", [["ls", "-a"], ["cat", f"{B}/"], ["cat", f"{B}/", "--json"]])
def test_nothing_hostile_reaches_a_terminal(little: Path, args: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    said = on_a_terminal(args[0], str(little), *args[1:])
    assert f"{A}/one" in said
    assert evil_in(said.replace("\r\n", "").replace("\t", "")) == set()
    assert EVIL.encode() in printed("cat", little, f"{B}/")


def test_colours_are_for_terminals_and_nobody_else(little: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    listed = on_a_terminal("ls", str(little), "--all")
    assert "\x1b[31mhttp-404\x1b[0m" in listed
    assert "\x1b[33m302\x1b[0m" in listed
    heading, first, *_ = on_a_terminal("hosts", str(little)).splitlines()
    assert heading.startswith("\x1b[1mpages       failures    waiting     bytes       host\x1b[0m")
    assert first.startswith("3           1           0           ")
    assert b"\x1b" not in printed("ls", little, "--all") + printed("hosts", little)
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in on_a_terminal("ls", str(little), "--all") + on_a_terminal("hosts", str(little))


@pytest.mark.bench
def test_of_100_000_pages_lines_come_at_once_and_memory_is_bounded(tmp_path: Path) -> None:
    root = str(stores.large(tmp_path / "large").root)
    url = "https://host-007.example/page/7"
    listings = [["ls"], ["ls", "--json"], ["ls", "host-007.example"], ["hosts"], ["hosts", "--sort", "bytes"]]
    for args in [*listings, ["cat", url], ["links", url], ["links", url, "--to"]]:
        took = stores.measure(args[0], root, *args[1:])
        assert took.code == 0
        assert took.megabytes < 100
        lines = len(took.out.splitlines())
        print(f"{' '.join(args):<45} {took.seconds:6.1f} s {took.megabytes:4d} MB {lines:8,} lines")
    first = subprocess.Popen([*COMMAND, "ls", root], stdout=subprocess.PIPE)
    began = time.monotonic()
    assert first.stdout and first.stdout.readline()
    print(f"the first line of ls after {time.monotonic() - began:.1f} s")
    first.kill()
    first.wait()


def test_what_is_none_of_ours_is_passed_over(copy: Path) -> None:
    """A store is a folder that people work in: `check` names what they left there, the others go on."""
    shown = [("ls", copy, "-a"), ("ls", copy, "--failed"), ("hosts", copy), ("links", copy, f"{A}/one", "--to")]
    before = [printed(*args) for args in shown]
    for noun in ("links", "htmls", "errs"):
        (copy / noun / "notes.txt").write_text("to do")
    for path in (f"links/a.example/{'0' * 24}", "links/a.example/notes", "frontier/000/folder"):
        (copy / path).mkdir()
    (copy / "links" / "a.example" / ("1" * 24)).symlink_to("1" * 24)
    os.mkfifo(copy / "htmls" / "notes.example")
    assert [printed(*args) for args in shown] == before
    assert [page.url for page in Store(copy).pages()][-1] == f"{B}/"
