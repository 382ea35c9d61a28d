"""Certificates that name their host only as common name (CN): browsers and urllib3 reject them, libcurl does not."""

from __future__ import annotations

import pycurl

DETAIL = "the certificate names the host as its common name (CN) only, not in subjectAltName"
ALTERNATIVE = "X509v3 Subject Alternative Name"
MAX_KNOWN = 10_000  # libcurl keeps far fewer TLS sessions


class CommonNames:
    """Remembers which servers had such a certificate: a resumed TLS session does not show it again."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, int], None] = {}

    def rejects(self, curl: pycurl.Curl, host: str, port: int) -> bool:
        """Tell whether the connection that a handle has just opened is to be closed before a request is sent.

        libcurl has compared the names; it takes the common name where no alternative is a DNS name or an address.
        """
        shown = curl.getinfo(pycurl.INFO_CERTINFO)
        if not shown:
            return (host, port) in self._known
        if any(_has_names(value) for name, value in shown[0] if name == ALTERNATIVE):
            self._known.pop((host, port), None)
            return False
        self._known[host, port] = None
        if len(self._known) > MAX_KNOWN:
            del self._known[next(iter(self._known))]
        return True


def _has_names(alternatives: str) -> bool:
    return any(name.startswith(("DNS:", "IP Address:")) for name in alternatives.split(", "))
