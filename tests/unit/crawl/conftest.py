"""A small store in a folder of its own, and workers over it that leave nothing behind."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from lab.frontiers import make_root
from lab.workers import Setup, SimulatedSetup


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "store"
    root.mkdir()
    make_root(root)
    return root


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Setup]]:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    made: list[Setup] = []
    yield made
    for one in made:
        one.end()


@pytest.fixture
def setup(root: Path, made: list[Setup]) -> Callable[..., Setup]:
    """Make a worker that has shown its first heartbeat; the test calls its steps."""

    def make(*get: Any, **given: Any) -> Setup:
        made.append(Setup(root, *get, **given))
        made[-1].beat()
        return made[-1]

    return make


@pytest.fixture
def simulated(root: Path, made: list[Setup]) -> Callable[..., SimulatedSetup]:
    """Make a worker in simulated time; it begins when the test runs it."""

    def make(*get: Any, **given: Any) -> SimulatedSetup:
        one = SimulatedSetup(root, *get, **given)
        made.append(one)
        return one

    return make
