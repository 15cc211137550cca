"""Taps, against a server whose answers are scripted."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing

import httpx
import pytest

from agentstream import AgentstreamError, AsyncClient, Client, Forbidden, ataps
from agentstream.taps import Missing, Record, acknowledge, tap

Answer = Callable[[httpx.Request], httpx.Response]


def record(seq: int) -> bytes:
    event = {
        "id": f"evt_{seq}",
        "ts": "2026-02-28T10:00:00Z",
        "type": "text.delta",
        "run_id": "run_1",
        "child_id": None,
        "seq": seq,
        "payload": {"text": "t"},
    }
    return json.dumps({"cursor": f"c{seq}", "event": event}).encode() + b"\n"


class Cut(httpx.SyncByteStream, httpx.AsyncByteStream):
    """A body that breaks off, and knows whether it was closed."""

    def __init__(self, *parts: bytes) -> None:
        self.parts = parts
        self.closed = False

    def __iter__(self) -> Iterator[bytes]:
        yield from self.parts
        raise httpx.ReadError("cut")

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for part in self.parts:
            yield part
        raise httpx.ReadError("cut")

    def close(self) -> None:
        self.closed = True

    async def aclose(self) -> None:
        self.closed = True


def read_by_thread(answer: Answer, token: Callable[[], str] | None, until: Callable[[Record], bool]) -> list[Record]:
    got = []
    with Client("http://x", token, http=httpx.Client(transport=httpx.MockTransport(answer))) as client:
        for record in tap(client, name="bill", types=["text.*"]):
            got.append(record)
            if until(record):
                break
    return got


def read_by_task(answer: Answer, token: Callable[[], str] | None, until: Callable[[Record], bool]) -> list[Record]:
    async def read() -> list[Record]:
        got = []
        http = httpx.AsyncClient(transport=httpx.MockTransport(answer))
        async with AsyncClient("http://x", token, http=http) as client:
            async for record in ataps.tap(client, name="bill", types=["text.*"]):
                got.append(record)
                if until(record):
                    break
        return got

    return asyncio.run(read())


Read = Callable[[Answer, "Callable[[], str] | None", Callable[[Record], bool]], "list[Record]"]
both = pytest.mark.parametrize("read", [read_by_thread, read_by_task])


@both
def test_a_cut_goes_on_with_the_cursor(read: Read) -> None:
    asked: list[str] = []
    gap = b'{"cursor":"c4","gap":{"run_id":"run_2","first_seq":4,"last_seq":9,"reason":"expired"}}\n'

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(str(request.url.query, "ascii"))
        if len(asked) == 1:
            parts = Cut(b'{"cursor":"c0"}\n\n', record(1) + record(2)[:9], record(2)[9:] + record(3)[:40])
            return httpx.Response(200, stream=parts)
        return httpx.Response(200, content=record(3) + gap)

    got = read(answer, None, lambda r: r.missing is not None)
    assert [r.cursor for r in got] == ["c0", "c1", "c2", "c3", "c4"]
    assert [r.event.seq for r in got if r.event] == [1, 2, 3]
    assert got[4].missing == Missing("run_2", 4, 9, "expired")
    assert "tap=bill" in asked[0]
    assert "cursor" not in asked[0]
    assert "cursor=c2" in asked[1]
    assert "tap=" not in asked[1]


@both
def test_a_token_is_asked_for_again(read: Read) -> None:
    asked: list[str] = []
    tokens = iter(["old", "new", "newest"])

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.headers["authorization"])
        if len(asked) in (1, 3):
            return httpx.Response(401)
        return httpx.Response(200, content=record(len(asked)))

    got = read(answer, lambda: next(tokens), lambda r: r.cursor == "c4")
    assert asked == ["Bearer old", "Bearer new", "Bearer new", "Bearer newest"]
    assert [r.cursor for r in got] == ["c2", "c4"]


@both
def test_a_loop_that_is_left_closes_its_connection(read: Read) -> None:
    body = Cut(record(1), record(2))
    read(lambda _: httpx.Response(200, stream=body), None, lambda r: True)
    assert body.closed


def test_a_tap_that_is_closed_closes_its_connection_at_once() -> None:
    body = Cut(record(1), record(2))

    async def read() -> None:
        http = httpx.AsyncClient(transport=httpx.MockTransport(lambda _: httpx.Response(200, stream=body)))
        async with AsyncClient("http://x", http=http) as client, aclosing(ataps.tap(client)) as records:
            async for _ in records:
                break
            assert not body.closed
            await records.aclose()
            assert body.closed

    asyncio.run(read())


@both
def test_what_is_no_record_ends_it(read: Read) -> None:
    with pytest.raises(AgentstreamError, match="no record"):
        read(lambda _: httpx.Response(200, content=b'{"event":1}\n'), None, lambda r: False)


@both
def test_a_refusal_ends_it(read: Read) -> None:
    with pytest.raises(Forbidden):
        read(lambda _: httpx.Response(403), None, lambda r: False)


def acknowledge_by_task(answer: Answer) -> None:
    async def send() -> None:
        async with AsyncClient("http://x", http=httpx.AsyncClient(transport=httpx.MockTransport(answer))) as client:
            await ataps.acknowledge(client, "bill", "c1")

    asyncio.run(send())


def acknowledge_by_thread(answer: Answer) -> None:
    acknowledge(Client("http://x", http=httpx.Client(transport=httpx.MockTransport(answer))), "bill", "c1")


@pytest.mark.parametrize("send", [acknowledge_by_thread, acknowledge_by_task])
def test_acknowledge(send: Callable[[Answer], None]) -> None:
    asked = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append((request.method, request.url.path, request.content))
        return httpx.Response(200, json={"tap": "bill", "cursor": "c1"})

    send(answer)
    assert [(m, p, json.loads(b)) for m, p, b in asked] == [("POST", "/v1/agent/taps/bill", {"cursor": "c1"})]
