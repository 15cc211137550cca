"""A TCP proxy that cuts connections after random numbers of bytes towards the client: FIN, RST, or silence."""

from __future__ import annotations

import random
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit


class Proxy:
    """Cuts after up to 2 * mean bytes of an answer until there were `most` cuts; then it lets all through.

    One connection in four lasts `longest` bytes more: the longest event of a stream must get through at some time.
    """

    def __init__(self, url: str, seed: int, mean: int, most: int, longest: int) -> None:
        parts = urlsplit(url)
        self._to = parts.hostname or "", parts.port or 80
        self._random = random.Random(seed)
        self._mean, self.most, self._longest = mean, most, longest
        self.cuts = 0
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._go(self._accept)

    def _go(self, target, *args) -> None:  # type: ignore[no-untyped-def]
        thread = threading.Thread(target=target, args=args)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(self._to)
            self._open |= {client, server}
            self._go(self._copy, client, server)
            self._go(self._carry, server, client)

    def _copy(self, source: socket.socket, to: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                to.sendall(data)
        with suppress(OSError):
            to.shutdown(socket.SHUT_RDWR)

    def _carry(self, server: socket.socket, client: socket.socket) -> None:
        with self._lock:
            budget = self._random.randrange(1, 2 * self._mean) if self.cuts < self.most else 1 << 60
            if self._random.randrange(4) == 0:
                budget += self._longest
            how = self._random.choice(["fin", "rst", "stall"])
        with suppress(OSError):
            while data := server.recv(min(65536, budget)):
                client.sendall(data)
                budget -= len(data)
                if budget == 0:
                    self._cut(server, client, how)
                    return
            client.shutdown(socket.SHUT_RDWR)

    def _cut(self, server: socket.socket, client: socket.socket, how: str) -> None:
        with self._lock:
            self.cuts += 1
        if how == "stall":
            while server.recv(65536):  # until the client has left
                pass
        elif how == "rst":
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.close()
            server.shutdown(socket.SHUT_RDWR)
        else:
            client.shutdown(socket.SHUT_RDWR)

    def stop(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for conn in list(self._open):
            with suppress(OSError):
                conn.shutdown(socket.SHUT_RDWR)
            conn.close()
        for thread in self._threads:
            thread.join(10)


@contextmanager
def cutting(url: str, seed: int, mean: int, most: int, longest: int = 40_000) -> Iterator[Proxy]:
    proxy = Proxy(url, seed, mean, most, longest)
    try:
        yield proxy
    finally:
        proxy.stop()
