"""Mutants that lose data, or end too early: invariants 1, 2, 3, 4, 6 and 7, mounts, and the end of the crawl."""

from __future__ import annotations

from crawler.crawl.worker.flush import Flush
from crawler.crawl.worker.visit import Visits
from crawler.fleet.shards import Shards
from crawler.frontier import rehydrate
from crawler.frontier.batches import BatchFiles
from crawler.frontier.frontier import Frontier
from crawler.store.mount import Files
from simulation.breaks import Change, Mutant

PUBLISH = "await self._io(self._publish, drafts, published)"
HAND_OVER = "await self._frontier.flush("
CUT, FREEZE, KILL = ("power_cut",), ("freeze",), ("kill_machine", "kill_worker")
OF_DATA = (
    Mutant(
        "the record before the hand-over",
        "1",
        (Change(Flush, "flush", PUBLISH, "pass"), Change(Flush, "flush", HAND_OVER, f"{PUBLISH}; {HAND_OVER}")),
        within=5,
    ),
    Mutant(
        "the record without its html",
        "1",
        (Change(Flush, "_write", "self._write_body(it)", "it.task.depth or self._write_body(it)"),),
        within=5,
    ),
    Mutant(
        "no sync before the records",
        "1",
        (Change(BatchFiles, "write", "self.files.sync(", "(lambda *_: None)("),),
        "local",
        100,
        CUT,
    ),
    Mutant(
        "no sync of the records before batches are removed",
        "2",
        (Change(Flush, "_sync_records", "self._files.sync(", "(lambda *_: None)("),),
        "local",
        80,
        ("power_cut_after_drop",),
    ),
    Mutant(
        "what is retried leaves the frontier",
        "2",
        (
            Change(
                Flush,
                "retry_later",
                "self._frontier.hand_over([task])",
                "self._frontier.table.mark_done([task], kept=False)",
            ),
        ),
        within=10,
    ),
    Mutant(
        "what could not be written is not queued again",
        "2",
        (Change(Frontier, "flush", "self._queue = queue + self._queue", "pass"),),
        within=40,
        only=("faults",),
    ),
    Mutant(
        "a file is written under its own name",
        "3",
        (Change(Files, "put", "self._new_name()", "leaf_of(name)"),),
        within=5,
    ),
    Mutant(
        "an owner is who says so",
        "4",
        (
            Change(
                Shards,
                "claim",
                "return self.files.claim(",
                'return self.files.create(f"shards/{number}@{self.me}") or (lambda *_: True)(',
            ),
        ),
        "sshfs",
        60,
    ),
    Mutant(
        "requests without a heartbeat",
        "5",
        (Change(Shards, "is_sure", "return ", "return True or "),),
        "nfs3",
        100,
        ("hang", "freeze"),
    ),
    Mutant(
        "a worker that is marked dead does not end",
        "5",
        (
            Change(Shards, "_is_marked_dead", "not any(", "True or not any("),
            Change(Shards, "beat", "self._has_been_away(ABANDONED / 2)", "False"),
            Change(Shards, "beat", "self._has_been_away(self.dead_after)", "False"),
        ),
        "nfs3",
        100,
        FREEZE,
    ),
    Mutant(
        "a dead worker whose heartbeat is gone is not marked",
        "5",
        (
            Change(Shards, "_leave_mark", "self.files.create(", "return [Heartbeat(id, 0, END)]; self.files.create("),
            Change(Shards, "beat", "self._has_been_away(self.dead_after)", "False"),
        ),
        only=("remove_names", "freeze_before"),
        first=215,  # few seeds notice it: who was silent also looks whether its shards are still its own
    ),
    Mutant(
        "hosts of a dead worker do not rest",
        "5",
        (Change(Visits, "_first_due", "now = self._clock.monotonic()", "return self._clock.monotonic()"),),
        None,
        100,
        KILL,
    ),
    Mutant(
        "an emptied frontier is not noted",
        "6",
        (
            Change(BatchFiles, "_note_loss", "mark = ", "return; mark = "),
            Change(rehydrate, "is_needed", "not made <= folders or", ""),
        ),
        None,
        40,
        ("remove_folder",),
    ),
    Mutant(
        "what was inherited is not rewritten",
        "7",
        (
            Change(Frontier, "_make_safe", "while self._unsafe and", "while False and"),
            Change(Frontier, "_make_safe", "return not (self._unsafe or self._unread)", "return not self._unread"),
        ),
        "sshfs",
        100,
        ("freeze_before_drop",),
        is_plain=True,
    ),
    Mutant(
        "a sync that failed is forgotten",
        "7",
        (Change(Files, "sync", "self.failed_syncs += 1", "pass"),),
        "local",
        100,
        ("sync_fails", "power_cut"),
    ),
    Mutant(
        "a page is replaced by one that is not on the disk yet",
        "1",
        (Change(Files, "_must_replace", "return ", "return False and "),),
        "local",
        40,
        ("refresh", "power_cut_before"),
        first=270,  # about one seed in 100 notices it
        is_plain=True,
    ),
    Mutant(
        "a page is replaced before its older version is kept",
        "1",
        (Change(Flush, "_write", "self._replacing.keep(name, it.old)", "pass"),),
        None,
        20,
        ("refresh",),
    ),
    Mutant(
        "a former owner goes on writing",
        "4",
        (Change(Flush, "_check_owner", "if not self._frontier.is_sure():", "if False:"),),
        "moosefs",
        40,
        ("refresh", "freeze_before_records"),
    ),
    Mutant(
        "a record without the next visit",
        "2",
        (Change(Flush, "put_revisit", "self._plan(record)", "False"),),
        None,
        20,
        ("refresh",),
    ),
    Mutant(
        "no fresh listings",
        "mounts",
        (Change(Files, "freshen", "name = self._new_name()", "return True"),),
        "sshfs",
        40,
    ),
    Mutant(
        "the end from one look",
        "the end",
        (
            Change(Shards, "all_is_done", "before is None or before.keys() != now.keys()", "False"),
            Change(Shards, "all_is_done", "any(before[id].state != now[id].state for id in now)", "False"),
            Change(Shards, "all_is_done", "now[id].polled > before[id].beat", "True"),
        ),
        None,
        40,
    ),
    Mutant(
        "inboxes that were read before the first look",
        "the end",
        (Change(Shards, "all_is_done", "now[id].polled > before[id].beat", "True"),),
        None,
        100,
        ("hang", "kill_worker", "add_seed"),
    ),
)
