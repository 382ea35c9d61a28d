"""No command reads through a symbolic link in the store: whoever plants one would get to see the reader's own files."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from lab.stores import large
from lab.world import COMMAND, LONG, crawler

from crawler import Store
from crawler.commands.serve.views import Views
from crawler.web import urls

PRIVATE = "PRIVATE"
URL = "https://host-000.example/page/0"
PLACE = f"host-000.example/{urls.key(URL)}"
OTHER = "https://host-001.example/page/1"
RULES = "columns:\n  title: title\n"

READERS: dict[str, Callable[[str, Path], str]] = {
    "cat": lambda root, rules: printed("cat", root, URL),
    "ls": lambda root, rules: printed("ls", root, "-a"),
    "links": lambda root, rules: printed("links", root, URL),
    "explain": lambda root, rules: printed("explain", root, URL),
    "export": lambda root, rules: printed("export", root, f"{root}.jsonl", "--html", out=f"{root}.jsonl"),
    "extract": lambda root, rules: printed("extract", root, str(rules), f"{root}.csv", out=f"{root}.csv"),
    "library": lambda root, rules: read_all(Store(Path(root))),
    "serve": lambda root, rules: serve_all(Views(Store(Path(root)))),
}


def printed(*args: str, out: str = "") -> str:
    """All that a command printed or wrote; whether it found anything depends on the link."""
    done = subprocess.run([*COMMAND, *args], capture_output=True, text=True, timeout=LONG, check=False)
    assert done.returncode in (0, 1, 5), done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout + done.stderr + (Path(out).read_text() if out and Path(out).exists() else "")


def read_all(store: Store) -> str:
    """All that the library gives."""
    return json.dumps([[page.record, page.html] for page in store.pages()]) + str(store.text(URL))


def serve_all(views: Views) -> str:
    """All that the web page shows of it."""
    query = {"url": URL, "host": urls.host(URL)}
    return json.dumps([views.page(query), views.host(query)]) + views.drawn(query).decode()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of twenty pages on two hosts, and beside it a folder whose files are like its own, but private."""
    folder = tmp_path_factory.mktemp("made")
    large(folder / "store", pages=20, hosts=2)
    shutil.copytree(folder / "store", folder / "outside")
    for path in (folder / "outside").glob("*/*/*"):
        path.write_text(path.read_text().replace("Page", PRIVATE))
    (folder / "rules.yaml").write_text(RULES)
    return folder


@pytest.mark.fleet  # for time
@pytest.mark.parametrize("link", [f"htmls/{PLACE}", f"links/{PLACE}", "htmls/host-000.example", "htmls", "links"])
@pytest.mark.parametrize("reader", READERS)
def test_no_reader_follows_a_link_out_of_the_store(made: Path, tmp_path: Path, reader: str, link: str) -> None:
    root = tmp_path / "store"
    shutil.copytree(made / "store", root)
    if (root / link).is_dir():
        shutil.rmtree(root / link)
    else:
        (root / link).unlink()
    (root / link).symlink_to(made / "outside" / link)
    try:
        shown = READERS[reader](str(root), made / "rules.yaml")
    except Exception as error:  # noqa: BLE001 - the library may also raise its own error
        shown = f"{type(error).__name__}: {error}"
        assert "is a symbolic link" in shown
    assert PRIVATE not in shown


@pytest.mark.parametrize("link", [f"htmls/{PLACE}", f"links/{PLACE}", "htmls/host-000.example", "links"])
def test_check_names_a_link_and_repairs_it(made: Path, tmp_path: Path, link: str) -> None:
    root = tmp_path / "store"
    shutil.copytree(made / "store", root)
    if not (root / link).is_dir():
        (root / link).unlink()
    elif (root / link).exists():
        shutil.rmtree(root / link)
    (root / link).symlink_to(made / "outside" / link)
    lines = crawler("check", str(root), code=1).splitlines()
    assert [line for line in lines if line.startswith(f"unexpected  {link}: ")]
    crawler("check", str(root), "--repair")
    assert not (root / link).is_symlink()
    assert (made / "outside").is_dir()


def test_a_link_in_place_of_the_seeds_stops_a_command_that_needs_them(made: Path, tmp_path: Path) -> None:
    root = tmp_path / "store"
    shutil.copytree(made / "store", root)
    shutil.rmtree(root / "seeds", ignore_errors=True)
    (root / "seeds").symlink_to(made / "outside" / "links")
    for command in ("check", "add"):
        said = crawler(command, str(root), *(["https://a.example/"] if command == "add" else []), code=5)
        assert f"{root}/seeds is a symbolic link" in said and "Traceback" not in said


def test_a_store_that_is_itself_a_link_is_read(made: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(made / "store")
    assert "Page 0" in crawler("cat", str(tmp_path / "link"), URL)
    assert Store(tmp_path / "link").text(OTHER)
