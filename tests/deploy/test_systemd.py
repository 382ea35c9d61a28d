"""deploy/crawler@.service: what systemd itself says of it, and whether it and the program mean the same."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from crawler import errors
from crawler.commands import main, run
from crawler.crawl.watchdog import longest_stop
from crawler.settings import settings as config

DEPLOY = Path(__file__).parents[2] / "deploy"
UNIT, DROP_IN = DEPLOY / "crawler@.service", DEPLOY / "crawler-system.conf"
EXPOSED = 20  # tenths: 10.0 is a service without any of the fences that systemd has
# With any of these a user's service manager does not start the service, which `systemd-analyze --user` does not tell.
SYSTEM_ONLY = {
    "User",
    "CapabilityBoundingSet",
    "PrivateDevices",
    "ProtectClock",
    "ProtectKernelLogs",
    "ProtectKernelModules",
}


def settings(path: Path) -> dict[str, list[str]]:
    """The settings of a unit, each with its values in order."""
    found: dict[str, list[str]] = {}
    for line in path.read_text("utf-8").splitlines():
        if "=" in line and not line.startswith("#"):
            name, _, value = line.partition("=")
            found.setdefault(name, []).append(value)
    return found


@pytest.fixture
def instance(tmp_path: Path) -> Path:
    """The unit of one store, as a system service has it."""
    if not shutil.which("systemd-analyze"):
        pytest.skip("no systemd-analyze here: apt-get install systemd")
    shutil.copy(UNIT, tmp_path)
    (tmp_path / "crawler@.service.d").mkdir()
    shutil.copy(DROP_IN, tmp_path / "crawler@.service.d/system.conf")
    made = tmp_path / "crawler@mnt-shared-crawl.service"
    made.symlink_to(UNIT.name)
    return made


def analyze(*words: str | Path) -> str:
    """systemd-analyze, which must find it good; what it said."""
    path = Path(str(words[-1])).parent
    done = subprocess.run(
        ["systemd-analyze", *map(str, words)],
        env={**os.environ, "XDG_RUNTIME_DIR": str(path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_systemd_has_nothing_to_say_about_the_system_service(instance: Path) -> None:
    assert analyze("verify", instance) == ""


def test_systemd_has_nothing_to_say_about_the_user_service(instance: Path) -> None:
    shutil.rmtree(instance.parent / "crawler@.service.d")
    assert analyze("--user", "verify", instance) == ""


def test_the_service_is_fenced_in(instance: Path) -> None:
    assert "Overall exposure level" in analyze("security", "--offline=yes", f"--threshold={EXPOSED}", instance)


def test_what_only_the_system_may_do_is_in_the_drop_in_alone() -> None:
    assert not settings(UNIT).keys() & SYSTEM_ONLY
    assert settings(DROP_IN).keys() == SYSTEM_ONLY


def test_the_unit_runs_a_command_that_the_program_understands() -> None:
    (line,) = settings(UNIT)["ExecStart"]
    program, *words = shlex.split(line.replace("%f", "/mnt/shared/crawl").replace("$FLAGS", "--workers 4"))[1:]
    assert program == "crawler"
    options = main.read(words)
    assert (options.command, options.store, options.workers) == (run.run_crawl, Path("/mnt/shared/crawl"), 4)


def test_a_wish_is_no_failure_and_what_stays_wrong_is_not_tried_again() -> None:
    found = settings(UNIT)
    assert {int(code) for code in found["SuccessExitStatus"][0].split()} == {errors.STOPPED, errors.LIMIT}
    prevented = {int(code) for code in found["RestartPreventExitStatus"][0].split()}
    assert {errors.USAGE, errors.NOTHING} <= prevented
    assert not prevented & {errors.STORE, errors.FULL, errors.BUG}, "a mount comes back, a disk gets room"


def test_it_has_the_time_to_finish_its_requests() -> None:
    assert float(settings(UNIT)["TimeoutStopSec"][0]) > longest_stop(config.Settings(), tasks=0)
