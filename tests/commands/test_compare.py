"""`crawler compare`: the same URLs in several ways, politely, each into a store of its own."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest
from lab.world import Answers, World, crawler, html, plain, world

from crawler import Store
from crawler.errors import USAGE

HOSTS = ("a.example", "b.example")
PAGES = {f"{host}/{n}": html(f"<title>{n}</title>") for host in HOSTS for n in range(3)}
CLOSED = {"b.example/robots.txt": plain("User-agent: *\nDisallow: /2\nCrawl-delay: 0.5\n")}


@pytest.fixture
def site(tmp_path: Path) -> Iterator[World]:
    """Two hosts with three pages each, of which one is closed to robots."""
    with world(Answers({**PAGES, **CLOSED}), tmp_path) as made:
        yield made


def compare(site: World, *args: str, code: int = 0) -> str:
    flags = [*site.flags, "-w", "0.2", "-s", "max_per_address=null", "-s", "user_agent=test/1 (+http://a.example/)"]
    return crawler("compare", *flags, *args, code=code)


@pytest.mark.fleet  # for time
def test_each_way_requests_the_same_urls_politely_and_leaves_nothing_behind(site: World) -> None:
    file = site.folder / "urls.txt"
    file.write_text("".join(f"http://{page}\n" for page in PAGES))
    before = set(Path(tempfile.gettempdir()).glob("crawler-compare-*"))
    said = compare(site, str(file), "--ways", "1x1,2x4", "--plot", str(site.folder / "plot.svg"))
    assert said.startswith(
        "6 URLs of 2 hosts in 2 ways, one after the other; with the delay of each host this takes at"
    )
    rows = [line.split() for line in said.splitlines()[-2:]]
    assert [(row[0], row[4], row[5]) for row in rows] == [("1x1", "5", "1"), ("2x4", "5", "1")]
    assert all("█" in row[-1] for row in rows)
    for host, delay in zip(HOSTS, (0.2, 0.5), strict=True):
        log = sorted(request for request in site.log if request.host == host)
        gaps = [later.start - earlier.end for earlier, later in pairwise(log)]
        assert min(gaps[1:]) > delay * 0.95, "also between the two ways; the first follows robots.txt, with its delay"
        assert sum(request.path == "/robots.txt" for request in log) == 2
    assert "b.example/2" not in site.asked()
    assert {text.text for text in ElementTree.parse(site.folder / "plot.svg").iter() if text.text in ("1x1", "2x4")}
    assert set(Path(tempfile.gettempdir()).glob("crawler-compare-*")) <= before


def test_the_figures_are_there_as_json_and_the_stores_may_be_kept(site: World) -> None:
    kept = site.folder / "kept"
    found = json.loads(compare(site, "http://a.example/[0-2]", "--ways", "1x2", "--json", "--keep", str(kept)))
    assert [(it["way"], it["pages"], it["exit_code"]) for it in found] == [("1x2", 3, 0)]
    assert all(it["cpu"] > 0 and it["seconds"] > 0 and it["pages_per_second"] > 0 for it in found)
    assert len(Store(kept / "1-1x2")) == 3
    assert "name a new folder" in compare(site, "http://a.example/1", "--ways", "1x1", "--keep", str(kept), code=USAGE)


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["http://a.example/", "--ways", "many"], "must be such as 1x1"),
        (["http://a.example/", "--ways", "0x1"], "must be"),
        (["http://a.example/", "-s", "scope=any"], "compare requests the given URLs alone"),
        (["http://a.example/", "--plot", "x.png"], "ends with .svg"),
        (["a.example"], "did you mean https://a.example/"),
        ([], "no URLs to compare with"),
    ],
)
def test_wrong_arguments_are_said_in_a_sentence(args: list[str], said: str) -> None:
    assert said in crawler("compare", *args, code=USAGE)
