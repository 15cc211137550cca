"""A small HTTP server on a socket, whose answers and whose faults a test writes byte by byte."""

from __future__ import annotations

import json
import os
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field


@dataclass
class Request:
    """What a client has sent."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Server:
    """Serves each request by a function, which writes to the connection itself and may cut it."""

    handle: Callable[[Request, socket.socket, int], None]
    requests: list[Request] = field(default_factory=list)
    open: set[socket.socket] = field(default_factory=set)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def start(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _accept(self) -> None:
        while True:
            try:
                conn, _ = self._listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._serve, args=(conn,))
            self._threads.append(thread)
            thread.start()

    def _serve(self, conn: socket.socket) -> None:
        self.open.add(conn)
        with conn, suppress(OSError), conn.makefile("rb") as stream:
            while request := read_request(stream):
                self.requests.append(request)
                self.handle(request, conn, len(self.requests))
        self.open.discard(conn)

    def stop(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for conn in list(self.open):
            with suppress(OSError):
                conn.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(10)


def read_request(stream) -> Request | None:  # type: ignore[no-untyped-def]
    first = stream.readline().decode()
    if not first:
        return None
    method, target, _ = first.split(" ", 2)
    headers = {}
    while (line := stream.readline().decode().strip()) != "":
        name, _, value = line.partition(":")
        headers[name.lower()] = value.strip()
    return Request(method, target, headers, stream.read(int(headers.get("content-length", 0))))


@contextmanager
def serve(handle: Callable[[Request, socket.socket, int], None]) -> Iterator[Server]:
    server = Server(handle)
    server.start()
    try:
        yield server
    finally:
        server.stop()


def answer(conn: socket.socket, status: int, body: object = None, **headers: str) -> None:
    """Writes a whole answer."""
    raw = b"" if body is None else json.dumps(body).encode()
    lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(raw)}", "Content-Type: application/json"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    conn.sendall("\r\n".join([*lines, "", ""]).encode() + raw)


def begin_stream(conn: socket.socket) -> None:
    conn.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")


def send(conn: socket.socket, data: bytes) -> None:
    """Writes a chunk."""
    conn.sendall(f"{len(data):x}\r\n".encode() + data + b"\r\n")


def end_stream(conn: socket.socket) -> None:
    conn.sendall(b"0\r\n\r\n")


def cut(conn: socket.socket, reset: bool = False) -> None:
    if reset:
        conn.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        os.close(conn.detach())  # also under the file that reads from it
    else:
        conn.shutdown(socket.SHUT_RDWR)
