"""Both clients on real sockets: requests, retries, tokens, and that nothing is left open."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from agentstream import (
    AsyncClient,
    Client,
    ConnectionLost,
    Ended,
    Event,
    Forbidden,
    NotAStream,
    NotFound,
    Unauthorized,
    Unavailable,
)

from .server import Request, Server, answer, begin_stream, cut, end_stream, send, serve
from .test_watch import end, frame, frames

STORED = {"first_seq": 1, "last_seq": 1}


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    gc.collect()  # a socket that is left is a ResourceWarning, which is an error
    deadline = time.monotonic() + 10
    while (left := set(threading.enumerate()) - before) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not left


def serve_run(request: Request, conn: socket.socket, n: int) -> None:
    """A run of three events, one a connection, whose end is confirmed."""
    cursor = int(request.headers.get("last-event-id", 0))
    if cursor == 3:
        answer(conn, 204)
        return
    begin_stream(conn)
    send(conn, b"retry: 1\n\n" + (frames(cursor + 1) if cursor < 2 else frame(end(3), 3)))
    if n % 2:
        cut(conn, reset=n % 4 == 1)
    else:
        end_stream(conn)


def test_watch_over_cuts() -> None:
    with serve(serve_run) as server, Client(server.url) as client:
        with client.watch("r") as watch:
            assert [e.seq for e in watch if isinstance(e, Event)] == [1, 2, 3]
            assert watch.cursor == 3
            assert watch.stats.connections == 3


def test_async_watch_over_cuts() -> None:
    async def main(server: Server) -> None:
        async with AsyncClient(server.url) as client, client.watch("r") as watch:
            assert [e.seq async for e in watch if isinstance(e, Event)] == [1, 2, 3]
            assert watch.stats.connections == 3

    with serve(serve_run) as server:
        asyncio.run(main(server))


def stay(request: Request, conn: socket.socket, n: int) -> None:
    """Two events after the cursor, and then silence."""
    cursor = int(request.headers.get("last-event-id", 0))
    begin_stream(conn)
    send(conn, frames(cursor + 1, cursor + 2))
    while conn.recv(100):
        pass


def wait_for_no_connection(server: Server) -> None:
    deadline = time.monotonic() + 10
    while server.open and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not server.open


def test_break_leaves_nothing_open() -> None:
    with serve(stay) as server, Client(server.url) as client:
        for _ in client.watch("r"):
            break
        gc.collect()
        wait_for_no_connection(server)


def test_async_break_leaves_nothing_open() -> None:
    async def main(server: Server) -> None:
        async with AsyncClient(server.url) as client:
            async for _ in client.watch("r"):
                break
            gc.collect()
            for _ in range(1000):
                await asyncio.sleep(0.01)
                if not server.open:
                    return
            raise AssertionError("a connection is open")

    with serve(stay) as server:
        asyncio.run(main(server))


def test_a_cancelled_read_loses_nothing() -> None:
    async def main(server: Server) -> None:
        got: list[int] = []
        async with AsyncClient(server.url) as client:
            watch = client.watch("r")
            while len(got) < 6:
                try:
                    item = await asyncio.wait_for(watch.__anext__(), 0.2)
                except asyncio.TimeoutError:
                    continue
                assert isinstance(item, Event)
                got.append(item.seq)
        assert got == [1, 2, 3, 4, 5, 6]
        assert len(asyncio.all_tasks()) == 1

    with serve(stay) as server:
        asyncio.run(main(server))


def test_close_from_another_thread_ends_a_read() -> None:
    with serve(stay) as server, Client(server.url) as client:
        watch = client.watch("r")
        threading.Timer(0.3, watch.close).start()
        assert [e.seq for e in watch if isinstance(e, Event)] == [1, 2]


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Lets SIGINT raise KeyboardInterrupt: a shell starts its background jobs with the signal ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.skipif(sys.platform == "win32", reason="no signals to a process itself")
def test_keyboard_interrupt_loses_nothing(interruptible: None) -> None:
    with serve(stay) as server, Client(server.url) as client:
        watch = client.watch("r")
        got: list[int] = []
        timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            got.extend(item.seq for item in watch if isinstance(item, Event))
        timer.join()
        item = next(watch)
        assert isinstance(item, Event)
        assert item.seq == len(got) + 1
        watch.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_child_has_connections_of_its_own() -> None:
    def handle(request: Request, conn: socket.socket, n: int) -> None:
        answer(conn, 200, {"run_id": "r", "last_seq": n})

    with serve(handle) as server, Client(server.url) as client:
        assert client.info("r")["last_seq"] == 1
        child = os.fork()
        if child == 0:
            try:
                os._exit(0 if client.info("r")["last_seq"] > 1 else 1)
            finally:
                os._exit(2)
        assert client.info("r")["last_seq"] > 1
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_silence_is_a_dead_connection() -> None:
    with serve(stay) as server, Client(server.url, idle=0.2) as client, client.watch("r") as watch:
        got = [next(watch) for _ in range(4)]
        assert [e.seq for e in got if isinstance(e, Event)] == [1, 2, 3, 4]


def test_a_page_is_no_stream() -> None:
    with serve(lambda r, c, n: answer(c, 200, {})) as server, Client(server.url) as client:
        with pytest.raises(NotAStream):
            next(client.watch("r"))


def test_tokens_are_asked_for_again() -> None:
    tokens = iter(["old", "new"])

    def handle(request: Request, conn: socket.socket, n: int) -> None:
        if request.headers["authorization"] != "Bearer new":
            answer(conn, 401, {"error": {"code": "UNAUTHORIZED", "message": "no"}})
        elif request.target.endswith("stream?bundle=true"):
            answer(conn, 204)
        else:
            answer(conn, 200, {"run_id": "r"})

    with serve(handle) as server:
        with Client(server.url, lambda: next(tokens)) as client:
            assert list(client.watch("r")) == []
            assert client.info("r") == {"run_id": "r"}
        with Client(server.url, "old") as client, pytest.raises(Unauthorized):
            client.info("r")
        with Client(server.url, lambda: "old") as client, pytest.raises(Unauthorized):
            next(client.watch("r"))


def test_async_tokens() -> None:
    tokens = iter(["old", "new"])

    async def token() -> str:
        await asyncio.sleep(0)
        return next(tokens)

    def handle(request: Request, conn: socket.socket, n: int) -> None:
        answer(conn, 200 if request.headers["authorization"] == "Bearer new" else 401, {"run_id": "r"})

    async def main(server: Server) -> None:
        async with AsyncClient(server.url, token) as client:
            got = await asyncio.gather(*(client.info("r") for _ in range(5)))
            assert all(g == {"run_id": "r"} for g in got)

    with serve(handle) as server:
        asyncio.run(main(server))


def test_one_key_over_all_repeats() -> None:
    def handle(request: Request, conn: socket.socket, n: int) -> None:
        if n < 3:
            cut(conn, reset=n == 1)
        elif n == 3:
            answer(conn, 503, {"error": {"code": "UNANSWERED"}}, retry_after="0")
        else:
            answer(conn, 200, STORED, Idempotency_Replayed="true")

    with serve(handle) as server, Client(server.url) as client:
        receipt = client.append("r", [{"type": "custom.x", "payload": {"text": "\ud800"}}])
        assert receipt.replayed
        assert len({r.headers["idempotency-key"] for r in server.requests}) == 1
        assert {r.body for r in server.requests} == {b'{"type":"custom.x","payload":{"text":"\\ud800"}}\n'}


def test_errors_have_classes() -> None:
    refusals = {"403": Forbidden, "404": NotFound, "409": Ended}

    def handle(request: Request, conn: socket.socket, n: int) -> None:
        run = request.target.rsplit("/", 1)[1]
        answer(conn, int(run), {"error": {"code": "RUN-ENDED" if run == "409" else "", "message": "\x1b[2J"}})

    with serve(handle) as server, Client(server.url) as client:
        for run, kind in refusals.items():
            with pytest.raises(kind) as caught:
                client.info(run)
            assert "\x1b" not in str(caught.value)


def test_giving_up_says_so() -> None:
    with serve(lambda r, c, n: cut(c)) as server, Client(server.url, give_up=0.3) as client:
        with pytest.raises(Unavailable, match="given up"):
            client.info("r")
        with pytest.raises(Unavailable, match="given up"):
            next(client.watch("r"))


def test_a_source_of_tokens_may_fail() -> None:
    def broken() -> str:
        raise LookupError("no token today")

    with Client("http://127.0.0.1:9", broken) as client:
        with pytest.raises(LookupError):
            client.info("r")
        with pytest.raises(LookupError):
            next(client.watch("r"))


@pytest.mark.parametrize("url", ["ftp://x", "http://", "http://u:secret@x", "http://x?a=b"])
def test_addresses_are_checked(url: str) -> None:
    with pytest.raises(ValueError, match="url") as caught:
        Client(url)
    assert "secret" not in str(caught.value)


def test_secrets_are_in_no_error() -> None:
    with pytest.raises(ValueError, match="token") as caught:
        Client("http://x", "sec\nret")
    assert "ret" not in str(caught.value)
    with pytest.raises(ValueError, match="not the id"):
        Client("http://x").watch("a/b")


def test_connection_lost_is_unavailable() -> None:
    assert issubclass(ConnectionLost, Unavailable)
