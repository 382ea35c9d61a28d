"""Content types: which of them a crawl keeps, which are text, and which extension goes with which. Pure.

What is kept is named by content types, patterns of them (`image/*`) and the WORDS. Text is stored as UTF-8, everything
else byte for byte, under an extension from this table: never one from a URL, which strangers choose.
"""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from functools import lru_cache
from urllib.parse import unquote

HTML = ("text/html", "application/xhtml+xml")
PDF = ("application/pdf", "application/x-pdf")
JSON = ("application/json", "application/*+json", "text/json")
FEEDS = ("application/rss+xml", "application/atom+xml", "application/rdf+xml", "application/xml", "text/xml")
OFFICE = ("application/msword", "application/rtf", "text/rtf", "application/vnd.ms-*", "application/postscript")
OPEN_OFFICE = ("application/vnd.openxmlformats-officedocument.*", "application/vnd.oasis.opendocument.*")
WORDS: dict[str, tuple[str, ...]] = {
    "html": HTML,
    "pdf": PDF,
    "images": ("image/*",),
    "json": JSON,
    "feeds": FEEDS,
    "documents": (*PDF, *OFFICE, *OPEN_OFFICE, "application/epub+zip"),
    "all": ("*/*",),
}

# What servers send under each extension. The first type of a row gives the extension of a stored file.
_TABLE = """
html application/xhtml+xml text/html
txt text/plain
csv text/csv
css text/css
js text/javascript application/javascript application/x-javascript
json application/json text/json
xml application/xml text/xml
rss application/rss+xml application/xml text/xml
atom application/atom+xml application/xml text/xml
pdf application/pdf application/x-pdf
ps application/postscript
eps application/postscript image/x-eps
rtf application/rtf text/rtf
epub application/epub+zip
mobi application/x-mobipocket-ebook
doc application/msword
docx application/vnd.openxmlformats-officedocument.wordprocessingml.document
xls application/vnd.ms-excel
xlsx application/vnd.openxmlformats-officedocument.spreadsheetml.sheet
ppt application/vnd.ms-powerpoint
pptx application/vnd.openxmlformats-officedocument.presentationml.presentation
odt application/vnd.oasis.opendocument.text
ods application/vnd.oasis.opendocument.spreadsheet
odp application/vnd.oasis.opendocument.presentation
jpg image/jpeg image/jpg image/pjpeg
jpeg image/jpeg image/jpg
png image/png image/x-png
gif image/gif
webp image/webp
avif image/avif
heic image/heic
bmp image/bmp image/x-ms-bmp
tif image/tiff
tiff image/tiff
ico image/x-icon image/vnd.microsoft.icon
svg image/svg+xml
mp3 audio/mpeg audio/mp3
m4a audio/mp4 audio/x-m4a
ogg audio/ogg application/ogg video/ogg
wav audio/wav audio/x-wav
flac audio/flac audio/x-flac
aac audio/aac
mp4 video/mp4
m4v video/x-m4v video/mp4
webm video/webm audio/webm
ogv video/ogg
avi video/x-msvideo
mov video/quicktime
wmv video/x-ms-wmv
flv video/x-flv
mkv video/x-matroska
mpg video/mpeg
mpeg video/mpeg
woff font/woff application/font-woff
woff2 font/woff2 application/font-woff2
ttf font/ttf application/x-font-ttf
otf font/otf application/x-font-otf
zip application/zip application/x-zip-compressed
gz application/gzip application/x-gzip
tgz application/gzip application/x-gzip application/x-compressed-tar
bz2 application/x-bzip2
xz application/x-xz
7z application/x-7z-compressed
rar application/vnd.rar application/x-rar-compressed application/x-rar
tar application/x-tar
zst application/zstd
jar application/java-archive
exe application/x-msdownload application/vnd.microsoft.portable-executable application/x-dosexec
msi application/x-msi application/x-msdownload
dmg application/x-apple-diskimage
iso application/x-iso9660-image
deb application/vnd.debian.binary-package application/x-debian-package
rpm application/x-rpm application/x-redhat-package-manager
apk application/vnd.android.package-archive
wasm application/wasm
bin application/octet-stream
"""
# Extensions of the table that say nothing about what a server sends: these URLs are always requested.
_OPEN = {"html", "xml", "bin"}
_ROWS = {name: types for name, *types in map(str.split, _TABLE.split("\n")[1:-1])}
_EXTENSIONS = {kind: name for name, types in reversed(_ROWS.items()) for kind in types}
_EXTENSIONS |= {types[0]: name for name, types in reversed(_ROWS.items())} | {"image/jpeg": "jpg"}
OTHER = "bin"
UNKNOWN = "application/octet-stream"  # what servers say of files whose type they do not know

_TEXT = re.compile(r"text/(?!rtf\Z).*|application/(?:.*\+(?:xml|json)|xml|json|x-ndjson|(?:x-)?javascript)")
_PATTERN = re.compile(r"[\w.+*-]+/[\w.+*-]+", re.ASCII)

HEAD = 1445  # bytes of a body that show what it is, as in browsers
_MAGIC = (
    (b"%PDF-", "application/pdf"),
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"PK\x03\x04", "application/zip"),
    (b"\x1f\x8b\x08", "application/gzip"),
)
_BOMS = (b"\xef\xbb\xbf", b"\xfe\xff", b"\xff\xfe")
_BINARY = re.compile(rb"[\x00-\x08\x0b\x0e-\x1a\x1c-\x1f]")


def check(given: str) -> str:
    """Return a word, content type or pattern of one, in lower case; ValueError if it is none of them."""
    if given.lower() not in WORDS and not _PATTERN.fullmatch(given):
        raise ValueError(f"must be a content type such as text/html, image/* or */*, or one of {', '.join(WORDS)}")
    return given.lower()


@lru_cache(maxsize=4096)
def admits(content_types: tuple[str, ...], kind: str) -> bool:
    """Tell whether one of these content types, patterns and words means a type; none of them means any."""
    patterns = [pattern for given in content_types for pattern in WORDS.get(given, (given,))]
    return not patterns or any(fnmatchcase(kind, pattern) for pattern in patterns)


def admits_images(content_types: tuple[str, ...]) -> bool:
    """Tell whether images of some type are kept."""
    kinds = [kind for types in _ROWS.values() for kind in types if kind.startswith("image/")]
    return any(admits(content_types, kind) for kind in kinds) or any(it.startswith("image/") for it in content_types)


@lru_cache(maxsize=1024)
def is_text(kind: str) -> bool:
    """Tell whether a body of this type is stored as UTF-8 text; one without a type is, like a page."""
    return "/" not in kind or _TEXT.fullmatch(kind) is not None


def extension(kind: str) -> str:
    """Return the extension of a file with content of this type."""
    return _EXTENSIONS.get(kind, OTHER)


def sniffed(kind: str, body: bytes) -> str:
    """Return the type of a body that has none, or the vague `text/plain`, if its first bytes show that it is no text.

    Servers send `text/plain` for files that they do not know. Any other type is believed.
    """
    if kind not in ("", "text/plain") or body.startswith(_BOMS):
        return kind
    head = body[:HEAD]
    is_binary = _BINARY.search(head) is not None
    shown = next((found for magic, found in _MAGIC if head.startswith(magic)), None)
    if shown and (is_binary or not kind):
        return shown
    return UNKNOWN if is_binary else kind


# ---- URLs that cannot be of a wanted type

# Parts of a path behind which the name of a file is the title of a page: /wiki/File:Cat.jpg, /tag/node.js.
_TITLES = re.compile(
    r"/(?:wiki|w|tags?|tagged|topics?|blob|browse|\w+\.(?:php\d?|aspx?|jsp|cgi|html?))/"
    r"|/[^/]*(?::|%3a)[^/]*\Z",
    re.IGNORECASE,
)


@lru_cache(maxsize=64)
def unwanted_extensions(content_types: tuple[str, ...]) -> frozenset[str]:
    """Return the extensions of URLs that bring none of these content types; none if files of any type are wanted."""
    if admits(content_types, UNKNOWN):
        return frozenset()
    return frozenset(
        name
        for name, types in _ROWS.items()
        if name not in _OPEN and not any(admits(content_types, kind) for kind in types)
    )


def unwanted_extension(url: str, content_types: tuple[str, ...]) -> str | None:
    """Return the extension by which a normalized URL cannot be of a wanted type, or None."""
    path = url.partition("?")[0]
    leaf = path[path.rfind("/") + 1 :].partition(";")[0]
    if "." not in leaf or path.count("/") < 3:
        return None
    name = unquote(leaf.rpartition(".")[2]).lower()
    if name not in unwanted_extensions(content_types):
        return None
    return None if _TITLES.search(path.partition("//")[2]) else name
