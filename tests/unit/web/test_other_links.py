"""Links in more than elements: feeds, JSON, Link headers, images."""

from __future__ import annotations

import json
import time

import pytest

from crawler.web import feeds, markup
from crawler.web.markup import Wants
from crawler.web.other_links import in_headers, in_json, in_srcset
from crawler.web.page import FOLLOWED, Fetched

URL = "http://a.example/dir/page"
RSS = """<?xml version="1.0" encoding="UTF-8"?>
<rss version="2.0" xmlns:atom="http://www.w3.org/2005/Atom"><channel><title>News &amp; more</title>
<link>http://a.example/</link><atom:link rel="self" href="/feed"/><atom:link rel="next" href="/feed?page=2"/>
<item><title>One</title><link> /one </link><enclosure url="/one.mp3" type="audio/mpeg"/></item>
<item><link><![CDATA[http://b.example/two?a=1&b=2]]></link></item></channel></rss>"""
ATOM = """<feed xmlns="http://www.w3.org/2005/Atom"><title>Log</title><link rel="self" href="/atom"/>
<link href="/"/><entry><link href="/1"/><link rel="edit" href="/edit"/><link rel="enclosure" href="/1.pdf"/></entry>
<entry><link rel="alternate" href="2"/></entry></feed>"""
RDF = """<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns="http://purl.org/rss/1.0/">
<channel><title>Old</title></channel><item><link>http://a.example/r</link></item></rdf:RDF>"""


def links(body: str, kind: str, *follow: str, **headers: str) -> list[str]:
    page = Fetched(URL, 200, {"content-type": kind, **headers}, body.encode())
    return [
        link.removeprefix("http://a.example") for link in markup.read(page, Wants(follow=(*FOLLOWED, *follow))).links
    ]


@pytest.mark.parametrize("kind", ["application/rss+xml", "text/xml; charset=utf-8", "application/xml"])
def test_an_rss_feed_leads_to_its_items_and_its_next_part(kind: str) -> None:
    assert links(RSS, kind) == ["/", "/feed?page=2", "/one", "/one.mp3", "http://b.example/two?a=1&b=2"]


def test_atom_and_old_rss_are_read_too() -> None:
    assert links(ATOM, "application/atom+xml") == ["/", "/1", "/1.pdf", "/dir/2"]
    assert links(RDF, "application/rdf+xml") == ["/r"]


def test_the_title_of_a_feed_is_the_title_of_its_record_and_other_xml_is_no_feed() -> None:
    page = Fetched(URL, 200, {"content-type": "application/rss+xml"}, RSS.encode())
    assert markup.read(page).title == "News & more"
    assert links("<page><a href='/x'>x</a></page>", "application/xml") == ["/x"]


def test_a_broken_feed_has_the_links_before_the_break_and_one_with_entities_none() -> None:
    broken = feeds.read(RSS[: RSS.index("<item><link><!")], FOLLOWED, 100)
    assert broken is not None and broken.capped and "/one" in broken.links
    bomb = '<!DOCTYPE rss [<!ENTITY a "aaaa">]><rss><channel><link>&a;</link></channel></rss>'
    assert feeds.read(bomb, FOLLOWED, 100) is None


def test_json_has_links_only_when_asked() -> None:
    body = json.dumps({"next": "http://a.example/2", "http://a.example/name": 1, "text": "see http://a.example/no"})
    body = body[:-1] + r', "list": ["https:\/\/b.example\/x", "/relative", "say \"http:\/\/a.example/quoted\""]}'
    assert links(body, "application/json") == []
    assert links(body, "application/json", "json") == ["/2", "https://b.example/x"]
    assert list(in_json('{"a": "http://a.example/\\u00e4", "b": "http://x')) == ["http://a.example/ä"]


def test_link_headers_lead_on_as_follow_says() -> None:
    header = '</2>; rel="next"; title="a, b", <http://b.example/>; rel=canonical, </de>; rel=alternate; hreflang=de, '
    header += '</s.css>; rel="next stylesheet", </x>; rel=next; anchor="/other", <broken; rel=next'
    assert links("<p>", "text/html", link=header) == ["/2", "http://b.example/"]
    assert links("<p>", "text/html", "alternate", link=header) == ["/2", "http://b.example/", "/de"]
    assert links("", "application/pdf", link=header) == ["/2", "http://b.example/"], "those of a file too"
    assert list(in_headers({"link": "</é>; rel=next".encode().decode("latin-1")}, ["next"])) == ["/é"]


def test_a_hostile_header_takes_linear_time() -> None:
    started = time.process_time()
    for header in ("<" * 300_000, "<a>" + ";" * 300_000, '<a>;x="' * 40_000, "<a>;rel=" * 40_000, ";=" * 150_000):
        list(in_headers({"link": header}, ["next"]))
    assert time.process_time() - started < 5


PICTURES = """<!doctype html><img src=/a.png srcset="/b.png 1x, /c.png 2x"><picture><source srcset="/d.webp">
<img src="e.jpg#x"></picture><video><source src=/f.mp4></video><img src="data:image/png;base64,AAAA"><a href=/g>g</a>"""


@pytest.mark.parametrize("parser", ["turbohtml", "html5lib"])
def test_images_are_links_where_they_are_wanted(parser: str) -> None:
    page = Fetched(URL, 200, {"content-type": "text/html"}, PICTURES.encode())
    assert markup.read(page, Wants(parser)).links == ("http://a.example/g",)
    found = markup.read(page, Wants(parser, (*FOLLOWED, "img"))).links
    wanted = ["/a.png", "/b.png", "/c.png", "/d.webp", "/dir/e.jpg", "/g"]
    assert [link.removeprefix("http://a.example") for link in found] == wanted


def test_a_srcset_is_read_as_the_standard_says() -> None:
    assert list(in_srcset(" /a 1x,/b 2x (x,y) , /c,, /d,e 3w,")) == ["/a", "/b", "/c", "/d,e"]
    assert list(in_srcset("data:image/png;base64,AA== 1x, /b")) == ["data:image/png;base64,AA==", "/b"]
    assert list(in_srcset("")) == []
