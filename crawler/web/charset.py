"""Decoding as browsers do: which declaration of the charset counts, and what each charset means."""

from __future__ import annotations

import codecs
import re
from functools import lru_cache

from webencodings.labels import LABELS

BOMS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16le"), (codecs.BOM_UTF16_BE, "utf-16be"))
DEFAULT = "windows-1252"
PRESCAN = 1024
# Browsers also obey a late <meta>, by starting over; we search this many bytes for one.
LATE_PRESCAN = 65_536
MAX_SAMPLE = 65_536

_HEADER = re.compile(r';\s*charset\s*=\s*(?:"([^"]*)"|\'([^\']*)\'|([^;\s"\']+))', re.I)
_XML = re.compile(rb"<\?xml[^>]*?\sencoding\s*=\s*([\"'])([^\"'>\x00-\x20]+)\1[^>]*>")
_SPACE = rb"\t\n\f\r "
# One attribute, as in the standard's prescan; no match: the bytes end in the middle of it.
_ATTRIBUTE = re.compile(
    rb"[%(s)s/]*+([^%(s)s/>][^%(s)s/>=]*+)(?=[%(s)s/>=])[%(s)s]*+(?=.)"
    rb"(?:=[%(s)s]*+(?:\"([^\"]*+)\"|'([^']*+)'|([^%(s)s>\"'][^%(s)s>]*+)(?=[%(s)s>])|(?=>))|(?!=))" % {b"s": _SPACE},
    re.S,
)
_TAG_END = re.compile(rb"[%(s)s/]*+>" % {b"s": _SPACE})
_META = re.compile(rb"<meta[%(s)s/]" % {b"s": _SPACE})
_ANY_TAG = re.compile(rb"</?[a-z][^%(s)s>]*+" % {b"s": _SPACE})
_CONTENT = re.compile(
    rb"charset[%(s)s]*+=[%(s)s]*+(?:\"([^\"]*+)\"|'([^']*+)'|([^%(s)s;\"'][^%(s)s;]*+))" % {b"s": _SPACE}
)
# The start of a page up to its first <meta>, if all before that and the declaration itself are plainly written, as in
# most pages; what it finds is what the prescan finds, in a fifth of the time.
_PLAIN_START = re.compile(
    rb"(?:[^<]*+(?:<[!?][^->][^>]*+>"
    rb"|<(?!meta[%(s)s/])[a-z][a-z0-9]*+(?:[%(s)s]++[a-z:_-]++=\"[^\"]*+\")*+[%(s)s]*+/?>))*+[^<]*+<meta "
    rb"(?:charset=\"([a-z0-9-]++)\"|http-equiv=\"content-type\" content=\"text/html; ?+charset=([a-z0-9-]++)\")"
    rb" ?+/?>" % {b"s": _SPACE}
)

# Where Python's codec of that name differs from the standard: it lacks characters, or is another charset.
_CODECS = {
    "big5": "big5hkscs",
    "euc-kr": "cp949",
    "gbk": "gb18030",
    "iso-2022-jp": "iso2022_jp_ext",
    "iso-8859-8-i": "iso8859-8",
    "macintosh": "mac-roman",
    "shift_jis": "cp932",
    "utf-16be": "utf-16-be",
    "utf-16le": "utf-16-le",
    "windows-874": "cp874",
    "x-mac-cyrillic": "mac-cyrillic",
}
# Characters that the standard decodes differently: from what Python's codec gives to what the standard gives.
_JIS = str.maketrans("〜‖−¢£¬", "～∥－￠￡￢")
_GB = {
    0xE5E5: 0x3000,
    0xE7C7: 0x1E3F,
    **{0xE78D + i: 0xFE10 + i for i in range(10)},
    0xE78E: 0xFE12,
    0xE78F: 0xFE11,
}
_FIXES: dict[str, dict[int, int]] = {
    "euc-jp": _JIS,
    "gb18030": _GB,
    "gbk": _GB,
    "iso-2022-jp": _JIS,
    "koi8-u": {0x255D: 0x045E, 0x256C: 0x040E},
    "shift_jis": dict.fromkeys(range(0xF8F0, 0xF8F4), 0xFFFD),
}
_LEADS = {
    "big5hkscs": range(0x81, 0xFF),
    "cp949": range(0x81, 0xFF),
    "cp932": (*range(0x81, 0xA0), *range(0xE0, 0xFD)),
    "euc_jp": range(0xA1, 0xFF),
    "gb18030": range(0x81, 0xFF),
}
# Allowed guesses. HZ, UTF-7 and the like have been used to smuggle markup.
_GUESSES = frozenset(
    [f"windows-{page}" for page in (874, *range(1250, 1259))]
    + [f"iso-8859-{part}" for part in (2, 3, 4, 5, 6, 7, 8, 10, 13, 14, 15, 16)]
    + ["big5", "euc-jp", "euc-kr", "gbk", "ibm866", "iso-2022-jp", "koi8-r", "koi8-u", "macintosh", "shift_jis"]
    + ["utf-8", "x-mac-cyrillic"]
)


def decode(body: bytes, content_type: str) -> tuple[str, str]:
    """Return a page's text and the WHATWG name of its charset; never fails, never returns a lone surrogate."""
    for bom, name in BOMS:
        if body.startswith(bom):
            return to_text(body[len(bom) :], name), name
    name = from_header(content_type) or prescan(body[:PRESCAN]) or guess(body)
    return to_text(body, name), name


def look_up(label: str) -> str | None:
    """Return the WHATWG name of a label from the web; never uses Python's own codec registry."""
    return LABELS.get(label.strip("\t\n\f\r ").lower()) if label.isascii() else None


def from_header(content_type: str) -> str | None:
    """Return the charset of a Content-Type header, if it is a known one."""
    match = _HEADER.search(content_type)
    return look_up(next(filter(None, match.groups()), "")) if match else None


def prescan(head: bytes) -> str | None:
    """Return the charset that a page's first bytes declare, by the standard's prescan algorithm."""
    head = head.lower()
    if head.startswith((b"<\0?\0x\0", b"\0<\0?\0x")):
        return "utf-16le" if head[0] else "utf-16be"
    return _plain(head) or _scan(head) or _xml(head)


def _plain(head: bytes) -> str | None:
    """Return the charset that a plainly written page declares; None says nothing."""
    match = _PLAIN_START.match(head)
    return _in_ascii(look_up((match[1] or match[2]).decode("ascii"))) if match else None


def _scan(head: bytes) -> str | None:
    if b"<meta" not in head:
        return None
    at = head.find(b"<")
    while at >= 0:
        attributes: dict[bytes, bytes] = {}
        if head.startswith(b"<!--", at):
            end = head.find(b"-->", at + 2) + 2
        elif tag := _META.match(head, at) or _ANY_TAG.match(head, at):
            end = _attributes(head, tag.end(), attributes)
            if tag.re is _META and end > 1 and (name := _declared(attributes)):
                return name
        else:
            end = head.find(b">", at) if head[at + 1 : at + 2] in (b"!", b"/", b"?") else at
        if end < at:
            return None
        at = head.find(b"<", max(end, at + 1))
    return None


def _attributes(head: bytes, at: int, found: dict[bytes, bytes]) -> int:
    """Fill in a tag's attributes (the first of a name counts); return its end, -1 if the bytes end first."""
    while not (end := _TAG_END.match(head, at)):
        match = _ATTRIBUTE.match(head, at)
        if match is None:
            return -1
        found.setdefault(match[1], match[2] or match[3] or match[4] or b"")
        at = match.end()
    return end.end()


def _declared(meta: dict[bytes, bytes]) -> str | None:
    """Return the charset that one <meta> declares."""
    name = None
    if b"charset" in meta:
        name = look_up(meta[b"charset"].decode("latin-1"))
    elif meta.get(b"http-equiv") == b"content-type" and (match := _CONTENT.search(meta.get(b"content", b""))):
        name = look_up((match[1] or match[2] or match[3] or b"").decode("latin-1"))
    return _in_ascii(name)


def _xml(head: bytes) -> str | None:
    match = _XML.match(head)
    return _in_ascii(look_up(match[2].decode("latin-1"))) if match else None


def _in_ascii(name: str | None) -> str | None:
    """Correct a charset whose declaration could not be ASCII if it were true."""
    if name in ("utf-16be", "utf-16le"):
        return "utf-8"
    return DEFAULT if name == "x-user-defined" else name


def guess(body: bytes) -> str:
    """Return the most likely charset of a page without a declaration: UTF-8 if valid, else by its letters."""
    if _is_utf8(body):
        return "utf-8"
    if late := _late(body):
        return late
    if body.isascii() and b"\x1b" not in body:
        return DEFAULT
    from turbohtml.detect import Detection, detect  # here, because most pages declare their charset

    # Blanks first, so that the detector does not obey a <meta> in the sample, which may be only quoted there.
    found = detect(b" " * PRESCAN + _sample(body), Detection(allowed=_GUESSES)).encoding
    return LABELS.get((found or "").lower(), DEFAULT)


def _late(body: bytes) -> str | None:
    head = body[:LATE_PRESCAN]
    return prescan(head) if len(head) > PRESCAN and b"charset" in head.lower() else None


def _is_utf8(body: bytes) -> bool:
    """Tell whether this is UTF-8; a few broken bytes (a cut-off comment, a pasted quote) do not matter."""
    if body.isascii():
        return False
    text = body.decode("utf-8", "replace")
    broken = text.count("\ufffd")
    return not broken or broken * 20 < len(body) - len(text) - 2 * broken


def _sample(body: bytes) -> bytes:
    """Return a bounded sample with the page's own letters: from near its first non-ASCII byte."""
    first = re.search(rb"[\x80-\xff\x1b]", body)
    start = max(0, (first.start() if first else 0) - 512)
    return body[start : start + MAX_SAMPLE]


def to_text(body: bytes, name: str) -> str:
    """Decode by a WHATWG name as the standard's decoder of that name does."""
    if name == "utf-8":
        return body.decode("utf-8", "replace")
    if name == "replacement":  # charsets that can hide markup: the standard decodes nothing of them
        return "\ufffd" if body else ""
    if name == "x-user-defined":
        return body.decode("latin-1").translate({byte: 0xF700 + byte for byte in range(0x80, 0x100)})
    text = body.decode(_CODECS.get(name, name), "replace" if name.startswith("utf-16") else "crawler.whatwg")
    return text.translate(_FIXES[name]) if name in _FIXES else text


def _whatwg(error: UnicodeError) -> tuple[str, int]:
    """Continue after bytes that Python's codec rejects, as the standard's decoders do."""
    if not isinstance(error, UnicodeDecodeError):
        raise error
    body, at, codec = error.object, error.start, error.encoding
    byte, pair = body[at], body[at : at + 2]
    if codec == "euc_jp" and (known := _nec(pair)):
        return known, at + 2
    if codec == "gb18030" and byte == 0x80:
        return "€", at + 1
    if codec in _LEADS:
        # A stray lead byte must not swallow the "<" after it.
        return "\ufffd", at + (2 if byte in _LEADS[codec] and len(pair) == 2 and pair[1] >= 0x80 else 1)
    is_control = codec in ("charmap", "cp1252") and 0x80 <= byte < 0xA0
    return (chr(byte) if is_control else "\ufffd"), at + 1


@lru_cache(maxsize=65_536)
def _nec(pair: bytes) -> str | None:
    """Return the NEC or IBM character of two EUC-JP bytes, through its computed place in Shift_JIS."""
    if len(pair) < 2 or min(pair) < 0xA1 or max(pair) > 0xFE:
        return None
    row, cell = pair[0] - 0xA1, pair[1] - 0xA1
    lead = row // 2 + (0x81 if row < 62 else 0xC1)
    trail = cell + 0x9F if row % 2 else cell + (0x40 if cell < 63 else 0x41)
    try:
        known = bytes((lead, trail)).decode("cp932")
    except UnicodeDecodeError:
        return None
    return None if "\ue000" <= known <= "\uf8ff" else known


codecs.register_error("crawler.whatwg", _whatwg)
