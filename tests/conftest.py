"""`--mounts` decides over which kinds of mounts the tests with a `mount` run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from kinds import KINDS
from mounts import Mount


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--mounts",
        default="local,bindfs,sshfs",
        help=f"kinds of mounts for the fleet tests, or all: {', '.join(KINDS)}",
    )
    parser.addoption("--trouble", type=int, default=1, help="seed of the random trouble of the fleet tests")


@pytest.fixture
def seed(pytestconfig: pytest.Config) -> int:
    """Where random trouble starts."""
    return int(pytestconfig.getoption("trouble"))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "kind" in metafunc.fixturenames and metafunc.definition.get_closest_marker("fleet"):
        wanted = metafunc.config.getoption("mounts")
        names = [*KINDS] if wanted == "all" else wanted.split(",")
        metafunc.parametrize("kind", names)


@pytest.fixture
def mounting(tmp_path: Path) -> Iterator[Callable[[str, int], Mount]]:
    """Mount a folder of this kind for so many machines; it is gone after the test."""
    with ExitStack() as stack:

        def mount(kind: str, machines: int) -> Mount:
            reason = KINDS[kind].skip_reason()
            if reason:
                pytest.skip(f"no {kind} here: {reason}")
            return stack.enter_context(KINDS[kind](tmp_path, machines))

        yield mount
