"""The HTTP client on libcurl's multi interface: any number of requests on one event loop, in one thread."""

from __future__ import annotations

import asyncio
import select
from contextlib import suppress
from dataclasses import replace
from math import inf

import pycurl

from crawler.fetch.budget import Budget
from crawler.fetch.certificates import CommonNames
from crawler.fetch.download import Pump, Savers, failure_of
from crawler.fetch.request import FetchOptions, Request, Response
from crawler.fetch.stuck import StuckWatch
from crawler.fetch.transfer import Transfer
from crawler.web.page import Failure

_EVENTS = {pycurl.POLL_IN: select.EPOLLIN, pycurl.POLL_OUT: select.EPOLLOUT}
_EVENTS[pycurl.POLL_INOUT] = select.EPOLLIN | select.EPOLLOUT
_HANG_UP = select.EPOLLHUP | select.EPOLLERR


class CurlClient:
    """Sends requests with libcurl on the running event loop.

    Sockets belong to the multi handle, which keeps connections open for reuse; the handles of single requests are
    generic. libcurl tells which sockets to watch and when to call it next.
    """

    def __init__(self, options: FetchOptions) -> None:
        self._options = options
        self._budget = Budget()
        self._idle: list[Transfer] = []
        self._in_flight: dict[pycurl.Curl, Transfer] = {}
        self._sockets: dict[int, int] = {}  # those in the epoll, and the events that are wanted there
        self._unwatched: set[int] = set()  # those of them that libcurl keeps open without a request
        self._timer: asyncio.TimerHandle | None = None
        self._due = self._wakes = inf  # when libcurl is to be called next, and when the timer fires
        self._stuck = StuckWatch()
        self._common_names = CommonNames()
        self._savers = Savers()
        # One epoll for all sockets, which the loop watches as one more: it is told once of all that are ready.
        self._epoll = select.epoll()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._multi = self._new_multi()

    async def get(self, request: Request) -> Response | Failure:
        """Send one request; libcurl itself replaces a kept connection that the server has closed."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            self._loop.add_reader(self._epoll.fileno(), self._on_ready)
            self._stuck.start()
        transfer = (
            self._idle.pop()
            if self._idle
            else Transfer(
                self._options, self._budget, self._stuck, self.forget_socket, self._common_names, self._savers
            )
        )
        transfer.start(request, self._loop.create_future())
        self._multi.add_handle(transfer.curl)
        self._in_flight[transfer.curl] = transfer
        try:
            code, message = await transfer.ended
            self._remove(transfer.curl)  # if it ended while it was resumed
        except BaseException:  # we were cancelled
            self._remove(transfer.curl)
            transfer.places.release()
            if transfer.pump:
                transfer.pump.discard()
                self._savers.release()
            raise
        pump, transfer.pump = transfer.pump, None
        try:
            result = transfer.result(code, message)
            self._idle.append(transfer)
            return await self._saved(pump, request, result) if pump else result
        except BaseException:
            self._discard(pump)
            raise
        finally:
            if pump:
                self._savers.release()

    async def _saved(self, pump: Pump, request: Request, result: Response | Failure) -> Response | Failure:
        """Return the result with the file that its body is in."""
        if pump.error is None and (isinstance(result, Failure) or result.outcome):
            if isinstance(result, Failure) and result.reason == "timeout":
                pump.download.check_store()
            self._discard(pump)
            return result
        try:
            saved = await pump.finish()
        except Exception as error:  # noqa: BLE001 - those that are no failure are raised
            self._discard(pump)
            return failure_of(request, error)
        assert isinstance(result, Response)
        return replace(result, saved=saved)

    @staticmethod
    def _discard(pump: Pump | None) -> None:
        if pump:
            pump.discard()

    def close_idle(self) -> None:
        """Close the connections that no request uses; pending requests go on."""
        if not self._in_flight:
            self._multi.close()
            self._multi = self._new_multi()

    def close(self) -> None:
        """Close all connections, also of requests in flight."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.remove_reader(self._epoll.fileno())
        if self._timer:
            self._timer.cancel()
        for curl in list(self._in_flight):
            self._remove(curl)
        self._multi.close()
        for transfer in self._idle:
            transfer.curl.close()
        self._idle.clear()
        self._epoll.close()
        self._stuck.close()
        self._savers.close()

    def _new_multi(self) -> pycurl.CurlMulti:
        multi = pycurl.CurlMulti()
        multi.setopt(pycurl.M_MAXCONNECTS, self._options.concurrency + self._options.kept)
        multi.setopt(pycurl.M_SOCKETFUNCTION, self._on_socket)
        multi.setopt(pycurl.M_TIMERFUNCTION, self._on_timer)
        return multi

    def _on_socket(self, what: int, number: int, _multi: object, _data: object) -> None:
        """Watch a socket, or no longer, as libcurl says.

        One that is no longer watched stays in the epoll, because most connections soon have another request; the
        kernel removes those that are closed, and `forget_socket` tells when their number is used again.
        """
        if what == pycurl.POLL_REMOVE:
            self._unwatched.add(number)
            return
        self._unwatched.discard(number)
        wanted, has = _EVENTS[what], self._sockets.get(number)
        if has == wanted:
            return
        self._sockets[number] = wanted
        try:
            if has is None:
                self._epoll.register(number, wanted)
            else:
                self._epoll.modify(number, wanted)
        except FileNotFoundError:
            self._epoll.register(number, wanted)
        except FileExistsError:
            self._epoll.modify(number, wanted)

    def forget_socket(self, number: int) -> None:
        """Note that a number belongs to a new socket, which is not in the epoll yet."""
        self._sockets.pop(number, None)
        self._unwatched.discard(number)

    def _on_timer(self, milliseconds: int) -> None:
        """Call libcurl again after this time, not at once: it must not be called from its own callback.

        It changes its mind with each request. So a timer that fires too early stays, and waits for the rest then.
        """
        if self._loop is None:
            return
        self._due = self._loop.time() + milliseconds / 1000 if milliseconds >= 0 else inf
        if self._due < self._wakes:
            self._set_timer(self._loop)

    def _set_timer(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._timer:
            self._timer.cancel()
        self._wakes, self._timer = self._due, loop.call_at(self._due, self._on_timeout)

    def _on_timeout(self) -> None:
        assert self._loop is not None
        self._wakes, self._timer = inf, None
        if self._due > self._loop.time():
            if self._due < inf:
                self._set_timer(self._loop)
            return
        self._due = inf
        self._multi.socket_action(pycurl.SOCKET_TIMEOUT, 0)
        self._collect()

    def _on_ready(self) -> None:
        for number, events in self._epoll.poll(0):
            if number in self._unwatched:  # the server has closed a kept connection, or sends what nobody wants
                self.forget_socket(number)
                with suppress(OSError):  # libcurl has closed it since
                    self._epoll.unregister(number)
                continue
            mask = pycurl.CSELECT_IN if events & (select.EPOLLIN | _HANG_UP) else 0
            mask |= pycurl.CSELECT_OUT if events & select.EPOLLOUT else 0
            mask |= pycurl.CSELECT_ERR if events & select.EPOLLERR else 0
            self._stuck.enter(number)
            self._multi.socket_action(number, mask)
            self._stuck.leave()
        self._collect()

    def _collect(self) -> None:
        """Hand the requests that have ended back to who waits for them."""
        more = 1
        while more:
            more, good, bad = self._multi.info_read()
            for curl in good:
                self._end(curl, 0, "")
            for curl, code, message in bad:
                self._end(curl, code, message)

    def _end(self, curl: pycurl.Curl, code: int, message: str) -> None:
        ended = self._in_flight[curl].ended
        self._remove(curl)
        if not ended.done():
            ended.set_result((code, message))

    def _remove(self, curl: pycurl.Curl) -> None:
        if self._in_flight.pop(curl, None):
            self._multi.remove_handle(curl)
