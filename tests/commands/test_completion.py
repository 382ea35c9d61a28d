"""`crawler completion`: a real shell completes commands, flags, values and files when TAB is pressed."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import shutil
import subprocess
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from lab.world import crawler

SHELLS = {
    "fish": (["fish", "--no-config", "-i"], "function fish_prompt; echo '> '; end; source ./script"),
    "bash": (["bash", "--norc", "--noprofile", "-i"], "PS1='> '; bind 'set show-all-if-ambiguous on'; . ./script"),
    "zsh": (["zsh", "-f", "-i"], "PS1='> '; autoload -U compinit; compinit -u -D; . ./script"),
}


class Shell:
    """An interactive shell on a terminal, which has read our script."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        command, setup = SHELLS[name]
        (folder / "script").write_text(crawler("completion", name))
        self._near, far = pty.openpty()
        how = {**os.environ, "TERM": "dumb", "PATH": os.environ["PATH"], "HOME": str(folder)}
        self.process = subprocess.Popen(
            command,
            stdin=far,
            stdout=far,
            stderr=far,
            cwd=folder,
            env=how,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # fish leaves without a terminal of its own
        )
        os.close(far)
        self.type(f"{setup}; echo is ready''ready\n", until="is readyready")

    def type(self, text: str, until: str) -> str:
        """Type on the keyboard, and see what the terminal shows until these words are among it."""
        os.write(self._near, text.encode())
        limit, seen = time.monotonic() + 60, ""
        while until not in seen:
            assert time.monotonic() < limit, f"{until!r} is not in {seen!r}"
            if select.select([self._near], [], [], 0.5)[0]:
                seen += os.read(self._near, 65536).decode("utf-8", "replace")
        return seen

    def complete(self, line: str, until: str) -> None:
        """Type a line and TAB, then clear the line; on a dumb terminal fish lists several only by its command."""
        keys, until = (f"complete -C '{line}'\n", until.strip()) if self.name == "fish" else (f"{line}\t", until)
        self.type(keys, until)
        self.type("\x15echo is ready''ready\n", until="is readyready")

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._near)


@pytest.fixture(params=sorted(SHELLS))
def shell(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shell]:
    """Each shell, if it is installed."""
    if not shutil.which(request.param):
        pytest.skip(f"{request.param} is not installed")
    (tmp_path / "a-store").mkdir()
    started = Shell(request.param, tmp_path)
    yield started
    started.close()


def test_a_shell_completes_commands_flags_values_and_folders(shell: Shell) -> None:
    shell.complete("crawler expl", until="explain ")
    shell.complete("crawler st", until="status")
    shell.complete("crawler st", until="stop")
    shell.complete("crawler run --sco", until="--scope ")
    shell.complete("crawler run a-store --max-per", until="--max-per-host ")
    shell.complete("crawler run a-store --scope dom", until="domain ")
    shell.complete("crawler hosts a-store --sort wai", until="waiting ")
    shell.complete("crawler completion z", until="zsh ")
    shell.complete("crawler ls a-st", until="a-store")


def test_a_shell_that_is_not_known_is_said() -> None:
    assert "invalid choice: 'tcsh'" in crawler("completion", "tcsh", code=2)
