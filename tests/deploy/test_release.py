"""What is given away: one version, a wheel and an sdist with what belongs into them, which work when installed."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
from lab.pythons import BARE, DECLARED, here, python
from lab.world import LONG, crawler
from packaging.metadata import Metadata

from crawler import __version__

TOP = Path(__file__).parents[2]
PROJECT = tomllib.loads((TOP / "pyproject.toml").read_text("utf-8"))["project"]
UV = [sys.executable, "-m", "uv"]


def run(*words: object, cwd: Path, **more: str) -> str:
    """A command that must do well, in an environment that has nothing of ours; what it printed."""
    done = subprocess.run(list(map(str, words)), cwd=cwd, env=BARE | more, capture_output=True, text=True, timeout=LONG)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel and the sdist, as `make dist` makes them."""
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run([*UV, "build", "-q", "--out-dir", folder, TOP], check=True, timeout=LONG)
    return folder


def wheel(dist: Path) -> Path:
    (found,) = dist.glob("*.whl")
    return found


def sdist(dist: Path) -> Path:
    (found,) = dist.glob("*.tar.gz")
    return found


def test_the_program_the_package_and_the_newest_heading_of_the_changelog_have_one_version() -> None:
    changes = (TOP / "CHANGELOG.md").read_text("utf-8")
    versions = re.findall(r"^## \[(.+?)\] - (?:\d{4}-\d\d-\d\d|unreleased)$", changes, re.MULTILINE)
    assert versions[0] == __version__
    assert crawler("--version") == f"crawler {__version__}\n"
    assert "version" in PROJECT["dynamic"]  # read from crawler/__init__.py, see the test of the wheel


def test_the_pythons_of_the_classifiers_are_those_that_the_zip_file_is_built_for_and_the_oldest_is_required() -> None:
    prefix = "Programming Language :: Python :: "
    told = [line.removeprefix(prefix) for line in PROJECT["classifiers"] if line.startswith(prefix)]
    assert tuple(told) == DECLARED
    assert PROJECT["requires-python"] == f">={told[0]}"
    assert f"PYTHONS ?= {' '.join(told)}\n" in (TOP / "Makefile").read_text()


@pytest.mark.fleet
def test_the_wheel_has_the_program_its_web_page_its_hints_and_the_licence_and_no_tests(dist: Path) -> None:
    with zipfile.ZipFile(wheel(dist)) as archive:
        inside = set(archive.namelist())
        (metadata,) = (archive.read(name) for name in inside if name.endswith("METADATA"))
    kept = subprocess.run(["git", "ls-files", "crawler"], cwd=TOP, capture_output=True, text=True).stdout.split()
    assert set(kept) <= inside
    assert {"crawler/py.typed", "crawler/commands/serve/static/index.html"} <= inside
    assert f"folder_crawler-{__version__}.dist-info/licenses/LICENSE" in inside
    assert {name.split("/")[0] for name in inside} == {"crawler", f"folder_crawler-{__version__}.dist-info"}
    told = Metadata.from_email(metadata)  # which looks whether every field is as it should be
    assert str(told.version) == __version__
    assert told.description == (TOP / "README.md").read_text("utf-8")


@pytest.mark.fleet
def test_the_sdist_has_all_that_git_keeps_and_its_tests_find_all_that_they_need(dist: Path, tmp_path: Path) -> None:
    with tarfile.open(sdist(dist)) as archive:
        archive.extractall(tmp_path, filter="data")
    folder = tmp_path / f"folder_crawler-{__version__}"
    kept = subprocess.run(["git", "ls-files"], cwd=TOP, capture_output=True, text=True).stdout.splitlines()
    assert not [name for name in kept if not (folder / name).exists()]
    assert (folder / "LICENSE").read_bytes() == (TOP / "LICENSE").read_bytes()
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--collect-only", "-m", ""]
    collected = run(*command, cwd=folder, PYTHONPATH=str(folder))
    assert "tests/crawls/test_crawls.py" in collected


@pytest.mark.fleet
@pytest.mark.parametrize("version", here(DECLARED))
@pytest.mark.parametrize("form", [wheel, sdist])
def test_a_fresh_environment_with_it_crawls_the_embedded_web(
    dist: Path, tmp_path: Path, version: str, form: object
) -> None:
    assert callable(form)
    bin = tmp_path / "venv/bin"
    subprocess.run([*UV, "venv", "-q", "--python", str(python(version)), tmp_path / "venv"], check=True)
    subprocess.run([*UV, "pip", "install", "-q", "--python", bin / "python", form(dist)], check=True)
    assert run(bin / "crawler", "--version", cwd=tmp_path) == f"crawler {__version__}\n"
    small = ("--hosts", 5, "--pages", 40, "--workers", 1)
    assert "every page is there" in run(bin / "crawler", "demo", "store", *small, cwd=tmp_path)
