"""Why a URL has no page: one table of reasons, each with its kind, whether to retry, and a line of help."""

from __future__ import annotations

from typing import NamedTuple

KINDS = ("failed", "excluded", "unwanted")


class Reason(NamedTuple):
    kind: str
    retry: bool
    meaning: str


REASONS: dict[str, Reason] = {
    "dns": Reason("failed", True, "the host name did not resolve"),
    "connect": Reason("failed", True, "the connection was refused, or broke before a response"),
    "timeout": Reason("failed", True, "connecting, the first byte or the whole response took longer than its limit"),
    "cut-short": Reason("failed", True, "the connection ended in the middle of the response"),
    "http-408": Reason("failed", True, "HTTP 408 Request Timeout: the server gave up waiting for the request"),
    "http-429": Reason("failed", True, "HTTP 429 Too Many Requests: the server limits the request rate"),
    "http-4xx": Reason(
        "failed", False, "HTTP 4xx: the server has no page for this URL (404 Not Found, 410 Gone, 403 Forbidden ...)"
    ),
    "http-5xx": Reason("failed", True, "HTTP 5xx: the server failed (500, 502, 503 ...)"),
    "http-xxx": Reason("failed", False, "any other HTTP status that brings no page"),
    "tls": Reason("failed", False, "the TLS handshake failed or the certificate is not trusted"),
    "bad-answer": Reason("failed", False, "the response is not valid HTTP"),
    "bad-coding": Reason("failed", False, "the body's compression is broken or not supported"),
    "bad-redirect": Reason("failed", False, "a redirect without a target, or to a URL that cannot be requested"),
    "redirect-loop": Reason("failed", False, "redirects in a circle, or too many in a row"),
    "unreadable": Reason("failed", False, "the page could not be parsed"),
    "no-room": Reason("failed", True, "the file was larger than what is free on the store's disk"),
    "fault": Reason("failed", False, "a bug in the crawler; the log has the traceback"),
    "worker-died": Reason("failed", False, "workers died or hung repeatedly while they processed this page"),
    "failed-before": Reason("failed", False, "it failed in the script whose folder was taken over; why is not known"),
    "robots": Reason("excluded", False, "robots.txt does not allow it"),
    "private-address": Reason("excluded", False, "the host is on a private network; --allow-private allows it"),
    "bad-port": Reason("excluded", False, "a port that browsers refuse (mail, ssh, databases ...)"),
    "bad-url": Reason("excluded", False, "not an http or https URL that can be requested"),
    "wrong-type": Reason("unwanted", False, "the content type is not one that the crawl keeps"),
    "too-big": Reason("unwanted", False, "the body or the headers are larger than their limit"),
}


def row_of(reason: str) -> str:
    """Return the table's name for a reason: `http-404` is in the row `http-4xx`."""
    family = reason[:6] + "xx"
    return reason if reason in REASONS else family if family in REASONS else "http-xxx"


def look_up(reason: str) -> Reason:
    """Return the table's row for a reason."""
    return REASONS[row_of(reason)]


def kind(reason: str) -> str:
    """Return the kind of a reason: one of KINDS."""
    return look_up(reason).kind
