"""Each reason has a kind, and an HTTP status finds its row."""

from __future__ import annotations

import pytest

from crawler.web.reasons import KINDS, REASONS, kind, look_up


def test_every_reason_has_one_of_the_three_kinds_and_only_failures_are_retried() -> None:
    for name, reason in REASONS.items():
        assert kind(name) == reason.kind
        assert reason.kind in KINDS
        assert reason.kind == "failed" or not reason.retry


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("http-404", "failed"),
        ("http-503", "failed"),
        ("http-299", "failed"),
        ("dns", "failed"),
        ("robots", "excluded"),
        ("private-address", "excluded"),
        ("bad-port", "excluded"),
        ("bad-url", "excluded"),
        ("wrong-type", "unwanted"),
        ("too-big", "unwanted"),
    ],
)
def test_the_kind_of_a_reason(reason: str, expected: str) -> None:
    assert kind(reason) == expected


def test_a_status_finds_its_own_row_before_its_family() -> None:
    assert look_up("http-429").retry
    assert not look_up("http-404").retry
    assert look_up("http-503").retry
    assert look_up("http-299") == REASONS["http-xxx"]
