"""deploy/crawler.sbatch as a user of a SLURM cluster submits it: what becomes of the jobs, and of the crawl."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from lab.machines.slurm import Cluster, cluster, skip_reason
from lab.machines.storm import SlowTree
from lab.world import QUICK, Links, World, wait_for, world

from crawler.commands.demo.server import requested_twice

SCRIPT = Path(__file__).parents[2] / "deploy/crawler.sbatch"
MARGIN = 120  # the script's


def test_the_script_is_one_that_shellcheck_has_nothing_to_say_about() -> None:
    if not shutil.which("shellcheck"):
        pytest.skip("no shellcheck here: apt-get install shellcheck")
    done = subprocess.run(["shellcheck", str(SCRIPT)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_on_a_machine_without_slurm_it_says_how_it_is_meant() -> None:
    done = subprocess.run(["bash", str(SCRIPT), "store"], env={}, capture_output=True, text=True, check=False)
    assert done.returncode
    assert "submit this file with sbatch" in done.stderr


@pytest.fixture(scope="module")
def the_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    reason = skip_reason()
    if reason:
        pytest.skip(f"no SLURM cluster here: {reason}")
    with cluster(tmp_path_factory.mktemp("slurm")) as made:
        yield made


class Site:
    """A web, a store, and the cluster that crawls it."""

    def __init__(self, cluster: Cluster, world: World) -> None:
        self.cluster, self.world = cluster, world

    def submit(self, *flags: str, store: Path | None = None, seeds: bool = True, **environment: str) -> str:
        """sbatch of the script with these flags; the number of the job."""
        w = self.world
        flags = (f"--output={w.folder}/%a.log", "--mem-per-cpu=0", *flags)
        run = [str(store or w.root), *(w.web.seeds() if seeds else []), *w.flags, *w.everywhere, *QUICK[:2], *QUICK[6:]]
        return self.cluster.submit(*flags, str(SCRIPT), *run, **environment)

    def log(self, task: int) -> str:
        """What a task has printed."""
        return (self.world.folder / f"{task}.log").read_text()

    def restarts(self, number: str) -> list[str]:
        """How often each task was queued again."""
        return sorted(job["Restarts"] for job in self.cluster.jobs(number))

    def owners(self) -> set[str]:
        """Who owns shards."""
        return {path.name.partition("@")[2] for path in (self.world.root / "shards").glob("*@*")}

    def is_whole(self) -> None:
        """Every page is there, and no machine was cut off with pages in hand."""
        assert self.world.differences() == []
        assert requested_twice(self.world.log) == {}


@pytest.fixture
def brake(tmp_path: Path) -> Path:
    """As long as it is there, pages take their time."""
    return tmp_path / "brake"


@pytest.fixture
def site(the_cluster: Cluster, brake: Path, tmp_path: Path) -> Iterator[Site]:
    web = SlowTree(hosts=6, fanout=3, depth=4).slow_down(brake, 5.0)  # nearly two minutes for a host's pages
    with world(web, tmp_path) as w:
        try:
            yield Site(the_cluster, w)
        finally:
            the_cluster.clear()


@pytest.mark.fleet
def test_the_tasks_of_an_array_are_machines_of_one_crawl_and_end_with_it(
    site: Site, brake: Path, tmp_path: Path
) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    job = site.submit("--array=0-1", "--cpus-per-task=2", "--time=10", SLURM_TMPDIR=str(disk))
    wait_for(lambda: len(site.owners() - {"free"}) == 4)
    assert {machine["name"] for machine in site.world.status()["machines"]} == {"n0", "n1"}
    assert list(disk.iterdir()), "waiting URLs are on the disk that the cluster gives to a job"
    brake.unlink()
    site.cluster.wait(job, "COMPLETED")
    assert site.cluster.states(job) == {("COMPLETED", "0:0", "0")}
    site.is_whole()
    late = site.submit("--array=7", "--cpus-per-task=1", seeds=False)
    site.cluster.wait(late, "COMPLETED")
    assert "the crawl is over" in site.log(7)


@pytest.mark.fleet
@pytest.mark.parametrize(("partition", "by_itself"), [("soon", False), ("later", True)])
def test_a_preempted_machine_gives_its_shards_back_is_queued_again_and_goes_on(
    site: Site, brake: Path, partition: str, by_itself: bool
) -> None:
    job = site.submit("--array=0-1", "--exclusive", "--cpus-per-task=1", f"--partition={partition}")
    site.cluster.wait(job, "RUNNING")
    site.world.until(5)
    site.cluster.submit("--partition=first", "--exclusive", "--nodelist=n0", "--output=/dev/null", "--wrap=true")
    wait_for(lambda: site.restarts(job) == ["0", "1"])
    assert any("queued again" in site.log(task) for task in (0, 1)) == by_itself
    site.cluster.wait(job, "RUNNING")
    brake.unlink()
    site.cluster.wait(job, "COMPLETED")
    site.is_whole()


@pytest.mark.fleet
def test_a_machine_that_runs_out_of_time_is_queued_again(site: Site, brake: Path) -> None:
    job = site.submit("--array=0", "--cpus-per-task=1", f"--time={MARGIN // 60 + 1}")
    wait_for(lambda: site.restarts(job) == ["1"])
    assert "the time or page limit was reached with work left" in site.log(0)
    assert site.owners() == {"free"}
    brake.unlink()
    site.cluster.wait(job, "COMPLETED")
    site.is_whole()


@pytest.mark.fleet
def test_the_end_that_slurm_tells_becomes_the_time_limit_and_too_little_of_it_is_said(site: Site) -> None:
    # Slurm would tell another end to the job that is queued again: to this one, the same.
    job = site.submit("--array=0", "--cpus-per-task=1", SLURM_JOB_END_TIME=str(int(time.time()) + MARGIN + 40))
    site.cluster.wait(job, "FAILED")
    assert site.cluster.states(job) == {("FAILED", "2:0", "1")}
    assert "the time or page limit was reached with work left" in site.log(0)
    assert site.log(0).endswith("seconds; ask for more with sbatch --time\n")


@pytest.mark.fleet
@pytest.mark.parametrize("how", ["crawler stop {store}", "scancel --signal=TERM {job}"])
def test_a_machine_that_the_operator_stops_is_not_queued_again(site: Site, how: str) -> None:
    job = site.submit("--array=0", "--cpus-per-task=1")
    site.world.until(5)
    site.cluster.run(*how.format(store=site.world.root, job=job).split())
    site.cluster.wait(job, "FAILED")
    assert site.cluster.states(job) == {("FAILED", "3:0", "0")}
    assert site.owners() == {"free"}


@pytest.mark.fleet
def test_a_job_that_is_cancelled_gives_its_shards_back(site: Site, brake: Path) -> None:
    job = site.submit("--array=0", "--cpus-per-task=1")
    site.world.until(5)
    site.cluster.run("scancel", job)
    site.cluster.wait(job, "CANCELLED")
    wait_for(lambda: site.owners() == {"free"})
    brake.unlink()
    again = site.submit("--array=1", "--cpus-per-task=1", seeds=False)
    site.cluster.wait(again, "COMPLETED")
    assert site.restarts(job) == ["0"]
    site.is_whole()


@pytest.mark.fleet
@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["/no/such/mount/crawl", "http://a.example/"], 5, "is the mount there?"),
        (
            ["{folder}/store", "http://a.example/", "--no-such-flag"],
            2,
            "unknown option --no-such-flag",
        ),
        (["{folder}/store", "http://a.example/", "--max-pages=1"], 4, "limit was reached with work left"),
    ],
    ids=["no store", "no flag", "page limit"],
)
def test_what_would_end_the_same_way_again_is_not_queued_again(
    the_cluster: Cluster, tmp_path: Path, arguments: list[str], code: int, said: str
) -> None:
    with world(Links({"/": ["/a", "/b"], "/a": [], "/b": []}), tmp_path) as w:
        run = [*(word.format(folder=tmp_path) for word in arguments), *w.flags]
        flags = ["--array=0", "--cpus-per-task=1", "--time=10", f"--output={tmp_path}/log"]
        job = the_cluster.submit(*flags, str(SCRIPT), *run)
        the_cluster.wait(job, "FAILED")
        assert the_cluster.states(job) == {("FAILED", f"{code}:0", "0")}
        assert said in (tmp_path / "log").read_text()
