"""Files of rows: every form holds the same, and there is a whole file or none."""

from __future__ import annotations

import csv
import gzip
import importlib
import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from crawler.commands.export import output
from crawler.commands.export.formats import FORMATS
from crawler.errors import DiskFull, UsageError

ENDINGS = [*FORMATS, output.SQLITE]
COLUMNS = {'a "quoted" name': "text", "select": "int", "cost": "float", "is": "bool", "Straße, 中": "list"}
ROWS = [
    ['x,"y"\rz\n中', 1, 1.5, True, ["y", "ß"]],
    ["=1+1", -5, 2.0, False, []],
    ["a lone\rend of line", None, None, None, None],
    [None, None, None, None, None],
]


def read_csv(path: Path) -> list[list[Any]]:
    """Strictly, as text: nothing is an empty cell."""
    with path.open(newline="", encoding="utf-8") as file:
        head, *lines = csv.reader(file, strict=True)
    assert head == list(COLUMNS)
    convert: list[Callable[[str], Any]] = [str, int, float, json.loads, json.loads]
    return [[read(text) if text else None for read, text in zip(convert, line, strict=True)] for line in lines]


def from_lines(data: bytes) -> list[list[Any]]:
    assert "中".encode() in data, "grep finds it"
    return [list(json.loads(line).values()) for line in data.splitlines()]


def read_zstd(path: Path) -> list[list[Any]]:
    zstd = importlib.import_module("backports.zstd" if sys.version_info < (3, 14) else "compression.zstd")
    return from_lines(zstd.decompress(path.read_bytes()))


def read_parquet(path: Path) -> list[list[Any]]:
    table = importlib.import_module("pyarrow.parquet").read_table(path)
    assert [str(field.type) for field in table.schema][1:4] == ["int64", "double", "bool"]
    return [list(row.values()) for row in table.to_pylist()]


def read_sqlite(path: Path) -> list[list[Any]]:
    with closing(sqlite3.connect(path)) as database:
        assert [about[1] for about in database.execute("PRAGMA table_info(rows)")] == list(COLUMNS)
        found = [list(row) for row in database.execute("SELECT * FROM rows")]
    assert [row[3] for row in found] == [1, 0, None, None], "truth values are numbers there"
    return [[*row[:4], row[4] and json.loads(row[4])] for row in found]


READ: dict[str, Callable[[Path], list[list[Any]]]] = {
    ".jsonl": lambda path: from_lines(path.read_bytes()),
    ".jsonl.gz": lambda path: from_lines(gzip.decompress(path.read_bytes())),
    ".jsonl.zst": read_zstd,
    ".csv": read_csv,
    ".parquet": read_parquet,
    ".sqlite": read_sqlite,
}


def write(out: Path, rows: list[list[Any]] = ROWS, force: bool = False) -> None:
    with closing(output.open_output(out, "rows", COLUMNS, force)) as file:
        file.add([dict(zip(COLUMNS, row, strict=True)) for row in rows])
        file.finish()


@pytest.mark.parametrize("ending", ENDINGS)
def test_every_form_gives_back_what_was_written(tmp_path: Path, ending: str) -> None:
    out = tmp_path / f"out{ending}"
    write(out)
    assert READ[ending](out) == ROWS
    assert [path.name for path in tmp_path.iterdir()] == [out.name]


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_file_that_is_there_is_replaced_only_when_asked_for_and_when_the_new_one_is_whole(
    tmp_path: Path, ending: str
) -> None:
    out = tmp_path / f"out{ending}"
    out.write_text("precious")
    with pytest.raises(UsageError, match="already exists"):
        write(out)
    with pytest.raises(KeyError), closing(output.open_output(out, "rows", COLUMNS, True)) as file:
        file.add([dict.fromkeys(COLUMNS)])
        raise KeyError
    assert out.read_text() == "precious"
    assert [path.name for path in tmp_path.iterdir()] == [out.name], "no part is left"
    write(out, force=True)
    assert READ[ending](out) == ROWS


@pytest.mark.parametrize("ending", ENDINGS)
def test_what_a_killed_command_has_left_is_in_no_file(tmp_path: Path, ending: str) -> None:
    out = tmp_path / f"out{ending}"
    script = (
        "import os, signal; from pathlib import Path; from crawler.commands.export import output\n"
        f"file = output.open_output(Path({str(out)!r}), 'pages', {{'other': 'text'}}, False)\n"
        "file.add([{'other': 'x' * 50_000}]); os.kill(os.getpid(), signal.SIGKILL)"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == -9
    assert not out.exists()
    journal = tmp_path / f"out{ending}.part.json"
    if ending != output.SQLITE:
        journal.write_text("{}")  # of a killed export, which must not go on with the new part
    with closing(output.open_output(out, "rows", COLUMNS, False)):
        assert not journal.exists()
    write(out)
    assert READ[ending](out) == ROWS
    if ending == output.SQLITE:
        with closing(sqlite3.connect(out)) as database:
            assert [name for (name,) in database.execute("SELECT name FROM sqlite_master")] == ["rows"]
    assert [path.name for path in tmp_path.iterdir()] == [out.name]


@pytest.mark.parametrize("ending", [".csv", output.SQLITE])
def test_two_do_not_write_one_file(tmp_path: Path, ending: str, monkeypatch: pytest.MonkeyPatch) -> None:
    out, connect = tmp_path / f"out{ending}", sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda path, **how: connect(path, timeout=0.1, **how))
    with closing(output.open_output(out, "rows", COLUMNS, False)) as file:
        file.add([dict(zip(COLUMNS, row, strict=True)) for row in ROWS])
        with pytest.raises(UsageError, match="another command is writing"):
            write(out)
        file.finish()
    assert READ[ending](out) == ROWS


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_full_disk_leaves_nothing_and_is_told(small_disk: Path, ending: str) -> None:
    with pytest.raises(DiskFull, match="no space left for"):
        write(small_disk / f"out{ending}", [[os.urandom(100_000).hex(), None, None, None, None]])
    assert list(small_disk.iterdir()) == []
