"""A host gets back the cookies that it has set itself, and nobody else ever sees them."""

from __future__ import annotations

import math
import stat
import string
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lab.fetching import BlockingFetcher as Fetcher
from lab.hostile import Server, serving, whole
from lab.world import crawler

from crawler.fetch import cookies
from crawler.fetch.cookies import Cookie, Cookies, OwnCookie
from crawler.fetch.fetcher import FetchOptions
from crawler.fetch.request import fold

HOME = "https://shop.a.example/dir/page"
LATER, LONG_AGO = "Fri, 31 Dec 2999 23:59:59 GMT", "Thu, 01 Jan 1970 00:00:01 GMT"


def sent(url: str, *lines: str, home: str = HOME) -> str:
    """What a URL gets after its Set-Cookie lines have come from `home`."""
    kept = Cookies()
    kept.keep(urlsplit(home), "\n".join(lines))
    return "".join(kept.header(urlsplit(url))).removeprefix("Cookie: ")


@pytest.mark.parametrize(
    "stranger",
    [
        "https://b.example/dir/page",
        "https://a.example/dir/page",
        "https://example/dir/page",
        "https://x.shop.a.example/dir/page",
        "https://ashop.a.example/dir/page",
        "https://shop.a.example.b.example/dir/page",
        "https://shop.a.example:8443/dir/page",
        "http://shop.a.example:443/dir/page",
    ],
)
@pytest.mark.parametrize("domain", ["", "; Domain=a.example", "; Domain=.example", "; Domain=shop.a.example"])
def test_no_other_host_and_no_other_port_sees_a_cookie_whatever_its_domain_says(stranger: str, domain: str) -> None:
    assert sent(HOME, f"s=1; Path=/{domain}") == "s=1"
    assert sent(stranger, f"s=1; Path=/{domain}") == ""


names = st.text(string.ascii_lowercase + ".-:/@", max_size=12)


@given(st.sampled_from(["a.example", "www.a.example", "b.example", "a.example:81"]), names, names)
def test_no_attribute_carries_a_cookie_to_another_host(other: str, domain: str, path: str) -> None:
    host = "x.a.example"
    line = f"s=1; Domain={domain}; Path={path}; Domain={other}"
    assert sent(f"http://{other}/", line, home=f"http://{host}/") == ""


def test_a_cookie_for_somebody_elses_domain_is_not_taken() -> None:
    assert sent(HOME, "s=1; Domain=b.example", "t=1; Domain=x.shop.a.example", "u=1") == "u=1"


def test_a_secure_cookie_goes_by_https_alone_and_is_never_set_or_replaced_by_http() -> None:
    plain = HOME.replace("https", "http")
    assert sent(plain, "s=1; Secure", "t=1") == "t=1"
    assert sent(HOME, "s=1; Secure", "__Secure-s=1", "__Host-t=1; secure", "u=1", home=plain) == "u=1"
    assert sent(HOME, "__Secure-s=1; Secure", "__Host-t=1") == "__Secure-s=1"
    kept = Cookies()
    kept.keep(urlsplit(HOME), "s=good; Secure")
    kept.keep(urlsplit(plain), "s=bad")
    assert kept.header(urlsplit(HOME)) == ("Cookie: s=good",)


@pytest.mark.parametrize(
    ("path", "said", "goes"),
    [
        ("/dir/page", "", True),
        ("/dir/x/y", "", True),
        ("/dir", "", True),
        ("/", "", False),
        ("/directory", "", False),
        ("/other", "Path=/", True),
        ("/other", "Path=nonsense", False),
        ("/x/y?z", "Path=/x", True),
        ("/x", "Path=/x", True),
        ("/xy", "Path=/x", False),
        ("/x", "Path=/x/", False),
        ("/x/", "path=/y; Path=/x/", True),
    ],
)
def test_a_path_is_heeded(path: str, said: str, goes: bool) -> None:
    assert bool(sent(f"https://shop.a.example{path}", f"s=1; {said}")) == goes


@pytest.mark.parametrize(
    ("said", "lives"),
    [
        (f"Expires={LATER}", True),
        (f"Expires={LONG_AGO}", False),
        ("Expires=nonsense", True),
        ("Expires=99999999999999999999", True),
        ("Max-Age=60", True),
        ("Max-Age=0", False),
        ("Max-Age=-1", False),
        ("Max-Age=" + "9" * 500, True),
        ("Max-Age=soon", True),
        (f"Max-Age=60; Expires={LONG_AGO}", True),
        (f"Max-Age=0; Expires={LATER}", False),
    ],
)
def test_a_cookie_lives_as_long_as_it_says(said: str, lives: bool) -> None:
    assert bool(sent(HOME, f"s=1; {said}")) == lives
    assert sent(HOME, "s=0", f"s=1; {said}") == ("s=1" if lives else ""), "the old one is replaced or removed"


def test_the_longest_path_comes_first_and_names_may_be_odd() -> None:
    assert sent(HOME, "a=1; Path=/", "b=2; Path=/dir", "c=; Path=/", "d=x=y; Path=/") == "b=2; a=1; c=; d=x=y"
    assert sent(HOME, "nameless", "=x", "  ", ";;;", "a b=c d") == "a b=c d"


def test_number_size_and_hosts_are_bounded() -> None:
    kept = Cookies()
    kept.keep(urlsplit(HOME), "\n".join(f"c{number}=1" for number in range(10_000)))
    assert kept.header(urlsplit(HOME))[0].count("=") == cookies.MAX_COOKIES
    kept.keep(urlsplit(HOME), "\n".join(f"d{number}={'x' * 4000}" for number in range(100)))
    assert len(kept.header(urlsplit(HOME))[0]) <= cookies.MAX_HOST_BYTES + 100
    assert sent(HOME, "s=" + "x" * 5000) == ""
    assert sent(HOME, "s=1; Path=/" + "x" * 5000) == "s=1", "an attribute that is too long does not count"
    for number in range(cookies.MAX_HOSTS + 10):
        kept.keep(urlsplit(f"http://h{number}.example/"), "s=1")
    assert len(kept._jars) == cookies.MAX_HOSTS
    assert kept.header(urlsplit("http://h0.example/")) == kept.header(urlsplit(HOME)) == ()


@given(st.lists(st.text(st.characters(max_codepoint=255)), max_size=4))
def test_no_attribute_and_no_value_can_smuggle_a_header_line(values: list[str]) -> None:
    headers = fold(("Set-Cookie", value) for value in values)
    kept = Cookies()
    kept.keep(urlsplit(HOME), headers.get("set-cookie", ""))
    for line in kept.header(urlsplit(HOME)):
        assert not set(line) & set(map(chr, [*range(32), 127])) - {"\t"}
        line.encode("latin-1")


# What the operator gives


OWN = [
    OwnCookie("a.example", True, Cookie("id", "id=own", "/", False, math.inf)),
    OwnCookie("b.example", False, Cookie("only", "only=own", "/dir", True, math.inf)),
    OwnCookie("c.example", True, Cookie("old", "old=own", "/", False, 1.0)),
]


@pytest.mark.parametrize(
    ("url", "pairs"),
    [
        ("http://a.example/", "id=own"),
        ("https://www.a.example:8443/x", "id=own"),
        ("http://xa.example/", ""),
        ("http://example/", ""),
        ("https://b.example/dir/x", "only=own"),
        ("https://b.example/", ""),
        ("http://b.example/dir/x", ""),
        ("https://www.b.example/dir/x", ""),
        ("http://c.example/", ""),
    ],
)
def test_the_operators_cookies_go_to_the_hosts_and_paths_that_they_are_for(url: str, pairs: str) -> None:
    assert "".join(Cookies(OWN).header(urlsplit(url))).removeprefix("Cookie: ") == pairs


def test_what_a_host_sets_replaces_the_operators_cookie_there_and_what_it_removes_is_sent_again() -> None:
    kept, here, there = Cookies(OWN), urlsplit("http://a.example/"), urlsplit("http://www.a.example/")
    kept.keep(here, "id=new\nmore=1")
    assert kept.header(here) == ("Cookie: id=new; more=1",)
    assert kept.header(there) == ("Cookie: id=own",)
    kept.keep(here, "id=; Max-Age=0")
    assert kept.header(here) == ("Cookie: id=own; more=1",)


# What goes to the store, and comes from it


def shared(me: str = "a") -> Cookies:
    return Cookies((), me, lambda host: host != "secret.example")


def taken(kept: Cookies, everything: bool = False) -> dict[str, str]:
    """What is to be stored now, and that it was."""
    found = {host: "; ".join(one.pair for one in some) for host, some in kept.take(everything).items()}
    kept.stored()
    return found


def test_new_cookies_are_stored_at_once_the_same_again_never_and_other_values_now_and_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [1000.0]
    monkeypatch.setattr(cookies, "time", lambda: now[0])
    kept, home = shared(), urlsplit("http://a.example/")
    kept.keep(home, "s=1; Max-Age=100")
    assert (kept.count_due(), taken(kept)) == (1, {"a.example": "s=1"})
    kept.keep(home, "s=1; Max-Age=101")
    assert (kept.count_due(), taken(kept), taken(kept, everything=True)) == (0, {}, {})
    now[0] += 60
    kept.keep(home, "s=1; Max-Age=100")
    assert taken(kept) == {"a.example": "s=1"}, "the end that was stored has come nearer"
    writes = 0
    for number in range(600):
        now[0] += 1
        kept.keep(home, f"s={number}")
        writes += len(taken(kept))
    assert 10 < writes < 20
    kept.keep(home, "s=last")
    assert (taken(kept), taken(kept, everything=True)) == ({}, {"a.example": "s=last"})
    kept.keep(home, "s=other\nt=1")
    assert taken(kept) == {"a.example": "s=other; t=1"}, "a new name does not wait"
    kept.keep(home, "t=; Max-Age=0")
    assert taken(kept) == {"a.example": "s=other; "}, "nor does one that is gone"


def test_cookies_of_a_host_that_gets_secrets_are_never_stored_nor_read() -> None:
    kept = shared()
    kept.keep(urlsplit("https://secret.example/"), "s=1")
    assert taken(kept, everything=True) == {}
    kept.expect("secret.example")
    assert not kept.is_away("secret.example")


def test_what_could_not_be_stored_is_stored_again() -> None:
    kept = shared()
    kept.keep(urlsplit("http://a.example/"), "s=1")
    assert kept.take()
    kept.stored(is_done=False)
    assert taken(kept) == {"a.example": "s=1"}


def test_of_two_workers_the_last_change_counts_whatever_their_clocks_say_and_sessions_are_not_mixed() -> None:
    one, two, home = shared("a"), shared("b"), urlsplit("http://a.example/")
    one.keep(home, "sid=a\nkey=a")
    two.keep(home, "sid=b\nkey=b")
    for mine, other in ((one, two), (two, one)):
        mine.merge("a.example", list(other._jars["a.example"].cookies.values()))
    assert one.header(home) == two.header(home) == ("Cookie: sid=b; key=b",)
    one.keep(home, "sid=later")
    two.merge("a.example", one.take()["a.example"])
    assert two.header(home) == ("Cookie: sid=later; key=b",)
    two.keep(home, "sid=; Max-Age=0")
    one.merge("a.example", two.take()["a.example"])
    assert one.header(home) == ("Cookie: key=b",), "what one lost, the other does not bring back"


def test_a_host_that_is_forgotten_is_read_again_and_none_is_forgotten_before_it_is_stored() -> None:
    kept = shared()
    for number in range(cookies.MAX_HOSTS + 10):
        kept.keep(urlsplit(f"http://h{number}.example/"), "s=1")
    assert not kept.is_away("h0.example") and kept.header(urlsplit("http://h0.example/"))
    assert len(taken(kept)) == cookies.MAX_HOSTS + 10
    for number in range(20):
        kept.keep(urlsplit(f"http://x{number}.example/"), "s=1")
    assert kept.is_away("h1.example") and not kept.header(urlsplit("http://h1.example/"))


@pytest.mark.parametrize(
    ("sent", "own", "expected"),
    [
        ("", None, True),
        ("", "s=1", False),
        ("s=1", None, False),
        ("s=0", None, False),
        ("s=0", "", True),
        ("s=1; t=2", "", False),
    ],
)
def test_a_request_would_be_another_one_with_cookies_that_came_meanwhile(
    sent: str, own: str | None, expected: bool
) -> None:
    kept, url = shared(), "http://a.example/"
    kept.keep(urlsplit(url), "s=1")
    assert kept.has_new(url, frozenset(filter(None, sent.split("; "))), own) == expected


def test_a_new_value_from_another_worker_is_worth_a_request() -> None:
    kept, other, url = shared("a"), shared("b"), "http://a.example/"
    other.keep(urlsplit(url), "s=2")
    kept.merge("a.example", other.take()["a.example"])
    assert kept.has_new(url, frozenset({"s=1"}))


# With real servers


@pytest.fixture(params=["curl", "requests"])
def fetcher(request: pytest.FixtureRequest) -> Iterator[Callable[..., Fetcher]]:
    made: list[Fetcher] = []

    def make(**options: object) -> Fetcher:
        made.append(Fetcher(FetchOptions(fetcher=request.param, timeout=200, **options)))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for one in made:
        one.close()


def cookies_of(server: Server) -> str:
    lines = server.heads[-1].split("\r\n")
    return "".join(line for line in lines if line.lower().startswith("cookie:"))


def test_a_host_gets_its_own_cookies_back_and_the_next_host_on_the_same_address_does_not(
    fetcher: Callable[..., Fetcher],
) -> None:
    with serving() as server:
        one = fetcher(connect_to=(f"::127.0.0.1:{server.port}",))
        one.get("http://a.example/cookie")
        one.get("http://a.example/")
        assert cookies_of(server) == "Cookie: a=1; b=2"
        for stranger in ("b.example", "www.a.example", "example", "a.example:81"):
            one.get(f"http://{stranger}/")
            assert cookies_of(server) == ""
        one.get("http://a.example/", headers=("Cookie: mine=1",))
        assert cookies_of(server) == "Cookie: mine=1", "the user's own wins"
        one.get("http://a.example/")
        assert cookies_of(server) == "Cookie: a=1; b=2"


@pytest.mark.parametrize("path", ["/cookie-redirect", "/cookie-missing", "/cookie-utf8"])
def test_redirects_and_errors_set_cookies_too(fetcher: Callable[..., Fetcher], path: str) -> None:
    with serving() as server:
        one = fetcher(allow_private=True)
        one.get(server.url(path))
        one.get(server.url("/"))
        assert cookies_of(server) == "Cookie: c=\xc4\x8d"


def test_cookies_can_be_off(fetcher: Callable[..., Fetcher]) -> None:
    with serving() as server:
        one = fetcher(allow_private=True, cookies=False)
        one.get(server.url("/cookie"))
        one.get(server.url("/"))
        assert cookies_of(server) == ""


@pytest.mark.parametrize("on", [True, False])
def test_a_crawl_sends_cookies_back_and_writes_them_only_where_nobody_else_can_read_them(
    tmp_path: Path, on: bool
) -> None:
    class Shop(Server):
        def answer(self, sock: object, head: str) -> bool:
            page = whole(b"<a href=/1>1</a><a href=/2>2</a>", b"Set-Cookie: id=S3CR3T; Path=/")
            sock.sendall(page)  # type: ignore[attr-defined]
            return True

    server = Shop()
    store, log = tmp_path / "store", tmp_path / "log"
    flags = ("-w", "0.01", "-j", "1", "-vv", "--no-robots", "-s", f"cookies={on}", "--log-file", str(log))
    printed = crawler("run", str(store), server.url("/"), *flags)
    server.close()
    assert len(server.heads) == 3
    assert sum("S3CR3T" in head for head in server.heads) == (2 if on else 0)
    found = [path for path in (log, *store.rglob("*")) if path.is_file() and b"S3CR3T" in path.read_bytes()]
    assert [(path.parent.parent.name, stat.S_IMODE(path.stat().st_mode)) for path in found] == [("cookies", 0o600)] * on
    exported = tmp_path / "pages.jsonl"
    shown = [crawler(command, str(store)) for command in ("status", "check")]
    shown += [crawler("explain", str(store), server.url("/1")), crawler("export", str(store), str(exported))]
    assert "S3CR3T" not in "".join([printed, *shown, exported.read_text()])
