"""Taps, against a server whose answers are scripted."""

from __future__ import annotations

import json

import httpx
import pytest

from agentstream import Client, Forbidden
from agentstream.taps import Missing, acknowledge, tap


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


class Cut(httpx.SyncByteStream):
    def __init__(self, *parts: bytes) -> None:
        self.parts = parts

    def __iter__(self):  # type: ignore[no-untyped-def]
        yield from self.parts
        raise httpx.ReadError("cut")


def test_a_cut_goes_on_with_the_cursor() -> None:
    asked: list[str] = []
    gap = b'{"cursor":"c4","gap":{"run_id":"run_2","first_seq":4,"last_seq":9,"reason":"expired"}}\n'

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(str(request.url.query, "ascii"))
        if len(asked) == 1:
            parts = Cut(b'{"cursor":"c0"}\n\n', record(1) + record(2)[:9], record(2)[9:] + record(3)[:40])
            return httpx.Response(200, stream=parts)
        return httpx.Response(200, content=record(3) + gap)

    client = Client("http://x", http=httpx.Client(transport=httpx.MockTransport(answer)))
    got = []
    for r in tap(client, name="bill", types=["text.*"]):
        got.append(r)
        if r.missing:
            break
    assert [r.cursor for r in got] == ["c0", "c1", "c2", "c3", "c4"]
    assert [r.event.seq for r in got if r.event] == [1, 2, 3]
    assert got[4].missing == Missing("run_2", 4, 9, "expired")
    assert "tap=bill" in asked[0]
    assert "cursor" not in asked[0]
    assert "cursor=c2" in asked[1]
    assert "tap=" not in asked[1]


def test_a_refusal_ends_it() -> None:
    client = Client("http://x", http=httpx.Client(transport=httpx.MockTransport(lambda _: httpx.Response(403))))
    with pytest.raises(Forbidden):
        next(iter(tap(client)))


def test_acknowledge() -> None:
    asked = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append((request.method, request.url.path, request.content))
        return httpx.Response(200, json={"tap": "bill", "cursor": "c1"})

    acknowledge(Client("http://x", http=httpx.Client(transport=httpx.MockTransport(answer))), "bill", "c1")
    assert [(m, p, json.loads(b)) for m, p, b in asked] == [("POST", "/v1/agent/taps/bill", {"cursor": "c1"})]
