"""The embedded web's pages: a leaf (what a URL is) dressed as the bytes that a server would send."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from html import escape
from random import Random
from zlib import crc32

from crawler.commands.demo.expected import Fact

HTML = "text/html"

# Real sentences, because the charset of an unlabelled page is guessed from what its language looks like.
SENTENCES = {
    "english": (
        "The gardener walked along the old wall and counted the apple trees that had survived the winter.",
        "Every evening a boat crosses the river and brings letters, bread and news from the other side.",
        "Nobody remembered who had planted the hedge, but everyone agreed that it should never be cut down.",
        "In the second room there is a long table, four chairs and a map of the coast drawn by hand.",
        "She kept the seeds in paper bags and wrote the year and the name of the field on each of them.",
        "When the bell rings twice the market opens, and within minutes the whole square is full of voices.",
    ),
    "french": (
        "Le vieux jardinier traversait la cour lentement, car l’été n’était pas encore arrivé à la forêt.",
        "« Où êtes-vous allée ? » demanda sa sœur, qui préparait déjà le dîner près de la fenêtre.",
        "Après la fête, les élèves rangèrent les chaises et rentrèrent chez eux à pied malgré la grêle.",
        "Le café du théâtre était fermé depuis février, mais l’enseigne brillait encore à la tombée du jour.",
        "Cet hôtel possède une très belle bibliothèque où l’on trouve des œuvres oubliées du siècle passé.",
        "Il faut goûter la crème brûlée de ma mère : elle y met du thé, du miel et un peu de châtaigne.",
    ),
    "russian": (
        "Старый садовник медленно шёл вдоль стены и считал яблони, которые пережили холодную зиму.",
        "Каждый вечер маленькая лодка переплывает реку и привозит письма, хлеб и новости с другого берега.",
        "Никто не помнил, кто посадил эту изгородь, но все соглашались, что рубить её нельзя.",
        "Во второй комнате стоят длинный стол, четыре стула и висит карта побережья, нарисованная от руки.",
        "Она хранила семена в бумажных пакетах и писала на каждом год и название поля.",
        "Когда колокол звонит дважды, рынок открывается, и через минуту вся площадь полна голосов.",
    ),
    "chinese": (
        "老园丁沿着旧墙慢慢地走，数着那些熬过了冬天的苹果树，心里觉得很安慰。",
        "每天晚上都有一只小船渡过河来，带来信件、面包和对岸的消息。",
        "没有人记得这道篱笆是谁种的，但是大家都同意永远不应该把它砍掉。",
        "第二个房间里有一张长桌子、四把椅子，还有一张手工绘制的海岸地图。",
        "她把种子放在纸袋里，并且在每个袋子上写下年份和田地的名字。",
        "钟声响过两次，市场就开门了，几分钟之内整个广场都充满了人们的声音。",
    ),
    "japanese": (
        "年老いた庭師は古い壁に沿ってゆっくり歩き、冬を越したりんごの木を数えていました。",
        "毎晩、小さな船が川を渡って、手紙とパンと向こう岸のニュースを運んできます。",
        "この生け垣を誰が植えたのか覚えている人はいませんが、切ってはいけないと皆が思っています。",
        "二番目の部屋には長いテーブルと四つの椅子、そして手で描かれた海岸の地図があります。",
        "彼女は種を紙の袋に入れて、それぞれの袋に年と畑の名前を書いておきました。",
        "鐘が二度鳴ると市場が開き、数分のうちに広場は人々の声でいっぱいになります。",
    ),
    "korean": (
        "늙은 정원사는 오래된 담장을 따라 천천히 걸으며 겨울을 견뎌 낸 사과나무를 세었습니다.",
        "매일 저녁 작은 배가 강을 건너와 편지와 빵과 건너편 소식을 가져다 줍니다.",
        "누가 이 울타리를 심었는지 기억하는 사람은 없었지만 모두 베어서는 안 된다고 생각했습니다.",
        "두 번째 방에는 긴 탁자와 의자 네 개, 그리고 손으로 그린 해안 지도가 있습니다.",
        "그녀는 씨앗을 종이 봉투에 담고 봉투마다 연도와 밭의 이름을 적어 두었습니다.",
        "종이 두 번 울리면 시장이 열리고 몇 분 안에 광장 전체가 사람들의 목소리로 가득 찹니다.",
    ),
}  # fmt: skip

# Python's codec: the language that is written in it, and the name that pages give it in their meta element.
CHARSETS = {
    "utf-8": ("english", "utf-8"),
    "gbk": ("chinese", "gb2312"),
    "shift_jis": ("japanese", "x-sjis"),
    "euc-kr": ("korean", "ks_c_5601-1987"),
    "windows-1251": ("russian", "windows-1251"),
    "windows-1252": ("french", "iso-8859-1"),
    "utf-16": ("russian", "utf-16"),
}

# What no crawler should request: links in comments and scripts, and schemes that are not the web's.
DECOYS = """<!-- <a href="/ghost">a comment</a> --><script>var a = "<a href='/ghost'>a script</a>";</script>
<a href="mailto:someone@mail.example">write</a> <a href="javascript:void(0)">open</a> <a href="#top">top</a>
"""


@dataclass(frozen=True, slots=True)
class Leaf:
    """What one URL of a web is; `links` are normalized, and a redirect has one: its target."""

    links: tuple[str, ...] = ()
    status: int = 200
    type: str = HTML
    charset: str = "utf-8"
    label: str = "header"  # where the charset is declared: header, meta, or nowhere ("")
    shape: str = ""  # base, refresh, frame: a page with unusual links
    delay: float = 0.0
    flaky: bool = False  # 503 at the first request, fine afterwards


@lru_cache
def paragraphs(language: str) -> tuple[str, ...]:
    """Return the paragraphs of which all pages of a language are made."""
    rng = Random(language)
    return tuple(" ".join(rng.choices(SENTENCES[language], k=6)) for _ in range(48))


def fact(url: str, leaf: Leaf) -> Fact:
    """Return what must be stored of a page: its title, its own word, its first paragraph, its end."""
    language = CHARSETS[leaf.charset][0]
    word = "w" + sha256(url.encode()).hexdigest()[:14]
    stock = paragraphs(language)
    first = crc32(url.encode()) % 24
    title = f"{stock[first][:24].strip()} & {word}"
    return Fact(title, word, stock[first], f"end-of-{word}", leaf.links)


def dress(url: str, leaf: Leaf) -> bytes:
    """Return the page's bytes, in its charset."""
    known = fact(url, leaf)
    text = f"""<!doctype html>
<html><head>{_meta(leaf)}<title>{escape(known.title)}</title>{_head(leaf)}</head>
<body id="top"><h1>{known.word}</h1>
{_prose(url, leaf)}
<ul>
{_list(url, leaf)}
</ul>
{DECOYS}<p>{known.end}</p></body></html>
"""
    return text.encode(leaf.charset)


def _meta(leaf: Leaf) -> str:
    name = CHARSETS[leaf.charset][1]
    return f'<meta http-equiv="Content-Type" content="text/html; charset={name}">' if leaf.label == "meta" else ""


def _head(leaf: Leaf) -> str:
    if leaf.shape == "base":
        return '<base href="/">'
    if leaf.shape == "refresh" and leaf.links:
        return f'<meta http-equiv="Refresh" content="9; URL={escape(leaf.links[0])}">'
    return ""


def _prose(url: str, leaf: Leaf) -> str:
    stock = paragraphs(CHARSETS[leaf.charset][0])
    place = crc32(url.encode())
    count = 3 + place // 24 % 18 if leaf.label else 20
    return "<p>" + "</p>\n<p>".join(stock[place % 24 : place % 24 + count]) + "</p>"


def _list(url: str, leaf: Leaf) -> str:
    # Relative to its base: a crawler that resolves it against the page gets a wrong URL.
    home = url[: url.index("/", 7) + 1]
    hrefs = [escape(_relative(link, home)) if leaf.shape == "base" else href(link, url) for link in leaf.links]
    items = [_item(link, number) for number, link in enumerate(hrefs)]
    if leaf.shape == "refresh" and items:
        items[0] = "<li>soon elsewhere"
    if leaf.shape == "frame" and items:
        items[0] = f'<li><iframe src="{hrefs[0]}"></iframe>'
    return "\n".join(items)


def _item(link: str, number: int) -> str:
    if number % 9 == 7:
        return f'<li><map name="m{number}"><area href="{link}"></map>'
    return f"<li><A title=x HREF='{link}'>{number}</A>" if number % 5 == 4 else f'<li><a href="{link}">{number}</a>'


def href(target: str, base: str) -> str:
    """Return a link to `target` as a page at `base` may write it, escaped for an attribute."""
    lot = crc32(f"{base} {target}".encode())
    text = escape(WAYS[lot % len(WAYS)](target, base))
    if lot & 0x10000:
        text = text.replace("/", "&#x2F;")
    return text.replace("é", "&eacute;").encode("ascii", "xmlcharrefreplace").decode()


def halves(url: str) -> tuple[str, str]:
    """Return the host and the path (with its query) of a normalized URL."""
    host, _, path = url[len("http://") :].partition("/")
    return host, "/" + path


def rooted(target: str, base: str) -> str:
    """Return a link without its scheme, and without its host if that is the page's own."""
    host, path = halves(target)
    return path if host == halves(base)[0] else f"//{host}{path}"


def _relative(target: str, base: str) -> str:
    host, path = halves(target)
    here, place = halves(base)
    up = place.partition("?")[0].count("/") - 1
    return ("../" * up + path[1:] or "./") if host == here else target


def _native(target: str, base: str) -> str:
    host, path = halves(target)
    return f"http://{host.encode().decode('idna')}{path.replace('%C3%A9', 'é')}"


def _tracked(target: str, base: str) -> str:
    return f"{target}{'&' if '?' in target else '?'}utm_source=feed&utm_campaign=spring"


def _shouted(target: str, base: str) -> str:
    host, path = halves(target)
    return f"HTTP://{host.upper()}{path}"


WAYS: tuple[Callable[[str, str], str], ...] = (
    rooted,
    _relative,
    _native,
    _tracked,
    _shouted,
    lambda target, base: target,
    lambda target, base: _relative(target, base) + "#part-2",
    lambda target, base: "http://{}:80{}".format(*halves(target)),
    lambda target, base: "http://{}/old/%2E%2e/./{}".format(*halves(target)).replace(".//", "./", 1),
    lambda target, base: f"\n {target}\t ",
    lambda target, base: rooted(target, base).replace("/", "\\"),
)
