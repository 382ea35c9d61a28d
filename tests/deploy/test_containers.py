"""The image and the compose file in a real Docker, from the build to the end of the crawl; and what a pod would run."""

from __future__ import annotations

import json
import os
import re
import sys
from typing import Any

import pytest
import yaml
from lab.machines.engine import TOP, Engine, engine, wait_for

from crawler import errors
from crawler.commands.demo.demo import SEED
from crawler.commands.demo.expected import compare
from crawler.commands.demo.web import DemoWeb

STORE = "folder-crawler_store"
TOKEN = "0123456789abcdef0123456789abcdef"
ASK = (
    "from urllib.request import Request, urlopen; "
    f"request = Request('http://127.0.0.1:8080{{}}', headers={{{{'Authorization': 'Bearer {TOKEN}'}}}}); "
    "print(urlopen(request, timeout=60).read().decode())"
)
NFS = ("-f", "docker-compose.yml", "-f", "deploy/compose.nfs.yml")
JOB, VIEW = (
    found["spec"]["template"]["spec"]
    for found in yaml.safe_load_all((TOP / "deploy/kubernetes.yaml").read_text("utf-8"))
    if found["kind"] in ("Job", "Deployment")
)


@pytest.mark.fleet
def test_what_is_launched_in_containers_works_in_a_real_docker() -> None:
    base = re.findall(r"^FROM (\S+)", (TOP / "deploy/Dockerfile").read_text("utf-8"), re.MULTILINE)[0]
    with engine(base) as made:
        the_compose_files_are_read_as_they_are_meant(made)
        made.compose("build", "--quiet")
        try:
            three_machines_share_a_crawl_and_give_it_back_in_time(made)
            the_same_command_brings_it_to_its_end(made)
            what_a_pod_runs_needs_no_more_than_the_pod_gives(made)
        finally:
            made.compose("down", "--volumes", "--timeout=1")


def the_compose_files_are_read_as_they_are_meant(made: Engine) -> None:
    made.compose("config", "--quiet")
    assert "set NFS_SERVER to" in made.docker("compose", *NFS, "config", code=15, NFS_PATH="/export/crawl")
    assert "set NFS_PATH to" in made.docker("compose", *NFS, "config", code=15, NFS_SERVER="files.example.org")
    read = yaml.safe_load(made.compose(*NFS, "config", NFS_SERVER="files.example.org", NFS_PATH="/export/crawl"))
    assert read["volumes"]["store"]["driver_opts"]["device"] == ":/export/crawl"
    assert "addr=files.example.org," in read["volumes"]["store"]["driver_opts"]["o"]
    mounts = {name: service.get("volumes", []) for name, service in read["services"].items()}
    expected = {"type": "volume", "source": "store", "target": "/store", "volume": {"nocopy": True}}
    assert mounts == {"web": [], "crawler": [expected], "view": [expected | {"read_only": True}]}


def three_machines_share_a_crawl_and_give_it_back_in_time(made: Engine) -> None:
    made.compose(
        "up", "--detach", "--no-deps", "view", CRAWLER_TOKEN=TOKEN
    )  # too early: it is started again until there is a store
    made.compose("up", "--detach", "--scale=crawler=3", "crawler", CRAWLER_TOKEN=TOKEN)
    wait_for(lambda: is_healthy(made, "crawler", 3) and owners(made) >= 3, "three machines hold shards")
    wait_for(lambda: is_healthy(made, "view", 1), "the web view shows them")
    seen = made.on_the_host(sys.executable, "-c", ASK.format("/api/now"))
    assert len(json.loads(seen.stdout)["machines"]) == 3, seen.stderr
    assert re.search("^machines +3", made.compose("run", "--rm", "--no-deps", "crawler", "status", "/store"), re.M)
    made.compose("stop", "crawler")
    assert codes(made) == [errors.STOPPED] * 3  # killed after the grace period it would be 137
    assert owners(made) == 0


def the_same_command_brings_it_to_its_end(made: Engine) -> None:
    made.compose("up", "--detach", "--scale=crawler=3", CRAWLER_TOKEN=TOKEN)
    wait_for(lambda: all(state["Status"] == "exited" for state in made.states("crawler")), "the crawl is over")
    assert codes(made) == [errors.OVER] * 3
    assert compare(DemoWeb(seed=SEED).expected(), made.volume(STORE)) == []
    assert is_healthy(made, "view", 1)


def what_a_pod_runs_needs_no_more_than_the_pod_gives(made: Engine) -> None:
    """No init, nothing to write to but the claim and /tmp; there is no name server, so nobody is asked."""
    made.docker("run", "--detach", "--name=pod", *as_pod(JOB, "/tmp", "job"))
    wait_for(lambda: owners(made, "job"), "the pod holds shards")
    made.docker("run", "--detach", "--name=view", *as_pod(VIEW, "", "job"))
    wait_for(lambda: "serving" in made.docker("logs", "view"), "the web view listens")
    made.docker("exec", "view", "python", "-c", ASK.format("/healthz"))
    made.docker("stop", f"--time={JOB['terminationGracePeriodSeconds']}", "pod")
    assert made.docker("inspect", "--format={{.State.ExitCode}}", "pod").strip() == str(errors.STOPPED)
    assert owners(made, "job") == 0
    made.docker("rm", "--force", "pod", "view")


def as_pod(spec: dict[str, Any], writable: str, volume: str) -> list[str]:
    """What Docker is told to treat a container as Kubernetes would treat it in this pod."""
    (container,) = spec["containers"]
    who, may = spec["securityContext"], container["securityContext"]
    assert may == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    flags = ["--read-only", "--cap-drop=ALL", "--security-opt=no-new-privileges"]
    flags += [f"--user={who['runAsUser']}:{who['runAsGroup']}", f"--volume={volume}:/store"]
    flags += [f"--memory={container['resources']['limits']['memory'].removesuffix('i')}", f"--hostname={volume}"]
    flags += [f"--tmpfs={mount['mountPath']}" for mount in container["volumeMounts"] if mount["mountPath"] == writable]
    args = [word for word in container["args"] if not word.startswith("--secrets=")]  # tests/deploy/test_deploy.py
    return [*flags, "folder-crawler-crawler", *args]


def is_healthy(made: Engine, service: str, count: int) -> bool:
    """Whether so many containers of a service run, and are found healthy by their own check."""
    states: list[Any] = made.states(service)
    return [state.get("Health", {}).get("Status") for state in states if state["Running"]] == ["healthy"] * count


def codes(made: Engine) -> list[object]:
    return [state["ExitCode"] for state in made.states("crawler")]


def owners(made: Engine, volume: str = STORE) -> int:
    """How many workers hold shards."""
    names = os.listdir(shards) if (shards := made.volume(volume) / "shards").is_dir() else []
    return len({name.partition("@")[2] for name in names} - {"free"})
