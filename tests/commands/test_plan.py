"""`crawler plan`: figures that can be checked by hand, warnings that follow, and what mkfs.ext4 says itself."""

from __future__ import annotations

import io
import json
import math
import re
import shutil
import subprocess
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lab.world import crawler as crawler_command

from crawler.commands import main
from crawler.commands.plan import DAY, EXT4_MAX, LATENCY, RATES, SHARDS, Estimate, Workload, as_json, as_text, warnings
from crawler.settings.settings import Settings

TOP = Path(__file__).parents[2]
BILLION = Workload(1e9, 1e6)
TEN_BILLION = Workload(1e10, 1e7)


def crawler(*args: str, code: int = 0) -> str:
    """What a command prints; without a process of its own, because there are many."""
    out = io.StringIO()
    with redirect_stdout(out), redirect_stderr(out):
        assert main.run(args) == code
    return out.getvalue()


def plan(*args: str) -> dict[str, Any]:
    """What `crawler plan --json` says."""
    found: dict[str, Any] = json.loads(crawler("plan", *args, "--json"))
    return found


def said(task: Workload) -> str:
    return "\n".join(warnings(Estimate(task)))


# ---- the estimate


def test_a_billion_pages_by_hand() -> None:
    found = Estimate(BILLION)
    assert found.pages_a_second == pytest.approx(1e9 / 604_800)
    assert found.requests == 1_200_000_000 + 1_000_000
    assert found.host_seconds == pytest.approx(1201 * 1.5)
    assert found.machines == 1  # 2.3 cores of 2.8 a machine; 993 open requests of 1,434
    assert found.shards == SHARDS[0]  # four for each of 4 workers are fewer
    assert found.files == 2_200_000_000 + 4_000_000
    assert found.disk == 1e9 * (32_768 + 8_192 + 0.2 * 4096) + 4e6 * 4096
    assert found.server_files == pytest.approx((2e9 + 4e6) / 604_800)
    assert found.servers == pytest.approx(found.server_files / (460 * 0.7))
    assert found.least_seconds == pytest.approx(found.servers * 604_800)
    assert found.memory == 760e6


def test_ten_pages_of_one_host_take_one_machine() -> None:
    found = Estimate(Workload(10, 1, DAY))
    assert (found.machines, found.shards, found.files) == (1, SHARDS[0], 26)
    assert found.host_seconds == found.least_seconds == 13 * 1.5


def test_ten_billion_pages_by_hand() -> None:
    found = Estimate(TEN_BILLION)
    assert found.machines == 9  # 23.2 cores of 2.8 a machine
    assert found.shards == 256  # four for each of 36 workers, as a power of two


def test_cores_or_open_requests_decide_whichever_are_fewer() -> None:
    assert Estimate(replace(TEN_BILLION, concurrency=1024)).machines == 9  # 23.2 cores of 2.8
    assert Estimate(replace(TEN_BILLION, concurrency=256)).machines == 14  # 9,929 open requests of 716.8


def test_without_a_delay_a_host_has_no_limit() -> None:
    assert Estimate(Workload(1e9, 1, DAY, delay=0)).host_seconds == 0


tasks = st.builds(
    lambda hosts, more, **rest: Workload(hosts + more, hosts, **rest),
    st.integers(1, 10**9),
    st.integers(0, 10**12),
    seconds=st.floats(1, 1e9),
    page_size=st.integers(1, 10**8),
    delay=st.floats(0.001, 3600),
    workers=st.integers(1, 256),
    concurrency=st.integers(1, 1024),
    files=st.floats(1, 1e6),
    others=st.floats(0, 10),
)
GROWS = ("machines", "shards", "files", "disk", "server_files", "servers", "host_seconds", "least_seconds")


@given(tasks, st.floats(1, 100))
def test_more_pages_never_take_less(task: Workload, times: float) -> None:
    less, more = Estimate(task), Estimate(replace(task, pages=task.pages * times))
    assert [name for name in GROWS if getattr(more, name) < getattr(less, name) * (1 - 1e-9)] == []


@given(tasks, st.floats(1, 100))
def test_more_time_never_takes_more(task: Workload, times: float) -> None:
    short, long = Estimate(task), Estimate(replace(task, seconds=task.seconds * times))
    for name in ("machines", "shards", "server_files", "servers"):
        assert getattr(long, name) <= getattr(short, name) * (1 + 1e-9), name
    assert (long.files, long.disk, long.host_seconds) == (short.files, short.disk, short.host_seconds)


@given(tasks)
def test_so_many_machines_are_enough_and_one_less_would_not_be(task: Workload) -> None:
    found = Estimate(task)
    busy = (1.4e-3 * task.pages + 0.6e-3 * task.hosts) / task.seconds / task.workers / 0.7
    waiting = found.requests / task.seconds * 0.5 / task.workers / task.concurrency / 0.7
    needed = max(busy, waiting)
    rounding = 1e-9 + needed * 1e-12
    assert needed <= found.machines + rounding
    assert found.machines == 1 or needed > found.machines - 1 - rounding


@given(tasks)
def test_every_plan_can_be_told_in_words_and_in_json(task: Workload) -> None:
    found = Estimate(task)
    told = as_text(found)
    assert told.count("warning: ") == len(json.loads(json.dumps(as_json(found), allow_nan=False))["warnings"])
    assert not re.search(r"\b(nan|inf)\b|\de\+", told)


# ---- what follows


def test_what_cannot_be_done_politely_is_said_with_what_would_do() -> None:
    task = Workload(1e6, 3, DAY)
    assert "not possible politely, whatever the machines: take 6.94 d, more hosts or a shorter delay" in said(task)
    assert "not possible" not in said(replace(task, hosts=21))
    assert "not possible" in said(replace(task, hosts=20))
    assert "not possible" not in said(replace(task, seconds=6.95 * DAY))


def test_one_file_server_is_too_slow_where_doctors_files_a_second_are_used_up() -> None:
    slow = "one file server is too slow: take one on which `crawler doctor` counts 4,734 files a second, or 72 d"
    assert slow in said(BILLION)
    assert "too slow" not in said(replace(BILLION, files=4734))
    assert "too slow" in said(replace(BILLION, files=4733))
    assert "too slow" not in said(replace(BILLION, seconds=73 * DAY))


def test_shards_are_spoken_of_where_they_matter() -> None:
    assert "`--shards 2048`" in said(Workload(1e11, 1e8))
    assert "--shards" not in said(TEN_BILLION)
    assert "--shards" not in said(Workload(1e6, 1e4))
    assert "divide the hosts among several stores" in said(Workload(1e12, 1e9, concurrency=64, workers=16))


@pytest.mark.parametrize(("size", "pages"), [("1G", 17e3), ("1T", 18e6), ("5T", 90e6), ("20T", 350e6)])
def test_how_many_inodes_ext4_makes_by_itself_is_what_mkfs_says(size: str, pages: float, tmp_path: Path) -> None:
    found = Estimate(Workload(pages, 1))
    disk = found.disk / 0.7
    blocks, inodes = mkfs(tmp_path, size)
    assert blocks * 4096 / inodes == disk / found.ext4_inodes
    assert disk == pytest.approx(blocks * 4096, rel=0.2), "another size of disk than was meant"


def test_as_many_inodes_as_are_advised_can_be_made(tmp_path: Path) -> None:
    (wanted,) = re.findall(r"mkfs.ext4 -N (\d+)", said(BILLION))
    assert int(wanted) >= Estimate(BILLION).files / 0.7
    assert mkfs(tmp_path, "60T", "-N", wanted)[1] >= int(wanted)
    assert f"ext4 has at most {EXT4_MAX:,} inodes" in said(Workload(2e9, 1e6))


def mkfs(folder: Path, size: str, *args: str) -> tuple[int, int]:
    """The blocks and inodes that mkfs.ext4 would make."""
    program = shutil.which("mkfs.ext4", path="/usr/sbin:/sbin:/usr/bin")
    if not program:
        pytest.skip("mkfs.ext4 is not here, so its defaults are not known")
    (folder / "disk").write_bytes(bytes(1 << 20))
    done = subprocess.run([program, "-n", "-F", *args, str(folder / "disk"), size], capture_output=True, text=True)
    (found,) = re.findall(r"with (\d+) 4k blocks and (\d+) inodes", done.stdout + done.stderr)
    return int(found[0]), int(found[1])


# ---- the command


def test_the_command_tells_each_figure_with_where_it_comes_from() -> None:
    told = crawler_command("plan", "--pages", "1e9", "--days", "7", "--hosts", "1e6")
    for words in (
        "1,653 pages a second",
        "3,313 files a second",
        "2,204,000,000",
        "41.8 TB",
        "machines     1  ",
        " is enough, with 4 workers of 512 requests at once; one file server limits this to 161 pages a second\n",
        "760 MB a machine",
    ):
        assert words in told
    assert plan("--pages", "1M")["task"]["hosts"] == 1000, "pages of a host have a default"


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ("--pages 1M --days 7", "1                        is enough, with 4 workers of 512 requests at once"),
        ("--pages 1e10 --days 7 --files 1e5", "9                        each with 4 workers of 512 requests at once"),
        (
            "--pages 1e10 --days 7",
            "9                        each with 4 workers of 512 requests at once; "
            "one file server limits this to 161 pages a second",
        ),
    ],
)
def test_machines_are_told_with_what_limits_them(flags: str, words: str) -> None:
    assert f"\nmachines     {words}\n" in crawler("plan", *flags.split())


@pytest.mark.parametrize("pages", ["1000000", "1,000,000", "1_000_000", "1e6", "1E+6", "1M", "1000k", "0.001b"])
def test_numbers_are_read_as_people_write_them(pages: str) -> None:
    assert plan("--pages", pages, "--hosts", "10")["task"]["pages"] == 1_000_000


@pytest.mark.parametrize(("days", "seconds"), [("7", 7 * DAY), ("0.5", DAY / 2), ("12h", DAY / 2), ("90m", 5400)])
def test_time_is_in_days_or_in_what_is_said(days: str, seconds: float) -> None:
    assert plan("--pages", "10", "--hosts", "1", "--days", days)["task"]["seconds"] == seconds


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("--pages", "0", "--hosts", "1"), "argument --pages: '0' must be a number such as 1e9"),
        (("--pages", "-5", "--hosts", "1"), "argument --pages: '-5' must be"),
        (("--pages", "1,5", "--hosts", "1"), "argument --pages: '1,5' must be"),
        (("--pages", "many", "--hosts", "1"), "argument --pages: 'many' must be"),
        (("--pages", "1e16", "--hosts", "1"), "from 1 to 1e15"),
        (("--pages", "10", "--hosts", "20"), "--hosts 20 is more than --pages 10; give fewer hosts"),
        (("--hosts", "10"), "required: --pages"),
        (("--pages", "10", "--hosts", "1", "--days", "0"), "argument --days: '0' must be days such as 7 or 0.5"),
        (("--pages", "10", "--hosts", "1", "--days", "-1"), "argument --days: '-1' must be days"),
        (("--pages", "10", "--hosts", "1", "--days", "2 weeks"), "argument --days: '2 weeks' must be days"),
        (("--pages", "10", "--hosts", "1", "--page-size", "0"), "argument --page-size: '0' must be a size"),
        (("--pages", "10", "--hosts", "1", "--delay", "soon"), "argument --delay: 'soon' must be a duration"),
        (("--pages", "10", "--hosts", "1", "--workers", "0"), "argument --workers: '0' must be a whole number"),
    ],
)
def test_what_makes_no_sense_is_one_sentence(args: tuple[str, ...], words: str) -> None:
    told = crawler("plan", *args, code=2)
    assert words in told
    assert told.count("\n") == 1


# ---- from a small crawl


def test_a_small_crawl_tells_of_a_larger_one(crawled: Path) -> None:
    task = plan("--from", str(crawled), "--pages", "1M")["task"]
    htmls = [path.stat().st_size for path in (crawled / "htmls").glob("*/*")]
    records = [json.loads(path.read_bytes()) for path in (crawled / "links").glob("*/*")]
    refused = len(list((crawled / "errs").glob("*/*")))
    assert task["page_size"] == pytest.approx(sum(htmls) / len(htmls))
    assert task["others"] == pytest.approx((len(records) + refused) / len(htmls) - 1)
    assert task["hosts"] == round(1e6 * len(list((crawled / "links").iterdir())) / len(htmls))
    assert task["delay"] == 0.01
    told = crawler("plan", "--from", str(crawled), "--pages", "1M", "--hosts", "10", "--delay", "2")
    assert "of 10 hosts" in told
    assert "2 s between" in told


def test_a_small_crawl_with_more_hosts_than_pages_does_not_make_a_larger_one_impossible(crawled: Path) -> None:
    for number in range(1000):
        (crawled / f"links/moved-{number}.example").mkdir()
    assert plan("--from", str(crawled), "--pages", "100")["task"]["hosts"] == 100


def test_a_store_without_pages_has_nothing_to_tell(crawled: Path, tmp_path: Path) -> None:
    shutil.rmtree(crawled / "links")
    (crawled / "links").mkdir()
    assert "has no page to learn from; crawl some first" in crawler(
        "plan", "--from", str(crawled), "--pages", "9", code=1
    )
    assert "does not exist" in crawler("plan", "--from", str(tmp_path / "none"), "--pages", "9", code=5)


# ---- what is written of it


def test_the_defaults_are_those_of_a_crawl() -> None:
    usual = Settings()
    assert (BILLION.delay, SHARDS[0]) == (usual.delay, usual.shards)


def test_every_rate_is_in_the_readme_with_its_source() -> None:
    text = (TOP / "deploy/README.md").read_text("utf-8")
    for rate in RATES.values():
        assert f"| {rate.value:g} {rate.what} | {rate.source} |" in text


def test_the_plans_that_are_shown_are_real() -> None:
    """Each `$ crawler plan ...` in the documentation, with the lines that stand under it."""
    text = (TOP / "deploy/README.md").read_text("utf-8") + (TOP / "crawler/manual/capacity.md").read_text("utf-8")
    shown = re.findall(r"^\$ crawler (plan .*)\n((?:(?!\$ |```).*\n)+)", text, re.MULTILINE)
    assert shown
    for command, lines in shown:
        assert lines == crawler(*command.split()), command


def test_the_table_of_sizes_is_made_by_the_command() -> None:
    text = (TOP / "deploy/README.md").read_text("utf-8")
    rows = re.findall(r"^\| `(--pages \S+ --hosts \S+ --days \S+)` \| (.*) \|$", text, re.MULTILINE)
    assert len(rows) >= 4
    for flags, cells in rows:
        assert cells.split(" | ") == sized(*flags.split()), flags


def test_how_many_machines_a_file_server_carries_follows_from_the_rates() -> None:
    text = (TOP / "deploy/README.md").read_text("utf-8")
    task, load = Workload(1, 1), RATES["load"].value
    requested = task.workers * task.concurrency / LATENCY / (1 + task.others)
    read = task.workers / RATES["cpu_page"].value * 1000
    machine = min(requested, read) * load
    assert f"{requested:,.0f} pages" in text
    assert f"{read:,.0f} of them" in text
    assert f"**{machine:,.0f} pages a second**" in text
    rows = re.findall(r"^\| .* \| ([\d,]+) \| ([\d,]+) \| (\d+) % \|$", text, re.MULTILINE)
    assert len(rows) == 5
    for files, pages, share in rows:
        carried = int(files.replace(",", "")) / RATES["files_page"].value * load
        assert (pages, int(share)) == (f"{carried:,.0f}", round(100 * carried / machine))


def sized(*flags: str) -> list[str]:
    """The cells of a row: pace, machines, files, disk, the file server's files and how many are needed, each host."""
    told = dict(re.findall(r"^(\S+(?: \S+)?) +(.*?)(?:  .*)?$", crawler("plan", *flags), re.MULTILINE))
    servers = math.ceil(plan(*flags)["estimate"]["servers"])
    names = ("pace", "machines", "files", "disk", "file server")
    return [*(told[name] for name in names), str(servers), told["each host"]]


def test_older_versions_take_files_and_disk() -> None:
    without, with_three = (
        json.loads(crawler_command("plan", "--pages", "1M", "--json", *more)) for more in ([], ["--versions", "3"])
    )
    assert with_three["estimate"]["files"] - without["estimate"]["files"] == 7e6, "a folder, and three times two files"
    assert with_three["estimate"]["disk"] > 3 * without["estimate"]["disk"]
