"""Traps: what is endless is cut, what only looks like it is not, and no link costs much to judge."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lab.world import Links, world

from crawler.commands.demo.pages import Leaf
from crawler.web import urls

YEAR = 2026
HEX = "0f3c9a7b5d1e2f4a6b8c0d2e4f6a8b0c"

CUT = {
    "long": [
        "http://a.example/?q=" + "x" * 1000,
        "http://a.example/" + "/".join(f"level-{n}" for n in range(200)),
    ],
    "repeat": [
        "http://a.example/a/b/a/b/a/b",
        "http://a.example/x/x/x/",
        "http://a.example/en/shop/en/about/en/?q=1",
        "http://a.example/css//css//css/style",
        "http://a.example/images/images/photo/images",
        "http://a.example/2024/a/2024/b/2024",
    ],
    "deep": [
        "http://a.example/" + "/".join(f"s{n}" for n in range(21)),
        "http://a.example/" + "/".join(f"s{n}" for n in range(21)) + "/?q",
        "http://a.example" + "/" * 25,
    ],
    "calendar": [
        "http://a.example/2031/05",
        "http://a.example/2031/05/12/a-title",
        "http://a.example/2999/01",
        "http://a.example/calendar/2999/12",
        "http://a.example/calendar/2999/1",
        "http://a.example/events/9999-12",
        "http://a.example/2031-05-12",
        "http://a.example/2031-05-12T10:00",
        "http://a.example/diary-2031-05-12.html",
        "http://a.example/archive/2031-05/",
        "http://a.example/may-2031",
        "http://a.example/2031/may/",
        "http://a.example/2031/5/12",
        "http://a.example/31/05/2031",
        "http://a.example/?date=May+2031",
        "http://a.example/?startDate=20310512",
        "http://a.example/?calYear=2031",
        "http://a.example/?calMonth=413",
        "http://a.example/calendar/12/31/2031",
        "http://a.example/?date=20310512",
        "http://a.example/?date=2031/05/12",
        "http://a.example/?date=12.05.2031",
        "http://a.example/?date=5%2F12%2F2031",
        "http://a.example/?date=9999-12-31",
        "http://a.example/?from=20310512&to=20310513",
        "http://a.example/?m=203105",
        "http://a.example/?year=2031",
        "http://a.example/?year=2031&month=5",
        "http://a.example/?month=5&year=2031",
        "http://a.example/?Month=5&Year=2031",
        "http://a.example/?y=2031&m=5",
        "http://a.example/?cal_year=2031",
        "http://a.example/?tx_cal%5Byear%5D=2031",
        "http://a.example/?month=413",
        "http://a.example/?month=-413",
        "http://a.example/month/413",
        "http://a.example/cal/2031",
        "http://a.example/events/2031",
        "http://a.example/events/2031-05",
        "http://a.example/events/?tribe-bar-date=2031-05-01",
        "http://a.example/calendar/2031/5",
        "http://a.example/calendar/5/2031",
        "http://a.example/calendar/may/2031",
        "http://a.example/calendar/203105",
        "http://a.example/calendar/9999-12-31",
        "http://a.example/calendar-2031.html",
        "http://a.example/calendar/month.php?cal=x&getdate=20310512",
        "http://a.example/calendar/view.php?view=month&time=1924905600",
        "http://a.example/index.php?option=com_events&task=view_month&year=2031&month=05&day=01",
        "http://a.example/month.calendar/2031/05/12/-",
        "http://a.example/week/2031-w20",
        "http://a.example/calendar/1950/05",
        "http://a.example/calendar/1950",
        "http://a.example/calendar.php?year=1950&month=5",
        "http://a.example/?year=1950&month=5",
        "http://a.example/events/1950-05",
        "http://a.example/kalender/1950/05/",
        "http://a.example/agenda/1950-05-12",
        "http://a.example/tv-schedule/1950-05-12",
        "http://a.example/month/1950-01",
        "http://a.example/day/1950-01-01",
        "http://a.example/?view=week&date=1950-01-01",
        "http://calendar.a.example/1950/05/",
    ],
}

# Blogs, archives, shops, wikis, forges, forums, documentation, maps: none of them is a trap.
NOT_CUT = [
    "http://a.example/",
    "https://blog.example/2026/11/17/a-title/",
    "https://blog.example/2009/02/",
    "https://blog.example/2026-11-17-a-title.html",
    "https://blog.example/?m=202611",
    "https://blog.example/?p=2031",
    "https://blog.example/page/2031/",
    "https://blog.example/11/11/11/armistice",
    "https://blog.example/vision-2030-10-year-plan",
    "https://blog.example/news/petrol-cars-banned-by-march-2035-says-minister",
    "https://blog.example/2050-the-world-in-numbers",
    "https://blog.example/marketing/2030/",
    "https://un.example/agenda-2030/",
    "https://un.example/sdgs/2030agenda",
    "https://paper.example/1964/02/10/archives/the-beatles-week-in-new-york.html",
    "https://paper.example/1964/04/12/archives/a-day-at-the-races.html",
    "https://paper.example/timesmachine/1969/07/21/issue.html",
    "https://paper.example/lccn/sn83030214/1912-04-16/ed-1/",
    "https://paper.example/anno?aid=nfp&datum=19140629&seite=1",
    "https://paper.example/issue?year=1923&month=5&day=12",
    "https://paper.example/search/results/1850-01-01/1899-12-31",
    "https://paper.example/browse/1789/07/14/",
    "https://archive.example/web/20260101000000/http://a.example/",
    "https://archive.example/details/1906_calendar_of_plants",
    "https://shop.example/product/2031",
    "https://shop.example/product/2050/10-pack",
    "https://shop.example/item/20310512",
    "https://shop.example/p/4711-0512",
    "https://shop.example/sku/2040-991",
    "https://shop.example/c/monitors/1920x1080/",
    "https://shop.example/c/monitors/?res=3840x2160&year=2025",
    "https://shop.example/?page=2045&sort=year",
    "https://shop.example/loan?months=360",
    "https://shop.example/cars?year=2027",
    "https://shop.example/photos/2048/1536.jpg",
    "https://wiki.example/wiki/2031",
    "https://wiki.example/wiki/2032_Summer_Olympics",
    "https://wiki.example/wiki/Category:1954_events",
    "https://wiki.example/wiki/Calendar_of_saints",
    "https://wiki.example/wiki/1954",
    "https://wiki.example/wiki/A/A/B",
    "https://wiki.example/w/index.php?title=Calendar&oldid=20310512",
    "https://wiki.example/thumb/a/a9/Example.jpg/120px-Example.jpg",
    "https://forge.example/org/repo/issues/2031",
    "https://forge.example/org/repo/pull/2099/files",
    "https://forge.example/org/repo/commit/20310512abcdef0123456789abcdef0123456789",
    "https://forge.example/apache/commons/blob/master/src/main/java/org/apache/commons/io/IOUtils.java",
    "https://forge.example/org/repo/-/tree/main/a/b/c/d/e/f/g/h/i/j",
    "https://forge.example/org/calendar/releases/tag/v2050.1",
    "https://forge.example/org/repo/compare/2031...2099",
    "https://forum.example/topic/2050/3",
    "https://forum.example/topic/4512/12",
    "https://forum.example/topic/2450/12",
    "https://shop.example/p/2450-05",
    "https://forum.example/viewtopic.php?f=2&t=2031&start=203105",
    "https://forum.example/t/some-title/2050/11-posts",
    "https://forum.example/showthread.php?t=203105&page=2",
    "https://docs.example/3.11/library/calendar.html",
    "https://docs.example/v/3000.12.1/",
    "https://docs.example/ubuntu/22.04/",
    "https://docs.example/windows/5.1.2600/",
    "https://docs.example/rfc/rfc2045",
    "https://docs.example/iso/8601-2",
    "https://docs.example/en/latest/api/en/",
    "https://tiles.example/0/0/0",
    "https://tiles.example/osm/0/0/0.png",
    "https://tiles.example/3/3/3/",
    "https://tiles.example/12/10/2048",
    "https://tiles.example/media/1/0/1/1/0/1.jpg",
    "https://history.example/events/1945",
    "https://history.example/events/1945/victory",
    "https://history.example/on-this-day/may/8",
    "https://bank.example/?price_month=500&min_price=2000",
    "https://tiles.example/12/2048/1362.png",
    "https://tiles.example/12/2050/11",
    "https://tiles.example/?z=12&x=2048&y=2050",
    "https://events.example/event/2345",
    "https://events.example/events/48213",
    "https://events.example/events/2026-11-17-meeting",
    "https://events.example/events/1969-50-years-on",
    "https://events.example/calendar/2027/5",
    "https://events.example/calendar?year=2028&month=12",
    "https://events.example/calendar/month/12",
    "https://events.example/calendar/view.php?view=day&time=1795000000",
    "https://events.example/schedule/room/2050a",
    "https://hotel.example/?checkin=2027-05-12&checkout=2027-05-20",
    "https://arxiv.example/abs/2031.05123",
    "https://museum.example/objects/1850.12.3",
    "https://phone.example/tel/555-2031-05",
]


@pytest.mark.parametrize(("rule", "url"), [(rule, url) for rule, cut in CUT.items() for url in cut])
def test_a_trap_is_cut_by_its_rule_and_by_no_other(rule: str, url: str) -> None:
    assert urls.normalize(url) == url
    assert urls.trap(url, [rule], YEAR) == rule
    if rule != "long":
        assert urls.trap(url, set(urls.TRAPS) - {rule}, YEAR) is None
    assert urls.trap(url, (), YEAR) is None


@pytest.mark.parametrize("url", NOT_CUT)
def test_what_only_looks_like_a_trap_is_not_cut(url: str) -> None:
    assert urls.normalize(url) == url
    assert urls.trap(url, urls.TRAPS, YEAR) is None


def test_the_year_decides_how_far_a_calendar_goes() -> None:
    months = [f"http://a.example/calendar/{year}/01" for year in range(1900, 2100)]
    followed = [url for url in months if not urls.trap(url, ["calendar"], 2026)]
    assert [followed[0][-7:], followed[-1][-7:], len(followed)] == ["1996/01", "2028/01", 33]
    assert urls.trap("http://a.example/2031/05", urls.TRAPS, 2029) is None


def test_limits_are_exact() -> None:
    assert urls.trap("http://a.example/".ljust(1000, "x"), urls.TRAPS, YEAR) is None
    assert urls.trap("http://a.example/".ljust(1001, "x"), urls.TRAPS, YEAR) == "long"
    twenty = "http://a.example/" + "/".join(f"s{n}" for n in range(20))
    assert [urls.trap(url, urls.TRAPS, YEAR) for url in (twenty, twenty + "/", twenty + "/x")] == [None, None, "deep"]


# What a session id looks like, and what is left without it.
SESSIONS = {
    f"http://a.example/?sid={HEX}": "http://a.example/",
    f"http://a.example/a?b=1&sid={HEX}&c": "http://a.example/a?b=1&c",
    f"http://a.example/a;jsessionid={HEX}": "http://a.example/a",
    "http://a.example/a;jsessionid=1A2B.node1/b;v=2?c": "http://a.example/a/b;v=2?c",
    "http://a.example/x/..;jsessionid=1/b": "http://a.example/b",
    "http://a.example/?PHPSESSID=abc123": "http://a.example/",
    "http://a.example/?JSESSIONID=0000xyz!-12": "http://a.example/",
    "http://a.example/?ASPSESSIONIDQQBCTRTA=LNHFGAEBFMJBNJPKFIJLOHKP": "http://a.example/",
    "http://a.example/?CFID=1234567&CFTOKEN=89012345&id=3": "http://a.example/?id=3",
    "http://a.example/?osCsid=4k2j5h3kj45h3k4j5h3k45jh3k": "http://a.example/",
    f"http://a.example/?SESSID={HEX}&sess_id={HEX}&sessionKey={HEX}": "http://a.example/",
    "http://a.example/?zenid=4k2j5h3kj45h3k4j5h3k45jh3k&a=": "http://a.example/?a=",
    "http://a.example/?session_id=6f9619ff-8b86-d011-b42d-00c04fc964ff": "http://a.example/",
    "http://a.example/?sessionid=AbC9-dEf_GhI%2BjKl%3D": "http://a.example/",
    f"http://a.example/showthread.php?s={HEX}&t=5": "http://a.example/showthread.php?t=5",
    "http://a.example/(S(lit3py55t21z5v55vlm25s55))/a.aspx": "http://a.example/a.aspx",
    "http://a.example/(A(x1)S(lit3py55t21z5v55vlm25s55))": "http://a.example/",
}
NO_SESSIONS = [
    "http://a.example/?sid=12",
    "http://a.example/?sid=chapter-2-introduction",
    "http://a.example/?s=calendar",
    "http://a.example/?s=1234",
    "http://a.example/?session=keynote-of-the-second-day",
    "http://a.example/?id=0f3c9a7b5d1e2f4a6b8c0d2e4f6a8b0c",
    "http://a.example/?user_sid=0f3c9a7b5d1e2f4a6b8c0d2e4f6a8b0c",
    "http://a.example/sid=0f3c9a7b5d1e2f4a6b8c0d2e4f6a8b0c",
    "http://a.example/sessions/0f3c9a7b5d1e2f4a6b8c0d2e4f6a8b0c",
    "http://a.example/a;v=2",
    "http://a.example/wiki/Foo_(S(3))",
    "http://a.example/?sid=",
    "http://a.example/?",
]


@pytest.mark.parametrize(("url", "bare"), SESSIONS.items())
def test_a_session_id_is_taken_out_and_the_rest_stays(url: str, bare: str) -> None:
    assert urls.normalize(url) == url
    assert urls.without_session(url) == bare
    assert urls.trap(url, urls.TRAPS, YEAR) is None


@pytest.mark.parametrize("url", NO_SESSIONS)
def test_what_is_no_session_id_stays(url: str) -> None:
    assert urls.normalize(url) == url
    assert urls.without_session(url) == url


PIECES = [
    *("/", "?", "&", ";", "=", ".", "..", "-", "(S(", "))", "(S(abc))", "%2e", "%5B", "[", "]", "a", "A1"),
    *("sid=", "jsessionid=", ";jsessionid=", "PHPSESSID=x", "s=", HEX, "CFID"),
    *("calendar", "events", "month", "month=", "day=", "y=", "x=", "date=", "year=", "2031", "05", "12", "1950", "may"),
]
NORMALIZED = (
    st.lists(st.sampled_from(PIECES) | st.text(max_size=3), max_size=60)
    .map(lambda pieces: urls.normalize("http://a.example/" + "".join(pieces)))
    .filter(bool)
)


@given(NORMALIZED, st.sets(st.sampled_from(urls.TRAPS)))
def test_any_url_is_cut_by_an_active_rule_or_by_none(url: str, rules: set[str]) -> None:
    assert urls.trap(url, rules, YEAR) in {*rules, None} - {"session"}


@given(NORMALIZED)
def test_without_session_ids_any_url_is_normalized_and_has_none_left(url: str) -> None:
    bare = urls.without_session(url)
    assert urls.normalize(bare) == bare
    assert urls.without_session(bare) == bare
    assert len(bare) <= len(url)


@pytest.mark.parametrize("piece", [*PIECES, "?a=", "&month=", "?y=", "1-", "20/", "=12/", "0f", "[cal", "%2f05", "A("])
def test_no_url_takes_longer_than_its_length_deserves(piece: str) -> None:
    url = ("http://a.example/" + piece * urls.MAX_URL)[: urls.MAX_URL]
    began = time.process_time()
    for _ in range(100):
        urls.trap(url, ("repeat", "deep", "calendar"), YEAR)
        urls.without_session(url)
    assert time.process_time() - began < 5, "a hundred of the longest: seconds only if time grows with the square"


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("ftp://me:secret@a.example/", "its scheme is ftp"),
        ("mailto:me@a.example", "its scheme is mailto"),
        ("a.example/page", "no scheme"),
        ("a.example:8000/page", "no scheme"),
        ("http://me:secret@a.example:99999/", "its host or port is not valid"),
        ("", "no scheme"),
        ("http://me:secret@../", "its host is not a valid name"),
        ("http://a.example:0/", "its host is not a valid name"),
        ("http://a.example/" + "x" * 2000, "longer than 2,000"),
        ("http://a.example/" + "x" * 20000, "longer than 16,000"),
    ],
)
def test_why_a_url_cannot_be_normalized_is_said_without_its_secrets(url: str, words: str) -> None:
    assert urls.normalize(url) is None
    assert words in urls.why_not(url)
    assert "secret" not in urls.why_not(url)


class Endless(Links):
    """A calendar that can be turned for ever in both directions, and a page whose link grows its own path."""

    def leaf(self, url: str) -> Leaf | None:
        if "/calendar/" in url:
            year = int(url.rpartition("/")[2])
            return Leaf(tuple(self.url(f"/calendar/01/{turned}") for turned in range(year - 9, year + 10)))
        return Leaf((url + "a/b/",)) if url.endswith("/b/") else super().leaf(url)


def test_a_crawl_of_an_endless_site_comes_to_its_end(tmp_path: Path) -> None:
    year = time.gmtime().tm_year
    with world(Endless({"/": [f"/calendar/01/{year}", "/b/"]}), tmp_path) as w:
        w.crawl("--scope", "host")
        paths = {url.removeprefix("http://a.example/") for url in w.urls()}
        assert paths == {"", "b/", "b/a/b/", *(f"calendar/01/{near}" for near in range(year - 30, year + 3))}
