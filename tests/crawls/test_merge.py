"""Merging: two stores joined with rsync and `crawler rehydrate` are one, which resumes with all that is missing."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from lab.world import World, crawler, world

from crawler.commands.demo.web import DemoWeb

pytestmark = pytest.mark.skipif(shutil.which("rsync") is None, reason="rsync is not installed")

RETRIES = 5  # of pages that fail for good


def names(root: Path, noun: str) -> set[str]:
    return {str(path.relative_to(root)) for path in (root / noun).rglob("*") if path.is_file()}


def join(one: Path, into: Path) -> None:
    subprocess.run(["rsync", "-a", "--ignore-existing", f"{one}/", f"{into}/"], check=True, timeout=60)


def without_limit(root: Path) -> None:
    settings = root / "crawl.yaml"
    settings.write_text(settings.read_text().replace("max_pages: 20", "max_pages: null"))


@pytest.mark.fleet
def test_two_crawls_of_one_web_become_one_that_runs_to_the_end(tmp_path: Path) -> None:
    web = DemoWeb(hosts=8, pages=60, seed=5)
    with world(web, tmp_path) as w:
        first, second = w.web.seeds()[0], sorted(w.web.expected().pages)[-1]
        other = World(web, w.port, tmp_path / "other")
        other.folder.mkdir()
        other.run(second, "--max-pages", "20", code=4)
        w.run(first, "--max-pages", "20", code=4)
        shard = next((other.root / "shards").glob("009@*"))
        shard.rename(shard.with_name("009@0badcafe"))  # somebody died there
        kept = [json.loads(crawler("status", str(root), "--json"))["pages"] for root in (w.root, other.root)]
        apart = {noun: names(w.root, noun) | names(other.root, noun) for noun in ("links", "htmls", "errs", "robots")}
        seeds = names(w.root, "seeds") | names(other.root, "seeds")

        join(other.root, w.root)
        assert "rehydrated: " in crawler("rehydrate", str(w.root))

        assert {noun: names(w.root, noun) for noun in apart} == apart
        assert names(w.root, "seeds") == seeds
        assert w.status()["pages"] == len(apart["htmls"]) <= sum(kept), "what both had counts once"
        found = crawler("check", str(w.root), "--repair")
        assert "shards/009: 2 files name an owner (repaired: given one name)" in found
        assert "1 problem repaired (shard 1)" in found
        before = len(w.log)
        without_limit(w.root)
        w.run()
        # That redirects go in a circle is seen on the way, and one who went only half of it did not come by there.
        assert [line for line in w.differences() if "/circle/" not in line] == []
        done = len(apart["links"]) + len(apart["errs"])
        again = [request for request in w.log[before:] if "robots.txt" not in request.path]
        assert len(again) <= len(web.expected()) - done + RETRIES, "only what was missing is requested"
        assert crawler("check", str(w.root)).splitlines()[-1].startswith("no problems")
