"""A parser is C on hostile bytes: a page that crashes it costs two workers and that page, never the crawl."""

from __future__ import annotations

from pathlib import Path

import pytest
from lab.world import Answers, links, world

# Loaded by each Python process of the crawl: parsing a page with DEADLY in it kills its worker.
CRASH = """
import ctypes, os, turbohtml
parse = turbohtml.parse

def crash(text, *args, **kwargs):
    if "DEADLY" in text:
        with open(os.environ["DEATHS"], "a") as deaths:
            deaths.write("x")
        os.abort() if os.environ["HOW"] == "abort" else ctypes.string_at(0)
    return parse(text, *args, **kwargs)

turbohtml.parse = crash
"""


@pytest.mark.fleet  # for time
@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.parametrize("how", ["segfault", "abort"])
def test_a_page_that_crashes_the_parser_costs_two_workers_and_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str, workers: str
) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(CRASH)
    deaths = tmp_path / "deaths"
    for name, value in {"PYTHONPATH": tmp_path / "site", "DEATHS": deaths, "HOW": how}.items():
        monkeypatch.setenv(name, str(value))
    fine = [f"/{number}" for number in range(20)]
    pages = {"a.example/": links("/deadly", *fine, "http://b.example/"), "a.example/deadly": "DEADLY" + links("/never")}
    pages |= dict.fromkeys([*(f"a.example{path}" for path in fine), "b.example/1", "b.example/2"], "fine")
    pages["b.example/"] = links("/1", "/2")
    with world(Answers(pages), tmp_path) as w:
        printed = w.run(*w.web.seeds(), "http://b.example/", "-j", workers, "-s", "retries=5")
        assert deaths.read_text() == "xx"
        assert printed.count("worker died with") == 2
        assert w.refusals() == {"http://a.example/deadly": "worker-died"}
        assert w.urls() == {f"http://{page}" for page in pages} - {"http://a.example/deadly"}
