"""A host gets back the cookies that it has set itself, and nobody else ever sees them."""

from __future__ import annotations

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
from crawler.fetch.cookies import Cookies
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
    assert len(kept._hosts) == cookies.MAX_HOSTS
    assert kept.header(urlsplit("http://h0.example/")) == kept.header(urlsplit(HOME)) == ()


@given(st.lists(st.text(st.characters(max_codepoint=255)), max_size=4))
def test_no_attribute_and_no_value_can_smuggle_a_header_line(values: list[str]) -> None:
    headers = fold(("Set-Cookie", value) for value in values)
    kept = Cookies()
    kept.keep(urlsplit(HOME), headers.get("set-cookie", ""))
    for line in kept.header(urlsplit(HOME)):
        assert not set(line) & set(map(chr, [*range(32), 127])) - {"\t"}
        line.encode("latin-1")


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
def test_a_crawl_sends_cookies_back_and_writes_them_nowhere(tmp_path: Path, on: bool) -> None:
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
    for path in (log, *store.rglob("*")):
        assert path.is_dir() or b"S3CR3T" not in path.read_bytes(), path
    assert "S3CR3T" not in printed
