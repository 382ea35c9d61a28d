"""What a visit brought, on its way to the flush."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from crawler.frontier.task import Task
from crawler.store.records import links_of
from crawler.web.page import Saved


@dataclass(slots=True)  # not frozen: one is made for each page, and that takes three times as long
class Outcome:
    """What a visit brought: a record, with a body if it is a page, or a failure record.

    Of a revisit it is a record in any case, and `found` says what it is about; `old` is the record before it.
    """

    task: Task
    record: dict[str, Any]
    body: bytes | None = None  # html, or the content of a file
    failure: str = ""  # its reason
    saved: Saved | None = None  # in place of the body
    found: Literal["", "same", "other", "news", "failed"] = ""
    old: dict[str, Any] | None = None
    is_due_soon: bool = False  # its next visit
    weight: int = field(init=False)  # its bytes that count towards the limits

    def __post_init__(self) -> None:
        self.weight = len(self.body or b"") + sum(map(len, self.record.get("links", ())))

    @property
    def folder(self) -> str:
        """The folder that its body is stored in."""
        return f"{'files' if 'file' in self.record else 'htmls'}/{self.task.host}"

    @property
    def is_lost(self) -> bool:
        """Whether its body, which nobody has in memory, may be lost: the disk has lost something since it was saved."""
        return self.saved is not None and not self.saved.place.is_sound


def with_new_links(record: dict[str, Any], old: dict[str, Any]) -> dict[str, Any]:
    """Return a record with the links that the one before it did not have: the others were handed over with that."""
    known = set(links_of(old))
    if "priorities" in record or not known:
        return record
    return {**record, "links": [link for link in links_of(record) if link not in known]}
