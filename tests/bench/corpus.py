"""Webs of real pages: folders of links to the html files of Debian's documentation packages, a folder for each host."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import cycle, islice
from pathlib import Path
from urllib.parse import quote

DOCS = Path("/usr/share/doc")
# Of each package where its pages are, whatever its version. The last one is for other cases than that of one site: half
# of its pages are links to others of its own, which are left out, and its pages would lead there.
PACKAGES = {
    "python3-doc": "python3.*/html",
    "postgresql-doc": "postgresql-doc-*/html",
    "sqlite3-doc": "sqlite3",
    "git-doc": "git-doc",
    "debian-handbook": "debian-handbook/html",
    "apache2-doc": "apache2-doc/manual",
}
SMALLEST, LARGEST = 1_000, 500_000  # bytes: neither stubs, nor the few books on one page that would outweigh the rest
# At least so large where any page will do: 37 KB on average, as pages of the web are rather than those of manuals.
USUAL = 10_000
MODERN = (200_000, 260_000)  # bytes of a page where pages are as large as those of the web have become
BODY = re.compile(rb"(.*?<body[^>]*>)(.*)(</body>.*)", re.DOTALL | re.IGNORECASE)  # what is before, in and after it
DOMAIN = "bench.test"
FOLDERS = 100  # that the hosts share where they are too many to have their own: by the last two digits of the name
DEAD = ("refused", "silent", "unreachable", "unknown")  # domains whose hosts never answer, each for another reason


@dataclass(frozen=True, slots=True)
class Web:
    """A web that nginx serves, and how it is crawled."""

    name: str
    root: Path  # <root>/<host>/<path>; a host's `/` is its index.html
    seeds: list[str]
    pages: int  # that a whole crawl stores
    depth: int | None  # links away from a seed; None is no limit
    limit: int | None = None  # pages after which to stop

    def part(self, pages: int) -> Web:
        """About so many of the same pages: some of the hosts, or of one site the first that are found."""
        if pages >= self.pages:
            return self
        if len(self.seeds) == 1:
            return replace(self, pages=pages, limit=pages)
        hosts = max(2, pages * len(self.seeds) // self.pages)
        return replace(self, seeds=self.seeds[:hosts], pages=self.pages * hosts // len(self.seeds))

    def urls(self) -> list[str]:
        """Each page that a crawl stores, for those that follow no links."""
        return list(islice((url for seed in self.seeds for url in self._urls_of(seed)), self.pages))

    def _urls_of(self, seed: str) -> Iterable[str]:
        folder = self.root / seed.split("/")[2]
        for path in sorted(folder.rglob("*.html")):
            name = path.relative_to(folder).as_posix()
            yield seed if name == "index.html" else seed + quote(name)


def site(folder: Path, pages: int = 5_000) -> Web:
    """One site: a front page with links to all the others, which have their own among each other."""
    root, host = folder / "site", f"site.{DOMAIN}"
    chosen = _shuffled(sources()[: pages - 1])
    _lay_out(root / host, chosen)
    return Web("site", root, [f"http://{host}/"], len(chosen) + 1, None)


def flat(folder: Path, hosts: int = 2_941, scheme: str = "http") -> Web:
    """Hosts with one page each, every one another."""
    root = folder / f"flat-{scheme}"
    names = [f"flat-{number:04}.{DOMAIN}" for number in range(hosts)]
    for name, source in zip(names, _shuffled(sources(USUAL)), strict=False):
        _link(root / name / "index.html", source)
    return Web(root.name, root, [f"{scheme}://{name}/" for name in names], hosts, 0)


def many(folder: Path, hosts: int = 300, each: int = 20) -> Web:
    """Hosts with a front page and the pages that it links to, some of which other hosts have too."""
    root = folder / "many"
    names = [f"many-{number:04}.{DOMAIN}" for number in range(hosts)]
    pages = cycle(_shuffled(sources(USUAL)))
    for name in names:
        _lay_out(root / name, list(islice(pages, each)))
    return Web("many", root, [f"http://{name}/" for name in names], hosts * (each + 1), 1)


def large(folder: Path, hosts: int = 1_000) -> Web:
    """Hosts with https and one page each, of the size in MODERN: the head of a real page and the bodies of several."""
    root = folder / "large"
    names = [f"large-{number:04}.{DOMAIN}" for number in range(hosts)]
    texts = (page.read_bytes() for page in cycle(_shuffled(sources(USUAL))))
    pages = (match for text in texts if len(text) < MODERN[0] and (match := BODY.fullmatch(text)))
    for name in names:
        (root / name).mkdir(parents=True)
        (root / name / "index.html").write_bytes(_joined(pages))
    return Web("large", root, [f"https://{name}/" for name in names], hosts, 0)


def _joined(pages: Iterator[re.Match[bytes]]) -> bytes:
    """The next of these pages with the bodies of some that follow; those that are too large for it are left out."""
    head, body, end = next(pages).groups()
    bodies, size = [body], len(head + body + end)
    while size < MODERN[0]:
        body = next(pages)[2]
        if size + len(body) <= MODERN[1]:
            bodies.append(body)
            size += len(body)
    return b"".join([head, *bodies, end])


def real(folder: Path, hosts: int = 20_000, each: int = 20) -> Web:
    """Hosts as in `many`, a tenth of them dead in one of four ways."""
    root, pages = folder / "real", cycle(_shuffled(sources(USUAL)))
    for number in range(FOLDERS):
        _lay_out(root / f"{number:02}", list(islice(pages, each)))
    names = [f"real-{number:05}.{_dead(number)}{DOMAIN}" for number in range(hosts)]
    return Web("real", root, [f"http://{name}/" for name in names], hosts * (each + 1), 1)


def _dead(number: int) -> str:
    """The domain of a dead host with this number, or nothing."""
    tens, ones = divmod(number, 10)
    return f"{DEAD[tens % len(DEAD)]}." if ones == 5 else ""


def living(web: Web) -> Web:
    """A web without its dead hosts."""
    seeds = [seed for seed in web.seeds if seed.split("/")[2].split(".")[1] not in DEAD]
    return replace(web, seeds=seeds, pages=web.pages * len(seeds) // len(web.seeds))


def first(folder: Path, hosts: int = 100_000) -> Web:
    """Very many hosts with one page each."""
    root = folder / "first"
    for number, source in zip(range(FOLDERS), _shuffled(sources(USUAL)), strict=False):
        _link(root / f"{number:02}" / "index.html", source)
    return Web("first", root, [f"http://first-{number:06}.{DOMAIN}/" for number in range(hosts)], hosts, 0)


def silent(folder: Path, honest: int = 20, each: int = 200, dead: int = 100) -> Web:
    """Some hosts with many pages each, and hosts before them that accept connections and stay silent."""
    root, pages = folder / "silent", cycle(_shuffled(sources(USUAL)))
    for number in range(honest):
        _lay_out(root / f"{number:02}", list(islice(pages, each)))
    names = [f"silent-{number:02}.silent.{DOMAIN}" for number in range(dead)]
    names += [f"honest-{number:02}.{DOMAIN}" for number in range(honest)]
    return Web("silent", root, [f"http://{name}/" for name in names], honest * (each + 1), 1)


def sources(smallest: int = SMALLEST) -> list[Path]:
    """The pages there are of at least so many bytes, package by package, each once."""
    pages = (page for package in PACKAGES for page in sorted(folder_of(package).rglob("*.html")))
    return [page for page in pages if not page.is_symlink() and smallest <= page.stat().st_size <= LARGEST]


def folder_of(package: str) -> Path:
    """Where a package has its pages; it may not be there."""
    return min(DOCS.glob(PACKAGES[package]), default=DOCS / package)


def _shuffled(pages: Sequence[Path]) -> list[Path]:
    """In the same order each time, in which every part is a fair sample of the whole."""
    return random.Random(2941).sample(pages, len(pages))


def _lay_out(host: Path, pages: Iterable[Path]) -> None:
    names = {page.relative_to(DOCS).as_posix(): page for page in pages}
    for name, page in names.items():
        _link(host / name, page)
    items = "".join(f'<li><a href="{quote(name)}">{name}</a></li>\n' for name in names)
    front = f"<!doctype html>\n<title>{host.name}</title>\n<h1>{host.name}</h1>\n<ul>\n{items}</ul>\n"
    (host / "index.html").write_text(front)


def _link(path: Path, target: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(target)
