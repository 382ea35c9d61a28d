"""A SLURM cluster for tests: a real controller and real nodes, each with processes and a host name of its own."""

from __future__ import annotations

import os
import re
import secrets
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from lab.databases import free_port
from lab.machines.mounts import TIED
from lab.machines.network import missing
from lab.world import LONG, wait_for

NODES = 2
# The time after which a job that was queued again may start is that of the credentials: two minutes elsewhere.
# Jobs of `first` preempt the others: those of `soon` at once, and Slurm queues them again; those of `later` have a
# grace time, and Slurm does not.
CONFIGURATION = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
CommunicationParameters=NoCtldInAddrAny
SlurmUser=root
AuthInfo=socket={folder}/munge,cred_expire=5
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/%n
SlurmctldPidFile={folder}/controller.pid
SlurmdPidFile={folder}/%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=sched_interval=2,bf_interval=2,batch_sched_delay=0
MessageTimeout=60
SlurmdTimeout=300
KillWait=120
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
{nodes}
PartitionName=soon Nodes=ALL Default=YES PriorityTier=1
PartitionName=later Nodes=ALL PriorityTier=1 GraceTime=120 PreemptMode=CANCEL
PartitionName=first Nodes=ALL PriorityTier=2
"""


def skip_reason() -> str | None:
    """Why there can be no cluster here, in a sentence; None when there can."""
    if os.geteuid() != 0:
        return "its daemons need root"
    return missing("slurmctld", "slurmd", "sbatch", "munged", "setpriv", "unshare")


class Cluster:
    """What a user of the cluster does."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"], "/usr/sbin"])
        self.environment = {**os.environ, "PATH": path, "SLURM_CONF": str(folder / "slurm.conf")}

    def run(self, *command: str, **environment: str) -> str:
        """A command that must succeed; what it printed."""
        done = subprocess.run(
            command, env=self.environment | environment, capture_output=True, text=True, timeout=LONG, check=False
        )
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout

    def submit(self, *command: str, **environment: str) -> str:
        """sbatch; the number of the job."""
        return self.run("sbatch", "--parsable", *command, **environment).strip()

    def jobs(self, number: str) -> list[dict[str, str]]:
        """What the controller knows of each task of a job."""
        lines = self.run("scontrol", "--oneliner", "show", "job", number).splitlines()
        return [dict(re.findall(r"(\S+?)=(\S*)", line)) for line in lines if line.strip()]

    def states(self, number: str) -> set[tuple[str, str, str]]:
        """(state, exit code, how often it was queued again) of each task of a job."""
        return {(job["JobState"], job["ExitCode"], job["Restarts"]) for job in self.jobs(number)}

    def wait(self, number: str, *states: str) -> None:
        """Wait until each task of a job is in one of these states."""
        wait_for(lambda: {job["JobState"] for job in self.jobs(number)} <= {*states})

    def clear(self) -> None:
        """No job is left."""
        self.run("scancel", "--quiet", "--user=root")
        wait_for(lambda: not self.run("squeue", "--noheader"))


@contextmanager
def cluster(folder: Path) -> Iterator[Cluster]:
    """Run a cluster of two nodes, of which nothing is left afterwards."""
    ports = [free_port() for _ in range(NODES + 1)]
    nodes = "\n".join(
        f"NodeName=n{number} NodeAddr=127.0.0.1 Port={port} CPUs=2 RealMemory=4000"
        for number, port in enumerate(ports[1:])
    )
    text = CONFIGURATION.format(host=socket.gethostname(), port=ports[0], folder=folder, nodes=nodes)
    (folder / "slurm.conf").write_text(text)
    (folder / "key").write_bytes(secrets.token_bytes(128))
    (folder / "key").chmod(0o400)
    made = Cluster(folder)
    with ExitStack() as stack:
        where = [f"--{name}={folder}/{name.removesuffix('-file')}" for name in ("key-file", "pid-file", "seed-file")]
        where += [f"--socket={folder}/munge", f"--log-file={folder}/munge.log"]
        stack.enter_context(daemon(made, "munge", ["munged", "--foreground", "--force", *where]))
        wait_for((folder / "munge").exists)
        stack.enter_context(daemon(made, "controller", ["slurmctld", "-D"]))
        for number in range(NODES):
            stack.enter_context(daemon(made, f"n{number}", node(f"n{number}")))
        wait_for(lambda: made.run("sinfo", "--noheader", "--format=%T", "--partition=soon").split() == ["idle"])
        yield made


def node(name: str) -> list[str]:
    """A node's daemon in namespaces of its own: when it ends, so does all that it has started."""
    alone = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "--uts"]
    return [*alone, "sh", "-c", f"hostname {name} && slurmd -D -N {name} & wait"]


@contextmanager
def daemon(made: Cluster, name: str, command: Sequence[str]) -> Iterator[None]:
    """Run a daemon, and end it afterwards."""
    with (made.folder / f"{name}.out").open("wb") as out:
        process = subprocess.Popen([*TIED, *command], env=made.environment, stdout=out, stderr=out)
    try:
        yield
    finally:
        process.kill()
        process.wait(LONG)
