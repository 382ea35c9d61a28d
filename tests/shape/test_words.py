"""Plain words: those of the old dialect do not come back into documents, settings, JSON keys and messages."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import reference

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
ALLOWED = re.compile(r"^spelling$|`spelling`|browsers refuse")
# Still being changed: empty when all rooms are done.
PENDING: set[str] = {
    "README.md",
    "deploy/README.md",
    "crawler/manual/capacity.md",
    "crawler/manual/check.md",
    "crawler/manual/commands.md",
    "crawler/manual/corpus.md",
    "crawler/manual/export.md",
    "crawler/manual/life-of-a-url.md",
    "crawler/manual/machines.md",
    "crawler/manual/monitoring.md",
    "crawler/commands/check/check.py",
    "crawler/commands/check/files.py",
    "crawler/commands/check/findings.py",
    "crawler/commands/check/links.py",
    "crawler/commands/demo/demo.py",
    "crawler/commands/demo/expected.py",
    "crawler/commands/doctor/doctor.py",
    "crawler/commands/doctor/pairing.py",
    "crawler/commands/export/export.py",
    "crawler/commands/export/resume.py",
    "crawler/commands/export/sql.py",
    "crawler/commands/plan.py",
    "crawler/commands/plan_sums.py",
    "crawler/commands/serve/http.py",
    "crawler/fleet/control.py",
    "crawler/store/mount.py",
    "crawler/store/store.py",
}


def named(path: Path) -> str:
    """A file's name for a test."""
    return str(path.relative_to(TOP))


@pytest.mark.parametrize("path", [path for path in DOCUMENTS if named(path) not in PENDING], ids=named)
def test_no_old_word_is_in_a_document(path: Path) -> None:
    text = ALLOWED.sub("", path.read_text("utf-8"))
    assert not [line for line in text.splitlines() if WORDS.search(line)]


@pytest.mark.parametrize("path", [path for path in CODE if named(path) not in PENDING], ids=named)
def test_no_old_word_is_in_a_message_or_a_key(path: Path) -> None:
    assert not [f"line {line}: {text}" for line, text in literals(path) if WORDS.search(ALLOWED.sub("", text))]


def literals(path: Path) -> Iterator[tuple[int, str]]:
    """The strings of a module, with their lines, but for docstrings."""
    tree = ast.parse(path.read_text("utf-8"))
    told = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in told:
            yield node.lineno, node.value


def test_no_setting_has_an_old_name() -> None:
    gone = {"pulse", "patience", "limit", "types", "first_byte", "threads"}
    assert gone.isdisjoint(reference.HELP)
