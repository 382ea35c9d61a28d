"""The WARC files of a crawl in pywb, the replay software of web archives, and in a real browser."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from lab.browser import browsing
from lab.world import LONG, Answers, html, links, wait_for, world

TOP = Path(__file__).parents[2]
WAYBACK = shutil.which("wayback", path=TOP / ".pywb/bin") or shutil.which("wayback")
CONFIG = """framed_replay: false
collections:
  crawl:
    index_paths: {root}/warcs/
    archive_paths: {root}/warcs/
"""  # as manual/export.md has it

pytestmark = [
    pytest.mark.fleet,
    pytest.mark.skipif(not WAYBACK, reason="no pywb here: `uv venv .pywb && uv pip install --python .pywb pywb`"),
]


@contextmanager
def replaying(root: Path, folder: Path) -> Iterator[str]:
    """Pywb on the files where they are; its address."""
    (folder / "config.yaml").write_text(CONFIG.format(root=root))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [str(WAYBACK), "-p", str(port), "-b", "127.0.0.1"]
    with (folder / "pywb.log").open("w") as log:
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)
    try:
        wait_for(lambda: "Starting" in (folder / "pywb.log").read_text())
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def ask(url: str) -> bytes:
    """The body of an answer."""

    def answered() -> bool:
        try:
            got.append(urllib.request.urlopen(url, timeout=LONG).read())
        except ConnectionError:
            return False
        return True

    got: list[bytes] = []
    wait_for(answered)
    return got[0]


def test_pywb_finds_and_replays_a_crawl_in_a_browser(tmp_path: Path) -> None:
    web = Answers(
        {
            "www.a.example/": html(f"<h1>Home</h1>{links('/Deep/?b=2&a=1', '/copy')}"),
            "www.a.example/Deep/?b=2&a=1": html("<h1>Deep</h1><p>the same words"),
            "www.a.example/copy": html("<h1>Deep</h1><p>the same words"),
        }
    )
    with world(web, tmp_path) as w:
        w.crawl("-s", "warc=true")
        root = w.root
    with replaying(root, tmp_path) as url, browsing(tmp_path / "browser") as browser:
        for page in ("http://www.a.example/Deep/?b=2&a=1", "http://www.a.example/copy"):
            (line,) = ask(f"{url}/crawl/cdx?url={page.replace('&', '%26')}&output=json").splitlines()
            assert json.loads(line)["url"] == page
            assert b"<h1>Deep</h1><p>the same words" in ask(f"{url}/crawl/2026id_/{page}"), "also a revisit"
        browser.open(f"{url}/crawl/2026/http://www.a.example/")
        assert browser.wait("Home", "h1") == "Home"
        browser.click("a")
        assert browser.wait("Deep", "h1") == "Deep"
