"""Manifests: the owner of a shard lists its batches in a file beside them; its next owner misses those that are gone.

While an owner runs it knows its batches, and writes again what somebody removes. A manifest has a name of its own each
time. It is removed before any batch that it lists, so a listed batch that is not there was removed by somebody else.
Not promised: what came in the last seconds before a kill is in no manifest yet.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress

from crawler.errors import Misshapen, StoreError
from crawler.store.inboxes import folder, made_shards
from crawler.store.mount import Files, no_check

MANIFEST, END = ".manifest-", ".list"  # how its name begins and ends
BATCH = re.compile(r"[\w-]+\.\d+", re.ASCII)  # the name of a batch


def is_manifest(name: str) -> bool:
    """Tell whether a name in the folder of a shard is that of a manifest."""
    return name.startswith(MANIFEST) and name.endswith(END)


class Manifests:
    """The manifests in the folders of an owner's shards; `prefix` tells its own names from those of others."""

    def __init__(self, files: Files, prefix: str) -> None:
        self._files, self._prefix, self._count = files, prefix, 0
        self._found: dict[int, set[str]] = {}  # shard -> manifests in its folder, as last listed
        self._listed: dict[int, set[str]] = {}  # shard -> batches in its manifests, as far as they were read

    def note(self, shard: int, names: Iterable[str]) -> None:
        """Note the manifests among all names in the folder of a shard."""
        self._found[shard] = set(filter(is_manifest, names))

    def is_news(self, shard: int) -> bool:
        """Tell whether there is a manifest of the last owner that was not read yet."""
        return bool(self._found.get(shard)) and shard not in self._listed

    def missing(self, shard: int, known: Collection[str]) -> list[str]:
        """Return the batches that the last owner of a shard has listed, but are gone."""
        listed = {name for manifest in sorted(self._found[shard]) for name in self._read(shard, manifest)}
        self._listed[shard] = listed
        return sorted(name for name in listed.difference(known) if not self._is_there(shard, name))

    def _read(self, shard: int, manifest: str) -> list[str]:
        """Return the batches in a manifest; none if it is gone or spoiled, as a power cut may leave it."""
        try:
            data = self._files.get(f"{folder(shard)}/{manifest}") or b""
        except Misshapen:  # somebody has left a folder there
            self._found[shard].discard(manifest)
            return []
        return [name for name in data.decode("ascii", "replace").split("\n")[:-1] if BATCH.fullmatch(name)]

    def _is_there(self, shard: int, name: str) -> bool:
        return self._files.get(f"{folder(shard)}/{name}") is not None

    def is_current(self, shard: int, batches: set[str]) -> bool:
        """Tell whether there is one manifest of a shard with just these batches; of none if there are none."""
        return batches == self._listed.get(shard, set()) and len(self._found.get(shard, ())) == bool(batches)

    def write(self, shard: int, new: set[str], check: Callable[[], None]) -> None:
        """List these batches of a shard instead of those listed before; for `check` see `Files.put`."""
        found = self._found.setdefault(shard, set())
        old = sorted(found)
        if new:
            with suppress(StoreError):  # no space: what is finished is removed, and then there may be some
                self.add(shard, new, check)
                self._listed[shard] = new
        else:
            self._listed[shard] = new
        check()
        for name in old:
            self._files.drop(f"{folder(shard)}/{name}")
            found.discard(name)

    def add(self, shard: int, batches: set[str], check: Callable[[], None] = no_check) -> None:
        """List batches beside what is listed, also in the folder of a shard that is not ours."""
        self._count += 1
        name = f"{MANIFEST}{self._prefix}{self._count:06d}{END}"
        self._found.setdefault(shard, set()).add(name)
        lines = "".join(f"{batch}\n" for batch in sorted(batches))
        self._files.put(f"{folder(shard)}/{name}", lines.encode(), later=True, check=check)

    def forget(self, shard: int) -> None:
        """Forget a shard that is not ours any more."""
        self._found.pop(shard, None)
        self._listed.pop(shard, None)


def drop_all(files: Files, shards: int) -> None:
    """Remove all manifests: the frontier was made whole in another way."""
    for shard in made_shards(files, shards):
        for name in filter(is_manifest, files.all_names(folder(shard))):
            files.drop(f"{folder(shard)}/{name}")
