"""crawl.yaml as it is read, and settings and seeds that are kept a second time, for copies of htmls/, links/ and errs/.

They are `errs/.crawl.yaml` and `errs/.seeds-*`, which `ls errs` and `errs/*/*` leave out, and hold no secrets.
crawl.yaml and seeds/ count; what is kept is used only where those are missing. Seeds that the user did not give are not
kept: the records of what redirected there are enough.
"""

from __future__ import annotations

import re
from typing import Any

from crawler.errors import UsageError
from crawler.settings.settings import Settings, parse, render
from crawler.store.directories import leaf_of
from crawler.store.mount import Files

SETTINGS = "errs/.crawl.yaml"
SEEDS = "errs/.seeds-"  # begins the names
REDIRECT = "redirect-"  # begins files of seeds that the user did not give: they widen the scope, and are not trusted
RESTORE = f"restore it; {SETTINGS} has the settings of the last run"
LAST_SETTING = "dead_after"  # in the files of versions that did not write a count
COUNT = re.compile(r"^# All (\d+) settings are here", re.MULTILINE)


def parse_stored(data: bytes, where: str, by_hand: bool = False) -> dict[str, Any]:
    """Return the checked settings of a crawl.yaml; UsageError if a part of it is missing.

    Its first lines say how many settings there are, so that a file that was cut off (a full disk, a power cut) is not
    taken for one with defaults. Versions before that wrote LAST_SETTING last. `by_hand` allows one with a few settings
    that a person wrote for a new store.
    """
    text = data.decode("utf-8", "replace")
    if not text.strip("\0 \t\r\n"):
        raise UsageError(f"{where} is empty; {RESTORE}")
    found = parse(text, where)
    said = COUNT.search(text)
    if said and len(found) < int(said[1]):
        raise UsageError(f"{where} has only {len(found)} of its {said[1]} settings; {RESTORE} (null means no limit)")
    if said and not text.endswith("\n"):
        raise UsageError(f"{where} ends in the middle of a line and may be cut off; {RESTORE}")
    if not said and LAST_SETTING not in found and not (by_hand and found and not text.startswith("# The settings of")):
        raise UsageError(f"{where} has no line for {LAST_SETTING} and may be cut off; {RESTORE}")
    return found


def keep(files: Files, settings: Settings, seeds: set[str]) -> None:
    """Keep these settings, and of the files in seeds/ those with these names, as far as they are not kept yet."""
    text = render(settings).encode()
    if files.get(SETTINGS) != text:
        files.put(SETTINGS, text)
    given, kept = {name for name in seeds if not name.startswith(REDIRECT)}, set(_kept_seeds(files))
    for name in sorted(given - kept):
        data = files.get(f"seeds/{name}")
        if data is not None:
            keep_seeds(files, name, data)
    for name in sorted(kept - given):  # of another crawl, whose pages were copied into this one
        files.drop(f"{SEEDS}{name}")


def keep_seeds(files: Files, name: str, data: bytes) -> None:
    """Keep one file of seeds, if the user gave them."""
    if not name.startswith(REDIRECT):
        files.put(f"{SEEDS}{name}", data)


def restore_seeds(files: Files) -> None:
    """Put the kept seeds into seeds/."""
    for name in _kept_seeds(files):
        data = files.get(f"{SEEDS}{name}")
        if data is not None:
            files.put(f"seeds/{name}", data)


def _kept_seeds(files: Files) -> list[str]:
    start = leaf_of(SEEDS)
    return [name.removeprefix(start) for name in files.all_names("errs") if name.startswith(start)]
