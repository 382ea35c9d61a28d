"""libcurl's error codes and messages as reasons of failures."""

from __future__ import annotations

import errno
import os

import pycurl

_REASONS = {
    pycurl.E_UNSUPPORTED_PROTOCOL: "bad-answer",  # the scheme was checked before, so this is HTTP/0.9
    pycurl.E_URL_MALFORMAT: "bad-url",
    pycurl.E_COULDNT_RESOLVE_HOST: "dns",
    pycurl.E_FTP_WEIRD_SERVER_REPLY: "bad-answer",
    pycurl.E_HTTP2: "bad-answer",
    pycurl.E_PARTIAL_FILE: "cut-short",
    pycurl.E_OPERATION_TIMEDOUT: "timeout",
    pycurl.E_BAD_CONTENT_ENCODING: "bad-coding",
    pycurl.E_SSL_CONNECT_ERROR: "tls",
    pycurl.E_SSL_CERTPROBLEM: "tls",
    pycurl.E_SSL_CIPHER: "tls",
    pycurl.E_PEER_FAILED_VERIFICATION: "tls",
    pycurl.E_SSL_CACERT_BADFILE: "tls",
    pycurl.E_SSL_ISSUER_ERROR: "tls",
    pycurl.E_SSL_INVALIDCERTSTATUS: "tls",
    pycurl.E_FILESIZE_EXCEEDED: "too-big",
    100: "too-big",  # CURLE_TOO_LARGE, of the headers
}
# libcurl has one code for several errors here; only its message tells them apart. A server that hangs up during the
# handshake is recognized by error numbers in the message: the wording of OpenSSL differs from build to build.
_SENTENCES = (
    ("Too large response headers", "too-big"),
    ("chunk", "bad-answer"),
    ("SSL_ERROR_SYSCALL", "connect"),
    ("SSL_ERROR_ZERO_RETURN", "connect"),
    ("error:0A000126:", "connect"),  # SSL_R_UNEXPECTED_EOF_WHILE_READING
    ("error:00000000:", "connect"),  # no TLS error: the server closed the connection
    *((os.strerror(number), "connect") for number in (errno.ECONNRESET, errno.ECONNABORTED, errno.EPIPE)),
)


def reason_for(code: int, message: str, has_status: bool) -> str:
    """Return the reason of a failure; `has_status` if the response had begun."""
    if code in (pycurl.E_RECV_ERROR, pycurl.E_SSL_CONNECT_ERROR):
        for part, reason in _SENTENCES:
            if part in message:
                return "cut-short" if reason == "connect" and has_status else reason
    return _REASONS.get(code) or ("cut-short" if has_status else "connect")
