"""`crawler serve`: a crawl as a web page, and its metrics for Prometheus.

It only reads the store, except for its buttons: pause, resume, stop and retry. Whoever has its token can read all pages
and press them; by default it listens on loopback alone.
"""

from __future__ import annotations

import argparse
import platform

from crawler import errors
from crawler.commands.arguments import Add, flag
from crawler.settings import values
from crawler.store.store import open_store
from crawler.web import urls


def commands(add: Add) -> None:
    """Add `crawler serve`."""
    example = "crawler serve /mnt/shared/crawl --port 8080, then open the address it prints"
    made = add("serve", run, example)
    made.add_argument(
        "--port",
        type=flag(values.whole(0, 65535)),
        default=8080,
        metavar="N",
        help="default 8080; 0 chooses a free one",
    )
    made.add_argument(
        "--bind",
        type=_address,
        default="127.0.0.1",
        metavar="ADDRESS",
        help="the address to listen on (default 127.0.0.1)",
    )
    help = "a file of mode 0600 with the token (or $CRAWLER_TOKEN; default: a new one)"
    made.add_argument("--token-file", metavar="FILE", help=help)
    help = "no buttons: it cannot pause, resume, stop or retry anything"
    made.add_argument("--read-only", action="store_true", help=help)
    help = "listen at this path instead, for this user alone and without a token"
    made.add_argument("--socket", metavar="PATH", help=help)
    made.add_argument(
        "--name",
        type=_name,
        action="append",
        default=[],
        metavar="HOST",
        help="another name of this machine that browsers may use; repeatable",
    )


def _address(given: str) -> str:
    if not given.strip():  # to a socket that means all addresses
        raise argparse.ArgumentTypeError("must be an address of this machine, or 0.0.0.0 for all of them")
    return given


def _name(given: str) -> str:
    if not urls.is_host(given.lower()) or ":" in given:
        raise argparse.ArgumentTypeError(f"{given!r} must be a host name such as crawl.example.org, without a port")
    return given.lower()


def run(options: argparse.Namespace) -> int:
    """`crawler serve`."""
    store = open_store(options.store)
    from crawler.commands.serve.app import serve, serve_on_socket  # here: other commands need no server
    from crawler.commands.serve.tokens import fixed_token

    if options.socket:
        serve_on_socket(store, options.socket, options.read_only)
    else:
        names = {platform.node().lower(), options.bind.lower(), *options.name}
        serve(store, options.bind, options.port, names, fixed_token(options.token_file), options.read_only)
    return errors.OVER
