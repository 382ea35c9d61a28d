"""`warc: true`: every exchange as it came, in files that the tools of web archives read, also after a kill."""

from __future__ import annotations

import gzip
import json
import socket
import subprocess
from pathlib import Path
from typing import ClassVar

import pytest
from lab.hostile import Server, chunked, whole
from lab.marks import later
from lab.warcs import Found, at, by_fastwarc, by_warcio, index, segments
from lab.webs import TreeWeb
from lab.world import COMMAND, LONG, crawler, end, kill, workers_of, world

from crawler.store.store import Store

FETCHERS = ["curl", *later("requests")]
PAGE = b"<title>page</title>" + b"<p>words " * 400
NAMES = b"plain gzip chunked both copy moved gone pdf cut".split()
ERROR = b"<h1>gone</h1>" + b"x" * 40_000


class Site(Server):
    """One host that sends bodies in every way."""

    ANSWERS: ClassVar = {
        "/robots.txt": whole(b"User-agent: *\nDisallow: /no\n", kind=b"text/plain"),
        "/": whole(
            b"".join(
                b"<a href=/%s>x</a>" % name for name in b"plain gzip chunked both copy moved gone pdf cut".split()
            ),
            b"Set-Cookie: id=S3CR3T",
            b"X-Odd:  two  spaces",
            b'ETag: W/"1"',
        ),
        "/plain": whole(PAGE),
        "/gzip": whole(gzip.compress(PAGE, mtime=0), b"Content-Encoding: gzip"),
        "/chunked": b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nTransfer-Encoding: chunked\r\n\r\n"
        + chunked(PAGE[:100], PAGE[100:]),
        "/both": b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nTransfer-Encoding: chunked\r\nContent-Encoding: gzip"
        b"\r\n\r\n" + chunked(gzip.compress(PAGE + b"!", mtime=0)),
        "/copy": whole(PAGE, b"X-Other: yes"),
        "/moved": whole(b"moved", b"Location: /plain", status=b"301 Moved Permanently"),
        "/gone": whole(ERROR, status=b"410 Gone"),
        "/pdf": whole(b"%PDF" + b"x" * 100_000, kind=b"application/pdf"),
        "/cut": b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 99\r\n\r\nhalf",
    }

    def answer(self, sock: socket.socket, head: str) -> bool:
        path = head.split(" ")[1]
        sock.sendall(self.ANSWERS.get(path, whole(b"", status=b"404 Not Found")))
        return path != "/cut"


def crawl(site: Server, root: Path, *flags: str) -> None:
    """A whole crawl of a.example."""
    to = ("--connect-to", f"::127.0.0.1:{site.port}", "-w", "0.01", "-j", "1", "-s", "retries=0", "-s", "warc=true")
    command = [*COMMAND, "run", str(root), "http://a.example/", *to, "-s", "max_per_address=null", *flags]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LONG, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def responses(found: list[Found]) -> dict[str, Found]:
    """The responses and revisits by path."""
    return {it.url.removeprefix("http://a.example"): it for it in found if it.kind in ("response", "revisit")}


@pytest.mark.parametrize("fetcher", FETCHERS)
def test_every_exchange_is_kept_as_it_came_and_readers_can_decode_it(tmp_path: Path, fetcher: str) -> None:
    site, root = Site(), tmp_path / "store"
    crawl(site, root, "-s", f"fetcher={fetcher}", "-H", "X-Key: S3CR3T")
    site.close()
    (path,) = segments(root)
    found = by_warcio(path)
    assert [(it.kind, it.url) for it in found] == by_fastwarc(path)
    assert found[0].kind == "warcinfo"
    came = responses(found)
    assert came.keys() == Site.ANSWERS.keys()
    page = [name for name in ("/plain", "/chunked", "/copy") if came[name].kind == "response"]
    assert len(page) == 1, "the others brought the same payload"
    for name in {"/plain", "/chunked", "/copy"} - set(page):
        assert came[name].kind == "revisit"
        assert came[name].headers["WARC-Refers-To-Target-URI"] == f"http://a.example{page[0]}"
        assert came[name].headers["WARC-Payload-Digest"] == came[page[0]].headers["WARC-Payload-Digest"]
    bodies = {page[0]: PAGE, "/gzip": PAGE, "/both": PAGE + b"!", "/moved": b"moved", "/gone": ERROR, "/cut": b"half"}
    assert {name: came[name].body for name in bodies} == bodies
    assert came["/copy"].http["x-other"] == "yes"
    assert came["/chunked"].http["x-orig-transfer-encoding"] == "chunked"
    assert came["/gzip"].http["content-encoding"] == "gzip"
    assert came["/gone"].status == "410 Gone"
    truncated = {name: it.headers.get("WARC-Truncated") for name, it in came.items()}
    assert {name: why for name, why in truncated.items() if why} == {"/pdf": "unspecified", "/cut": "disconnect"}
    assert {it.headers["WARC-IP-Address"] for it in came.values()} == {"127.0.0.1"}
    data = gzip.decompress(path.read_bytes())
    assert Site.ANSWERS["/gzip"] in data, "the response is there byte for byte"
    if fetcher == "curl":
        assert Site.ANSWERS["/"] in data, "its head too"
    requests = {it.url for it in found if it.kind == "request"}
    assert requests == {it.url for it in came.values()}


@pytest.mark.parametrize("fetcher", FETCHERS)
def test_requests_are_written_as_they_were_sent_but_for_secrets(tmp_path: Path, fetcher: str) -> None:
    site, root = Site(), tmp_path / "store"
    crawl(site, root, "-s", f"fetcher={fetcher}", "-H", "X-Key: S3CR3T", "-H", "Accept-Language: de")
    site.close()
    data = gzip.decompress(segments(root)[0].read_bytes())
    for head in site.heads:
        lines = head.split("\r\n")
        secret = ("x-key:", "cookie:")
        shown = [f"{line.split(':')[0]}: (withheld)" if line.lower().startswith(secret) else line for line in lines]
        assert "\r\n".join(shown).rstrip().encode() + b"\r\n\r\n" in data
    assert data.count(b"S3CR3T") == data.count(b"Set-Cookie: id=S3CR3T") == 1


def test_an_index_is_sorted_and_leads_to_each_record(tmp_path: Path) -> None:
    site, root = Site(), tmp_path / "store"
    crawl(site, root)
    site.close()
    (path,) = segments(root)
    text = path.with_name(path.name.replace(".warc.gz", ".cdxj")).read_bytes().splitlines()
    assert text == sorted(text)
    lines = index(path.with_name(path.name.replace(".warc.gz", ".cdxj")))
    assert len(lines) == len(Site.ANSWERS)
    for key, stamp, facts in lines:
        record = at(path, int(facts["offset"]), int(facts["length"]))
        assert (record.url, facts["filename"]) == (facts["url"], path.name)
        assert facts["url"].startswith(f"http://a.example{key.partition(')')[2]}")
        assert record.headers["WARC-Payload-Digest"] == f"sha1:{facts['digest']}"
        assert record.headers["WARC-Date"].replace("-", "").replace(":", "") == f"{stamp[:8]}T{stamp[8:]}Z"
        assert facts["status"] == record.status.split()[0]
        assert (facts["mime"] == "warc/revisit") == (record.kind == "revisit")


def test_records_keep_the_headers_without_cookies_and_too_many(tmp_path: Path) -> None:
    many = [b"X-%d: %s" % (number, b"v" * 100) for number in range(200)]

    class Talker(Server):
        def answer(self, sock: socket.socket, head: str) -> bool:
            body = b"<a href=/away>" if " / " in head else b""
            away = b"Location: http://me:S3CR3T@b.example/"
            more = [b"Set-Cookie: S3CR3T=1", b"WWW-Authenticate: Basic realm=S3CR3T", b"ETag: 1", *many]
            if " /away " in head:
                sock.sendall(whole(b"", away, status=b"302 Found"))
            else:
                sock.sendall(whole(body, *more))
            return True

    site, root = Talker(), tmp_path / "store"
    crawl(site, root, "-s", "warc=false", "--scope", "host")
    site.close()
    home = Store(root).record("http://a.example/") or {}
    assert list(home["headers"])[:3] == ["content-type", "content-length", "etag"]
    assert home["headers"]["x-0"] == "v" * 100
    assert len(home["headers"]) <= 64
    assert sum(len(name) + len(value) for name, value in home["headers"].items()) <= 8192
    away = Store(root).record("http://a.example/away") or {}
    assert away["headers"]["location"] == "http://***@b.example/"
    assert not [path for path in (root / "links").rglob("*") if path.is_file() and b"S3CR3T" in path.read_bytes()]
    assert not (root / "warcs").exists()


def test_a_segment_is_closed_at_its_size_and_another_begun(tmp_path: Path) -> None:
    with world(TreeWeb(hosts=3, fanout=3, depth=4), tmp_path) as w:
        w.crawl("-s", "warc=true", "-s", "warc_size=20K", "-s", "durable=false")
        assert not w.differences()
        found = segments(w.root)
        assert len(found) > 2
        assert {path.name.replace(".warc.gz", ".cdxj") for path in found} == {
            path.name for path in (w.root / "warcs").glob("*.cdxj")
        }
        pages = set()
        for path in found:
            records = by_warcio(path)
            assert [it.kind for it in records].count("warcinfo") == 1 and records[0].kind == "warcinfo"
            assert records[0].headers["WARC-Filename"] == path.name
            pages |= {it.url for it in records if it.kind in ("response", "revisit")}
        assert pages >= w.urls()
        assert crawler("check", str(w.root)).startswith("no problems")


def kept(root: Path) -> set[str]:
    """The URLs that have a whole response in some segment, by both readers."""
    urls = set()
    for path in segments(root):
        found = {(it.kind, it.url) for it in by_warcio(path)}
        assert found == set(by_fastwarc(path))
        urls |= {url for kind, url in found if kind in ("response", "revisit")}
    return urls


@pytest.mark.parametrize("after", [40, *later(120)])
def test_after_kill_9_every_page_has_its_response_and_the_next_run_begins_other_files(
    tmp_path: Path, after: int
) -> None:
    with world(TreeWeb(hosts=4, fanout=3, depth=5), tmp_path) as w:
        killed = w.start(*w.web.seeds(), "-s", "warc=true")
        w.until(after)
        workers = workers_of(killed)
        for pid in [killed.pid, *workers]:
            kill(pid)
        end(killed, -9)
        done = w.urls() | w.urls("errs")
        assert done <= kept(w.root), "what has a record has its exchange"
        left = {path: path.read_bytes() for path in segments(w.root)}
        assert left and not list((w.root / "warcs").glob("*.cdxj"))
        findings = [json.loads(line) for line in crawler("check", "--json", str(w.root), code=1).splitlines()[:-1]]
        unindexed = {it["path"] for it in findings if it["kind"] == "no-index"}
        assert unindexed == {f"warcs/{path.name}" for path in left}
        cut = max(left)
        cut.write_bytes(left[cut] + gzip.compress(b"WARC/1.1\r\nWARC-Type: response\r\n\r\n" + bytes(5000))[:40])
        left[cut] = cut.read_bytes()
        w.crawl("-s", "warc=true")
        assert not w.differences()
        assert {path: path.read_bytes() for path in left} == left, "nobody appends to what a dead worker left"
        assert {path.with_suffix("").with_suffix(".cdxj") for path in segments(w.root)} == set(
            (w.root / "warcs").glob("*.cdxj")
        ), "and each file has an index"
        assert w.urls() <= kept(w.root)
        indexed = {facts["url"] for path in (w.root / "warcs").glob("*.cdxj") for _, _, facts in index(path)}
        assert w.urls() <= indexed
        found = crawler("check", "--repair", str(w.root))
        assert not found.replace("temporary", "").count("warcs/"), found  # half-written files of the killed may be left


def test_check_indexes_what_a_dead_worker_left(tmp_path: Path) -> None:
    with world(TreeWeb(hosts=1, fanout=3, depth=2), tmp_path) as w:
        w.crawl("-s", "warc=true")
        made = {path: path.read_bytes() for path in (w.root / "warcs").glob("*.cdxj")}
        for path in made:
            path.unlink()
        (w.root / "warcs" / "note.txt").write_text("hello")
        found = crawler("check", str(w.root), code=1)
        assert "no-index" in found and "note.txt: not the name of a WARC file or its index" in found
        crawler("check", str(w.root), "--repair")
        assert {path: path.read_bytes() for path in (w.root / "warcs").glob("*.cdxj")} == made
        assert crawler("check", str(w.root)).startswith("no problems")
