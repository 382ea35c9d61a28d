"""What tests share with pytest itself: cases that run later, and how many cases of others are decided as they say."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from _pytest.mark import ParameterSet

Tally = Callable[[str, int, int], None]


def later(*values: object) -> list[ParameterSet]:
    """More cases of what another case shows already: they run with the fleet, so that `make test` is soon done."""
    return [pytest.param(value, marks=pytest.mark.fleet) for value in values]
