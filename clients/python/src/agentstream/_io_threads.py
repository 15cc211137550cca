"""What the client for threads does by its own means. `_io_async.py` has the same names for asyncio."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable
from contextlib import suppress

import httpx

__all__ = ["Connection", "Lock", "Source", "Stop", "resolve"]

#: A function that returns a credential.
Source = Callable[[], str]
Lock = threading.Lock
#: Ends what waits for it.
Stop = threading.Event


def resolve(source: Source) -> str:
    """Calls a function for credentials."""
    return source()


class Connection:
    """An answer whose body one thread at a time reads. Any thread may close it."""

    def __init__(self, response: httpx.Response) -> None:
        self._response = response
        self._chunks = response.iter_bytes()
        self._reader = 0  # the thread that reads
        self._pid = os.getpid()

    @property
    def ours(self) -> bool:
        """Reports whether it is this process's: after a fork it is the parent's."""
        return self._pid == os.getpid()

    def read(self) -> bytes | None:
        """Returns the next part of the body. None is its end."""
        self._reader = threading.get_ident()
        try:
            return next(self._chunks, None)
        finally:
            self._reader = 0

    def close(self) -> None:
        """Closes it; a read in another thread ends at once."""
        if not self.ours:
            return
        if self._reader not in (0, threading.get_ident()):
            self._wake()
            return  # the reader closes it
        with suppress(Exception):
            self._response.close()

    def _wake(self) -> None:
        """Ends a read in another thread, which closing does not."""
        stream = self._response.extensions.get("network_stream")
        sock = stream.get_extra_info("socket") if stream is not None else None
        if isinstance(sock, socket.socket):
            with suppress(OSError):
                socket.socket.shutdown(sock, socket.SHUT_RDWR)

    def forget(self) -> None:
        """Closes it when nobody knows it any more."""
        self.close()
