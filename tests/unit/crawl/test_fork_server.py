"""The fork server: what is forked from it, what it tells of that, and when there is none."""

from __future__ import annotations

import subprocess
import sys
from textwrap import dedent

HEAD = """
import os, signal, sys, threading, time
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from crawler.crawl import child, fork_server

def load(): pass
def name(pid): return Path(f"/proc/{pid}/comm").read_text().strip()
def is_dead(pid):
    stat = Path(f"/proc/{pid}/stat")
    return not stat.exists() or ") Z " in stat.read_text()
def started():
    pool = child.make_pool(int)
    child.submit(pool, os.getpid).result()
    (process,) = pool._processes.values()
    return pool, process
def ended(process):
    process.join(30)
    return process.exitcode
"""


def run(script: str) -> str:
    """What a program prints that has no threads of its own, as pytest has."""
    done = subprocess.run(
        [sys.executable, "-c", HEAD + dedent(script)], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout


def test_a_worker_is_forked_from_the_fork_server_and_not_from_the_program() -> None:
    assert (
        run("""
        with fork_server.running(load):
            pool, process = started()
            print(child.submit(pool, os.getppid).result() == fork_server.current().pid != os.getpid())
            print(name(fork_server.current().pid))
            pool.shutdown()
        print(fork_server.current())
        """)
        == "True\ncrawl-fork\nNone\n"
    )


def test_the_exit_codes_of_workers_are_passed_on() -> None:
    assert (
        run("""
        with fork_server.running(load):
            for number in (signal.SIGSEGV, signal.SIGKILL):
                pool, process = started()
                os.kill(process.pid, number)
                print(ended(process))
            pool, process = started()
            pool.shutdown()
            print(ended(process))
        """)
        == "-11\n-9\n0\n"
    )


def test_workers_end_with_their_fork_server_and_then_new_ones_are_new_interpreters() -> None:
    assert (
        run("""
        with fork_server.running(load):
            pool, process = started()
            os.kill(fork_server.current().pid, signal.SIGKILL)
            print(ended(process))
            while not is_dead(process.pid): time.sleep(0.01)
            print(fork_server.current())
            pool, process = started()
            print(child.submit(pool, os.getppid).result() == os.getpid())
            pool.shutdown()
        """)
        == "255\nNone\nTrue\n"
    )


def test_a_program_with_threads_begins_no_fork_server() -> None:
    assert (
        run("""
        waiting = threading.Event()
        threading.Thread(target=waiting.wait).start()
        with fork_server.running(load):
            print(fork_server.current())
        waiting.set()
        """)
        == "None\n"
    )


def test_what_is_not_printed_yet_is_printed_once() -> None:
    assert (
        run("""
        print("once")
        with fork_server.running(load):
            pool, process = started()
            pool.shutdown()
        """)
        == "once\n"
    )


def test_a_fork_server_that_cannot_load_its_code_leaves_that_to_the_workers() -> None:
    assert (
        run("""
        def load(): raise ImportError("no such module")
        with fork_server.running(load):
            pool, process = started()
            print(child.submit(pool, os.getppid).result() == fork_server.current().pid)
            pool.shutdown()
        """)
        == "True\n"
    )


def test_signals_to_the_group_reach_neither_fork_server_nor_workers() -> None:
    assert (
        run("""
        os.setsid()
        for number in child.SIGNALS:
            signal.signal(number, lambda *_: None)
        with fork_server.running(load):
            for number in child.SIGNALS:
                os.killpg(0, number)
            pool, process = started()
            for number in child.SIGNALS:
                os.killpg(0, number)
            print(child.submit(pool, os.getpid).result() == process.pid)
            pool.shutdown()
            print(ended(process))
        """)
        == "True\n0\n"
    )


def test_all_threads_that_wait_for_a_worker_get_its_exit_code() -> None:
    assert (
        run("""
        from crawler.crawl.forked import Process
        with fork_server.running(load):
            for _ in range(20):
                process, seen = Process(target=os._exit, args=(7,)), []
                process.start()
                poll = process._popen.poll
                waiting = [threading.Thread(target=lambda: seen.append(poll(0))) for _ in range(4)]
                for thread in waiting: thread.start()
                for thread in waiting: thread.join()
                assert seen == [7] * 4, seen
        """)
        == ""
    )


def test_what_workers_need_is_loaded_once_and_no_more_than_that() -> None:
    loaded = set(
        run("""
        from crawler.crawl.process import load_workers
        with fork_server.running(lambda: (load_workers(), print(*sys.modules))):
            started()[0].shutdown()
        """).split()
    )
    assert loaded >= {"turbohtml", "pycurl", "certifi", "crawler.crawl.forked", "multiprocessing.sharedctypes"}
    assert not loaded & {"yaml", "filelock", "requests", "urllib3", "bs4", "email", "http.client"}
