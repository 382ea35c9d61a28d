"""Why a URL was not kept: the one table of reasons, whether to ask again, and a line of help each."""

from __future__ import annotations

from typing import NamedTuple


class Reason(NamedTuple):
    again: bool
    meaning: str


REASONS: dict[str, Reason] = {
    "dns": Reason(True, "the host name did not resolve"),
    "connect": Reason(True, "the connection was refused or broke before an answer"),
    "timeout": Reason(True, "connect, first byte or the whole answer took longer than its limit"),
    "cut-short": Reason(True, "the connection ended in the middle of the answer"),
    "http-408": Reason(True, "the server timed out waiting for us"),
    "http-429": Reason(True, "the server asked us to slow down"),
    "http-4xx": Reason(False, "the server says that there is nothing for us here (404, 410, 403 ...)"),
    "http-5xx": Reason(True, "the server failed"),
    "http-xxx": Reason(False, "a status that no page has"),
    "tls": Reason(False, "no trustworthy TLS connection could be made"),
    "bad-answer": Reason(False, "what came back is not HTTP, or breaks its rules"),
    "bad-coding": Reason(False, "the body's compression is broken or not one of ours"),
    "bad-redirect": Reason(False, "a redirect to nowhere, or to a URL that we never ask"),
    "redirect-loop": Reason(False, "redirects that lead back to where they came from, or too many in a row"),
    "too-big": Reason(False, "the body or the headers are larger than their limit"),
    "wrong-type": Reason(False, "not one of the content types that the crawl keeps"),
    "bad-url": Reason(False, "not an http or https URL that can be asked"),
    "private-address": Reason(False, "the host is on a private network; --allow-private allows it"),
    "bad-port": Reason(False, "a port that browsers refuse (mail, ssh, databases ...)"),
    "robots": Reason(False, "robots.txt does not allow it"),
    "unreadable": Reason(False, "the parser gave up on the page"),
    "fault": Reason(False, "a fault of the program itself; the log has the traceback"),
    "worker-died": Reason(False, "workers died again and again while they had this page"),
}


def for_status(status: int) -> str:
    """The reason that an HTTP status stands for, as it is written in a refusal."""
    return f"http-{status}"


def row_of(reason: str) -> str:
    """Under which name the table has a reason: `http-404` is found under `http-4xx`."""
    family = reason[:6] + "xx"
    return reason if reason in REASONS else family if family in REASONS else "http-xxx"


def look_up(reason: str) -> Reason:
    """The table's row of a reason."""
    return REASONS[row_of(reason)]
