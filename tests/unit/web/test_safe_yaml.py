"""YAML of others is read within bounds, and nothing in it is silently passed over."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import yaml

from crawler.web import safe_yaml

LAUGHS = "\n".join(["a0: &a0 [x]", *(f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12))])


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None),
        ("a: 1\nb: {a: 2}\nc: [{a: 1}, {a: 2}]", {"a": 1, "b": {"a": 2}, "c": [{"a": 1}, {"a": 2}]}),
        ("a: a\nb: a", {"a": "a", "b": "a"}),
        ("a: &x {b: 1}\nc: {<<: *x, b: 2}", {"a": {"b": 1}, "c": {"b": 2}}),
    ],
)
def test_what_is_sound_is_read(text: str, value: object) -> None:
    assert safe_yaml.load(text) == value


def test_fifty_levels_are_read() -> None:
    assert safe_yaml.load("[" * 50 + "]" * 50)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("delay: 5\ndepth: 1\ndelay: 1", "duplicate key delay in line 3; remove one"),
        ("a:\n  b: 1\n  b: 1", "duplicate key b in line 3"),
        ("- {a: 1, a: 2}", "duplicate key a in line 1"),
        ("? [x]\n: 1\na: 1\na: 2", "duplicate key a in line 4"),
        ("[" * 51, "more than 50 levels in line 1"),
        ("a: [\n", "in line [12]"),
        (LAUGHS, "more than 1,000,000 values in line 7"),
        ("\0", "characters are not allowed"),
        ("a: !!bool maybe", "does not fit its tag"),
        ("a: !!int ''", "does not fit its tag"),
        ("a: !!timestamp x", "does not fit its tag"),
    ],
)
@pytest.mark.parametrize("loader", [yaml.SafeLoader, safe_yaml.IN_C])
def test_what_is_not_is_one_line_with_its_place(text: str, says: str, loader: Any) -> None:
    with pytest.raises(ValueError, match=says) as raised:
        safe_yaml.load(text, loader)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("text", ["'[' * 300_000", "'{a: ' * 300_000", "'- ' * 300_000", "'? ' * 300_000"])
def test_no_depth_overflows_the_stack(text: str) -> None:
    code = f"from crawler.web import safe_yaml; safe_yaml.load({text}, safe_yaml.IN_C)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "ValueError: more than 50 levels" in done.stderr
