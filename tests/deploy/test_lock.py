"""The lock files fit pyproject.toml; `make lock` brings them in line."""

from __future__ import annotations

import re
import tomllib
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import pytest
from lab.pythons import DECLARED
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

TOP = Path(__file__).parents[2]
PROJECT = tomllib.loads((TOP / "pyproject.toml").read_text("utf-8"))["project"]
DECLARES = {
    "requirements.lock": PROJECT["dependencies"],
    "deploy/zipapp/extras.lock": [*chain.from_iterable(PROJECT["optional-dependencies"].values())],
}


class Locked(NamedTuple):
    requirement: Requirement
    hashes: list[str]
    via: str


def locked(file: str) -> list[Locked]:
    """Return the packages of a lock file."""
    text = (TOP / file).read_text("utf-8")
    blocks = re.findall(r"^(\w.*) \\\n((?:    --hash=.*\n)+)    # via (.*)$", text, re.MULTILINE)
    assert len(blocks) == len(re.findall(r"^\w", text, re.MULTILINE))  # none was overlooked
    return [Locked(Requirement(name), re.findall("sha256:([0-9a-f]{64})", hashes), via) for name, hashes, via in blocks]


def name_of(requirement: str | Requirement) -> str:
    return canonicalize_name(Requirement(str(requirement)).name)


@pytest.mark.parametrize("python", DECLARED)
@pytest.mark.parametrize("file", DECLARES)
def test_each_dependency_is_locked_to_one_version_that_pyproject_allows(file: str, python: str) -> None:
    for release in ("0", "99"):
        here = {"python_version": python, "python_full_version": f"{python}.{release}", "sys_platform": "linux"}
        pins: dict[str, list[str]] = {}
        for requirement, *_ in locked(file):
            if not requirement.marker or requirement.marker.evaluate(here):
                pins.setdefault(name_of(requirement), []).append(str(requirement.specifier).removeprefix("=="))
        assert {name: versions for name, versions in pins.items() if len(versions) > 1} == {}
        for declared in map(Requirement, DECLARES[file]):
            if not declared.marker or declared.marker.evaluate(here):
                (version,) = pins.get(name_of(declared), ["none"])
                assert version != "none", f"{declared} is not in {file}; run: make lock"
                assert declared.specifier.contains(version), f"{file} has {version} for {declared}; run: make lock"


@pytest.mark.parametrize("file", DECLARES)
def test_nothing_is_locked_for_a_dependency_that_pyproject_no_longer_has(file: str) -> None:
    direct = {name_of(found.requirement) for found in locked(file) if "(pyproject.toml)" in found.via}
    assert direct == set(map(name_of, DECLARES[file])), "run: make lock"


def test_each_package_is_in_one_lock_file_with_hashes_and_no_index_is_named() -> None:
    base, extras = ({name_of(found.requirement) for found in locked(file)} for file in DECLARES)
    assert not base & extras
    for file in DECLARES:
        assert all(found.hashes for found in locked(file))
        assert "://" not in (TOP / file).read_text("utf-8")
