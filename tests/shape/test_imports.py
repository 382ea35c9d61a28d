"""Imports run one way: a room imports only from rooms before it, and nothing below imports a command."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import crawler

FOLDER = Path(crawler.__file__).parent
ORDER = [
    "errors",
    "web",
    "fetch",
    "settings",
    "terminal",
    "store",
    "frontier fleet",
    "crawl",
    "commands",
    "__main__",
]
RANK = {room: rank for rank, rooms in enumerate(ORDER) for room in rooms.split()}
FILES = sorted(path for path in FOLDER.rglob("*.py") if path.parent != FOLDER or path.stem != "__init__")


def room_of(module: str) -> str:
    """The room of a module's dotted name: `store` of `crawler.store.mount`."""
    return module.split(".")[1]


def imports(path: Path) -> Iterator[str]:
    """The modules of ours that a file imports, wherever it does so."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "crawler":
            yield from (f"{node.module}.{alias.name}" for alias in node.names if alias.name != "__version__")
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.startswith("crawler."))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(FOLDER)))
def test_a_room_imports_only_from_rooms_before_it(path: Path) -> None:
    mine = path.relative_to(FOLDER).with_suffix("").parts[0]
    wrong = {name for name in imports(path) if room_of(name) != mine and RANK[room_of(name)] >= RANK[mine]}
    assert not wrong, f"{mine} imports {sorted(wrong)}"
