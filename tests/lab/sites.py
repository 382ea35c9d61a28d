"""Five sites as people want to take data from, the rules for each as manual/recipes.md has them, and their seeds."""

from __future__ import annotations

import json

from crawler.commands.demo.web import WebReply
from lab.world import html

COMPLAINTS, API, QUOTES, WIKI, GALLERY = (
    "complaints.example",
    "api.example",
    "quotes.example",
    "wiki.example",
    "gallery.example",
)

# ---- a list of complaints in GBK: 30 on a page, 3,155 in all

TOTAL, PER_PAGE = 3155, 30
COMPLAINTS_RULES = r"""match: '/list\?page=\d+$'
url: false
rows: table.list tr.item
columns:
  number:  {selector: 'td:nth-child(1)', type: int, required: true}
  subject: td:nth-child(2) a
  link:    {selector: 'td:nth-child(2) a::attr(href)', type: url}
  company: td:nth-child(3)
  demand:  td:nth-child(4)
  status:  'td:nth-child(5) span:contains("已")'
  date:    {selector: 'td:nth-child(6)', type: date}
"""


def complaints() -> dict[str, WebReply]:
    """The pages of the list, each with a link to the next, in a charset that only their meta element names."""
    pages = {}
    for first in range(0, TOTAL, PER_PAGE):
        items = "".join(_complaint(number) for number in range(first + 1, min(first + PER_PAGE, TOTAL) + 1))
        text = f"""<!doctype html><html><head><meta http-equiv="Content-Type" content="text/html; charset=gb2312">
<title>投诉列表</title></head><body><p>共 {TOTAL} 条</p><table class="list">
<tr><th>编号<th>主题<th>企业<th>诉求<th>状态<th>日期</tr>{items}</table></body></html>"""
        body = text.encode("gbk")
        pages[f"{COMPLAINTS}/list?page={first}"] = WebReply(200, (("Content-Type", "text/html"),), body)
    return pages


def _complaint(number: int) -> str:
    status = ("已回复", "已完成", "处理中")[number % 3]
    return f"""<tr class="item"><td>{number}</td><td><a href="/c/{number}.shtml">轮胎;异响 第{number}号</a></td>
<td>深圳汽车</td><td>退款&nbsp;赔偿</td><td><span>{status}</span></td><td>2026-11-{number % 28 + 1:02}</td></tr>"""


# ---- an API that gives JSON, in pages

API_RULES = r"""match: 'videos\?pn=\d+$'
rows: $.data.list[*]
columns:
  id:    {selector: $.aid, type: int}
  title: $.title
  owner: $.owner.name
  views: {selector: $.stat.view, type: int}
  tags:  {selector: $.tags, type: list}
  total: {selector: $.data.page.count, from: page, type: int}
"""


def api() -> dict[str, WebReply]:
    """Four pages of up to 20 videos."""
    pages = {}
    for page in range(1, 5):
        videos = [_video(number) for number in range(20 * page - 19, min(20 * page, 70) + 1)]
        told = {"code": 0, "data": {"page": {"pn": page, "ps": 20, "count": 70}, "list": videos}}
        body = json.dumps(told, ensure_ascii=False).encode()
        pages[f"{API}/videos?pn={page}"] = WebReply(200, (("Content-Type", "application/json"),), body)
    return pages


def _video(number: int) -> dict[str, object]:
    owner = {"name": f"用户{number % 7}", "mid": number % 7}
    return {
        "aid": number,
        "title": f"Video {number}",
        "owner": owner,
        "stat": {"view": 100 * number},
        "tags": ["a", "b"],
    }


# ---- shares, each with a table

TICKERS = ("AAPL", "GOOG", "MSFT", "TSLA")
QUOTES_RULES = r"""match: 'quote\?t='
url: false
table: 'table#data'
columns:
  ticker: {from: url, regex: 't=(\w+)'}
"""


def quotes() -> dict[str, WebReply]:
    """A page for each share; one has a column more."""
    return {f"{QUOTES}/quote?t={ticker}": html(_quote(place, ticker)) for place, ticker in enumerate(TICKERS)}


def _quote(place: int, ticker: str) -> str:
    more = ticker == "TSLA"
    days = "".join(
        f"<tr><td>2026-11-{day:02}<td>{100 + place + day}.50<td>{day},000{'<td>0.10' if more else ''}"
        for day in (16, 17)
    )
    header = f"<thead><tr><th>Date<th>Close<th>Volume{'<th>Dividend' if more else ''}</thead>"
    return f"<!doctype html><h1>{ticker}</h1><table id=menu><tr><td>x</table><table id=data>{header}{days}</table>"


# ---- an encyclopedia

ARTICLES = ("Ada_Lovelace", "Charles_Babbage", "Analytical_Engine", "Kevin_Bacon_(actor)")
WIKI_FLAGS = ("-s", "links_in=#bodyContent", "--follow-match", "^(/wiki/)((?!:).)*$")
WIKI_RULES = r"""match: '/wiki/[^:]*$'
columns:
  title: h1
  path:  {from: url, regex: '^https?://[^/]+(/.*)$'}
"""


def wiki() -> dict[str, WebReply]:
    """Articles that link to each other, and around them links that are of no use."""
    body = "".join(f'<a href="/wiki/{article}#top">x</a>' for article in ARTICLES)
    body += "".join(
        f'<a href="{link}">x</a>' for link in ("/wiki/File:Ada.jpg", "/w/index.php", "http://x.example/wiki/X")
    )
    menu = '<nav><a href="/wiki/Main_Page">x</a></nav>'
    return {
        f"{WIKI}/wiki/{article}": html(
            f"<!doctype html>{menu}<h1>{article.replace('_', ' ')}</h1><div id=bodyContent>{body}</div>"
        )
        for article in ARTICLES
    }


# ---- a gallery

GALLERY_RULES = r"""hosts: gallery.example
url: false
rows: //center/img
columns:
  image: {selector: ./@src, type: url}
"""


def gallery() -> dict[str, WebReply]:
    """Two pages of pictures."""
    first = '<center><img src="/i/1.jpg"><img src="i/2.jpg"></center><img src="/logo.png"><a href="/next">next</a>'
    return {f"{GALLERY}/": html(first), f"{GALLERY}/next": html('<center><img src="//cdn.example/3.jpg"></center>')}


# ---- a handbook

HANDBOOK = "handbook.example"


def handbook() -> dict[str, str | WebReply]:
    """A site of three pages, two of them the same, and a redirect."""
    return {
        f"{HANDBOOK}/": html("<h1>Handbook</h1><a href=/install>x</a><a href=/print>x</a><a href=/old>x</a>"),
        f"{HANDBOOK}/install": html("<h1>Install</h1><p>Turn the key."),
        f"{HANDBOOK}/print": html("<h1>Install</h1><p>Turn the key."),
        f"{HANDBOOK}/old": WebReply(301, (("Location", "/install"),)),
    }


# ---- a gallery whose pictures are wanted too, and a site of papers with a feed

ALBUM, PAPERS = "album.example", "papers.example"
ALBUM_RULES = r"""url: false
rows: //center/img
columns:
  image: {selector: ./@src, type: url}
"""
PICTURES = {f"/i/{number}.jpg": b"\xff\xd8\xff\xe0" + bytes([number]) * 5000 * number for number in range(1, 7)}
PAPER = b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n" + bytes(range(256)) * 1500  # as much as is saved while it comes


def album() -> dict[str, WebReply]:
    """A page of years, each a page of pictures with a page behind it that is too far away."""
    years = {2025: (1, 2, 3), 2026: (4, 5, 6)}
    found = {f"{ALBUM}/": html("".join(f'<a href="/{year}/">{year}</a>' for year in years))}
    for year, numbers in years.items():
        images = "".join(f'<img src="/i/{number}.jpg">' for number in numbers)
        found[f"{ALBUM}/{year}/"] = html(f'<center>{images}</center><a href="/{year}/about">about</a>')
        found[f"{ALBUM}/{year}/about"] = html('<a href="/deeper">deeper</a>')
    found[f"{ALBUM}/deeper"] = html("too far away")
    return found | {f"{ALBUM}{path}": _typed("image/jpeg", body) for path, body in PICTURES.items()}


def papers() -> dict[str, WebReply]:
    """Papers, one of them only in the feed, beside films and pictures that nobody wants."""
    start = '<a href="/a.pdf">A</a><a href="/film.mp4">film</a><img src="/logo.png"><a href="/news.rss">news</a>'
    items = "".join(f"<item><title>{it}</title><link>http://{PAPERS}/{it}.pdf</link></item>" for it in ("a", "b"))
    feed = f'<?xml version="1.0"?><rss version="2.0"><channel><title>News</title>{items}</channel></rss>'
    return {
        f"{PAPERS}/": html(start),
        f"{PAPERS}/a.pdf": _typed("application/pdf", PAPER),
        f"{PAPERS}/b.pdf": _typed("application/pdf", PAPER[:20_000]),
        f"{PAPERS}/news.rss": _typed("application/rss+xml", feed.encode()),
        f"{PAPERS}/film.mp4": _typed("video/mp4", PAPER),
        f"{PAPERS}/logo.png": _typed("image/png", PAPER),
    }


def _typed(kind: str, body: bytes) -> WebReply:
    return WebReply(200, (("Content-Type", kind),), body)


def pages() -> dict[str, str | WebReply]:
    """All sites."""
    return {**complaints(), **api(), **quotes(), **wiki(), **gallery()}
