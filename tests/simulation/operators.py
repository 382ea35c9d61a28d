"""What operators do to a fleet: stop, pause, add, retry, refresh, repair, and remove folders that they should not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from crawler.commands.check.check import Check
from crawler.commands.check.findings import Problem
from crawler.commands.check.repair import Repair, alone
from crawler.commands.refresh import refresh as refresh_records
from crawler.commands.retry import Wanted, retry
from crawler.crawl.start import add
from crawler.fleet import control
from crawler.frontier import rehydrate
from crawler.frontier.batches import in_parts, lines_of
from crawler.store.writer import StoreWriter
from simulation.fleet import SHARDS, Fleet

if TYPE_CHECKING:
    from simulation.trouble import Trouble

STARTED = 3.0  # seconds after which a run has certainly announced itself
HARMLESS = ("temporary", "control", "shard")  # problems that kills may leave in a store


def stop(fleet: Fleet, trouble: Trouble) -> None:
    """`crawler stop`; later somebody runs one machine again."""
    fleet.do(lambda: stop_all(fleet))
    fleet.later(2 * trouble.seconds, lambda: fleet.start(fleet.operator, 1))


def stop_all(fleet: Fleet) -> bool:
    """Stop all machines, and hold the command to what it says."""
    began = fleet.world.now
    told = [run for run in fleet.running if began - run.began > STARTED]
    workers = {child.name for run in told for child in run.children.values()}
    fleet.checks.manners.stop(workers)
    is_done = control.stop(fleet.open(), lambda text: None, fleet.operator.clock)
    living = [child.name for run in told for child in run.children.values() if not child.is_dead]
    if not fleet.checks.disturbed and (living or not is_done):
        fleet.checks.fail(f"`crawler stop` has ended, and {', '.join(living) or 'nobody'} goes on: {is_done}")
    return is_done


def pause(fleet: Fleet, trouble: Trouble) -> None:
    """`crawler pause`, and later `crawler resume`."""

    def begin() -> str:
        said = control.pause(fleet.open())
        fleet.checks.manners.pause()
        return said

    def end() -> str:
        fleet.checks.manners.resume()
        return control.resume(fleet.open())

    fleet.do(begin, end, gap=trouble.seconds)


def add_seed(fleet: Fleet, trouble: Trouble) -> None:
    """`crawler add` of a page in the middle of the tree: it is wanted, whatever becomes of those above it."""
    url = fleet.tree.urls[int(trouble.dice * fleet.tree.count)]

    def call() -> str:
        said = add(fleet.open(), [url])
        fleet.checks.seeds.add(url)
        return said

    fleet.do(call)


def retry_failures(fleet: Fleet, trouble: Trouble) -> None:
    """`crawler retry`: what is gone is requested once more."""
    fleet.checks.disturbed += 1

    def call() -> str:
        store = fleet.open()
        failures = [str(failure["url"]) for failure in store.failures()]
        fleet.checks.expect_requests(failures)
        return retry(store, store.settings(), Wanted())

    fleet.do(call)


def refresh(fleet: Fleet, trouble: Trouble) -> None:
    """The web changes, and somebody orders `crawler refresh`: all pages are to be visited again."""
    fleet.tree.edition += 1
    fleet.checks.refreshes += 1

    def call() -> str:
        store = fleet.open()
        records = [record for host in store.hosts() for record in store.records(host)]
        fleet.checks.expect_visits(records)
        refresh_records(store, store.settings(), records)
        fleet.world.effects["refresh of pages"] += bool(records)
        return f"{len(records)} pages are to be visited again"

    fleet.do(call)


def repair(fleet: Fleet, trouble: Trouble) -> None:
    """`crawler stop`, `crawler check --repair`, and somebody runs one machine again."""
    fleet.do(lambda: stop_all(fleet), lambda: check_and_repair(fleet), lambda: fleet.start(fleet.operator, 1))


def check_and_repair(fleet: Fleet) -> str:
    """Repair the store; an unharmed one has nothing but what kills may leave."""
    store = fleet.open()
    settings = store.settings()
    has_frontier = rehydrate.is_whole(store)
    harmless = {*HARMLESS, *(["frontier"] if fleet.is_incomplete() else [])}  # an earlier attempt may have failed
    harmless |= {"half-batch"} if fleet.checks.power_cuts else set()  # whose records were not written yet
    with alone(store, settings) as (scene, lock):
        check = Check(scene, has_frontier, is_locked=False)
        found: list[Problem] = []
        for problems in (check.of_files(), check.of_links()):
            for part in in_parts(filter(None, problems), 100):
                Repair(store, settings, lock).repair(part)
                found += part
    is_rebuilt = _is_rebuilt(store, found)
    bad = [problem for problem in found if problem.kind not in harmless]
    if bad and not fleet.checks.is_damaged:
        fleet.checks.fail(f"`crawler check --repair` has found {bad[0]}")
    if is_rebuilt:
        fleet.checks.after_rehydration(not fleet.is_incomplete())
    fleet.world.effects["repaired"] += 1
    return f"{len(found)} problems repaired"


def _is_rebuilt(store: StoreWriter, found: list[Problem]) -> bool:
    return any(problem.kind == "frontier" for problem in found) and rehydrate.is_whole(store)


def remove_folder(fleet: Fleet, trouble: Trouble) -> None:
    """Somebody removes a part of the frontier, who should not."""
    fleet.checks.is_damaged = True
    fleet.checks.disturbed += 1
    folders = [f"frontier/{shard:03d}" for shard in range(SHARDS)]
    full = [folder for folder in folders if any(lines_of(name) for name, _ in fleet.disk.files(folder))]
    fleet.world.effects["removed batches"] += bool(full)
    removed = str(trouble.pick(full or folders))
    fleet.checks.forget_orders(removed)
    fleet.disk.remove(removed)


def remove_frontier(fleet: Fleet, trouble: Trouble) -> None:
    """Somebody removes all of the frontier."""
    fleet.checks.is_damaged = True
    fleet.checks.disturbed += 1
    fleet.checks.forget_orders("frontier")
    fleet.world.effects["removed batches"] += 1
    fleet.disk.remove_all("frontier")


def remove_names(fleet: Fleet, trouble: Trouble) -> None:
    """Somebody removes some names that say who owns what, or who is alive."""
    fleet.checks.disturbed += 1
    folder = fleet.disk.find("shards" if trouble.seconds < 5 else "workers")
    names = sorted(folder.entries) if folder else []
    for name in names[int(trouble.dice * len(names)) :]:
        fleet.world.effects["removed names"] += 1
        fleet.disk.set((folder, name, None))  # type: ignore[arg-type]
