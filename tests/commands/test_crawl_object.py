"""`from crawler import Crawl`: the same machine as the command, run by Python programs as people write them."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from lab.world import LONG, Links, World, is_dead, kill, wait_for, workers_of, world

from crawler import Crawl, Page, Store
from crawler.crawl import handler
from crawler.crawl.worker.handling import MAX_HANDLED
from crawler.errors import LIMIT, OVER, STOPPED, NotThere, StoreError, UsageError

TREE = {"/": [f"/{n}" for n in range(30)], **{f"/{n}": [] for n in range(30)}}
QUICK: dict[str, Any] = {"delay": 0.01, "workers": 2, "quiet": True, "shards": 32, "heartbeat": 0.5, "dead_after": 60}
SCRIPT = """
import json, os, sys, time
from crawler import Crawl
from crawler.errors import CrawlerError

def handle(page):
    line = json.dumps([page.url, os.getpid(), page.title, page.text[:20], page.html[:9], len(page.links)]) + "\\n"
    file = os.open("handled", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, line.encode())
    os.close(file)
    {body}

{guard}
    made = Crawl("store", seeds="http://a.example/", connect_to="::127.0.0.1:{port}", **{keywords})
    result = made.run(on_page={on_page})
    print(json.dumps([result.exit_code, result.pages, result.handler_errors, len(result.store)]))
"""
GUARD = 'if __name__ == "__main__":'


@pytest.fixture
def site(tmp_path: Path) -> Iterator[World]:
    """A page with thirty others."""
    with world(Links(TREE), tmp_path) as made:
        yield made


def written(
    site: World, body: str = "pass", guard: str = GUARD, on_page: str = "handle", name: str = "job.py", **more: object
) -> Path:
    """A user's script."""
    path = site.folder / name
    keywords = {**QUICK, **more}
    path.write_text(SCRIPT.format(body=body, guard=guard, port=site.port, keywords=keywords, on_page=on_page))
    return path


def start(site: World, *command: str | Path) -> subprocess.Popen[str]:
    """Python in the site's folder."""
    process = subprocess.Popen(
        [sys.executable, *map(str, command)],
        cwd=site.folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(handler.__file__).parents[2])},
    )
    site.started.append(process)
    return process


def end(process: subprocess.Popen[str], code: int = 0) -> tuple[str, str]:
    """What it printed."""
    out, err = process.communicate(timeout=LONG)
    assert process.returncode == code, err
    return out, err


def handled(site: World) -> list[list[Any]]:
    """What the script's function was called with."""
    return [json.loads(line) for line in (site.folder / "handled").read_text().splitlines()]


def crawl(site: World, **more: Any) -> Crawl:
    """A crawl of the site in this process."""
    return Crawl(site.root, site.web.seeds(), connect_to=[f"::127.0.0.1:{site.port}"], **{**QUICK, **more})


def test_a_script_has_its_function_called_in_the_workers_once_for_each_page(site: World) -> None:
    out, err = end(start(site, written(site)))
    assert json.loads(out) == [OVER, 31, 0, 31]
    assert err.count("\n") == 1, "only the warning about the User-Agent"
    calls = handled(site)
    assert sorted(call[0] for call in calls) == sorted(site.web.pages)  # type: ignore[attr-defined]
    assert len({call[1] for call in calls}) <= 2
    record = next(call for call in calls if call[0] == "http://a.example/")
    assert record[2] and record[3] and record[4].lower() == "<!doctype" and record[5] >= 30


def test_an_exception_names_the_page_and_does_not_end_the_crawl(site: World) -> None:
    out, err = end(
        start(site, written(site, "if page.url.endswith('/7') or page.url.endswith('/8'): sys.exit(page.url)"))
    )
    assert json.loads(out) == [OVER, 31, 2, 31]
    assert "on_page failed for http://a.example/7: SystemExit" in err


def test_a_script_without_the_guard_gets_a_sentence_and_no_second_crawl(site: World) -> None:
    _, err = end(start(site, written(site, guard="if True:")), code=1)
    assert err.count("Traceback") == 1
    assert err.splitlines()[-1].startswith("crawler.errors.UsageError: the script starts its crawl again")
    assert not site.root.exists() and not (site.folder / "handled").exists()


def test_a_script_without_the_guard_may_give_a_function_of_a_module(site: World) -> None:
    written(site, name="jobs.py")
    path = site.folder / "job.py"
    path.write_text(
        "from crawler import Crawl\nfrom jobs import handle\n"
        f"r = Crawl('store', 'http://a.example/', connect_to='::127.0.0.1:{site.port}', **{QUICK}).run(handle)\n"
        "print(r.pages, r.handler_errors)\n"
    )
    assert end(start(site, path))[0] == "31 0\n"
    assert len(handled(site)) == 31


def test_a_script_on_standard_input_can_crawl_but_not_be_imported(site: World) -> None:
    written(site, name="jobs.py")
    for given, said in (
        ("handle", "defined at a prompt, in a notebook or on standard input"),
        ("None", "[0, 31, 0, 31]"),
    ):
        text = written(site, guard="if True:", on_page=given).read_text()
        done = subprocess.run(
            [sys.executable, "-"],
            cwd=site.folder,
            input=text,
            capture_output=True,
            text=True,
            timeout=LONG,
            check=False,
        )
        assert said in done.stdout + done.stderr


def test_a_module_run_with_dash_m_is_imported_by_its_name(site: World) -> None:
    written(site)
    assert json.loads(end(start(site, "-m", "job"))[0]) == [OVER, 31, 0, 31]
    assert len(handled(site)) == 31


def nothing(page: Page) -> None:
    """A function that workers can import."""


async def later(page: Page) -> None:
    """A coroutine."""


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda page: None, "a lambda cannot be imported"),
        (partial(nothing), "must be a function"),
        (7, "must be a function"),
        (Page, "must be a function"),
        (later, "is a coroutine"),
        ([].append, "which no module has by that name"),
    ],
)
def test_what_workers_cannot_import_is_said_before_anything_begins(tmp_path: Path, function: Any, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        Crawl(tmp_path / "store", "http://a.example/").run(on_page=function)
    assert not (tmp_path / "store").exists()


def test_a_closure_and_a_module_that_fails_are_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def inner(page: Page) -> None:
        """Not at the top level."""

    with pytest.raises(UsageError, match="inner, which no module has by that name, cannot be imported"):
        handler.describe(inner)
    (tmp_path / "shaky.py").write_text(
        "import os, multiprocessing as m\nif m.parent_process(): 1 / 0\ndef f(page): pass"
    )
    monkeypatch.syspath_prepend(tmp_path)
    import shaky  # type: ignore[import-not-found]

    with pytest.raises(UsageError, match="workers cannot import f from shaky: ZeroDivisionError"):
        Crawl(tmp_path / "store", "http://a.example/").run(on_page=shaky.f)
    (tmp_path / "deadly.py").write_text(
        "import os, multiprocessing as m\nif m.parent_process(): os._exit(1)\ndef f(p): 0"
    )
    import deadly  # type: ignore[import-not-found]

    with pytest.raises(UsageError, match="a process that imports f dies"):
        Crawl(tmp_path / "store", "http://a.example/").run(on_page=deadly.f)


def test_a_page_that_is_done_was_handled_whatever_is_killed(site: World) -> None:
    path = written(site, "time.sleep(0.05)")
    first = start(site, path)
    wait_for(lambda: (site.folder / "handled").exists() and len(handled(site)) > 5)
    workers = workers_of(first)
    kill(first.pid)
    first.communicate()
    wait_for(lambda: all(map(is_dead, workers)))
    assert site.urls() <= {call[0] for call in handled(site)}, "a record means that the page was handled"
    assert json.loads(end(start(site, path))[0])[0] == OVER
    calls = [call[0] for call in handled(site)]
    assert set(calls) == set(site.web.pages)  # type: ignore[attr-defined]
    assert len(calls) - len(set(calls)) <= MAX_HANDLED, "only what was in flight is handled again"


@pytest.mark.fleet  # for time
def test_a_slow_function_stops_neither_heartbeats_nor_requests(site: World) -> None:
    process = start(site, written(site, "time.sleep(6 if page.url.endswith('/3') else 0)", workers=1, dead_after=4))
    out, err = end(process)
    assert json.loads(out) == [OVER, 31, 0, 31]
    assert "died" not in err and "hung" not in err and "no progress" not in err
    assert len(handled(site)) == 31


@pytest.mark.fleet  # for time
def test_a_page_whose_function_kills_the_worker_is_blamed_and_the_others_are_handled(site: World) -> None:
    body = "page.url.endswith('/5') and os.kill(os.getpid(), 11)"
    out, _ = end(start(site, written(site, body, workers=1, retry_delay=0.1)))
    assert json.loads(out)[0] == OVER
    assert site.refusals() == {"http://a.example/5": "worker-died"}
    assert len(site.urls()) == 30


def test_ctrl_c_ends_the_run_cleanly_and_the_script_goes_on(site: World) -> None:
    process = start(site, written(site, delay=0.3))
    wait_for(lambda: (site.folder / "handled").exists())
    process.send_signal(signal.SIGINT)
    out, _ = end(process)
    assert json.loads(out)[0] == STOPPED


def test_signals_logging_and_threads_are_as_before_and_a_second_run_finds_nothing_to_do(site: World) -> None:
    threads = set(threading.enumerate())
    log = logging.getLogger("crawler")
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)], list(log.handlers), log.propagate
    first = crawl(site).run(on_page=nothing)
    assert (first.exit_code, first.pages, first.is_over) == (OVER, 31, True)
    assert first.summary.startswith("the crawl is over")
    assert isinstance(first.store, Store) and first.elapsed > 0
    after = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)], list(log.handlers), log.propagate
    assert before == after
    wait_for(lambda: {it.name for it in set(threading.enumerate()) - threads} <= {"tqdm_monitor"})
    assert crawl(site).run().pages == 0


def test_it_runs_in_another_thread(site: World) -> None:
    results = []
    thread = threading.Thread(target=lambda: results.append(crawl(site, max_pages=10).run(on_page=nothing)))
    thread.start()
    thread.join(LONG)
    assert [(result.exit_code, result.pages) for result in results] == [(LIMIT, 10)]


@pytest.mark.parametrize(
    ("keywords", "said"),
    [
        ({"max_page": 5}, "Crawl\\(\\) has no keyword 'max_page'; did you mean 'max_pages'"),
        ({"scope": "planet"}, "Crawl\\(\\): scope is 'planet': must be one of"),
        ({"workers": 0}, "Crawl\\(\\): workers: 0 "),
        ({"quiet": "yes"}, "quiet must be of type bool"),
        ({"log_file": 7}, "log_file must be of type str"),
        ({"seeds": ["a.example"]}, "did you mean https://a.example/"),
        ({"seeds": [7]}, "seeds must be of type str"),
        ({"headers": "Authorization: x", "seeds": ()}, "no host to send it to"),
        ({"seeds": ()}, "give at least one URL"),
    ],
)
def test_a_wrong_keyword_is_an_error_of_the_program(tmp_path: Path, keywords: dict[str, Any], said: str) -> None:
    given = {"seeds": ["http://a.example/"], **keywords}
    with pytest.raises(UsageError, match=said):
        Crawl(tmp_path / "store", **given).run()


def test_a_store_that_cannot_be_is_an_error_of_the_store(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="is a file"):
        Crawl(tmp_path / "file", "http://a.example/").run()


def test_settings_and_flags_of_the_command_are_keywords(site: World) -> None:
    result = crawl(
        site, depth=1, exclude=("/1$",), headers=["X-Key: secret", "From: me@a.example"], cookies=False
    ).run()
    assert result.exit_code == OVER
    settings = result.store.settings()
    assert (settings.depth, settings.exclude, settings.headers) == (1, ("/1$",), ("From: me@a.example",))
    assert settings.cookies is False
    assert "http://a.example/1" not in site.urls()


def test_a_host_may_be_spelled_in_any_way(site: World) -> None:
    site.crawl("--max-pages", "3", code=LIMIT)
    for spelled in ("a.example", "A.Example", "http://a.example/", "a.example:80"):
        assert len(list(Store(site.root).pages(spelled))) == 3, spelled


def test_a_host_that_is_not_there_raises_at_once_and_the_store_counts(site: World) -> None:
    site.crawl()
    store = Store(site.root)
    raises: list[tuple[type[Exception], Callable[[], object]]] = [
        (NotThere, lambda: store.pages("b.example")),
        (UsageError, lambda: store.pages("http://a.example/x")),
        (UsageError, lambda: store.page("nonsense")),
    ]
    for error, call in raises:
        with pytest.raises(error):
            call()
    assert len(store) == 31 and bool(store)
    for spelled in ("HTTP://A.example:80/3#top", "http://a.example/3?utm_source=x", "http://a.example/3"):
        found = store.page(spelled)
        assert found and found.url == "http://a.example/3"
    assert store.page("http://a.example/none") is None


def test_the_example_of_the_manual_runs(site: World) -> None:
    text = (Path(handler.__file__).parents[1] / "manual/python.md").read_text("utf-8")
    example = text.split("```python\n")[1].split("```")[0]
    more = f"max_pages=500, connect_to='::127.0.0.1:{site.port}', **{QUICK}"
    path = site.folder / "example.py"
    path.write_text(example.replace("https://example.org/", "http://a.example/").replace("max_pages=500", more))
    out, _ = end(start(site, path))
    assert len(out.splitlines()) == 32 and out.splitlines()[-1].startswith("0 31 0 ")
