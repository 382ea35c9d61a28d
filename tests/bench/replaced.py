"""What readers see of files that another machine replaces: `python tests/bench/replaced.py [--mounts sshfs,bindfs]`.

One machine replaces the html and the record of twenty pages all the time; another reads them, once as they are and once
as `Store` reads them, which looks again. A read is wrong if it finds nothing, a part, or an error.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))  # lab

from lab.machines.kinds import KINDS

from crawler.errors import StoreError
from crawler.settings.settings import Settings
from crawler.store.mount import Files
from crawler.store.records import html_hash, to_json
from crawler.store.store import Store, path_of
from crawler.store.writer import StoreWriter
from crawler.web import urls

HOST = "a.example"
PAGES = [f"http://{HOST}/{number}" for number in range(20)]
HASH = 56  # characters
LINKS = 400  # at most, of a record: its length changes


def write(root: str, seconds: float) -> None:
    """Replace pages for a while; print how many."""
    store, end, count = StoreWriter(root, Files(root, "writer", durable=False)), time.time() + seconds, 0
    while time.time() < end:
        url = random.choice(PAGES)
        body = "x" * random.randrange(90_000)
        html = f"{html_hash(body.encode())}{body}"
        store.put_html(url, html)
        links = [f"{url}/{number}" for number in range(random.randrange(LINKS))]
        found = {"url": url, "sha224": "x", "html_sha224": html_hash(html.encode()), "links": links}
        store.put_record(url, to_json(found))
        count += 1
    print(count)


def raw_html(store: Store, url: str) -> bool:
    return is_whole(store.files.get(path_of("htmls", url)))


def read_html(store: Store, url: str) -> bool:
    page = store.page_at(HOST, urls.key(url))
    return page is not None and is_whole(page.html.encode())


def raw_record(store: Store, url: str) -> bool:
    return bool(json.loads(store.files.get(path_of("links", url)) or b"0"))


def read_record(store: Store, url: str) -> bool:
    return store.page_at(HOST, urls.key(url)) is not None


WAYS: dict[str, Callable[[Store, str], bool]] = {
    "html as it is": raw_html,
    "html by Store": read_html,
    "record as it is": raw_record,
    "record by Store": read_record,
}


def is_whole(data: bytes | None) -> bool:
    """Whether the hash at the start is that of the rest."""
    return data is not None and html_hash(data[HASH:]).encode() == data[:HASH]


def measure(kind: str, seconds: float) -> None:
    """Mount it for two machines, and print a line for each way to read."""
    with tempfile.TemporaryDirectory() as folder, KINDS[kind](Path(folder), 2) as mount:
        root = mount.at(0) / "store"
        root.mkdir()
        StoreWriter(root).make(Settings(shards=1))
        command = [sys.executable, __file__, "--write", str(root), "--seconds"]
        subprocess.run(mount.command(0, [*command, "2"]), check=True, capture_output=True)
        time.sleep(1)
        writer = subprocess.Popen(mount.command(0, [*command, str(seconds)]), stdout=subprocess.PIPE, text=True)
        store, reads, wrong, errors = Store(mount.at(1) / "store"), Counter[str](), Counter[str](), Counter[str]()
        while writer.poll() is None:
            for name, way in WAYS.items():
                reads[name] += 1
                try:
                    wrong[name] += not way(store, random.choice(PAGES))
                except (StoreError, ValueError) as error:
                    wrong[name] += 1
                    errors[type(error).__name__] += 1
        written = int(writer.communicate()[0])
        print(f"{kind}: {written / seconds:.0f} pages replaced a second; wrong of so many reads:")
        for name in WAYS:
            print(f"  {name:<16} {wrong[name]:>6,} of {reads[name]:,}", flush=True)
        print(f"  errors: {dict(errors)}")


def main() -> None:
    """Measure each kind that can be mounted here."""
    flags = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    flags.add_argument("--mounts", default="local,sshfs,nfs4,nfs3")
    flags.add_argument("--seconds", type=float, default=20.0)
    flags.add_argument("--write", help=argparse.SUPPRESS)
    given = flags.parse_args()
    if given.write:
        return write(given.write, given.seconds)
    for kind in given.mounts.split(","):
        reason = KINDS[kind].skip_reason()
        print(f"{kind}: {reason}") if reason else measure(kind, given.seconds)
    return None


if __name__ == "__main__":
    main()
