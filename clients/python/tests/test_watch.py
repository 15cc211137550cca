"""The reading machine, without a socket: any sequence of cuts, doubles, gaps and refusals gives each event once."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentstream import Event, Gap, NotFound, Unauthorized, Unavailable
from agentstream._watch import ConnectionLost, Machine, Options
from agentstream.errors import error_of

STREAM = {"content-type": "text/event-stream"}


def line(seq: int, type: str = "text.delta", first: int = 0, **fields: Any) -> bytes:
    event: dict[str, Any] = {"id": f"evt_{seq}", "type": type, "run_id": "r", "child_id": None, "seq": seq}
    if first:
        event["first_seq"] = first
    return json.dumps({**event, "payload": {"text": "x"}, **fields}, separators=(",", ":")).encode()


def end(seq: int, state: str = "done") -> bytes:
    return line(seq, "run.lifecycle", payload={"state": state})


def frame(data: bytes, id: int | None = None) -> bytes:
    return b"data: " + data + (f"\nid: {id}".encode() if id is not None else b"") + b"\n\n"


def frames(*seqs: int) -> bytes:
    return b"".join(frame(line(s), s) for s in seqs)


def drain(machine: Machine) -> list[Event | Gap]:
    out = []
    while (item := machine.pop()) is not None:
        out.append(item)
    return out


def seqs(items: list[Event | Gap]) -> list[int]:
    return [i.seq for i in items if isinstance(i, Event)]


def connect(machine: Machine) -> int:
    """Opens a connection and returns its cursor."""
    _, headers = machine.request()
    machine.opened(200, STREAM)
    return int(headers.get("Last-Event-ID", 0))


def test_the_end_is_confirmed() -> None:
    m = Machine(Options())
    assert connect(m) == 0
    m.feed(frames(1) + frame(end(2), 2))
    m.closed()
    assert not m.over
    assert m.pause() == 0
    _, headers = m.request()
    assert headers["Last-Event-ID"] == "2"
    m.opened(204, {})
    assert m.over
    assert seqs(drain(m)) == [1, 2]
    assert m.cursor == 2


def test_a_follow_up_goes_on() -> None:
    m = Machine(Options())
    connect(m)
    m.feed(frame(end(1), 1))
    m.closed()
    assert connect(m) == 1
    m.feed(frame(line(2, "command.message", payload={"content": "x"}), 2))
    m.closed()
    assert not m.over
    assert connect(m) == 2
    m.feed(frame(end(3), 3))
    m.closed()
    connect(m)
    m.closed()  # an older server ends in order instead of 204
    assert m.over
    assert seqs(drain(m)) == [1, 2, 3]


def test_a_clean_end_before_the_runs_end_is_none() -> None:
    m = Machine(Options())
    connect(m)
    m.feed(frames(1))
    m.closed()
    assert not m.over
    assert m.error is None
    assert connect(m) == 1


def test_the_end_is_unconfirmed_when_the_server_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    m = Machine(Options())
    connect(m)
    m.feed(frame(end(1), 1))
    m.closed()
    for _ in range(100):
        m.request()
        m.lost(ConnectionLost("away"))
        now[0] += m.pause()
        if m.over:
            break
    assert m.over
    assert m.stats.unconfirmed


def test_half_a_frame_moves_no_cursor() -> None:
    m = Machine(Options())
    connect(m)
    m.feed(frames(1) + b"data: " + line(2) + b"\nid: 2\n")
    m.lost(ConnectionLost("cut"))
    assert connect(m) == 1
    m.feed(frames(2))
    assert seqs(drain(m)) == [1, 2]


def test_gaps_and_overlaps() -> None:
    m = Machine(Options())
    connect(m)
    m.feed(frames(1) + frame(line(5, first=4)) + frame(line(6, first=5)) + frame(line(6)))
    items = drain(m)
    assert [i for i in items if isinstance(i, Gap)] == [Gap(2, 3), Gap(5, 6, overlap=True)]
    assert seqs(items) == [1, 5, 6]
    assert m.stats.duplicates == 1


def test_a_gap_is_asked_for_once_more() -> None:
    m = Machine(Options(refetch=True))
    connect(m)
    m.feed(frames(1) + frame(line(4)) + frame(line(5)))
    assert m.stale
    assert connect(m) == 1
    m.feed(frames(2, 3, 4, 6))  # 5 is missing now
    assert m.stale
    assert connect(m) == 4
    m.feed(frames(6))
    items = drain(m)
    assert seqs(items) == [1, 2, 3, 4, 6]
    assert [i for i in items if isinstance(i, Gap)] == [Gap(5, 5)]


def test_what_is_not_for_this_client_is_no_gap() -> None:
    m = Machine(Options(types=("tool.*",)))
    connect(m)
    m.feed(b"id: 9\n\n" + frame(line(10), 10))
    assert seqs(drain(m)) == [10]
    m.feed(b"id: 12\n\n")
    m.lost(ConnectionLost("cut"))
    assert connect(m) == 12


def test_stream_gap_is_no_event() -> None:
    m = Machine(Options())
    connect(m)
    m.feed(
        frames(1) + b"event: stream.gap\n" + frame(line(1, "stream.gap", payload={"first_seq": 2, "last_seq": 3}), 1)
    )
    m.feed(frame(line(4)))
    items = drain(m)
    assert seqs(items) == [1, 4]
    assert [i for i in items if isinstance(i, Gap)] == [Gap(2, 3)]


def test_an_event_that_cannot_be_read() -> None:
    m = Machine(Options())
    connect(m)
    deep = b'{"type":"custom.x","run_id":"r","seq":2,"payload":{"a":' + b"[" * 200_000 + b"]" * 200_000 + b"}}"
    m.feed(frames(1) + frame(deep, 2) + frame(b"no json", 3) + frame(b'{"new":"frame"}') + frames(4))
    items = drain(m)
    assert seqs(items) == [1, 4]
    gaps = [(i.first, i.last, bool(i.cause)) for i in items if isinstance(i, Gap)]
    assert gaps == [(2, 2, True), (3, 3, True)]
    assert m.stats.passed_over == 1


def test_hostile_payloads() -> None:
    numbers = b'{"text":"\\ud800","big":' + b"9" * 5000 + b',"inf":1e999,"minus":-0}'
    data = b'{"type":"text.delta","run_id":"r","seq":1,"payload":' + numbers + b"}"
    m = Machine(Options())
    connect(m)
    m.feed(frame(data, 1))
    (event,) = drain(m)
    assert isinstance(event, Event)
    assert event.line == data
    assert event.text == "\ud800"


def test_deltas_that_came_together() -> None:
    deltas = [{"type": "text.delta", "child_id": c, "payload": {"text": c, "x": "1.10"}} for c in "abc"]
    m = Machine(Options())
    connect(m)
    m.feed(frame(line(1), 1) + frame(line(4, "delta.bundle", first=2, payload={"deltas": deltas}), 4))
    cursors = []
    items = []
    while (item := m.pop()) is not None:
        items.append(item)
        cursors.append(m.cursor)
    assert cursors == [1, 1, 1, 4]
    parts = [i for i in items[1:] if isinstance(i, Event)]
    assert [(p.child_id, p.text, p.seq, p.first_seq) for p in parts] == [
        ("a", "a", 4, 2),
        ("b", "b", 4, 2),
        ("c", "c", 4, 2),
    ]
    assert parts[0].line == (
        b'{"id":"evt_4","type":"text.delta","run_id":"r","child_id":"a","seq":4,"first_seq":2,"payload":{"text":"a","x":"1.10"}}'
    )


@pytest.mark.parametrize("status", [400, 403, 404, 409, 410, 418, 500])
def test_refusals_are_final(status: int) -> None:
    m = Machine(Options())
    m.request()
    m.refused(error_of(status, {}, b""), False)
    assert m.error is not None


@pytest.mark.parametrize("status", [408, 429, 502, 503, 504])
def test_trouble_is_waited_out(status: int) -> None:
    m = Machine(Options())
    m.request()
    m.refused(error_of(status, {"retry-after": "7"}, b""), False)
    assert m.error is None
    assert m.pause() > 6.9


def test_not_found_is_a_class() -> None:
    m = Machine(Options())
    m.request()
    m.refused(error_of(404, {}, b'{"error":{"code":"NOT-FOUND","message":"no run"}}'), False)
    assert isinstance(m.error, NotFound)
    assert str(m.error) == "NOT-FOUND: no run (HTTP 404)"


def test_a_new_token_is_asked_for_once() -> None:
    m = Machine(Options())
    m.request()
    m.refused(error_of(401, {}, b""), True)
    assert m.error is None
    assert m.pause() == 0
    m.request()
    m.refused(error_of(401, {}, b""), True)
    assert isinstance(m.error, Unauthorized)


def test_a_credential_ends_in_the_stream() -> None:
    m = Machine(Options())
    connect(m)
    m.feed(
        frames(1) + b'event: stream.error\ndata: {"error":{"code":"CREDENTIAL-EXPIRED","message":"ended"}}\n\n', True
    )
    assert m.expired
    assert m.stale
    assert m.pause() == 0
    assert connect(m) == 1
    m.feed(frames(2))
    assert seqs(drain(m)) == [1, 2]


def test_giving_up(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    m = Machine(Options(), give_up=30)
    for _ in range(1000):
        m.request()
        m.lost(ConnectionLost("away"))
        if m.error:
            break
        now[0] += m.pause()
    assert isinstance(m.error, Unavailable)
    assert 5 < now[0] <= 30


def test_options() -> None:
    with pytest.raises(ValueError, match="snapshot"):
        Options(after=1, snapshot=True)
    with pytest.raises(ValueError, match="detail"):
        Options(detail="half")
    q = Options(types=("a", "b"), child=("-",), nested=True, speed=4, snapshot=True).query(0)
    assert q == {"types": "a,b", "child": "-", "nested": "true", "bundle": "true", "speed": "4", "snapshot": "true"}
    assert Options(detail="full").query(3) == {"detail": "full"}


class Server:
    """A run of n events whose last is its end, served with every fault."""

    def __init__(self, n: int, draw: Any) -> None:
        self.body = b"".join(frame(line(i) if i < n else end(i), i) for i in range(1, n + 1))
        self.n = n
        self.draw = draw

    def after(self, cursor: int, double: int) -> bytes:
        start = max(0, cursor - double)
        return b"retry: 1\n\n" + b"".join(
            frame(line(i) if i < self.n else end(i), i) for i in range(start + 1, self.n + 1)
        )


@settings(max_examples=150, deadline=None)
@given(st.data(), st.integers(1, 12))
def test_each_event_once_whatever_happens(data: st.DataObject, n: int) -> None:
    server, m, got = Server(n, data.draw), Machine(Options()), []
    for _ in range(60):
        if m.over or m.error:
            break
        _, headers = m.request()
        cursor = int(headers.get("Last-Event-ID", 0))
        fault = data.draw(st.sampled_from(["none", "cut", "cut", "double", "busy", "away", "clean"]))
        if fault == "busy":
            m.refused(error_of(503, {}, b""), False)
            continue
        if fault == "away":
            m.lost(ConnectionLost("away"))
            continue
        if cursor == n:
            m.opened(204, {})
            continue
        m.opened(200, STREAM)
        body = server.after(cursor, data.draw(st.integers(0, 3)) if fault == "double" else 0)
        stop = len(body) if fault in ("none", "double") else data.draw(st.integers(0, len(body)))
        step = data.draw(st.integers(1, 400))
        for at in range(0, stop, step):
            m.feed(body[at : min(at + step, stop)])
            got += drain(m)
        if fault == "cut":
            m.lost(ConnectionLost("cut"))
        else:
            m.closed()
    got += drain(m)
    assert m.error is None
    whole = seqs(got)
    assert whole == list(range(1, len(whole) + 1))
    assert not any(isinstance(i, Gap) for i in got)
    if m.over:
        assert len(whole) == n
