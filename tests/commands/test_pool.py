"""A pool that reads a store: what kills a reader is lost alone, and the order is kept."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from crawler.commands.extract import pool
from crawler.commands.extract.pool import Hand, LostPage, Part, ReaderPool
from crawler.errors import CrawlerError


@dataclass
class Keys:
    """What a reader of a test gives: the keys that it has seen."""

    seen: Part
    rest: Part = ()


def read_two(folder: str, part: Part, hand: Hand) -> Keys:
    """Read two keys at a time; `mine` kills who reads it, `once` only the first."""
    for key in part[:2]:
        hand.take(key, f"http://a.example/{key}")
        flag = Path(folder) / key
        if key == "mine" or (key == "once" and not flag.exists()):
            flag.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        hand.drop()
    return Keys(part[:2], part[2:])


def read_never(part: Part, hand: Hand) -> Keys:
    """Die with nothing in hand."""
    os._exit(1)


def results(read: Any, *parts: Part) -> list[Any]:
    return list(ReaderPool(2, read, lambda url, number: None).results(iter(parts)))


def test_a_page_that_kills_its_reader_twice_is_lost_alone_and_order_is_kept(tmp_path: Path) -> None:
    parts = [tuple(keys.split()) for keys in ("a b c mine d", "e once f", "g")]
    found = results(partial(read_two, str(tmp_path)), *parts)
    lost = [item for item in found if isinstance(item, LostPage)]
    assert [(item.url, item.why) for item in lost] == [("http://a.example/mine", "that crashed the parser")]
    keys = [key for item in found if isinstance(item, Keys) for key in item.seen]
    assert keys == ["a", "b", "c", "d", "e", "once", "f", "g"]


def test_readers_that_die_for_no_reason_of_a_page_are_not_started_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "MAX_IDLE_DEATHS", 1)
    with pytest.raises(CrawlerError, match="die at once"):
        results(read_never, ("1",))
