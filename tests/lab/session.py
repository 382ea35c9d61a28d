"""A site that gives its visitors a session on its first page, and refuses every other page to whoever has none."""

from __future__ import annotations

import base64
import re
import secrets
import socket
import time
from threading import Lock

from lab.hostile import Server, whole

FORBIDDEN, TO_LOGIN = "403", "redirect"


class SessionSite(Server):
    """`/` sets a session cookie and links to `hubs` pages, each of which links to `leaves` more."""

    def __init__(self, hubs: int = 8, leaves: int = 12, refuses: str = FORBIDDEN, brake: int | None = None) -> None:
        """After `brake` requests it is slow, so that a test can interrupt its crawl, until that is None."""
        self.hubs, self.leaves, self.refuses, self.brake = hubs, leaves, refuses, brake
        self.landing = False  # whether the first page waits until another one was refused
        self.sessions: set[str] = set()
        self.paths: list[tuple[str, int]] = []  # what was requested, and the status of the response
        self._note = Lock()
        super().__init__()

    @property
    def pages(self) -> set[str]:
        """The URLs of all pages."""
        hubs = [f"/{hub}" for hub in range(self.hubs)]
        leaves = [f"{hub}/{leaf}" for hub in hubs for leaf in range(self.leaves)]
        return {self.url(path) for path in ("/", *hubs, *leaves)}

    def count(self, status: int) -> int:
        """How many requests were answered with a status."""
        return sum(found == status for _, found in self.paths)

    def answer(self, sock: socket.socket, head: str) -> bool:
        path = head.split(" ")[1]
        login = "".join(re.findall(r"Authorization: Basic (\S+)", head))
        sessions = re.findall(r"\bsid=(\w+)", head + base64.b64decode(login).decode())
        status, reply = self.reply(path, set(sessions))
        with self._note:
            self.paths.append((path, status))
        while path == "/" and self.landing and not self.count(403):
            time.sleep(0.01)
        time.sleep(2.0 if self.brake is not None and len(self.paths) > self.brake else 0.0)
        sock.sendall(reply)
        return True

    def reply(self, path: str, given: set[str]) -> tuple[int, bytes]:
        """The status and the response for a path and the session cookies that came with it."""
        if path == "/robots.txt":
            return 404, whole(b"", status=b"404 Not Found")
        if path == "/":
            session = secrets.token_hex(8)
            self.sessions.add(session)
            cookie = f"Set-Cookie: sid={session}; Path=/; HttpOnly".encode()
            return 200, whole(links(f"/{hub}" for hub in range(self.hubs)), *([] if given else [cookie]))
        if path == "/login":
            return 200, whole(b"please log in")
        if not given & self.sessions:
            if self.refuses == TO_LOGIN:
                return 302, whole(b"", b"Location: /login", status=b"302 Found")
            return 403, whole(b"", status=b"403 Forbidden")
        leaves = range(self.leaves) if path.count("/") == 1 else ()
        return 200, whole(links(f"{path}/{leaf}" for leaf in leaves))


def links(targets: object) -> bytes:
    """A page with these links."""
    return "".join(f"<a href='{target}'>x</a>" for target in targets).encode() + b"."  # type: ignore[attr-defined]
