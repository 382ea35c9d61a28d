"""For all tests: the same examples in every run, however slow the machine is; `--mounts` decides over which mounts."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from filelock import FileLock
from hypothesis import HealthCheck, settings
from lab import stores
from lab.machines.kinds import KINDS
from lab.machines.mounts import Mount
from lab.marks import Tally

# Otherwise each of the thousands of processes that tests start would compile all modules anew: half of their time.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]

# A run must not fail by the luck of the draw; to look for new examples: pytest --hypothesis-profile=search
settings.register_profile("steady", deadline=None, derandomize=True, suppress_health_check=SLOW)
settings.register_profile("search", deadline=None, max_examples=1000, suppress_health_check=SLOW)
settings.load_profile("steady")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--mounts",
        default="local,bindfs,sshfs",
        help=f"kinds of mounts for the fleet tests, or all: {', '.join(KINDS)}",
    )
    parser.addoption("--trouble", type=int, default=1, help="seed of the random trouble of the fleet tests")


@pytest.fixture
def tally(record_property: Callable[[str, object], None]) -> Tally:
    """Note how many of so many cases that others wrote are decided as they say: shown at the end of the run."""
    return lambda what, right, count: record_property("tally", f"{what}: {right:,} of {count:,}")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = (report for outcome in ("passed", "failed") for report in terminalreporter.stats.get(outcome, ()))
    told = sorted({text for report in reports for name, text in report.user_properties if name == "tally"})
    if told:
        terminalreporter.section("held against cases that others wrote")
        for text in told:
            terminalreporter.line(str(text))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 64 KB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if os.geteuid() or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", disk], check=False).returncode:
        pytest.skip("mounting a small tmpfs needs root")
    yield disk
    subprocess.run(["umount", "-l", disk], check=True)


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


@pytest.fixture(scope="session")
def crawled_once(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """A store that the real program has crawled, once for all processes; not to be changed (see `crawled`)."""
    ours = tmp_path_factory.getbasetemp()
    folder = (ours if worker_id == "master" else ours.parent) / "crawled-once"
    with FileLock(f"{folder}.lock"):
        if not (folder / "done").exists():
            shutil.rmtree(folder, ignore_errors=True)  # of one who was killed
            folder.mkdir()
            stores.crawl(folder)
            (folder / "done").touch()
    return folder / "store"


@pytest.fixture
def crawled(crawled_once: Path, tmp_path: Path) -> Path:
    """A copy of that store, to do with as one likes."""
    return Path(shutil.copytree(crawled_once, tmp_path / "crawled"))
