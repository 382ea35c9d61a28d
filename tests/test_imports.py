"""Imports run one way: a module imports only from rows above its own, and only a few touch the mount or print."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import crawler

FOLDER = Path(crawler.__file__).parent

ROWS = [
    ["version", "errors", "reasons", "addresses", "traps", "logs", "slate", "cores", "armour", "syncs"],
    ["records", "show", "plan_sums", "progress", "metrics", "serve_http"],
    ["manual", "completion"],
    ["urls", "charset", "terms", "robots", "deadlines", "places"],
    ["files", "config", "politeness", "parse", "sitemap", "cookies"],
    ["receipts"],
    ["store", "table", "room", "edits", "fetch_curl", "fetch_requests", "forms"],
    ["seeds", "frontier", "survey", "trace", "pulses", "fetch", "serve_census", "sheets"],
    ["shards"],
    ["roster"],
    ["control"],
    ["rehydrate", "desk", "report", "explain", "doctor_mount", "findings"],
    ["outlook", "doctor_lobby", "doctor_speed", "doctor_alone", "export_rows", "check_files", "check_links", "repair"],
    ["doctor_pair", "top_view", "export_file", "export_sql", "export_warc", "check", "serve_views"],
    ["doctor", "top", "serve_service"],
    ["export", "serve"],
    ["housekeeping", "permits"],
    ["begin", "worker"],
    ["machine", "browse", "retry", "plan"],
    ["rules", "trees", "readers"],
    ["harvest"],
    ["extract"],
    ["web_expected"],  # the embedded web knows nothing of the crawler but its folder
    ["web_pages"],
    ["web"],
    ["web_server"],
    ["demo"],
    ["crawl"],
    ["cli"],
    ["__main__", "__init__"],
]
ROW = {module: number for number, row in enumerate(ROWS) for module in row}

# Who may ask the operating system for files, and why.
TOUCHES_FILES = {
    "files": "the store",
    "places": "the store's folders",
    "syncs": "the disk below them",
    "trace": "the machine's own disk",
    "begin": "the store's root folder",
    "store": "whether the root folder is there",
    "cli": "standard output",
    "crawl": "the user's own files",
    "doctor": "whether the folder is there",
    "doctor_lobby": "folders of its own in the store, which are removed",
    "doctor_mount": "what the kernel says of mounts",
    "sheets": "the file that the user wants written",
    "export_file": "how far an export has come",
    "extract": "the user's rules",
    "demo": "the folder of the demonstration",
    "machine": "what the kernel says of memory",
    "cores": "what the kernel says of this process",
    "room": "whether this process may open files",
    "serve_service": "the web page that comes with the program",
    "web_server": "the server's log",
    "web_expected": "the store, read as a user's script would",
}
FILE_CALLS = {"listdir", "scandir", "mkdir", "makedirs", "unlink", "rename", "rmdir", "rmtree", "symlink", "link"}
PATH_CALLS = {"read_text", "read_bytes", "write_text", "write_bytes", "touch", "iterdir", "glob", "rglob", "exists"}
PRINTS = {"browse", "cli", "completion", "demo", "progress", "show", "top"}


def modules() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob("*.py"))


def tree(module: str) -> ast.Module:
    return ast.parse((FOLDER / f"{module}.py").read_text())


def imports(module: str) -> Iterator[str]:
    """The modules of ours that a module imports, wherever it does so."""
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.ImportFrom) and node.module == "crawler":
            yield from (alias.name if alias.name in ROW else "__init__" for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("crawler."):
            yield (node.module or "").removeprefix("crawler.")
        elif isinstance(node, ast.Import):
            yield from (alias.name.removeprefix("crawler.") for alias in node.names if alias.name.startswith("crawler"))


def calls(module: str) -> Iterator[tuple[str, str]]:
    """(what it is called on, the name) of each call in a module."""
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            owner = node.func.value
            is_store = isinstance(owner, ast.Attribute) and owner.attr == "store"
            yield owner.id if isinstance(owner, ast.Name) else "store" if is_store else "", node.func.attr
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            yield "", node.func.id


def test_every_module_has_its_row() -> None:
    assert modules() == sorted(ROW)
    assert len(ROW) == sum(map(len, ROWS))


@pytest.mark.parametrize("module", modules())
def test_a_module_imports_only_from_rows_above_its_own(module: str) -> None:
    below = {name for name in imports(module) if ROW[name] >= ROW[module]}
    assert not below, f"{module} (row {ROW[module]}) imports {sorted(below)}"


@pytest.mark.parametrize("module", sorted(set(modules()) - TOUCHES_FILES.keys()))
def test_only_a_few_modules_touch_files(module: str) -> None:
    found = {
        name
        for owner, name in calls(module)
        if (owner == "os" and name in FILE_CALLS | {"open"})
        or (owner != "os" and name in PATH_CALLS and (owner, name) != ("store", "exists"))
        or (owner, name) == ("", "open")
        or owner == "shutil"
    }
    assert not found, f"{module} calls {sorted(found)}"


@pytest.mark.parametrize("module", sorted(set(modules()) - PRINTS))
def test_only_a_few_modules_print(module: str) -> None:
    assert ("", "print") not in set(calls(module))
    assert not {name for owner, name in calls(module) if owner == "sys" and name == "exit"} or module == "__main__"


def test_only_a_few_modules_start_threads_or_processes() -> None:
    starters = {"Thread", "ThreadPoolExecutor", "ProcessPoolExecutor", "Popen"}
    found = {module for module in modules() for _, name in calls(module) if name in starters}
    doctors = {"doctor_alone", "doctor_lobby", "doctor_pair", "doctor_speed"}  # races, a pulse, many writers
    workers = {"desk", "housekeeping", "worker", "machine", "fetch_requests", "deadlines", "web_server"}
    workers.add("readers")
    assert found == {"begin", "top", "serve_http"} | workers | doctors
