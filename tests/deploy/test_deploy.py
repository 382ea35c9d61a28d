"""What people launch it with: the compose file, the Dockerfile, the Job and the Makefile do what they say.

Here without an engine; tests/deploy/test_containers.py has one.
"""

from __future__ import annotations

import json
import os
import random
import re
import shlex
import shutil
import socket
import subprocess
import sys
import time
import venv
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from lab.world import LONG

from crawler import __version__, errors
from crawler.commands import main
from crawler.commands import run as crawl
from crawler.commands.arguments import normalize_seed
from crawler.fetch.trust import read_secrets
from crawler.settings import values
from crawler.settings.settings import Settings

TOP = Path(__file__).parents[2]
COMPOSE = yaml.safe_load((TOP / "docker-compose.yml").read_text("utf-8"))
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]


def dockerfile() -> list[tuple[str, str]]:
    """The steps of the Dockerfile: instruction and what follows it."""
    text = re.sub(r"^\s*#.*\n", "", (TOP / "deploy/Dockerfile").read_text("utf-8"), flags=re.MULTILINE)
    lines = text.replace("\\\n", " ").splitlines()
    return [(word.upper(), rest.strip()) for word, _, rest in (line.partition(" ") for line in lines) if word]


def rest_of(instruction: str) -> list[str]:
    return [rest for word, rest in dockerfile() if word == instruction]


def environment(first: Path | None = None) -> dict[str, str]:
    """Ours, but with nothing of the Python that runs this test; `first` leads the PATH."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    return kept | {"PATH": os.pathsep.join([str(first or Path(sys.executable).parent), kept.get("PATH", os.defpath)])}


def healthcheck(service: str) -> list[str]:
    kind, *command = SERVICES[service]["healthcheck"]["test"]
    return ["sh", "-c", *command] if kind == "CMD-SHELL" else command


# ---- docker-compose.yml


@pytest.mark.parametrize("file", ["docker-compose.yml", "deploy/compose.nfs.yml"])
def test_the_compose_files_fit_the_compose_specification(file: str) -> None:
    checked_by("check-jsonschema", "--builtin-schema=vendor.compose-spec", file)


def checked_by(program: str, *args: str) -> None:
    """A program of the development environment finds no fault."""
    done = subprocess.run([program, *args], cwd=TOP, env=environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("service", SERVICES)
def test_every_command_of_the_compose_file_is_one_that_the_program_understands(service: str) -> None:
    command = SERVICES[service]["command"]
    options = main.read(command if isinstance(command, list) else shlex.split(command))
    if options.command is crawl.run_crawl:
        crawl.given_settings(options)
        assert [normalize_seed(url, ()) for url in options.urls] == options.urls


def test_every_crawler_writes_into_the_one_shared_volume() -> None:
    crawlers = [service for service in SERVICES.values() if service["command"][0] == "run"]
    assert crawlers
    for service in crawlers:
        volume, place = service["volumes"][0].split(":")
        assert volume in COMPOSE["volumes"]
        assert main.read(service["command"]).store == Path(place)
        assert place in rest_of("VOLUME")


def test_all_services_are_built_alike_stopped_gently_and_watched() -> None:
    for service in SERVICES.values():
        assert "image" not in service  # two services that build one tag at once get in each other's way
        assert service["build"] == {"context": ".", "dockerfile": "deploy/Dockerfile"}
        assert service["init"] is True
        assert service["stop_grace_period"] == "10s"
        assert service["healthcheck"]["test"]


def test_nothing_in_the_compose_file_waits_for_a_service_or_name_that_is_not_there() -> None:
    assert set(SERVICES["crawler"]["depends_on"]) <= set(SERVICES)
    (rule,) = main.read(SERVICES["crawler"]["command"]).connect_to
    _, _, name, port = rule.split(":")
    assert SERVICES[name]["command"][-1].endswith(f":{port}")


def test_no_service_has_more_than_it_needs() -> None:
    for name, service in SERVICES.items():
        assert service["read_only"] is True and service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert service["tmpfs"] == ["/tmp:size=256m,mode=1777"], "$TMPDIR is the only other place to write to"
        assert service["mem_limit"] in ("1g", "2g") and 512 <= service["pids_limit"] <= 8192
    workers = main.read(SERVICES["crawler"]["command"]).workers
    assert values.size(SERVICES["crawler"]["mem_limit"].upper()) >= workers * 0.9e9, "what a worker may need"


def test_secrets_reach_a_container_by_a_file_that_the_program_accepts(tmp_path: Path) -> None:
    """As in the comments of the compose file: uncommented, it fits the specification and names one file."""
    text = re.sub(r"(?m)^( *)# (- --secrets=|secrets:|  crawler: )", r"\1\2", (TOP / "docker-compose.yml").read_text())
    (tmp_path / "compose.yml").write_text(text)
    checked_by("check-jsonschema", "--builtin-schema=vendor.compose-spec", str(tmp_path / "compose.yml"))
    read = yaml.safe_load(text)
    crawler = read["services"]["crawler"]
    assert read["secrets"].keys() == set(crawler["secrets"]) == {"crawler"}
    assert main.read(crawler["command"]).secrets == "/run/secrets/crawler"


def test_the_job_gets_its_secrets_from_a_secret_that_the_program_accepts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, secret, job, _ = kubernetes()
    pod = job["spec"]["template"]["spec"]
    options = main.read(pod["containers"][0]["args"])
    mount = next(found for found in pod["containers"][0]["volumeMounts"] if found["name"] == "secrets")
    volume = next(found["secret"] for found in pod["volumes"] if found["name"] == "secrets")
    assert volume["secretName"] == secret["metadata"]["name"]
    (name,) = secret["stringData"]
    assert options.secrets == f"{mount['mountPath']}/{name}"
    file = tmp_path / name
    file.write_text(secret["stringData"][name])
    file.chmod(volume["defaultMode"])  # root's own, read by fsGroup
    shutil.chown(file, 0, pod["securityContext"]["fsGroup"])
    monkeypatch.setattr("crawler.fetch.trust.os.geteuid", lambda: pod["securityContext"]["runAsUser"])
    assert read_secrets(str(file)) == {"allow_private": False}
    file.chmod(0o444)
    with pytest.raises(errors.UsageError, match="mode 0444"):
        read_secrets(str(file))


@pytest.fixture
def served() -> Iterator[int]:
    """The port of the service `web`, running on this machine and found healthy by its own check."""
    port = free_port()
    command = [word.replace("0.0.0.0:8000", f"127.0.0.1:{port}") for word in SERVICES["web"]["command"]]
    check = [word.replace(":8000/", f":{port}/") for word in healthcheck("web")]
    web = subprocess.Popen([sys.executable, "-m", "crawler", *command], env=environment(), stdout=subprocess.DEVNULL)
    try:
        wait_for(check)
        yield port
    finally:
        web.terminate()
        web.wait(LONG)


def free_port() -> int:
    """A free port below those that the kernel hands out, so that no test beside this one gets it meanwhile."""
    while True:
        port = random.randrange(20_000, 30_000)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


def wait_for(check: list[str]) -> None:
    end = time.monotonic() + LONG
    while (done := subprocess.run(check, env=environment(), capture_output=True, text=True)).returncode:
        assert time.monotonic() < end, f"never healthy: {done.stderr}"
        time.sleep(0.2)


def test_three_crawlers_of_the_compose_file_share_a_store_and_give_it_back_before_docker_would_kill_them(
    served: int, tmp_path: Path
) -> None:
    def here(words: list[str]) -> list[str]:
        # A name, not an address: in the container network `web` is one, too, and leads to a private address.
        return [word.replace("web:8000", f"localhost:{served}").replace("/store", str(store)) for word in words]

    store = tmp_path / "store"
    store.mkdir()
    command = [sys.executable, "-m", "crawler", *here(SERVICES["crawler"]["command"])]
    crawlers = [subprocess.Popen(command, env=environment(), stdout=subprocess.DEVNULL) for _ in range(3)]
    try:
        wait_for(here(healthcheck("crawler")))
        wait_for(["sh", "-c", f"crawler status {shlex.quote(str(store))} | grep -qE '^machines +3( |$)'"])
        wait_for(["sh", "-c", f"! ls {shlex.quote(str(store))}/shards | grep -q @free"])
        for crawler in crawlers:
            crawler.terminate()
        grace = values.duration(SERVICES["crawler"]["stop_grace_period"])
        assert [crawler.wait(grace) for crawler in crawlers] == [errors.STOPPED] * 3
        assert all(name.endswith("@free") for name in os.listdir(store / "shards"))
    finally:
        for crawler in crawlers:
            crawler.kill()
            crawler.wait()


# ---- Dockerfile


def test_the_dockerfile_has_no_fault_that_hadolint_knows() -> None:
    checked_by("hadolint", "deploy/Dockerfile")


def test_the_image_has_a_pinned_base_and_runs_the_program_as_somebody_who_is_not_root() -> None:
    (base,) = rest_of("FROM")
    assert re.fullmatch(r"python:3\.\d+\.\d+-slim-\w+", base)
    assert not rest_of("USER")[-1].startswith(("0", "root"))
    assert json.loads(rest_of("ENTRYPOINT")[0]) == ["crawler"]
    words = [word for word, _ in dockerfile()]
    assert words.index("VOLUME") > max(place for place, word in enumerate(words) if word == "RUN")


def test_the_dockerignore_lets_through_what_the_dockerfile_copies_and_nothing_else() -> None:
    lines = (TOP / ".dockerignore").read_text("utf-8").split()
    copied = {source for rest in rest_of("COPY") for source in shlex.split(rest)[:-1]}
    assert "*" in lines
    assert {line[1:] for line in lines if line.startswith("!")} == copied


def test_the_image_installs_nothing_but_the_package_itself_without_a_hash_of_the_lock() -> None:
    locked, package = (rest.split() for rest in rest_of("RUN") if rest.startswith("pip "))
    assert {"--require-hashes", "--only-binary=:all:", "requirements.lock"} <= set(locked)
    assert {"--no-deps", "."} <= set(package)


def build(made: Path, context: Path) -> Path:
    """What the Dockerfile's COPY and `RUN pip` make, in an empty venv instead of a container: its bin folder."""
    context.mkdir()
    venv.create(made)
    pip = [rest for word, rest in dockerfile() if word == "RUN" and rest.startswith("pip ")]
    assert pip, "the Dockerfile installs nothing"
    quickly = {"PIP_PYTHON": str(made / "bin/python"), "PIP_NO_COMPILE": "1", "PIP_RETRIES": "10"}
    for word, rest in dockerfile():
        if word == "COPY":
            copy(shlex.split(rest), context)
        elif rest in pip:
            done = subprocess.run(
                ["sh", "-c", rest], cwd=context, env=environment() | quickly, capture_output=True, text=True
            )
            assert done.returncode == 0, done.stdout + done.stderr
    shutil.rmtree(context)
    return made / "bin"


def copy(words: list[str], context: Path) -> None:
    """COPY, as Docker does it: files into a folder, a folder's contents into the named one."""
    *sources, target = words
    for source in sources:
        if (TOP / source).is_dir():
            ignore = shutil.ignore_patterns("__pycache__")
            shutil.copytree(TOP / source, context / target, dirs_exist_ok=True, ignore=ignore)
        else:
            shutil.copy(TOP / source, context / target)


@pytest.mark.slow
@pytest.mark.fleet
def test_the_dockerfiles_steps_give_a_program_that_crawls_in_an_empty_environment(tmp_path: Path) -> None:
    image = build(tmp_path / "image", tmp_path / "src")

    def run(*words: str) -> str:
        done = subprocess.run(words, cwd=tmp_path, env=environment(image), capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    assert run(str(image / "crawler"), "--version") == f"crawler {__version__}\n"
    assert run(str(image / "python"), "-m", "crawler", "--version") == f"crawler {__version__}\n"
    small = ("--hosts", "5", "--pages", "40", "--workers", "1")
    assert "every page is there" in run(str(image / "crawler"), "demo", "store", *small)


# ---- Kubernetes


def test_kubernetes_would_take_every_resource_as_it_is_written() -> None:
    checked_by("kubernetes-validate", "--strict", "deploy/kubernetes.yaml")


def test_the_job_runs_commands_that_the_program_understands_on_the_claim_that_is_made_with_it() -> None:
    claim, _, job, view = kubernetes()
    for made in (job, view):
        pod = made["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        assert container["image"].endswith(f"/folder-crawler:{__version__}")
        options = main.read(container["args"])
        (mount,) = (mount for mount in container["volumeMounts"] if mount["mountPath"] == str(options.store))
        (volume,) = (volume for volume in pod["volumes"] if volume["name"] == mount["name"])
        assert volume["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]


def kubernetes() -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((TOP / "deploy/kubernetes.yaml").read_text("utf-8")))


def test_the_job_goes_on_after_a_stop_gives_up_what_cannot_work_and_ends_with_the_crawl() -> None:
    spec = kubernetes()[2]["spec"]
    rules = [rule for rule in spec["podFailurePolicy"]["rules"] if "onExitCodes" in rule]
    actions = {code: rule["action"] for rule in rules for code in rule["onExitCodes"]["values"]}
    hopeless = dict.fromkeys((errors.USAGE, errors.STORE, errors.NOTHING), "FailJob")
    assert actions == hopeless | {errors.STOPPED: "Ignore"}
    assert {rule["onExitCodes"]["containerName"] for rule in rules} == {
        spec["template"]["spec"]["containers"][0]["name"]
    }
    assert "completions" not in spec  # with it, so many pods would have to end with 0 one after another
    command = main.read(spec["template"]["spec"]["containers"][0]["args"])
    assert command.command is crawl.run_crawl
    assert spec["template"]["spec"]["terminationGracePeriodSeconds"] > Settings(**crawl.given_settings(command)).timeout


# ---- Makefile


def test_make_alone_lists_every_target_with_what_it_does_and_does_nothing_else() -> None:
    make = shutil.which("make")
    if not make:
        pytest.skip("make is not here")
    done = subprocess.run([make, "--no-print-directory"], cwd=TOP, env=environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    listed = dict(re.findall(r"^  make (\w+) +(\S.*)$", done.stdout, re.MULTILINE))
    text = (TOP / "Makefile").read_text("utf-8")
    assert set(listed) == set(re.findall(r"^([a-z]+):(?!=)", text, re.MULTILINE))
    assert {"venv", "demo", "test", "check", "clean"} <= set(listed)
    assert len(done.stdout.splitlines()) == len(listed)


LUCK = """
import os
def test_a(): pass
def test_b(): assert "PYTEST_XDIST_WORKER" not in os.environ, "beside others"
def test_c(): assert {always}
"""


@pytest.mark.parametrize(
    ("args", "always", "code", "again", "chance"),
    [
        ("-k test_a", True, 0, "", "not needed"),
        ("", True, 0, "test_b", "needed by 1 tests: tests/test_luck.py::test_b"),
        (
            "-v",
            False,
            1,
            "test_b test_c",
            "needed by 2 tests: tests/test_luck.py::test_b tests/test_luck.py::test_c",
        ),
        ("--no-such-flag", True, 4, "", "not given, as pytest ended with 4"),
    ],
    ids=["no need", "luck", "some luck", "no tests"],
)
def test_what_fails_beside_others_has_one_more_chance_alone(
    tmp_path: Path, args: str, always: bool, code: int, again: str, chance: str
) -> None:
    make = shutil.which("make")
    if not make:
        pytest.skip("make is not here")
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/test_luck.py").write_text(LUCK.format(always=always))
    (tmp_path / "pyproject.toml").write_text('[tool.pytest.ini_options]\ntestpaths = ["tests"]\naddopts = "-q"\n')
    (tmp_path / ".venv/bin").mkdir(parents=True)
    (tmp_path / ".venv/bin/python").write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n')
    (tmp_path / ".venv/bin/python").chmod(0o755)
    (tmp_path / ".venv/.ready").touch()
    kept = {name: value for name, value in environment().items() if not name.startswith(("PYTEST", "MAKE"))}
    command = [
        make,
        "--no-print-directory",
        "-f",
        str(TOP / "Makefile"),
        "test",
        f"ARGS=-n 1 -p no:hypothesispytest {args}",
    ]
    done = subprocess.run(command, cwd=tmp_path, env=kept, capture_output=True, text=True)
    assert done.returncode == (2 if code else 0), done.stdout + done.stderr
    assert f"Error {code}" in done.stderr or not code
    names = [f"tests/test_luck.py::{name}" for name in again.split()]
    told = "\n".join([f"{len(names)} tests failed beside others; they run again alone:", *names, ""])
    assert told in done.stdout if again else "run again" not in done.stdout
    assert done.stdout.splitlines()[-1] == f"second chance: {chance}"


def test_what_continuous_integration_runs_is_a_program_and_calls_the_targets_that_exist() -> None:
    run = TOP / ".ci/run"
    assert os.access(run, os.X_OK)
    assert subprocess.run(["bash", "-n", str(run)]).returncode == 0
    called = [line for line in run.read_text("utf-8").splitlines() if line.startswith(("make ", "timeout 40m make "))]
    assert called[:2] == ["make venv", "make check test"]
    assert called[2] == 'make pythons PYTHONS="3.12 3.13 3.14"'
    assert called[3:6] == ["make simulate SEEDS=200", "make mutants", "make model"]  # each of them a gate
    assert called[6].startswith("timeout 40m make fleet ")
