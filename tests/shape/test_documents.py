"""Documents cannot drift: generated pages are what the code gives, examples are commands that exist, links lead on."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import reference
from lab.world import Links, world

from crawler import Store
from crawler.commands.main import read
from crawler.store.store import FOLDERS

TOP = Path(__file__).parents[2]
MANUAL = sorted(reference.MANUAL.glob("*.md"))
DOCUMENTS = [TOP / "README.md", TOP / "deploy/README.md", *MANUAL]
TEXTS = {path: path.read_text("utf-8") for path in DOCUMENTS}
BLOCK = re.compile(r"^```\w*\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def named(path: Path) -> str:
    """A document's name for a test."""
    return str(path.relative_to(TOP))


@pytest.mark.parametrize("name", reference.PAGES)
def test_a_generated_page_is_what_the_code_gives(name: str) -> None:
    assert (reference.MANUAL / f"{name}.md").read_text("utf-8") == reference.page(name), "run `make manual`"


def test_every_reason_has_one_of_the_three_kinds() -> None:
    assert {reason.kind for reason in reference.REASONS.values()} == set(reference.KINDS)


@pytest.mark.parametrize("path", MANUAL, ids=named)
def test_a_page_begins_with_its_title_and_a_sentence_of_what_it_is_for(path: Path) -> None:
    title, blank, *rest = TEXTS[path].splitlines()
    assert title.startswith("# ")
    assert blank == ""
    assert " ".join(rest[: rest.index("")]).endswith(".")


def test_the_readme_is_read_in_a_minute_and_names_every_page() -> None:
    readme = TEXTS[TOP / "README.md"]
    assert 100 <= len(readme.splitlines()) <= 150
    for page in MANUAL:
        assert f"crawler/manual/{page.name}" in readme


@pytest.mark.parametrize("path", DOCUMENTS, ids=named)
def test_links_lead_to_pages_and_headings(path: Path) -> None:
    for target in LINK.findall(BLOCK.sub("", TEXTS[path])):
        if "://" not in target:
            file, _, heading = target.partition("#")
            found = (path.parent / file).resolve() if file else path
            assert found.exists(), target
            assert not heading or heading in headings(found.read_text("utf-8")), target


def headings(text: str) -> set[str]:
    """The anchors of a page, as GitHub makes them of its headings."""
    found = re.findall(r"^#+ (.*)$", BLOCK.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in found}


@pytest.mark.parametrize("path", DOCUMENTS, ids=named)
def test_commands_that_are_shown_exist_with_their_flags(path: Path) -> None:
    for line in examples(TEXTS[path]):
        read(shlex.split(line, comments=True))


def examples(text: str) -> Iterator[str]:
    """What follows `crawler` in the commands of a document's blocks, up to a pipe or a redirection."""
    for block in BLOCK.findall(text):
        prompt = r"\$ " if re.search(r"^\$ ", block, re.MULTILINE) else ""  # without one there is no output in it
        for line in re.findall(rf"^{prompt}crawler (.*)$", block, re.MULTILINE):
            yield re.split(r" [|>] ", line)[0]


@pytest.mark.parametrize("name", sorted(reference.parsers()))
def test_the_help_of_a_command_has_an_example_and_a_page_of_its_task_tells_of_it(name: str) -> None:
    assert f"example: crawler {name}" in reference.parsers()[name].format_help().replace("\n", " ")
    written = "".join(TEXTS[path] for path in MANUAL if path.stem not in reference.PAGES)
    assert re.search(rf"crawler {name}\b|^`{name}`|`{name}`", written), f"no page tells of crawler {name}"


def test_the_folder_in_the_manual_is_the_folder_that_a_crawl_makes(tmp_path: Path) -> None:
    with world(Links({"/": ["/gone"]}), tmp_path) as w:
        w.crawl()
        made = {path.name for path in w.root.iterdir() if not path.name.startswith(".")}
    for path in (TOP / "README.md", reference.MANUAL / "store.md"):
        tree = TEXTS[path].split("STORE/\n")[1].split("```")[0]
        names = " ".join(re.split(r" {3,}", line.strip())[0] for line in tree.splitlines()).split()
        told = {name.partition("/")[0] for name in names}
        assert told == made == {*FOLDERS, "README", "crawl.yaml"}


def test_a_record_has_the_fields_that_the_manual_shows_and_the_library_reads_it(tmp_path: Path) -> None:
    shown = json.loads(TEXTS[reference.MANUAL / "store.md"].split("```json\n")[1].split("```")[0])
    with world(Links({"/": ["/a"], "/a": []}), tmp_path) as w:
        w.crawl()
        store = Store(w.root)
        records = list(store.records("a.example"))
        assert [list(record) for record in records] == [list(shown)] * 2
        assert all((store.text(record["url"]) or "").strip().endswith("</html>") for record in records)
