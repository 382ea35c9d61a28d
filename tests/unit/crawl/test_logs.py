"""Log lines for programs: one JSON object each, with the time in ISO 8601."""

from __future__ import annotations

import json
import logging
from datetime import datetime

import pytest

from crawler.crawl.logs import JsonFormatter


@pytest.mark.parametrize(
    ("created", "time"),
    [
        (1794926316.123, "2026-11-17T14:38:36.123Z"),
        (1794926316.0, "2026-11-17T14:38:36.000Z"),
        (0.9996, "1970-01-01T00:00:00.999Z"),
    ],
)
def test_a_json_line_has_its_time_in_utc_with_milliseconds(created: float, time: str) -> None:
    record = logging.makeLogRecord({"created": created, "levelname": "WARNING", "msg": "x", "event": "page"})
    line = json.loads(JsonFormatter().format(record))
    assert line == {"time": time, "level": "warning", "message": "x", "event": "page"}
    assert abs(datetime.fromisoformat(line["time"]).timestamp() - created) < 0.001
