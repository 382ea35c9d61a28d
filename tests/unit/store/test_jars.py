"""Files of cookies in the store: written for their owner alone, read with distrust."""

from __future__ import annotations

import json
import math
import stat
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawler.fetch.cookies import MAX_COOKIES, Cookie
from crawler.store import jars
from crawler.store.mount import Files

GOOD = {"name": "s", "value": "1", "path": "/", "secure": False, "until": None, "count": 1, "by": "ab12"}
SOME = [
    Cookie("s", "s=1; ".strip("; "), "/", True, math.inf, (3, "ab12")),
    Cookie("t", "t=\xe9=x", "/dir;v=1", False, 4e9, (1, "")),
    Cookie("u", "", "/", False, 0.0, (2, "ab12")),
]


def line(**changed: object) -> bytes:
    return json.dumps(GOOD | changed).encode() + b"\n"


def test_what_is_written_is_read_and_nobody_else_may_read_it(tmp_path: Path) -> None:
    (tmp_path / "README").touch()
    files = Files(tmp_path, "ab12")
    jars.write(files, "a.example", "ab12-1", SOME)
    path = tmp_path / "cookies/a.example/ab12-1"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert jars.names(files, "a.example") == ["ab12-1"]
    assert jars.read(files, "a.example", "ab12-1") == SOME
    jars.drop(files, "a.example", ["ab12-1", "ab12-0"])
    assert jars.read(files, "a.example", "ab12-1") == jars.names(files, "a.example") == []
    assert jars.names(files, "b.example", is_fresh=False) == []


def test_an_expired_cookie_is_left_out() -> None:
    assert jars.parse(line(until=1.5) + line(name="t")) == [Cookie("t", "t=1", "/", False, math.inf, (1, "ab12"))]


@pytest.mark.parametrize(
    "bad",
    [
        b"s=1\n",
        line()[:-1],
        line()[:-5] + b"\n",
        b"[]\n",
        b"\n",
        line(more=1),
        line(name=""),
        line(name=1),
        line(value="1\r\nHost: b.example"),
        line(value="1; admin=1"),
        line(value="\u010d"),
        line(value=None),
        line(value="x" * 5000),
        line(path="dir"),
        line(path="/\n"),
        line(path=None),
        line(secure=1),
        line(name="__Host-s"),
        line(until=math.nan),
        line(until=math.inf),
        line(until=-1),
        line(until="soon"),
        line(until=True),
        line(count=-1),
        line(count=1.5),
        line(count=True),
        line(count=10**30),
        line(by="../x"),
        line(by=None),
        b"".join(line(name=f"s{number}") for number in range(MAX_COOKIES + 1)),
        b"".join(line(name=f"s{number}", value="x" * 4000) for number in range(3)),
        b"[" * 100_000 + b"\n",
        b" " * (jars.MAX_BYTES + 1) + b"\n",
    ],
)
def test_a_file_that_is_not_what_a_worker_writes_is_no_jar_and_is_not_quoted(tmp_path: Path, bad: bytes) -> None:
    folder = tmp_path / "cookies/a.example"
    folder.mkdir(parents=True)
    (folder / "x-1").write_bytes(bad)
    with pytest.raises(jars.BadJar) as error:
        jars.read(Files(tmp_path), "a.example", "x-1")
    assert len(str(error.value)) < 60


def test_a_link_or_a_folder_in_place_of_a_file_is_no_jar(tmp_path: Path) -> None:
    (tmp_path / "cookies/a.example/x-1").mkdir(parents=True)
    (tmp_path / "cookies/a.example/x-2").symlink_to("/etc/passwd")
    for name in ("x-1", "x-2"):
        with pytest.raises(jars.BadJar):
            jars.read(Files(tmp_path), "a.example", name)


@given(st.binary(max_size=200) | st.dictionaries(st.text(max_size=6), st.integers() | st.text()).map(json.dumps))
def test_any_bytes_are_cookies_or_no_jar(data: bytes | str) -> None:
    with suppress(jars.BadJar):
        jars.parse(data.encode() if isinstance(data, str) else data)
