"""What the operator of this machine said: whom requests may reach, by which way, and who gets which secrets.

None of it comes from the store: whoever can write there could send the operator's secrets to a host of theirs. It comes
from the command line, or from a file of the operator's own that nobody else can read.
"""

from __future__ import annotations

import binascii
import os
import re
import stat
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from crawler.errors import UsageError, did_you_mean
from crawler.fetch import netrc, netscape
from crawler.fetch.cookies import OwnCookie
from crawler.fetch.request import check_connect_to, check_header, check_proxy, is_secret
from crawler.web import addresses, urls

MAX_SECRETS_BYTES = 1 << 20
OPERATOR_ONLY = ("proxy", "connect_to", "allow_private", "allow_metadata")  # never in crawl.yaml
BY_OPERATOR = "give it to `crawler run` on each machine, as a flag or with --secrets FILE (`crawler help security`)"
_CERTIFICATE = re.compile(rb"-----BEGIN (?:TRUSTED |X509 )?CERTIFICATE-----\s+([A-Za-z0-9+/=\s]+)-----END")


@dataclass(frozen=True, slots=True)
class Trust:
    """What one machine's operator allows; the same for all workers of the machine."""

    headers: Mapping[str, tuple[str, ...]] = field(default_factory=dict, repr=False)  # secret lines by origin
    logins: Mapping[str, str] = field(default_factory=dict, repr=False)  # an Authorization line by host, at any port
    plain: frozenset[str] = frozenset()  # hosts whose login may be sent by http
    own_cookies: tuple[OwnCookie, ...] = field(default=(), repr=False)
    private: frozenset[str] = frozenset()  # hosts that may be on a private network
    allow_private: bool = False
    allow_metadata: bool = False
    proxy: str | None = field(default=None, repr=False)
    connect_to: tuple[str, ...] = ()

    def headers_for(self, url: str) -> tuple[str, ...]:
        """Return the secret headers that may be sent with a request for this URL."""
        lines = self.headers.get(urls.origin(url), ()) if self.headers else ()
        login = self._login(url) if self.logins else None
        if login is None or any(line.lower().startswith("authorization:") for line in lines):
            return lines
        return (*lines, login)

    def _login(self, url: str) -> str | None:
        """Return the login for a URL; by http only to hosts that the operator named so, or on a private network."""
        host = urls.host(url)
        if not url.startswith("https:") and not (host in self.plain or addresses.names_private(host)):
            return None
        return self.logins.get(host) or self.logins.get(_name_of(host))

    def lacks_plain(self, url: str) -> bool:
        """Tell whether a URL's host has a login that is not sent there, because the URL is one of http."""
        return self._login(url) is None and self._login(f"https:{url.partition(':')[2]}") is not None

    def is_secret(self, host: str) -> bool:
        """Tell whether requests to a host may have the operator's own headers, login or cookies."""
        name = _name_of(host)
        if {host, name} & self.logins.keys() or {f"http://{host}", f"https://{host}"} & self.headers.keys():
            return True
        return any(name == one.domain or (one.below and name.endswith(f".{one.domain}")) for one in self.own_cookies)

    def excludes(self, host: str) -> bool:
        """Tell whether a host that is named like a private one is not requested; does not use DNS."""
        if self.allow_metadata or self.connect_to:
            return False
        is_allowed = self.allow_private or host in self.private
        return addresses.reach_of_host(host) > (addresses.PRIVATE if is_allowed else addresses.PUBLIC)


def _name_of(host: str) -> str:
    """Return a host without its port, and an IPv6 address without its brackets."""
    name = host if host.endswith("]") else re.sub(r":[0-9]+$", "", host)
    return name.strip("[]")


def private_hosts(seeds: Iterable[str]) -> frozenset[str]:
    """Return the hosts of URLs that the operator gave which are on a private network by their own name."""
    return frozenset(filter(addresses.names_private, {urls.host(seed) for seed in seeds}))


def origins(seeds: Iterable[str]) -> set[str]:
    """Return the origins that get what was given for these URLs.

    A host given by http may be requested by https too; the reverse would send secrets in plain text.
    """
    return {origin for seed in seeds for origin in (f"https://{urls.host(seed)}", urls.origin(seed))}


# ---- what does not belong in the store


def check_harmless(header: str) -> None:
    """Raise ValueError unless a header may be in the store: everybody can read it there, and anybody may write it."""
    check_header(header)
    if is_secret(header):
        raise ValueError("may hold a secret, which does not belong in the store; give it with --header or --secrets")


def check_not_stored(loaded: Mapping[Any, Any], where: str) -> None:
    """Raise UsageError for what earlier versions kept in crawl.yaml; a line that allows nothing does no harm."""
    found = [f"the line {name}" for name in OPERATOR_ONLY if loaded.get(name) not in (None, False, [], "null", "none")]
    given = loaded.get("headers") or ()
    headers = [str(line) for line in (given if isinstance(given, list) else [given])]
    names = [line.partition(":")[0].strip() for line in headers if ":" in line and is_secret(line)]
    found += [f"{name} in the line headers" for name in names]
    if found:
        raise UsageError(f"{where}: remove {', '.join(found)}: the store must not hold it; {BY_OPERATOR}")


# ---- the file of secrets


def read_secrets(path: str) -> dict[str, Any]:
    """Return what a file of secrets says, as arguments for Trust; UsageError if it is wrong or others can read it."""
    from crawler.web import safe_yaml  # here: few machines have one

    try:
        loaded = safe_yaml.load(read_own(path, "secrets file"))
    except ValueError:  # not quoted: the error may hold a secret
        raise UsageError(f"the secrets file {path} is not valid YAML; `crawler help security` has an example") from None
    if not isinstance(loaded, dict):
        raise UsageError(f"the secrets file {path} must have lines such as `proxy: URL`; see `crawler help security`")
    return {key: value for name, given in loaded.items() for key, value in _entry(path, name, given).items()}


def read_cookies(path: str) -> tuple[OwnCookie, ...]:
    """Return the cookies of a file in Netscape's format; UsageError if it is wrong or others can read it."""
    path = os.path.expanduser(path)
    return netscape.read(read_own(path, "cookies file"), path)


def read_netrc(path: str) -> dict[str, str]:
    """Return the Authorization header of each host that a netrc file names; UsageError likewise."""
    path = os.path.expanduser(path)
    return netrc.read(read_own(path, "netrc file"), path)


def read_own(path: str, what: str) -> str:
    """Return the text of a file that only the operator (or root) can have written and can read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise UsageError(f"the {what} {path} cannot be read ({error.strerror}); name another") from error
    try:
        seen = os.fstat(descriptor)  # of what is read: a path could lead elsewhere a moment later
        if not stat.S_ISREG(seen.st_mode):
            raise UsageError(f"the {what} {path} is not a regular file; name another")
        if seen.st_uid not in (os.geteuid(), 0):
            raise UsageError(
                f"the {what} {path} belongs to another user (uid {seen.st_uid}); it must be yours or root's"
            )
        # Kubernetes gives a secret to a container's user by way of a group: root's own file, read by that group.
        if seen.st_mode & (0o077 if seen.st_uid == os.geteuid() else 0o037):
            raise UsageError(
                f"the {what} {path} has mode {stat.S_IMODE(seen.st_mode):04o}, but only you may read it; "
                f"run `chmod 600 {path}`"
            )
        with open(descriptor, encoding="utf-8", closefd=False) as file:
            return file.read(MAX_SECRETS_BYTES)
    except UnicodeDecodeError:
        raise UsageError(f"the {what} {path} is not text in UTF-8; name another") from None
    finally:
        os.close(descriptor)


def _entry(path: str, name: object, value: Any) -> dict[str, Any]:
    if name not in _ENTRIES:
        hint = did_you_mean(str(name), _ENTRIES, f"it may have {', '.join(_ENTRIES)}")
        raise UsageError(f"unknown entry {name!r} in the secrets file {path}; {hint}")
    try:
        found: dict[str, Any] = _ENTRIES[str(name)](value)
    except ValueError as error:
        raise UsageError(f"the secrets file {path}: {name}: {error}") from None  # the error may hold the value
    return found


def _headers(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError("must be a mapping such as `example.org: ['Authorization: Bearer ...']`")
    found: dict[str, tuple[str, ...]] = {}
    for where, given in value.items():
        lines = _lines(given)
        for line in lines:
            check_header(line)
        for origin in origins([_url(where)]):
            found[origin] = lines
    return {"headers": found}


def _url(where: object) -> str:
    """Return the URL of a host in the file; one without a scheme is requested by https."""
    url = urls.normalize(str(where) if "://" in str(where) else f"https://{where}")
    if url is None or url.count("/") > 3 or not url.endswith("/"):
        raise ValueError(f"{str(where)!r} must be a host such as example.org or http://example.org:8000")
    return url


def _lines(given: Any) -> tuple[str, ...]:
    lines = given if isinstance(given, list) else [given]
    if not all(isinstance(line, str) for line in lines):
        raise ValueError("must be a text, or a list of texts")
    return tuple(lines)


def _proxy(value: Any) -> dict[str, Any]:
    check_proxy(str(value))
    return {"proxy": str(value)}


def _connect_to(value: Any) -> dict[str, Any]:
    for rule in _lines(value):
        check_connect_to(rule)
    return {"connect_to": _lines(value)}


def _allow_private(value: Any) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"allow_private": value}
    try:
        return {"private": frozenset(urls.host(_url(host)) for host in _lines(value))}
    except ValueError as error:
        raise ValueError(f"must be true, false or a list of hosts ({error})") from error


def _allow_metadata(value: Any) -> dict[str, Any]:
    if not isinstance(value, bool):
        raise ValueError("must be true or false")
    return {"allow_metadata": value}


def _path(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("must be the path of a file")
    return value


_ENTRIES: dict[str, Callable[[Any], dict[str, Any]]] = {
    "headers": _headers,
    "proxy": _proxy,
    "connect_to": _connect_to,
    "allow_private": _allow_private,
    "allow_metadata": _allow_metadata,
    "cookies": lambda value: {"own_cookies": read_cookies(_path(value))},
    "netrc": lambda value: {"logins": read_netrc(_path(value))},
}


def check_certificates() -> None:
    """Raise UsageError if SSL_CERT_FILE names no readable file of certificates: each https URL would fail.

    Its first certificate is looked at, and without the ssl module: to load all of them takes a tenth of the CPU of a
    crawl of one page.
    """
    path = os.environ.get("SSL_CERT_FILE")
    if not path:
        return
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):  # to open a FIFO would wait for ever
            raise OSError("it is not a regular file")
        if _has_certificate(Path(path).read_bytes()):
            return
        why = "it has no certificates in PEM format"
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
    raise UsageError(
        f"SSL_CERT_FILE: {path} cannot be used ({why}); unset the variable, or name a file of trusted certificates"
    )


def _has_certificate(data: bytes) -> bool:
    """Tell whether the first block that calls itself a certificate may be one: in DER, as long as it says."""
    found = _CERTIFICATE.search(data)
    try:
        der = binascii.a2b_base64(found[1]) if found else b""
    except binascii.Error:
        return False
    width = der[1] - 0x80 if len(der) > 1 else 0  # of the length, in bytes
    return der[:1] == b"\x30" and width in (1, 2) and len(der) >= 2 + width + int.from_bytes(der[2 : 2 + width], "big")
