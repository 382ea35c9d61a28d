"""`from crawler import Store`: the examples of the documents run, and pages come lazily in a stable order."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from datetime import UTC
from functools import partial
from importlib.resources import files
from itertools import islice
from pathlib import Path

import pytest
from lab.world import LONG

import crawler
from crawler import Store
from crawler.errors import StoreError

ROOT = Path(__file__).parents[2]
# Recipes have data of their own: test_recipes runs them.
PAGES = [path for path in sorted((ROOT / "crawler/manual").glob("*.md")) if path.name != "recipes.md"]
DOCUMENTS = [ROOT / "README.md", *PAGES]
TEXT = "".join(path.read_text("utf-8") for path in DOCUMENTS)
# Those that crawl are run by test_crawl_object.
EXAMPLES = [found for found in re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL) if "Crawl(" not in found]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda text: text.splitlines()[0])
def test_an_example_of_the_documents_runs_on_a_store(crawled_once: Path, tmp_path: Path, example: str) -> None:
    if "pandas" in example and not importlib.util.find_spec("pandas"):
        pytest.skip("pandas is not installed: `make venv` does it")
    (tmp_path / "STORE").symlink_to(crawled_once)
    host = Store(crawled_once).hosts()[0]
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", example.replace("example.org", host)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(crawler.__file__).parent.parent)},
        capture_output=True,
        text=True,
        timeout=LONG,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) > 2


def test_there_are_some_examples_and_one_is_for_pandas() -> None:
    assert len(EXAMPLES) == 4
    assert sum("pandas" in example for example in EXAMPLES) == 1


def test_pages_come_host_by_host_in_a_stable_order(crawled_once: Path) -> None:
    store = Store(crawled_once)
    pages = list(store.pages())
    assert [page.url for page in pages] == [page.url for host in store.hosts() for page in store.pages(host)]
    assert [page.host for page in pages] == sorted(page.host for page in pages)
    assert all(page.html and page.fetched.tzinfo == UTC and page.fetched.year >= 2026 for page in pages)
    assert any(page.links for page in pages)
    assert repr(pages[0]) == f"Page(url={pages[0].url!r})"
    assert repr(store) == f"Store({str(crawled_once)!r})"


def test_one_page_is_found_by_its_url(crawled_once: Path) -> None:
    store = Store(crawled_once)
    first = next(store.pages())
    assert store.page(first.url) == first
    assert store.text(first.url) == first.html
    assert store.page(f"{first.url}?gone") is None
    assert all(store.page(record["url"]) is None for record in store.records() if not record["sha224"])


def test_nothing_is_read_before_it_is_asked_for(crawled: Path) -> None:
    pages = Store(crawled).pages()
    first = list(islice(pages, 1))
    for path in crawled.glob("*/*/*"):
        path.unlink()
    assert first[0].html == ""
    assert list(pages) == []


def test_a_folder_that_is_no_store_is_said_and_an_empty_store_has_no_pages(tmp_path: Path) -> None:
    for root in (tmp_path, tmp_path / "not-there"):
        store = Store(root)
        for read in (store.pages, store.hosts, store.failures, partial(store.pages, "a.example")):
            with pytest.raises(StoreError, match="is not a store"):
                list(read())
    (tmp_path / "links").mkdir()  # as in a copy of what was brought alone
    assert list(Store(tmp_path).pages()) == list(Store(tmp_path).failures("a.example")) == []


def test_the_command_can_end_without_a_word_almost_at_once() -> None:
    """What is loaded before Ctrl-C is taken care of, a user may interrupt with a traceback."""
    script = "import sys; before = set(sys.modules); import crawler.__main__; print(*set(sys.modules) - before)"
    loaded = subprocess.run([sys.executable, "-S", "-c", script], capture_output=True, text=True, check=True, cwd=ROOT)
    assert not {"typing", "re", "crawler.commands.main"}.intersection(loaded.stdout.split())


def test_a_command_loads_only_what_it_needs(crawled: Path) -> None:
    script = "import sys; from crawler.commands.main import run; run(sys.argv[1:]); print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script, "status", str(crawled)], capture_output=True, text=True, check=True, cwd=ROOT
    )
    loaded = set(done.stdout.splitlines()[-1].split())
    assert "crawler.commands.status" in loaded
    assert not loaded & {"turbohtml", "selectolax", "bs4", "html5lib", "xml.parsers.expat", "chardet", "protego"}
    assert not loaded & {"pycurl", "requests", "urllib3", "http.client"}
    assert not loaded & {"sqlite3", "tqdm", "filelock", "asyncio", "multiprocessing", "crawler.crawl.machine"}


def test_type_checkers_of_users_read_our_hints() -> None:
    assert (files("crawler") / "py.typed").is_file()
    assert "py.typed" in (Path(__file__).parents[2] / "pyproject.toml").read_text()
