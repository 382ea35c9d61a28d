"""What a fetch makes of servers, good and hostile; each test runs with both fetchers."""

from __future__ import annotations

import os
import resource
import shutil
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from lab import fetching
from lab.fetching import BlockingFetcher as Fetcher
from lab.hostile import BODY, ENDINGS, Proxy, Server, serving
from lab.world import wait_for

from crawler.fetch.request import FetchOptions, check_connect_to
from crawler.web.addresses import PRIVATE, PUBLIC
from crawler.web.page import Failure, Fetched
from crawler.web.reasons import look_up

Get = Callable[..., Fetched | Failure]
FETCHERS = ("curl", "requests")
LONG = 280.0  # less than the hostile server's patience
SHORT = 0.8
SOON = 200.0  # what must end long before LONG has ended by then, even on a slow machine


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving() as one:
        yield one


@pytest.fixture(params=FETCHERS)
def make(request: pytest.FixtureRequest) -> Iterator[Callable[..., Fetcher]]:
    """Make a fetcher; the fields of Terms by name. Its limit is long: a slow machine is no fault of the fetcher's."""
    made: list[Fetcher] = []

    def make_one(**options: Any) -> Fetcher:
        defaults: dict[str, Any] = {"timeout": LONG, "allow_private": True, "fetcher": request.param}
        made.append(Fetcher(FetchOptions(**(defaults | options))))
        return made[-1]

    yield make_one
    for fetcher in made:
        fetcher.close()


@pytest.fixture
def get(make: Callable[..., Fetcher], server: Server) -> Get:
    """Ask for a path of the hostile server."""
    fetcher = make()
    return lambda path, **more: fetcher.get(server.url(path), **more)


def page(outcome: Fetched | Failure) -> Fetched:
    assert isinstance(outcome, Fetched), outcome
    return outcome


def reason(outcome: Fetched | Failure) -> str:
    assert isinstance(outcome, Failure), outcome
    assert look_up(outcome.reason)
    return outcome.reason


# Ordinary answers


def test_an_ordinary_page_comes_with_its_body_and_its_headers(get: Get) -> None:
    answer = page(get("/"))
    assert (answer.status, answer.body, answer.content_type) == (200, BODY, "text/html")


@pytest.mark.parametrize("path", ["/gzip", "/gzip-twice", "/gzip-junk", "/deflate", "/deflate-raw", "/until-close"])
def test_every_ordinary_coding_gives_the_same_body(get: Get, path: str) -> None:
    assert page(get(path)).body == BODY


def test_a_body_in_chunks_or_in_gzip_members_is_put_together(get: Get) -> None:
    assert page(get("/chunked")).body == b"one two"
    assert page(get("/gzip-members")).body == BODY + b"!"


def test_early_hints_are_not_taken_for_the_answer(get: Get) -> None:
    assert page(get("/early-hints")).body == BODY


def test_headers_are_lower_case_joined_and_without_control_characters(get: Get) -> None:
    assert page(get("/vary")).headers["vary"] == "a, b"
    assert page(get("/cookie")).headers["x-odd"] == "caf\xe9"


def test_headers_of_which_each_line_stands_for_itself_stay_apart(get: Get) -> None:
    assert page(get("/cookie")).headers["set-cookie"] == "a=1\nb=2"
    assert page(get("/robots-tags")).headers["x-robots-tag"] == "googlebot: noindex, none\nnofollow"


def test_a_redirect_is_a_page_without_a_body_and_is_not_followed(get: Get, server: Server) -> None:
    answer = page(get("/redirect"))
    assert (answer.status, answer.body, answer.location) == (301, b"", "/elsewhere")
    assert "GET /redirect " in server.heads[-1]


def test_an_answer_without_content_is_an_empty_page(get: Get) -> None:
    for path, status in (("/no-content", 204), ("/no-content-but", 204), ("/reset-content", 205)):
        answer = page(get(path))
        assert (answer.status, answer.body) == (status, b"")


def test_a_header_over_several_lines_is_one_and_chunks_count_before_a_length(get: Get) -> None:
    assert page(get("/folded")).headers["x"].split() == ["a", "b", "c"]
    assert page(get("/length-and-chunked")).body == b"one two"


def test_a_location_in_utf_8_stays_whole(get: Get) -> None:
    assert page(get("/to-utf8")).location == "/č"


def test_a_redirect_without_location_is_a_bad_redirect(get: Get) -> None:
    assert reason(get("/redirect-nowhere")) == "bad-redirect"


def test_an_error_status_is_named_after_its_number(get: Get) -> None:
    assert reason(get("/missing")) == "http-404"


@pytest.mark.parametrize(
    ("path", "seconds"), [("/slow-down", 120), ("/later", 90), ("/next-year", 86400), ("/some-day", None)]
)
def test_retry_after_is_understood_in_both_forms_and_capped_at_a_day(get: Get, path: str, seconds: int) -> None:
    outcome = get(path)
    assert isinstance(outcome, Failure)
    assert outcome.retry_after == seconds


def test_the_module_level_get_takes_options_by_name(server: Server) -> None:
    for fetcher in FETCHERS:
        assert page(fetching.get(server.url(), fetcher=fetcher, allow_private=True, timeout=LONG)).body == BODY
        assert reason(fetching.get("mailto:x@y", fetcher=fetcher)) == "bad-url"


# What we send


def test_one_request_leaves_nothing_behind_for_the_next(make: Callable[..., Fetcher], server: Server) -> None:
    fetcher = make(user_agent="tester/1", cookies=False)
    fetcher.get(server.url("/cookie"), headers=("X-Once: 1",))
    assert "X-Once: 1" in server.heads[-1]
    fetcher.get(server.url("/").replace("127", "user:secret@127"))
    head = server.heads[-1].lower()
    assert "user-agent: tester/1" in head and "accept-encoding: gzip, deflate" in head
    assert f"host: 127.0.0.1:{server.port}" in head
    for absent in ("x-once", "cookie", "authorization", "referer", "secret", "br"):
        assert absent not in head.replace("crawler", "")


@pytest.mark.parametrize(
    "line",
    ["X: a\r\nY: b", "X: a\nb", "X: a\0b", "X Y: z", "no colon", ": x", "X:", "Host: other", "X: \u20ac"],
)
def test_a_header_that_is_not_one_line_of_its_own_is_refused(get: Get, line: str) -> None:
    with pytest.raises(ValueError, match="header"):
        get("/", headers=(line,))


@pytest.mark.parametrize(
    "url",
    ["ftp://127.0.0.1/", "file:///etc/passwd", "http:///x", "http://a b/", "http://a/\r\nX: y", "http://[::1/",
     "x", "http://a:99999/", "http://a\\@b/"],
)  # fmt: skip
def test_what_is_not_an_http_url_is_a_bad_url(make: Callable[..., Fetcher], url: str) -> None:
    assert reason(make().get(url)) == "bad-url"


def test_options_that_make_no_sense_are_refused_at_once() -> None:
    for wrong in (
        {"fetcher": "wget"},
        {"timeout": 0},
        {"user_agent": "a\r\nb"},
        {"proxy": "localhost"},
        {"fetcher": "requests", "proxy": "socks5://127.0.0.1:1"},
        {"connect_to": ("a:b",)},
        {"connect_to": ("::a:1",), "proxy": "http://127.0.0.1:1"},
    ):
        with pytest.raises(ValueError):
            FetchOptions(**wrong)  # type: ignore[arg-type]


# Connections


def test_a_connection_is_used_again_even_after_errors_and_redirects(
    make: Callable[..., Fetcher],
) -> None:
    with serving() as server:
        fetcher = make()
        for path in ("/", "/missing", "/redirect", "/gzip", "/chunked", "/"):
            fetcher.get(server.url(path))
        assert (server.connections, len(server.heads)) == (1, 6)


def test_a_kept_connection_that_the_server_closes_costs_no_page(make: Callable[..., Fetcher]) -> None:
    with serving() as server:
        fetcher = make()
        assert page(fetcher.get(server.url("/stale"))).body == b"once"
        assert page(fetcher.get(server.url("/"))).body == BODY
        assert server.connections == 2


def test_many_threads_can_ask_at_once(make: Callable[..., Fetcher]) -> None:
    with serving() as server:
        fetcher, good = make(), []

        def visit() -> None:
            good.extend(page(fetcher.get(server.url("/gzip"))).body == BODY for _ in range(10))

        threads = [threading.Thread(target=visit) for _ in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert good == [True] * 160
        assert server.connections <= 16


def test_more_hosts_than_are_kept_are_all_answered(make: Callable[..., Fetcher], server: Server) -> None:
    fetcher = make(connect_to=(f"::127.0.0.1:{server.port}",))
    for number in range(150):
        assert page(fetcher.get(f"http://host{number % 100}.example/")).body == BODY


# Bodies that are not wanted


def test_an_unwanted_type_is_refused_by_its_headers_alone(make: Callable[..., Fetcher], server: Server) -> None:
    fetcher, start = make(), time.monotonic()
    for path in ("/image", "/image-for-ever"):
        outcome = fetcher.get(server.url(path))
        assert (reason(outcome), outcome.detail) == ("wrong-type", "image/png")  # type: ignore[union-attr]
    assert time.monotonic() - start < SOON


def test_any_type_is_taken_when_asked_for_and_a_missing_one_always(get: Get) -> None:
    assert page(get("/", content_types=())).body == BODY
    assert reason(get("/", content_types=("text/plain",))) == "wrong-type"
    assert page(get("/untyped")).body == b"hi"


def test_the_endless_body_of_a_redirect_is_left_alone(make: Callable[..., Fetcher], server: Server) -> None:
    start = time.monotonic()
    assert page(make().get(server.url("/redirect-for-ever"))).location == "/x"
    assert time.monotonic() - start < SOON


def test_a_body_that_announces_too_much_is_not_read(get: Get) -> None:
    assert reason(get("/big")) == "too-big"


def test_cut_keeps_the_beginning_of_a_body_that_is_too_long(get: Get) -> None:
    assert page(get("/", cut=100)).body == BODY[:100]
    assert page(get("/gzip", cut=100)).body == BODY[:100]
    assert page(get("/endless-body", cut=100_000)).body == bytes(100_000)
    assert page(get("/gzip-bomb", cut=1000)).body == bytes(1000)
    assert page(get("/gzip", cut=len(BODY))).body == BODY
    assert reason(get("/gzip-cut", cut=100_000)) == "cut-short"


# Hostile answers


@pytest.mark.parametrize("path", ENDINGS)
def test_a_hostile_answer_ends_in_time_with_its_reason(make: Callable[..., Fetcher], server: Server, path: str) -> None:
    start = time.monotonic()
    outcome = make(timeout=SHORT if "timeout" in ENDINGS[path] else LONG).get(server.url(path))
    assert reason(outcome) in ENDINGS[path], outcome
    assert time.monotonic() - start < SOON


def test_a_body_longer_than_announced_is_taken_as_announced(get: Get) -> None:
    assert page(get("/too-long")).body == BODY[:5]
    assert page(get("/")).body == BODY


def test_the_first_byte_has_a_limit_of_its_own(make: Callable[..., Fetcher], server: Server) -> None:
    start = time.monotonic()
    assert reason(make(first_byte_timeout=0.3).get(server.url("/silent"))) == "timeout"
    assert time.monotonic() - start < SOON


@pytest.mark.parametrize("path", ["/gzip-bomb", "/deflate-bomb", "/gzip-bomb-twice", "/endless-body"])
@pytest.mark.parametrize("fetcher", FETCHERS)
def test_a_bomb_takes_little_memory(server: Server, fetcher: str, path: str) -> None:
    # In a process of its own, because a peak is a peak of the whole process.
    lines = (
        "import resource, sys; from lab import fetching",
        f"ask = lambda url: fetching.get(url, allow_private=True, timeout=100, fetcher={fetcher!r})",
        "peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss",
        f"ask({server.url()!r}); before = peak()",
        f"print(ask({server.url(path)!r}).reason, (peak() - before) // 1024)",
    )
    command, path = [sys.executable, "-c", "\n".join(lines)], {"PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ | path)
    name, grown = done.stdout.split()
    assert name == "too-big"
    assert int(grown) < 64, f"{grown} MiB"


# Connecting


@pytest.fixture
def deaf_port() -> Iterator[int]:
    """A port that nobody listens on, and that nobody else gets meanwhile."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        yield int(one.getsockname()[1])


def test_a_refused_connection_is_connect(make: Callable[..., Fetcher], deaf_port: int) -> None:
    assert reason(make().get(f"http://127.0.0.1:{deaf_port}/")) == "connect"


def test_a_name_that_does_not_resolve_is_dns(make: Callable[..., Fetcher]) -> None:
    start = time.monotonic()
    assert reason(make(allow_private=False, timeout=SHORT).get("http://nobody.invalid/")) in ("dns", "timeout")
    assert time.monotonic() - start < SOON


def test_a_listener_that_never_accepts_is_a_timeout(make: Callable[..., Fetcher]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        here = f"127.0.0.1:{listener.getsockname()[1]}"
        start = time.monotonic()
        assert reason(make(timeout=SHORT).get(f"http://{here}/")) == "timeout"
        assert reason(make(connect_timeout=0.3).get(f"https://{here}/")) == "timeout"
        assert time.monotonic() - start < SOON


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "localhost", "2130706433", "0x7f.1", "0177.0.0.1", "[::1]", "[::ffff:127.0.0.1]", "0"],
)
def test_a_private_address_is_refused_in_every_form(make: Callable[..., Fetcher], host: str) -> None:
    with serving() as server:
        assert reason(make(allow_private=False).get(f"http://{host}:{server.port}/")) == "private-address"
        assert server.connections == 0


def test_private_allows_one_request_and_not_the_next(make: Callable[..., Fetcher], server: Server) -> None:
    fetcher = make(allow_private=False)
    assert page(fetcher.get(server.url(), private=True)).body == BODY
    assert reason(fetcher.get(server.url())) == "private-address"


def test_a_public_address_among_private_ones_is_the_one_used(
    make: Callable[..., Fetcher], server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged: list[str] = []

    def only_ipv4(address: str) -> int:
        judged.append(address)
        return PUBLIC if address == "127.0.0.1" else PRIVATE

    for module in ("crawler.fetch.fetcher", "crawler.fetch.transfer", "crawler.fetch.connections"):
        monkeypatch.setattr(f"{module}.reach_of", only_ipv4)
    answer = make(allow_private=False).get(f"http://localhost:{server.port}/")
    assert page(answer).body == BODY
    assert "127.0.0.1" in judged


def test_bad_ports_are_refused_even_where_private_is_allowed(make: Callable[..., Fetcher]) -> None:
    assert reason(make().get("http://127.0.0.1:22/")) == "bad-port"
    assert reason(make().get("https://127.0.0.1:6667/")) == "bad-port"


# connect_to


@pytest.mark.parametrize(
    "rule",
    ["::127.0.0.1:{port}", "site.example:80:127.0.0.1:{port}", "SITE.example::127.0.0.1:{port}",
     ":80:127.0.0.1:{port}", "::localhost:{port}"],
)  # fmt: skip
def test_connect_to_leads_elsewhere_under_the_same_name(
    make: Callable[..., Fetcher], server: Server, rule: str
) -> None:
    fetcher = make(allow_private=False, connect_to=("other.example:80:127.0.0.1:1", rule.format(port=server.port)))
    assert page(fetcher.get("http://site.example/")).body == BODY
    assert "Host: site.example" in server.heads[-1].split("\r\n")


def test_connect_to_can_keep_the_port_and_change_the_host(make: Callable[..., Fetcher], server: Server) -> None:
    fetcher = make(allow_private=False, connect_to=("site.example::127.0.0.1:",))
    assert page(fetcher.get(f"http://site.example:{server.port}/")).body == BODY


def test_connect_to_takes_ipv6_and_lets_bad_ports_pass(make: Callable[..., Fetcher]) -> None:
    if not socket.has_ipv6:
        pytest.skip("this machine has no IPv6")
    with serving(address="::1") as server:
        fetcher = make(allow_private=False, connect_to=(f"[::2]:22:[::1]:{server.port}",))
        assert page(fetcher.get("http://[::2]:22/")).body == BODY


def test_a_request_that_no_rule_matches_is_guarded(make: Callable[..., Fetcher], server: Server) -> None:
    fetcher = make(allow_private=False, connect_to=(f"site.example:81:127.0.0.1:{server.port}",))
    assert reason(fetcher.get(server.url())) == "private-address"


@pytest.mark.parametrize("rule", ["", "a:b:c:d", "a:1:b", "a:1:b:2:c", "::1:80:a:1", "a:1:b:70000", "a b:1:c:2"])
def test_a_connect_to_rule_of_another_form_is_refused(rule: str) -> None:
    with pytest.raises(ValueError, match="HOST:PORT:ADDR:PORT"):
        check_connect_to(rule)


# Proxies


def test_the_proxy_of_the_options_is_used(make: Callable[..., Fetcher], server: Server) -> None:
    proxy = Proxy(server)
    fetcher = make(allow_private=False, proxy=f"http://127.0.0.1:{proxy.port}")
    assert page(fetcher.get("http://site.example/")).body == BODY
    assert proxy.heads[-1].startswith("GET http://site.example/ HTTP/1.1")
    assert "Host: site.example" in server.heads[-1]
    proxy.close()


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]", "[::ffff:10.0.0.1]", "localhost"])
def test_a_proxy_is_not_told_to_go_to_a_private_address_unless_that_is_allowed(
    make: Callable[..., Fetcher], server: Server, host: str
) -> None:
    proxy = Proxy(server)
    fetcher = make(allow_private=False, proxy=f"http://127.0.0.1:{proxy.port}")
    for scheme in ("http", "https"):
        assert reason(fetcher.get(f"{scheme}://{host}/")) == "private-address"
    assert proxy.heads == []
    assert page(fetcher.get(f"http://{host}/", private=True)).body == BODY
    proxy.close()


METADATA_HOSTS = ["169.254.169.254", "100.100.100.200", "[fd00:ec2::254]", "[fe80::1]", "[::ffff:169.254.169.254]"]


@pytest.mark.parametrize("host", METADATA_HOSTS)
def test_a_metadata_address_is_excluded_although_private_ones_are_allowed(
    make: Callable[..., Fetcher], server: Server, host: str
) -> None:
    proxy = Proxy(server)
    by_proxy = f"http://127.0.0.1:{proxy.port}"
    for options in ({}, {"proxy": by_proxy}, {"connect_to": (f":80::{server.port}",)}):
        fetcher = make(allow_private=True, **options)
        assert reason(fetcher.get(f"http://{host}/", private=True)) == "private-address"
    assert proxy.heads == []
    assert page(make(allow_metadata=True, proxy=by_proxy).get(f"http://{host}/")).body == BODY
    proxy.close()


def test_a_rule_that_only_changes_the_port_allows_no_private_address(
    make: Callable[..., Fetcher], server: Server
) -> None:
    fetcher = make(allow_private=False, connect_to=(f":80::{server.port}",))
    assert reason(fetcher.get("http://127.0.0.1/")) == "private-address"


def test_a_proxy_of_the_environment_is_not(
    make: Callable[..., Fetcher], server: Server, monkeypatch: pytest.MonkeyPatch, deaf_port: int
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY", "https_proxy"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{deaf_port}")
    assert page(make().get(server.url())).body == BODY


def test_no_proxy_of_the_environment_is_ignored_as_well(
    make: Callable[..., Fetcher], server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("no_proxy", "*")
    proxy = Proxy(server)
    assert page(make(proxy=f"http://127.0.0.1:{proxy.port}").get("http://site.example/")).body == BODY
    proxy.close()


def test_a_proxy_that_is_gone_is_connect(make: Callable[..., Fetcher], deaf_port: int) -> None:
    assert reason(make(proxy=f"http://127.0.0.1:{deaf_port}").get("http://site.example/")) == "connect"


# TLS


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A self-signed certificate of site.example, with its key in the same file."""
    if not shutil.which("openssl"):
        pytest.skip("the TLS tests make their certificate with the openssl program, which is not here")
    path = tmp_path_factory.mktemp("tls") / "site.pem"
    subject = ["-subj", "/CN=site.example", "-addext", "subjectAltName=DNS:site.example"]
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *subject]
    made = subprocess.run([*command, "-keyout", "-", "-out", "-"], capture_output=True, check=True)
    path.write_bytes(made.stdout)
    return path


@pytest.fixture
def secure(certificate: Path) -> Iterator[Server]:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate)
    names: list[str | None] = []
    tls.sni_callback = lambda _sock, name, _context: names.append(name)  # type: ignore[assignment]
    with serving(tls) as one:
        one.names = names  # type: ignore[attr-defined]
        yield one


def test_a_page_over_tls_comes_under_its_own_name(
    make: Callable[..., Fetcher], secure: Server, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    fetcher = make(connect_to=(f"::127.0.0.1:{secure.port}",))
    for _ in range(2):
        assert page(fetcher.get("https://site.example/gzip")).body == BODY
    assert secure.names == ["site.example"]  # type: ignore[attr-defined]
    assert "Host: site.example" in secure.heads[-1].split("\r\n")
    assert reason(fetcher.get("https://other.example/")) == "tls"
    hasty = make(connect_to=(f"::127.0.0.1:{secure.port}",), timeout=SHORT)
    assert reason(hasty.get("https://site.example/slow-body")) == "timeout"


def test_tls_goes_through_a_proxy_by_connect(
    make: Callable[..., Fetcher], secure: Server, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    proxy = Proxy(secure)
    fetcher = make(allow_private=False, proxy=f"http://127.0.0.1:{proxy.port}")
    answer = page(fetcher.get("https://site.example/", headers=("X-Secret: 1",)))
    assert answer.body == BODY and "x-proxy" not in answer.headers
    assert proxy.heads[0].startswith("CONNECT site.example:443 ") and "X-Secret" not in proxy.heads[0]
    proxy.close()


def test_many_requests_leave_no_descriptors_open(make: Callable[..., Fetcher], server: Server) -> None:
    fetcher = make()
    here = Path("/proc/self/fd")
    if not here.exists():
        pytest.skip("descriptors are counted in /proc, which is not here")
    fetcher.get(server.url())
    before = len(list(here.iterdir()))
    for path in ("/close", "/too-short", "/image", "/gzip-not", "/chunk-negative") * 6:
        fetcher.get(server.url(path))
    fetcher.close()
    assert before + 20 < resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    wait_for(lambda: len(list(here.iterdir())) < before + 20)  # the server's ends are among them
