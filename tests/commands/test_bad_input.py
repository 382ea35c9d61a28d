"""Bad input gets one clear sentence and an exit code, no traceback, and loses nothing."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from lab.world import COMMAND, Links, crawler, world

from crawler.commands import main
from crawler.commands import run as run_module
from crawler.crawl.start import begin
from crawler.settings.settings import Settings

USAGE, STORE, NOTHING = 2, 5, 7


def complaint(*args: str, code: int, stdin: str | None = None) -> str:
    """What a command says when it stops: one sentence, named after the program."""
    said = crawler(*args, code=code, stdin=stdin).strip()
    assert said.startswith("crawler: "), said
    assert len(said.splitlines()) == 1, said
    assert "Traceback" not in said
    return said


@pytest.fixture(scope="module")
def crawled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small store that was crawled for real."""
    with world(Links({"/": ["/a"], "/a": []}), tmp_path_factory.mktemp("crawled")) as w:
        w.crawl("--depth", "3")
        return w.root


@pytest.fixture
def store(crawled: Path, tmp_path: Path) -> Path:
    """Such a store, for one test to spoil."""
    return Path(shutil.copytree(crawled, tmp_path / "store"))


@pytest.mark.parametrize(
    ("seed", "hint"),
    [
        ("example.org", "not a valid URL (no scheme); did you mean https://example.org/?"),
        ("example.org:8000/x", "not a valid URL (no scheme); did you mean https://example.org:8000/x?"),
        ("javascript:void(0)", "is not a valid URL: its scheme is javascript; only http and https are supported"),
        ("ftp://example.org/", "its scheme is ftp; only http and https"),
        ("http://", "its host or port is not valid"),
        ("http://../", "its host is not a valid name"),
        ("nonsense here", "it has no scheme, such as https://"),
    ],
)
def test_what_is_not_a_url_is_named_and_nothing_is_made(tmp_path: Path, seed: str, hint: str) -> None:
    said = complaint("run", str(tmp_path / "s"), "https://example.org/", seed, code=USAGE)
    assert repr(seed) in said
    assert hint in said and ("did you mean" in said) == ("did you mean" in hint)
    assert not (tmp_path / "s").exists()


def test_a_wrong_line_in_a_list_of_urls_is_named_with_its_number(tmp_path: Path) -> None:
    said = complaint("run", str(tmp_path / "s"), "-i", "-", code=USAGE, stdin="https://example.org/\n\nwrong\n")
    assert "line 3" in said
    assert "'wrong'" in said
    assert not (tmp_path / "s").exists()


def test_a_list_of_urls_may_begin_with_a_byte_order_mark_and_have_indented_comments(tmp_path: Path) -> None:
    with world(Links({"/": [], "/2": []}), tmp_path) as w:
        listed = tmp_path / "list.txt"
        listed.write_bytes(b"\xef\xbb\xbfhttp://a.example/\n   # a comment\n  http://a.example/2\n")
        w.run("-i", str(listed))
        assert w.urls() == {"http://a.example/", "http://a.example/2"}


def test_a_forgotten_store_is_a_question_of_usage() -> None:
    said = complaint("run", "https://example.org/", "https://example.org/a", code=USAGE)
    assert "the store's folder is missing before the URL; write crawler run STORE https://example.org/" in said


@pytest.mark.parametrize("command", ["run", "status"])
def test_an_empty_name_of_a_store_is_not_the_current_folder(command: str) -> None:
    said = complaint(command, "", code=USAGE)
    assert said == "crawler: the name of STORE is empty; name the folder of the crawl"


@pytest.mark.parametrize("command", ["run", "add", "explain"])
def test_swapped_arguments_are_put_in_order(command: str) -> None:
    said = complaint(command, "http://127.0.0.1:18123/", "my store", code=USAGE)
    assert said == f"crawler: the folder comes first: crawler {command} 'my store' http://127.0.0.1:18123/"


@pytest.mark.fleet  # for time
def test_a_demo_removes_nothing_but_an_earlier_demo(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "README").write_text("precious")
    assert "not a store of the demo" in complaint("demo", str(tmp_path / "project"), code=USAGE)
    assert "not a store of the demo" in complaint("demo", str(tmp_path / "project" / "README"), code=USAGE)
    assert (tmp_path / "project" / "README").read_text() == "precious"


@pytest.mark.fleet  # for time
def test_an_earlier_demo_makes_room(tmp_path: Path) -> None:
    small = ("demo", str(tmp_path / "demo"), "--hosts", "3", "--pages", "9", "-j", "1")
    assert "every page is there" in crawler(*small)
    assert "every page is there" in crawler(*small)


def test_a_demo_may_be_larger_than_its_default() -> None:
    options = main.read(["demo", "--pages", "40000", "--hosts", "3000"])
    assert (options.pages, options.hosts) == (40_000, 3_000)


@pytest.mark.parametrize("flags", [["--hosts", "0"], ["--pages", "x"], ["--serve", "99999"], ["--serve", "here"]])
def test_a_demo_with_wrong_numbers_says_so(tmp_path: Path, flags: list[str]) -> None:
    complaint("demo", str(tmp_path / "demo"), *flags, code=USAGE)


def test_a_crawl_yaml_that_comes_with_a_copy_counts(tmp_path: Path, store: Path) -> None:
    copy = tmp_path / "copy"
    copy.mkdir()
    for noun in ("htmls", "links", "crawl.yaml"):
        (store / noun).rename(copy / noun)
    assert "depth is 3" in complaint("run", str(copy), "--depth", "9", code=USAGE)
    crawler("run", str(copy), "-q")
    assert "depth: 3\n" in (copy / "crawl.yaml").read_text()


def test_the_same_command_again_adds_nothing(tmp_path: Path) -> None:
    with world(Links({"/": []}), tmp_path) as w:
        w.crawl()
        before = sorted(path.name for path in (w.root / "seeds").iterdir())
        w.crawl()
        assert sorted(path.name for path in (w.root / "seeds").iterdir()) == before


def test_a_seed_that_fails_is_said_so_at_once(tmp_path: Path) -> None:
    with world(Links({"/": []}), tmp_path) as w:
        w.flags = []
        printed = w.run("http://127.0.0.1:9/", code=NOTHING)  # a port that nobody listens on, and browsers do not ask
        assert "excluded: http://127.0.0.1:9/ (bad-port" in printed


def test_a_new_store_needs_a_url(tmp_path: Path) -> None:
    assert "at least one URL" in complaint("run", str(tmp_path / "s"), code=USAGE)
    assert not (tmp_path / "s").exists()


def test_a_mount_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    assert "is the mount there?" in complaint("run", str(tmp_path / "gone" / "s"), "https://example.org/", code=STORE)
    assert "is the mount there?" in complaint("status", str(tmp_path / "gone"), code=STORE)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(
    os.geteuid() == 0 and not Path("/proc/sys").exists(), reason="needs a folder that even root cannot write"
)
def test_a_folder_that_cannot_be_written_is_named() -> None:
    said = complaint("run", "/proc/sys/store" if os.geteuid() == 0 else "/store", "https://example.org/", code=STORE)
    assert "store" in said


def test_a_link_to_a_store_that_is_not_there_is_named(tmp_path: Path) -> None:
    (tmp_path / "store").symlink_to(tmp_path / "mount" / "crawl")
    said = crawler("run", str(tmp_path / "store"), "http://a.example/", code=5)
    assert f"is a symbolic link to {tmp_path}/mount/crawl, which does not exist; is the mount there?" in said
    assert not (tmp_path / "mount").exists()


def test_a_file_where_the_store_should_be_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for command in (["run", str(tmp_path / "file"), "https://example.org/"], ["status", str(tmp_path / "file")]):
        assert "is a file, not a folder" in complaint(*command, code=STORE)


def test_a_file_where_a_folder_of_the_store_should_be_is_named(store: Path) -> None:
    (store / "workers").rename(store / "elsewhere")
    (store / "workers").write_text("")
    said = complaint("run", str(store), code=STORE)
    assert f"{store}/workers" in said and f"`crawler check {store} --repair`" in said


def test_a_folder_with_other_things_is_no_place_for_a_store(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("precious")
    said = complaint("run", str(tmp_path), "https://example.org/", code=STORE)
    assert "thesis.tex" in said
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_folder_that_is_no_store_has_no_status(tmp_path: Path) -> None:
    assert "is not a store" in complaint("status", str(tmp_path), code=STORE)
    assert "is not a store" in complaint("rehydrate", str(tmp_path), code=STORE)


@pytest.mark.parametrize("line", ["format: 1", "spelling: 1"])
def test_a_store_of_another_version_is_left_alone(store: Path, line: str) -> None:
    readme = store / "README"
    readme.write_text(readme.read_text().replace(line, line[:-1] + "99"))
    for command in ("run", "status", "rehydrate"):
        said = complaint(command, str(store), code=STORE)
        assert "99" in said
        assert "version" in said


@pytest.mark.parametrize(
    ("broken", "names"),
    [
        ("depth: [3", "not valid YAML"),
        ("- a\n- b\n", "setting: value"),
        ("dpeth: 3\n", "did you mean 'depth'"),
        ("depth: deep\n", "depth is 'deep'"),
        ("delay: soon\n", "duration"),
        ("scope: planet\n", "page, prefix, host, domain, any"),
        ("exclude: ['(']\n", "regular expression"),
    ],
)
def test_a_broken_crawl_yaml_is_named_with_what_is_wrong(store: Path, broken: str, names: str) -> None:
    (store / "crawl.yaml").write_text(broken)
    for command in ("run", "rehydrate"):
        said = complaint(command, str(store), code=USAGE)
        assert "crawl.yaml" in said
        assert names in said
    assert names in crawler("status", str(store)), "how it stands is told all the same"


def test_a_missing_crawl_yaml_is_named(store: Path) -> None:
    (store / "crawl.yaml").unlink()
    assert "crawl.yaml is missing" in complaint("run", str(store), code=STORE)


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo, lambda path: path.symlink_to("/etc/hostname")])
@pytest.mark.parametrize("command", [["run"], ["check", "--repair"]])
def test_a_crawl_yaml_that_is_no_file_is_restored_as_the_message_says(
    store: Path, make: Callable[[Path], None], command: list[str]
) -> None:
    before = (store / "crawl.yaml").read_bytes()
    (store / "crawl.yaml").unlink()
    make(store / "crawl.yaml")
    said = complaint(command[0], str(store), *command[1:], code=STORE)
    assert "--repair" not in said, "it would say the same"
    assert "remove it; `" in said
    (store / "crawl.yaml").rmdir() if make is Path.mkdir else (store / "crawl.yaml").unlink()
    subprocess.run(shlex.split(said.split("`")[1]), check=True)
    assert (store / "crawl.yaml").read_bytes() == before
    assert crawler("check", str(store), "--repair").startswith("no problems")


def test_a_readme_that_is_no_file_is_written_again_as_the_message_says(store: Path) -> None:
    (store / "README").unlink()
    (store / "README").mkdir()
    said = complaint("check", str(store), "--repair", code=STORE)
    assert f"remove it; `crawler run {store} URL` writes it again" in said
    (store / "README").rmdir()
    begin(store, {}, ["http://a.example/"], "me", lambda _: None)
    assert "a.example" in crawler("status", str(store))


@pytest.mark.parametrize(
    ("scope", "depth", "words"),
    [
        ("host", 0, "depth 0: no links are followed; `crawler set s depth=null` changes that"),
        ("page", None, "scope page: no links are followed; `crawler set s scope=any` changes that"),
        ("any", 1, "scope any: links are followed to all hosts of the web; `crawler set s scope=host` changes that"),
    ],
)
def test_a_run_says_which_links_it_follows(scope: str, depth: int | None, words: str) -> None:
    assert run_module._scope_line(Path("s"), scope, depth) == words


def test_what_cannot_change_once_the_store_is_made_is_named(store: Path) -> None:
    path = store / "crawl.yaml"
    path.write_text(path.read_text().replace("shards: 32", "shards: 64"))
    said = complaint("run", str(store), code=USAGE)
    assert "shards cannot change" in said
    assert "32" in said


@pytest.mark.parametrize(
    ("flags", "names"),
    [
        (["--depth", "5"], ["depth is 3", "5 was given"]),
        (["-s", "robots=false"], ["robots is true", "false was given"]),
        (["--no-robots"], ["robots is true", "false was given"]),
        (["--exclude", "x"], ["exclude is []", "[x] was given"]),
        (["--recrawl", "7d"], ["recrawl is null", "7d was given", "recrawl=7d"]),
        (["-s", "time_limit=90s"], ["time_limit is null", "90s was given", "time_limit=90s"]),
        (["-w", "2m"], ["delay is 0.01s", "2m was given", "delay=2m"]),
    ],
)
def test_a_later_flag_that_contradicts_the_store_names_both_values(
    store: Path, flags: list[str], names: list[str]
) -> None:
    said = complaint("run", str(store), *flags, code=USAGE)
    assert all(name in said for name in names), said


def test_a_later_flag_that_agrees_with_the_store_or_is_this_machines_own_is_welcome(store: Path) -> None:
    crawler("run", str(store), "--depth", "3", "-w", "10e-3", "-j", "1", "-t", "2", "--time-limit", "1h", "-q")


@pytest.mark.parametrize(
    ("flags", "names"),
    [
        (["--dpeth", "3"], "unknown option --dpeth; did you mean --depth?"),
        (["--frobnicate"], "unknown option --frobnicate; `crawler run --help` lists"),
        (["--depth", "-1"], "-1"),
        (["--depth", "much"], "'much'"),
        (["-s", "dpeth=3"], "unknown setting 'dpeth' in --set; did you mean 'depth'?"),
        (["-s", "depth"], "KEY=VALUE"),
        (["--time-limit", "soon"], "'soon'"),
        (["--time-limit", "0"], "'0' must be a duration of more than 0, such as 90s"),
        (["--max-size", "10X"], "'10X'"),
        (["-j", "0"], "'0'"),
        (["--connect-to", "here"], "HOST:PORT:ADDR:PORT"),
        (["-H", "no colon"], "Name: value"),
        (["--proxy", "nowhere"], "proxy"),
        (["-c", "/nowhere.yaml"], "/nowhere.yaml"),
        (["-i", "/nowhere.txt"], "/nowhere.txt"),
        (["--log-file", "/nowhere/log"], "/nowhere/log"),
        (["--proxy", "socks5://127.0.0.1:1080", "-s", "fetcher=requests"], "requests"),
        (["--proxy", "http://127.0.0.1:1", "--connect-to", "::127.0.0.1:1"], "proxy"),
        (["-s", "dead_after=1s"], "dead_after"),
        (["-U", "Bööt/1"], "ASCII"),
        (["-s", "spread=url", "--max-per-host", "3"], "max_per_host needs spread: domain or host"),
    ],
)
def test_a_wrong_flag_is_named_and_nothing_is_made(tmp_path: Path, flags: list[str], names: str) -> None:
    said = complaint("run", str(tmp_path / "s"), "https://example.org/", *flags, code=USAGE)
    assert names in said
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize(
    ("flag", "wanted"),
    [
        (["--config"], "a YAML file of settings"),
        (["-i"], "a text file with one URL a line"),
        (["--template", "http://x/{a}", "--from"], "a CSV table"),
    ],
)
def test_a_file_that_cannot_be_read_is_named_without_words_of_python(
    tmp_path: Path, flag: list[str], wanted: str
) -> None:
    binary = tmp_path / "binary"
    binary.write_bytes(b"\x7fELF\xff\xfe\0")
    for file, why in [
        (binary, "is not text in UTF-8"),
        (tmp_path, "cannot be read (Is a directory)"),
        (tmp_path / "none", "cannot be read (No such file or directory)"),
    ]:
        said = complaint("run", str(tmp_path / "s"), *flag, str(file), code=USAGE)
        assert said == f"crawler: {file} {why}; name {wanted}"


def test_an_unknown_command_is_a_question_of_usage() -> None:
    assert "unknown command 'statsu'; did you mean 'status'?" in complaint("statsu", "x", code=USAGE)
    assert "unknown command 'x'; `crawler help` lists" in complaint("x", code=USAGE)
    assert "unknown option --verison; did you mean --version?" in complaint("--verison", code=USAGE)


def test_an_argument_that_a_command_does_not_take_is_named(tmp_path: Path) -> None:
    assert "unexpected argument 'more'" in complaint("status", str(tmp_path), "more", code=USAGE)
    said = complaint("serve", str(tmp_path), "8200", code=USAGE)
    assert "unexpected argument '8200'; did you mean --port 8200?" in said


def test_settings_may_come_from_a_file_and_flags_count_more(tmp_path: Path) -> None:
    (tmp_path / "settings.yaml").write_text("depth: 7\ndelay: 0.01\nmax_size: 5M\n")
    with world(Links({"/": []}), tmp_path) as w:
        w.run(*w.web.seeds(), "-c", str(tmp_path / "settings.yaml"), "--depth", "2", quick=False)
        made = (w.root / "crawl.yaml").read_text()
    assert "depth: 2\n" in made
    assert "delay: 0.01\n" in made
    assert "max_size: 5242880\n" in made


def test_robots_that_are_not_obeyed_are_warned_of(tmp_path: Path) -> None:
    with world(Links({"/": []}), tmp_path) as w:
        assert "robots.txt is not obeyed" in w.crawl("--no-robots")
        assert all(request.path != "/robots.txt" for request in w.log)


def test_a_closed_pipe_is_no_error(store: Path) -> None:
    command = " ".join([*COMMAND, "status", str(store), "--json"])
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command} | true"], capture_output=True, text=True, check=False
    )
    assert "Traceback" not in done.stderr
    assert "BrokenPipe" not in done.stderr


def test_private_hosts_are_refused_unless_the_user_named_them(tmp_path: Path) -> None:
    with world(Links({"/": []}), tmp_path) as w:
        w.flags = []
        inside = f"http://127.0.0.1:{w.port}/"
        w.run(inside)  # a seed that names a private address allows that host
        assert [record["status"] for record in w.records()] == []  # this web knows no such host: it answers 404
        assert w.records("errs")[0]["reason"] == "http-404"
        w.root = tmp_path / "second"
        w.run(f"http://localhost.localdomain:{w.port}/")
        assert w.records("errs")[0]["reason"] in ("private-address", "dns")


@pytest.mark.fleet  # for time
def test_names_and_lines_that_are_not_ours_are_passed_over(tmp_path: Path) -> None:
    with world(Links({"/": ["/a"], "/a": []}), tmp_path) as w:
        short = ("-s", "dead_after=3s")  # one of the names is a worker's, who never comes
        w.run("--depth", "3", *short, *w.web.seeds())
        before = {path.name for path in tmp_path.iterdir()}
        for folder in ("links", "errs", "htmls", "robots"):
            for name in (b"\xff\xfe", b"A.EXAMPLE", b"with space", b"-x", "häuser".encode()):
                Path(os.fsdecode(os.fsencode(w.root / folder) + b"/" + name)).mkdir()
        for folder in ("workers", "shards", "seeds"):
            for name in (b"\xff@\xfe", b"x@1.\xff", b"@", b"999@x"):
                Path(os.fsdecode(os.fsencode(w.root / folder) + b"/" + name)).write_bytes(b"http://../x\n")
        hosts = ["..", ".", "", "A.EXAMPLE", "a" * 300, "x\0y", "-x", "a.example.", "[::1]x", "a.example:0"]
        (w.root / "frontier" / "000" / "hand-made.1").write_text(
            "".join(f"0\t0\t0\thttp://{host}/planted\n" for host in hosts) + "0\t0\t0\thttp://a.example/b\n"
        )
        w.run(*short)
        assert {path.name for path in tmp_path.iterdir()} == before
        assert w.urls() | w.urls("errs") == {w.web.url("/"), w.web.url("/a"), w.web.url("/b")}
        crawler("status", str(w.root), "-v")
        crawler("rehydrate", str(w.root))
        w.run(*short)


@pytest.mark.parametrize("kind", ["missing", "a folder", "a FIFO", "no certificates", "empty"])
def test_certificates_that_cannot_be_read_are_a_mistake_and_no_failure_of_each_url(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    named = tmp_path / "trusted.pem"
    make: dict[str, Callable[[], object]] = {"a folder": named.mkdir, "a FIFO": lambda: os.mkfifo(named)}
    make |= {"no certificates": lambda: named.write_text("-----BEGIN\n"), "empty": named.touch}
    make.get(kind, lambda: None)()
    monkeypatch.setenv("SSL_CERT_FILE", str(named))
    for fetcher in ("curl", "requests"):
        said = crawler("run", str(tmp_path / "store"), "https://a.example/", "-s", f"fetcher={fetcher}", code=2)
        assert said.startswith(f"crawler: SSL_CERT_FILE: {named} cannot be used (") and said.count("\n") == 1, said
        assert not (tmp_path / "store").exists()


@pytest.mark.parametrize(("workers", "is_told"), [(2, False), (16, False), (17, True), (1000, True)])
def test_far_more_workers_than_cores_are_warned_of(workers: int, is_told: bool) -> None:
    settings = Settings(user_agent="mybot/1 (+https://example.org/bot)")
    assert any("workers on 2 cores" in said for said in run_module._warnings(settings, workers, 2)) == is_told


def test_by_default_there_is_a_worker_for_each_core_that_the_process_may_use() -> None:
    program = f"""
import os
os.sched_setaffinity(0, {{{min(os.sched_getaffinity(0))}}})
from crawler.commands.arguments import WORKERS
print(WORKERS["default"])
"""
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout == "1\n"
