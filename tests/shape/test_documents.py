"""Documents cannot drift: generated pages are what the code gives, examples are commands that exist, links lead on."""

from __future__ import annotations

import inspect
import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import reference
from lab.world import Links, world

import crawler
from crawler import Store
from crawler.commands.main import read
from crawler.crawl import resources
from crawler.crawl.machine import CONCURRENCY, FEW_SUSPECTS
from crawler.crawl.worker import flush, in_flight, reader, upkeep, visit, worker
from crawler.fetch import budget, fetcher, request, resolver
from crawler.frontier import hosts, recent, table
from crawler.settings.settings import Settings
from crawler.store.store import FOLDERS
from crawler.web import markup, urls

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
        assert told - {"history"} == made == {*FOLDERS, "README", "crawl.yaml"}, "history/ only where it is wanted"


def test_a_record_has_the_fields_that_the_manual_shows_and_the_library_reads_it(tmp_path: Path) -> None:
    shown = json.loads(TEXTS[reference.MANUAL / "store.md"].split("```json\n")[1].split("```")[0])
    with world(Links({"/": ["/a"], "/a": []}), tmp_path) as w:
        w.crawl()
        store = Store(w.root)
        records = list(store.records("a.example"))
        assert [list(record) for record in records] == [list(shown)] * 2
        assert all((store.text(record["url"]) or "").strip().endswith("</html>") for record in records)


def steps(text: str) -> list[str]:
    """The numbered list of a text, each step in one line."""
    found = re.findall(r"^\d\. (.*(?:\n +\S.*)*)", text, re.MULTILINE)
    return [" ".join(step.split()) for step in found]


def test_the_life_of_a_url_in_the_manual_is_the_list_of_visit() -> None:
    told, written = steps(page_of("life-of-a-url")), steps(visit.__doc__ or "")
    assert len(told) == len(written) == 8
    for more, step in zip(told, written, strict=True):
        assert more.startswith(step)


def test_visit_takes_the_steps_in_the_order_of_its_list() -> None:
    told = inspect.getsource(visit.Visits.visit)
    calls = ("self._robots.of(", "rules.allow(", "self._requests.get(", "self._keep(", "self._rest(host, response)")
    places = [told.index(call) for call in calls]
    assert places == sorted(places)


def page_of(name: str) -> str:
    """A page of the manual."""
    return TEXTS[reference.MANUAL / f"{name}.md"]


def flat(name: str) -> str:
    """A page of the manual in one line."""
    return " ".join(page_of(name).split())


def size(count: int) -> str:
    """Bytes as the manual writes them."""
    return f"{count >> 20} MiB" if count >= 1 << 20 else f"{count >> 10} KiB"


FILES = resources.files_for(CONCURRENCY) + resources.BASE_FILES
BODIES = ", ".join(f"{places} larger than {size(step)}" for step, places in budget.STEPS[1:]).replace(", ", " and ")
LARGE = f"{budget.STEPS[0][1]} may be larger than {size(budget.STEPS[0][0])}, {BODIES}"
SIZES = [step for step, _ in budget.STEPS] + [Settings().max_size]
RECEIVED = CONCURRENCY * SIZES[0] + sum(
    places * (larger - step) for (step, places), larger in zip(budget.STEPS, SIZES[1:], strict=True)
)
INFLATED = budget.STEPS[-1][1] * Settings().max_size
TEXTS_WAITING = 3 * flush.MAX_BYTES
BOUND = RECEIVED + INFLATED + TEXTS_WAITING + 400e6 + 100e6  # a page that fills a parser, and everything else
MAX_BYTES, GROUP_BYTES = size(flush.MAX_BYTES), size(flush.GROUP_BYTES)


@pytest.mark.parametrize(
    ("page", "sentence"),
    [
        ("design", f"open requests (`--concurrency`, {CONCURRENCY} by default)"),
        ("design", f"the results that wait for their flush ({flush.MAX_RESULTS} at most"),
        ("life-of-a-url", f"(`--concurrency`, {CONCURRENCY} by default)"),
        ("life-of-a-url", f"flush ({flush.MAX_RESULTS} at most"),
        ("machines", f"| `-t`, `--concurrency N` | {CONCURRENCY} |"),
        ("capacity", f"`--concurrency N` | 4, {CONCURRENCY} |"),
        ("design", f"Results wait until there are {flush.GROUP} of them or {GROUP_BYTES} of html"),
        ("design", f"If {flush.MAX_RESULTS} results or {MAX_BYTES} wait or are being written"),
        ("design", f"up to {visit.MAX_LANES} if it has no delay"),
        ("politeness", f"up to {visit.MAX_LANES} at once"),
        ("design", f"up to {hosts.MAX_LOADED:,} of its hosts and the next {table.MAX_CHUNK} tasks of each"),
        ("design", f"| up to {worker.WRITERS} | calls to the store"),
        ("design", f"pages of more than {size(reader.LARGE_BODY)}"),
        ("security", f"pages of more than {size(reader.LARGE_BODY)}"),
        ("design", f"a crash with more than {FEW_SUSPECTS} suspects"),
        ("design", f"everything else: {FILES} at {CONCURRENCY} requests"),
        ("design", f"up to {request.KEPT} kept connections and up to {resources.MAX_OPEN_FOLDERS} kept folders"),
        ("security", f"({FILES} files for {CONCURRENCY})"),
        ("design", LARGE),
        ("security", LARGE),
        ("design", f"about {BOUND / 1e9:.1f} GB with the defaults"),
        ("security", f"about {BOUND / 1e9:.1f} GB with the defaults"),
        ("security", f"requests, and what the large ones take beyond that | {RECEIVED / 1e6:.0f} MB |"),
        ("security", f"{budget.STEPS[-1][1]} of `max_size` | {INFLATED / 1e6:.0f} MB |"),
        ("security", f"{MAX_BYTES}, a few times over | {TEXTS_WAITING / 1e6:.0f} MB |"),
        ("security", f"by decompression there are at most {budget.STEPS[-1][1]} at a time"),
        ("security", f"{markup.DEFAULTS.max_links:,} of a page, of up to {urls.MAX_URL:,} characters each"),
        ("politeness", f"but at least {fetcher.FIRST_CONTACT_SECONDS:g} seconds"),
        ("politeness", f"up to {resolver.MAX_IN_FLIGHT:,} names at a time"),
        ("politeness", f"trouble with the name server for {resolver.TROUBLE_FOR:g} seconds"),
    ],
)
def test_a_number_in_the_manual_is_that_of_the_code(page: str, sentence: str) -> None:
    assert sentence in flat(page)


def test_what_the_manual_says_in_words_is_what_the_code_has() -> None:
    assert (in_flight.IN_TURN_SHARE, in_flight.LAST_SHARE) == (4, 2), "politeness.md: a quarter of the slots, and half"
    assert (upkeep.FLUSH_INTERVAL, upkeep.IDLE_FLUSH_INTERVAL) == (1, 0.2), "design.md: a second, a fifth of a second"
    assert (recent.SHARE_OF, hosts.SOON) == (1000, 1), "politeness.md: the last thousand requests, within a second"
    assert (resolver.MIN_TTL, resolver.MAX_TTL, resolver.NO_SUCH_NAME_FOR) == (60, 3600, 300), "politeness.md"


def test_the_parts_of_a_worker_in_the_manual_are_its_modules() -> None:
    rows = page_of("design").split("| part | what it does |")[1].split("\n\n")[0]
    told = set(re.findall(r"`(\w+)`", " ".join(row.split(" | ")[0] for row in rows.splitlines())))
    modules = {path.stem for path in Path(worker.__file__).parent.glob("*.py")} - {"__init__", "worker"}
    assert told == modules | {"frontier", "table", "hosts"}


def test_the_map_names_every_room_and_an_evenings_reading_that_exists() -> None:
    folder, text = Path(crawler.__file__).parent, crawler.__doc__ or ""
    rooms = {path.stem for path in folder.iterdir() if path.suffix == ".py" or path.is_dir()}
    told = set(re.findall(r"^    (\w+)/? ", text, re.MULTILINE))
    assert told == {room for room in rooms if not room.startswith("__")}
    reading = re.findall(r"\w+(?:/\w+)+", text.split("An evening's reading")[1])
    assert all((folder / f"{module}.py").exists() for module in reading)
    order = "visit flush upkeep in_flight frontier table task_rows hosts shards heartbeats mount store"
    assert [module.split("/")[-1] for module in reading] == order.split()
