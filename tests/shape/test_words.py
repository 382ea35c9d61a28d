"""Plain words: those of the old dialect do not come back into documents, settings, JSON keys and messages."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import reference

from crawler.commands.status import TOTALS

TOP = Path(__file__).parents[2]
FOLDER = reference.MANUAL.parent
DOCUMENTS = [TOP / "README.md", TOP / "deploy/README.md", *sorted(reference.MANUAL.glob("*.md"))]
CODE = sorted(FOLDER.rglob("*.py"))
# old word: what to say instead
OLD = {
    r"pulses?": "heartbeat",
    r"patience|patiently": "dead_after",
    r"slate|roster|crew|armour|permits|errands?|strays|sheets?|House": "see manual/design.md",
    r"bury|buried|mourn|guilt": "mark dead, blame",
    r"visitors?": "request slot",
    r"spell(?:s|ed|ing|ings)?": "normalize, normalized URL",
    r"asks?|asked|asking": "request",
    r"answer(?:s|ed|ing)?": "response",
    r"refus(?:al|als|e|es|ing)": "failure record: failed, excluded or unwanted",
    r"(?<!connection )(?<!connection was )refused(?! connection)": "failed, excluded or unwanted",
    r"settle[sd]?|unsettled": "done",
    r"go(?:es|ing|ne)? on": "resume",
    r"good order": "cleanly",
    r"without a word": "silently",
    r"unheeded|first_byte|StoredPage": "ignored_settings, first_byte_timeout, Page",
}
WORDS = re.compile(rf"(?<![\w-])(?:{'|'.join(OLD)})(?![\w-])")
# Names on the disk of a store, which a change would make unreadable; and the word in another sense.
ALLOWED = re.compile(r"^spelling$|`spelling`|browsers refuse|spreadsheetml\.sheet")
# A column of the task table: in SQL, not in a sentence.
COLUMN = re.compile(r"\banswered(?= INT\b| = \?|, due\b|$)")


def named(path: Path) -> str:
    """A file's name for a test."""
    return str(path.relative_to(TOP))


@pytest.mark.parametrize("path", DOCUMENTS, ids=named)
def test_no_old_word_is_in_a_document(path: Path) -> None:
    text = ALLOWED.sub("", path.read_text("utf-8"))
    assert not [line for line in text.splitlines() if WORDS.search(line)]


@pytest.mark.parametrize("path", CODE, ids=named)
def test_no_old_word_is_in_a_message_or_a_key(path: Path) -> None:
    assert not [f"line {line}: {text}" for line, text in literals(path) if is_old(COLUMN.sub("", text))]


def is_old(text: str) -> bool:
    """Whether an old word is in a text."""
    return bool(WORDS.search(ALLOWED.sub("", text)))


def literals(path: Path) -> Iterator[tuple[int, str]]:
    """The strings of a module, with their lines, but for docstrings."""
    tree = ast.parse(path.read_text("utf-8"))
    told = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in told:
            yield node.lineno, node.value


# In names of our own, which are written in pieces: `_patience`, `MAX_PULSES`.
PIECES = re.compile(r"(?i)pulse|patience|patient|(?<!tran)slate|roster|crew|armour|errand|mourn|buri|bury")


@pytest.mark.parametrize("path", CODE, ids=named)
def test_no_old_word_is_part_of_a_name(path: Path) -> None:
    nodes = [*ast.walk(ast.parse(path.read_text("utf-8")))]
    names = {str(getattr(node, field, "")) for node in nodes for field in ("name", "id", "attr", "arg")} | {path.stem}
    assert not sorted(filter(PIECES.search, names))


def test_no_setting_or_key_has_an_old_name() -> None:
    assert {"pulse", "patience", "limit", "types", "first_byte", "threads"}.isdisjoint(reference.HELP)
    keys = {text for path in CODE for _, text in literals(path)}
    assert {"flying", "held", "wants", "unheeded", "refusals", "refused"}.isdisjoint(keys)
    assert "cut" not in TOTALS
