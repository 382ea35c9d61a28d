"""Manners by address and by domain: what a zone of thousands of names, or one that stores too much, can get."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from lab.marks import later
from lab.webs import FlatWeb
from lab.world import World, crawler, end, html, links, world

from crawler.commands.demo.pages import Leaf
from crawler.commands.demo.server import LoggedRequest
from crawler.commands.demo.web import Web, WebReply
from crawler.web import urls

RATE = 5
HUB = "http://hub.example/"
SHARED = ["-s", "shared_addresses=[127.0.0.0/8]"]


class Zone(Web):
    """A page with names of one wildcard zone, or of several, all on one address; each has some pages."""

    def __init__(self, names: int, zones: int = 1, pages: int = 1, size: int = 10) -> None:
        super().__init__()
        self.names, self.zones, self.pages, self.size = names, zones, pages, size

    def seeds(self) -> list[str]:
        return [HUB]

    def leaf(self, url: str) -> Leaf | None:
        raise NotImplementedError

    def reply(self, host: str, path: str) -> WebReply:
        if host == "hub.example" and path == "/":
            every = range(self.names)
            return html(links(*(f"http://n{name}.zone{name % self.zones}.example/" for name in every)))
        if not path[1:].isdigit() and path != "/":
            return WebReply(404)
        below = links(*(f"/{page}" for page in range(1, self.pages))) if path == "/" else "<!doctype html>"
        return WebReply(200, (("Content-Type", "text/html"),), below.encode() + b"x" * self.size, compress=True)


def seconds(log: list[LoggedRequest]) -> float:
    return log[-1].start - log[0].start


def explained(w: World, url: str) -> dict[str, str]:
    found: dict[str, str] = json.loads(crawler("explain", str(w.root), url, "--json"))
    return found


# ---- the pace


@pytest.mark.parametrize("workers", ["2", *later("1")])
@pytest.mark.parametrize("shared", [[], SHARED], ids=["by address", "by domain"])
def test_an_address_with_thousands_of_names_gets_no_more_than_its_rate(
    tmp_path: Path, workers: str, shared: list[str]
) -> None:
    with world(Zone(3000), tmp_path) as w:
        process = w.start(HUB, "-j", workers, *shared, "-s", "max_hosts_per_domain=null", quick=False)
        w.until(1 + 2 + 4 * RATE)
        process.terminate()
        end(process, 3)
        zone = [request for request in w.log if request.host != "hub.example"]
        assert zone[0].path == "/robots.txt", "which counts, too"
        # Not all of the time: the first come at once, and the server may notice some of them late.
        assert seconds(zone[: 4 * RATE]) >= 2, "it took them a tenth of a second before"


@pytest.mark.fleet  # for time
def test_what_waits_for_its_address_has_no_slot_and_keeps_nobody_waiting(tmp_path: Path) -> None:
    class Both(FlatWeb):
        def reply(self, host: str, path: str) -> WebReply:
            return (
                Zone(1000).reply(host, path) if "zone" in host or host == "hub.example" else super().reply(host, path)
            )

    with world(Both(hosts=60, pages=3), tmp_path) as w:
        seeds = [HUB, *w.web.seeds()]
        w.run(
            *seeds,
            "-j",
            "1",
            "-t",
            "4",
            "-w",
            "0.5",
            "-s",
            "time_limit=12s",
            "--no-robots",
            *SHARED,
            quick=False,
            code=4,
        )
        others = [request for request in w.log if "zone" not in request.host]
        assert len(others) == 1 + 2 + 60 * 3, "all of the other hosts were crawled meanwhile, in four slots"
        assert w.status()["waiting"] > 100


def test_names_of_one_address_are_crawled_to_the_end(tmp_path: Path) -> None:
    with world(Zone(30, zones=3, pages=2), tmp_path) as w:
        w.crawl("-w", "0.05", "-s", "max_per_address=40")
        assert len(w.urls()) == 1 + 30 * 2
        assert w.waiting() == []


# ---- hosts of a domain


def test_a_domain_has_a_number_of_hosts_and_those_beyond_are_skipped_counted_and_explained(tmp_path: Path) -> None:
    with world(Zone(40, zones=2), tmp_path) as w:
        said = w.crawl("-s", "max_hosts_per_domain=7", "-j", "2")
        hosts = [folder.name for folder in (w.root / "links").iterdir()]
        assert sorted(sum(host.endswith(f"zone{zone}.example") for host in hosts) for zone in (0, 1)) == [7, 7]
        assert "URLs are skipped because of max_hosts_per_domain" in said
        assert w.status()["limits"] == {"max_hosts_per_domain": 40 - 14}
        assert "beyond max_hosts_per_domain 26" in crawler("status", str(w.root))
        skipped = next(name for name in range(40) if f"n{name}.zone{name % 2}.example" not in hosts)
        found = explained(w, f"http://n{skipped}.zone{skipped % 2}.example/")
        assert found["rule"] == "max_hosts_per_domain"
        assert "has 7 hosts, and max_hosts_per_domain is 7" in found["why"]
        assert w.waiting() == []
        crawler("check", str(w.root))


def test_hosts_that_only_wait_have_their_places_too(tmp_path: Path) -> None:
    with world(Zone(40), tmp_path) as w:
        w.crawl("--no-robots", "-s", "max_hosts_per_domain=7", "-s", "max_pages=3", code=4)
        hosts = {urls.host(name) for name in w.waiting()} | {folder.name for folder in (w.root / "links").iterdir()}
        assert len(hosts - {"hub.example"}) == 7 and len(w.urls()) == 3
        assert "no problems" in crawler("check", str(w.root)), "they were lost links, beyond the limit"
        skipped = next(f"n{name}.zone0.example" for name in range(40) if f"n{name}.zone0.example" not in hosts)
        assert explained(w, f"http://{skipped}/")["rule"] == "max_hosts_per_domain"
        kept = next(iter({urls.host(name) for name in w.waiting()}))
        assert explained(w, f"http://{kept}/")["rule"] is None


@pytest.mark.fleet  # for time
def test_the_hosts_of_a_domain_are_known_again_after_a_restart(tmp_path: Path) -> None:
    with world(Zone(10), tmp_path) as w:
        w.crawl("-s", "max_hosts_per_domain=4")
        w.web.names = 30  # type: ignore[attr-defined]
        w.run("http://hub.example/?more", "-s", "max_hosts_per_domain=4")
        hosts = {folder.name for folder in (w.root / "links").iterdir()} - {"hub.example"}
        assert len(hosts) == 4
        w.run("http://n25.zone0.example/")
        hosts = {folder.name for folder in (w.root / "links").iterdir()} - {"hub.example"}
        assert len(hosts) == 5, "what the user gives is requested"


# ---- how much is stored


def stored(w: World, of: str = "") -> int:
    """The bytes of all pages and records of hosts whose names end so."""
    files = [path for noun in ("htmls", "links") for path in (w.root / noun).glob("*/[!.]*")]
    return sum(path.stat().st_size for path in files if path.parent.name.endswith(of))


def test_a_host_stores_no_more_than_its_bytes_however_well_they_are_compressed(tmp_path: Path) -> None:
    with world(Zone(1, pages=60, size=100_000), tmp_path) as w:
        said = w.crawl("-s", "max_bytes_per_host=1M", "-t", "2", "-j", "1")
        assert 1 << 20 <= stored(w, "zone0.example") < (1 << 20) + 500_000, "and what was in flight"
        assert "URLs are skipped because of max_bytes_per_host" in said
        assert w.status()["limits"]["max_bytes_per_host"] > 30
        found = explained(w, "http://n0.zone0.example/99")
        assert found["rule"] == "max_bytes_per_host"
        assert w.waiting() == []
        requests = len(w.log)
        w.run("http://n0.zone0.example/7?again", quick=False)
        assert len(w.log) <= requests + 2, "what is stored counts in the next run"
        crawler("check", str(w.root))


@pytest.mark.fleet  # for time
@pytest.mark.parametrize("limit, rule", [("8", "max_per_domain"), ("300K", "max_bytes_per_domain")])
def test_a_domain_stores_no_more_than_its_limit_over_all_its_hosts_in_all_runs(
    tmp_path: Path, limit: str, rule: str
) -> None:
    with world(Zone(20, pages=4, size=50_000), tmp_path) as w:
        w.crawl("-s", f"{rule}={limit}", "-t", "2", "-j", "2", "-w", "0.1", "-s", "max_per_address=5")
        pages = len(list((w.root / "htmls").glob("*zone0.example/*")))
        assert 4 <= pages < 20
        assert w.status()["limits"][rule] > 0
        found = explained(w, "http://n0.zone0.example/77")
        assert (found["rule"], w.waiting()) == (rule, [])
        assert "domain zone0.example has" in found["why"]
        w.run(
            "http://n19.zone0.example/?more",
            "http://n18.zone0.example/?more",
            "http://n17.zone0.example/?more",
            quick=False,
        )
        more = len(list((w.root / "htmls").glob("*zone0.example/*")))
        assert more <= pages + 3, "the pages of other hosts count, although they were stored by an earlier run"


def test_a_normal_crawl_meets_no_limit(tmp_path: Path) -> None:
    with world(FlatWeb(hosts=20, pages=5), tmp_path) as w:
        w.crawl()
        assert w.differences() == []
        assert (w.status()["skipped"], w.status()["limits"]) == (0, {})


# ---- stores of earlier versions


def test_a_store_that_was_made_by_host_is_resumed_by_host(tmp_path: Path) -> None:
    with world(Zone(30, zones=2, pages=3), tmp_path) as w:
        w.crawl("-s", "spread=host", "-s", "max_pages=20", "-w", "0.05", code=4)
        assert w.waiting()
        said = crawler("run", str(w.root), "-s", "spread=domain", code=2)
        assert "spread" in said
        edited = (w.root / "crawl.yaml").read_text().replace("max_pages: 20", "max_pages: null")
        (w.root / "crawl.yaml").write_text(edited)
        w.run(quick=False)
        assert len(w.urls()) == 1 + 30 * 3
        assert "spread: host" in (w.root / "README").read_text()
