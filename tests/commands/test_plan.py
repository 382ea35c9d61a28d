"""`crawler plan`: sums that can be checked by hand, verdicts that follow from them, and what mkfs.ext4 says itself."""

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
from crawler.commands.plan import advice, as_json, as_text, bottleneck
from crawler.commands.plan_sums import DAY, EXT4_MOST, RATES, SHARDS, Sums, Workload
from crawler.settings import Settings

TOP = Path(__file__).parents[2]
BILLION = Workload(1e9, 1e6)


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
    return "\n".join(advice(Sums(task)))


# ---- the sums


def test_a_billion_pages_by_hand() -> None:
    sums = Sums(BILLION)
    assert sums.pages_a_second == pytest.approx(1e9 / 604_800)
    assert sums.requests == 1_200_000_000 + 1_000_000
    assert sums.host_seconds == pytest.approx(1201 * 1.5)
    assert sums.host_pages == (604_800 / 1.5 - 1) // 1.2
    assert sums.cpu == pytest.approx((2.1e-3 * 1e9 + 0.9e-3 * 1e6) / 604_800)
    assert (sums.by_cpu, sums.by_visitors) == (2, 23)  # 3.5 cores of 2.8; 993 requests of 44.8
    assert sums.shards == 512  # four for each of 92 workers, as a power of two
    assert sums.inodes == 2_200_000_000 + 4_000_000
    assert sums.disk == 1e9 * (32_768 + 8_192 + 0.2 * 4096) + 4e6 * 4096
    assert sums.server_requests == pytest.approx((9.2 * 1e9 + 18 * 1e6) / 604_800)
    assert sums.servers == pytest.approx(2 * sums.server_requests / 9.2 / (460 * 0.7))
    assert sums.web_bits == pytest.approx(8 * 30_720 * 1e9 / 604_800)
    assert sums.server_bits == pytest.approx(8 * (30_720 + 4_150 + 7_500) * 1e9 / 604_800)
    assert sums.memory == 360e6
    assert sums.own_disk == pytest.approx(230 * 1.2e9 / 23)


def test_ten_pages_of_one_host_take_one_machine() -> None:
    sums = Sums(Workload(10, 1, DAY))
    assert (sums.machines, sums.shards, sums.inodes) == (1, SHARDS[0], 26)
    assert sums.host_seconds == 13 * 1.5


def test_without_a_delay_a_host_has_no_limit() -> None:
    sums = Sums(Workload(1e9, 1, DAY, delay=0))
    assert (sums.host_seconds, sums.politeness, sums.hosts_needed) == (0, 0, 0)
    assert sums.host_pages == math.inf


tasks = st.builds(
    lambda hosts, more, **rest: Workload(hosts + more, hosts, **rest),
    st.integers(1, 10**9),
    st.integers(0, 10**12),
    seconds=st.floats(1, 1e9),
    page_size=st.integers(1, 10**8),
    links=st.floats(0, 10**4),
    delay=st.floats(0.001, 3600),
    latency=st.floats(0, 60),
    workers=st.integers(1, 256),
    threads=st.integers(1, 256),
    files=st.floats(1, 1e6),
    others=st.floats(0, 10),
)
GROWS = ("machines", "shards", "inodes", "disk", "server_requests", "server_files", "servers", "web_bits", "politeness")


@given(tasks, st.floats(1, 100))
def test_more_pages_never_take_less(task: Workload, times: float) -> None:
    less, more = Sums(task), Sums(replace(task, pages=task.pages * times))
    assert [name for name in GROWS if getattr(more, name) < getattr(less, name) * (1 - 1e-9)] == []


@given(tasks, st.floats(1, 100))
def test_more_time_never_takes_more(task: Workload, times: float) -> None:
    short, long = Sums(task), Sums(replace(task, seconds=task.seconds * times))
    for name in ("machines", "shards", "server_requests", "servers", "web_bits", "server_bits", "politeness"):
        assert getattr(long, name) <= getattr(short, name) * (1 + 1e-9), name
    assert (long.inodes, long.disk) == (short.inodes, short.disk)


@given(tasks)
def test_so_many_machines_are_enough_and_one_less_would_not_be(task: Workload) -> None:
    sums = Sums(task)
    cores, visitors = task.workers * 0.7, task.workers * task.threads * 0.7
    for count, enough in ((sums.machines, True), (sums.machines - 1, sums.machines == 1)):
        fits = sums.cpu <= count * cores * (1 + 1e-6) and sums.open_requests <= count * visitors * (1 + 1e-6)
        assert fits == enough or sums.machines == 1 or count * 1e-6 > 0.5


@given(tasks)
def test_the_fewest_hosts_that_are_named_are_enough(task: Workload) -> None:
    needed = Sums(task).hosts_needed
    if needed <= task.pages:
        assert Sums(replace(task, hosts=max(needed, 1))).politeness <= 1 + 1e-9


@given(tasks)
def test_every_plan_can_be_told_in_words_and_in_json(task: Workload) -> None:
    sums = Sums(task)
    told = as_text(sums)
    assert ("bottleneck" in told) == (bottleneck(sums)[1] > 1)
    assert json.loads(json.dumps(as_json(sums), allow_nan=False))["possible"] == ("not possible" not in told)
    assert not re.search(r"\b(nan|inf)\b|\de\+", told)


# ---- what follows


def test_too_few_hosts_are_said_with_what_would_do() -> None:
    task = Workload(1e6, 3, DAY)
    assert bottleneck(Sums(task))[0] == "politeness"
    assert "not possible politely, whatever the machines: it takes 21 hosts, or 6.94 d, or a shorter delay" in said(
        task
    )
    assert "not possible" not in said(replace(task, hosts=21))
    assert "not possible" in said(replace(task, hosts=20))


def test_where_one_file_server_ends_is_where_doctors_files_a_second_are_used_up() -> None:
    assert "one file server ends here: take a distributed file system" in said(BILLION)
    assert "or one on which `crawler doctor` counts 4,734 files a second, or 72 d" in said(BILLION)
    assert "one file server is enough: it is 70 % busy" in said(replace(BILLION, files=4734))
    assert "one file server ends here" in said(replace(BILLION, files=4733))
    assert "one file server is enough" in said(replace(BILLION, seconds=73 * DAY))


def test_visitors_shards_and_the_network_are_spoken_of_where_they_matter() -> None:
    assert "with `--concurrency 64` 6 would do" in said(BILLION)
    assert "--concurrency" not in said(replace(BILLION, threads=64))
    assert "`--shards 512`" in said(BILLION)
    assert "--shards" not in said(Workload(1e6, 1e4))
    assert "share the hosts among 6 stores" in said(Workload(1e12, 1e9, threads=64, workers=16))
    assert "1 Gbit/s" in said(replace(BILLION, page_size=100_000))


@pytest.mark.parametrize(("size", "pages"), [("1G", 17e3), ("1T", 18e6), ("5T", 90e6), ("20T", 350e6)])
def test_how_many_inodes_ext4_makes_by_itself_is_what_mkfs_says(size: str, pages: float, tmp_path: Path) -> None:
    sums = Sums(Workload(pages, 1))
    each = sums.disk_size / sums.ext4_inodes
    blocks, inodes = mkfs(tmp_path, size)
    assert blocks * 4096 / inodes == each
    assert sums.disk_size == pytest.approx(blocks * 4096, rel=0.2), "another size of disk than was meant"


def test_as_many_inodes_as_are_advised_can_be_made(tmp_path: Path) -> None:
    (wanted,) = re.findall(r"mkfs.ext4 -N (\d+)", said(BILLION))
    assert int(wanted) >= Sums(BILLION).inodes / 0.7
    assert mkfs(tmp_path, "60T", "-N", wanted)[1] >= int(wanted)
    assert f"ext4 has at most {EXT4_MOST:,} inodes" in said(Workload(2e9, 1e6))


@pytest.mark.parametrize(("size", "pages"), [("900g", 16e6), ("40t", 700e6), ("60t", 1000e6)])
def test_how_much_room_xfs_leaves_for_inodes_is_what_mkfs_says(size: str, pages: float, tmp_path: Path) -> None:
    program = shutil.which("mkfs.xfs", path="/usr/sbin:/sbin:/usr/bin")
    if not program:
        pytest.skip("mkfs.xfs is not here, so what it does by itself is not asked")
    done = subprocess.run(
        [program, "-N", "-d", f"file,name={tmp_path}/disk,size={size}"], capture_output=True, text=True
    )
    (own,) = re.findall(r"imaxpct=(\d+)", done.stdout)
    (each,) = re.findall(r"isize=(\d+)", done.stdout)
    sums = Sums(Workload(pages, 1))
    enough = sums.inodes * int(each) <= sums.disk * int(own) / 100
    assert bool(sums.xfs_wanted) != enough
    assert sums.xfs_wanted in (0, math.ceil(100 * sums.inodes * int(each) / sums.disk))


def mkfs(folder: Path, size: str, *args: str) -> tuple[int, int]:
    """The blocks and inodes that mkfs.ext4 would make."""
    program = shutil.which("mkfs.ext4", path="/usr/sbin:/sbin:/usr/bin")
    if not program:
        pytest.skip("mkfs.ext4 is not here, so what it does by itself is not asked")
    (folder / "disk").write_bytes(bytes(1 << 20))
    done = subprocess.run([program, "-n", "-F", *args, str(folder / "disk"), size], capture_output=True, text=True)
    (found,) = re.findall(r"with (\d+) 4k blocks and (\d+) inodes", done.stdout + done.stderr)
    return int(found[0]), int(found[1])


# ---- the command


def test_the_command_tells_each_figure_with_where_it_comes_from_and_the_verdict() -> None:
    told = crawler_command("plan", "--pages", "1e9", "--days", "7", "--hosts", "1e6")
    for words in ("1,653 pages a second", "15,241 requests a second", "2,204,000,000", "41.8 TB", "23 with 4 workers"):
        assert words in told
    for source in (
        "`make bench`",
        "counted under strace",
        "sshfs 1 ms away",
        "bottleneck: the file server, 10.3 times",
    ):
        assert source in told


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
        (("--pages", "10", "--hosts", "20"), "--hosts 20 are more than --pages 10: each host has a page at least"),
        (("--pages", "10"), "--hosts is missing: say how many"),
        (("--hosts", "10"), "required: --pages"),
        (("--pages", "10", "--hosts", "1", "--days", "0"), "argument --days: '0' must be days such as 7 or 0.5"),
        (("--pages", "10", "--hosts", "1", "--days", "-1"), "argument --days: '-1' must be days"),
        (("--pages", "10", "--hosts", "1", "--days", "2 weeks"), "argument --days: '2 weeks' must be days"),
        (("--pages", "10", "--hosts", "1", "--page-size", "0"), "argument --page-size: '0' must be a size"),
        (("--pages", "10", "--hosts", "1", "--links", "-1"), "argument --links: '-1' must be a number"),
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
    links = [len(record["links"]) for record in records if record["sha224"]]
    refused = len(list((crawled / "errs").glob("*/*")))
    assert task["page_size"] == pytest.approx(sum(htmls) / len(htmls))
    assert task["links"] == pytest.approx(sum(links) / len(links))
    assert task["others"] == pytest.approx((len(records) + refused) / len(htmls) - 1)
    assert task["hosts"] == round(1e6 * len(list((crawled / "links").iterdir())) / len(htmls))
    assert task["delay"] == 0.01
    told = crawler("plan", "--from", str(crawled), "--pages", "1M", "--hosts", "10", "--delay", "2")
    assert f"are those of {crawled}" in told
    assert "of 10 hosts" in told
    assert "(delay 2, " in told


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
    machine = task.workers * task.threads / task.latency / (1 + task.others) * load
    assert f"**{machine:.0f} pages a second**" in text
    rows = re.findall(r"^\| .* \| ([\d,]+) \| (\d+) \| (\d+) \|$", text, re.MULTILINE)
    assert len(rows) >= 3
    for files, pages, machines in rows:
        carried = int(files.replace(",", "")) / RATES["inodes_page"].value * load
        assert (int(pages), int(machines)) == (round(carried), int(carried // machine))


def sized(*flags: str) -> list[str]:
    """The cells of a row: pace, machines, inodes, disk, the file server's requests and its load, time of a host."""
    told = dict(re.findall(r"^(\S+(?: server)?) +(.*?)(?:  .*)?$", crawler("plan", *flags), re.MULTILINE))
    load = bottleneck_of(plan(*flags)["sums"]["servers"])
    machines = told["machines"].split()[0]
    return [told["pace"], machines, told["inodes"], told["disk"], told["file server"], load, told["politeness"]]


def bottleneck_of(servers: float) -> str:
    return "1" if servers <= 1 else f"{math.ceil(servers):,}"
