"""Both clients on a real server."""

from __future__ import annotations

import asyncio
import json
import random
import threading
from contextlib import aclosing
from typing import Any

import pytest

from agentstream import AsyncClient, Client, Event, Exists, Gap, NotFound, ataps, taps
from agentstream.errors import Conflict

from .proxy import cutting

HOSTILE = [
    '"\\\b\f\x7f\0',
    "\u2028\u2029\u0085",
    "data: x\n\nid: 9\n\n",
    "\ufeff",
    "e\u0301 👩‍👩‍👧",
    "\ud800",
    "</script>",
    "x" * 2000,
]


def write_run(url: str, run_id: str, words: int, seed: int) -> str:
    """Writes a run with children and hostile payloads, and returns its words."""
    chosen = random.Random(seed)
    pieces = [chosen.choice(HOSTILE) if n % 7 == 0 else f"word {n} " for n in range(words)]
    with Client(url) as client, client.run(run_id) as run, run.turn() as turn:
        turn.user("go on")
        with turn.message(model="m") as message:
            message.reasoning("thinking")
            for n, piece in enumerate(pieces):
                message.text(piece)
                if n % 50 == 0:
                    run.flush()
                    run.emit("custom.hostile", {"text": piece, "number": 1e300, "deep": [[[[piece]]]]})
            call = message.call("sub", {"q": HOSTILE})
        with run.child("work", call=call) as child, child.turn() as inner, inner.message() as said:
            for piece in pieces[:100]:
                said.text(piece)
        call.finish({"answer": HOSTILE})
    return "".join(pieces).replace("\ud800", "\ufffd")


@pytest.mark.parametrize("detail", ["full", "default"])
def test_watch_behind_a_proxy_that_cuts(url: str, cuts: int, run_id: str, detail: str) -> None:
    seed = random.randrange(1 << 30)
    print("SEED", seed)
    cuts = cuts if cuts >= 50 else 4  # TestT3ClientsBehindACuttingProxy cuts these clients as well
    write_run(url, run_id, 700, seed)
    with Client(url) as client:
        log = client.replay(run_id).splitlines()

    def check(items: list[Event | Gap]) -> None:
        events = [i for i in items if isinstance(i, Event)]
        assert len(events) == len(items), "there are gaps"
        if detail == "full":
            assert [e.line for e in events] == log
        assert [e.line for e in events if not e.type.endswith(".delta")] == [
            raw for raw in log if not json.loads(raw)["type"].endswith(".delta")
        ]
        for kind in ("text.delta", "reasoning.delta"):
            for child in {e.child_id for e in events}:
                got = "".join(e.text for e in events if (e.type, e.child_id) == (kind, child))
                want = [json.loads(raw) for raw in log]
                assert got == "".join(w["payload"]["text"] for w in want if (w["type"], w["child_id"]) == (kind, child))

    mean = 4000 if detail == "full" else 2000

    def watch() -> None:
        with cutting(url, seed, mean, cuts) as proxy, Client(proxy.url, idle=0.3) as client:
            check(list(client.watch(run_id, detail=detail, refetch=True)))
            assert proxy.cuts > 0

    async def awatch(proxy_url: str) -> None:
        async with AsyncClient(proxy_url, idle=0.3) as client:
            check([item async for item in client.watch(run_id, detail=detail, refetch=True)])

    watch()
    with cutting(url, seed + 1, mean, cuts) as proxy:
        asyncio.run(awatch(proxy.url))
        assert proxy.cuts > 0


def test_every_batch_is_stored_once(url: str, cuts: int, run_id: str) -> None:
    """Requests and answers are cut: before, within and after what was stored. The long form cuts 200 of them."""
    wanted = 200 if cuts >= 50 else 10
    seed = random.randrange(1 << 30)
    print("SEED", seed)
    # An answer has some 400 bytes: every connection is cut after a few of them.
    with cutting(url, seed, 600, wanted, longest=0) as proxy, Client(proxy.url, timeout=0.5) as client:
        with client.run(run_id, grace=120) as run:
            n = 0
            while proxy.cuts < wanted:
                run.emit("custom.n", {"n": n})
                n += 1
                if n % 3 == 0:
                    run.flush()
    with Client(url) as client:
        events = [json.loads(raw) for raw in client.replay(run_id).splitlines()]
    assert [e["payload"]["n"] for e in events if e["type"] == "custom.n"] == list(range(n))
    assert events[-1]["payload"]["state"] == "done"


def test_people_decide(url: str, run_id: str) -> None:
    async def person(client: AsyncClient) -> None:
        async for item in client.watch(run_id, types=["input.requested", "plan.proposal"]):
            assert isinstance(item, Event)
            if item.type == "input.requested":
                await client.answer(run_id, str(item.payload["request_id"]), {"year": 2026})
            elif item.type == "plan.proposal":
                while (await client.info(run_id))["state"] != "awaiting_approval":
                    await asyncio.sleep(0.01)
                await client.approve(run_id, str(item.payload["plan"]["id"]))

    async def main() -> None:
        async with AsyncClient(url) as client:
            async with client.run(run_id) as run:
                await run.flush()
                watching = asyncio.create_task(person(client))
                async with run.turn():
                    assert await run.ask("Which year?") == {"year": 2026}
                    assert await run.propose({"id": "p1", "steps": [{"title": "Read"}]})
                    await run.checkpoint("cp1")
                    await run.step(1, "tool-roundtrip", "cp1")
                    await run.progress("half", 1, 2)
            await watching
            with pytest.raises(Conflict):
                await client.pause(run_id)
            state = await client.snapshot(run_id)
            assert state["state"] == "done"

    asyncio.run(main())


def test_a_person_cancels(url: str, run_id: str) -> None:
    from agentstream import Cancelled

    said = threading.Event()

    def cancel() -> None:
        said.wait(30)
        with Client(url) as client:
            client.cancel(run_id, "enough")

    thread = threading.Thread(target=cancel)
    thread.start()
    with Client(url) as client:
        with pytest.raises(Cancelled), client.run(run_id, commands=True) as run, run.turn() as turn:
            with turn.message() as message:
                while True:
                    message.text("x")
                    said.set()
                    threading.Event().wait(0.01)
        thread.join()
        assert client.info(run_id).get("state") == "aborted"
        assert client.info(run_id).get("ended_at")


def test_what_is_stored(url: str, run_id: str) -> None:
    with Client(url) as client:
        assert client.create(run_id) == run_id
        with pytest.raises(Exists):
            client.create(run_id)
        events: list[Any] = [{"type": "custom.n", "payload": {"n": n}} for n in range(5)]
        receipt = client.append(run_id, events, key="k1")
        assert (receipt.first_seq, receipt.last_seq, receipt.replayed) == (2, 6, False)
        assert client.append(run_id, events, key="k1").replayed
        page = client.events(run_id, limit=2)
        assert [e.seq for e in page.events] == [1, 2]
        assert page.has_more
        assert [e.seq for e in client.events(run_id, after=page.next, types="custom.*").events] == [3, 4, 5, 6]
        assert [e.seq for e in client.events(run_id, newest=True, limit=2).events] == [6, 5]
        blob = client.put_blob(run_id, b"\0\xff", "image/png")
        assert client.blob(run_id, blob["blob_ref"]) == (b"\0\xff", "image/png")
        ticket = client.ticket(run_id)["ticket"]
        assert ticket
        client.message(run_id, "hello")
        client.append(run_id, [{"type": "run.lifecycle", "payload": {"state": "done"}}])
        first = next(iter(client.watch(run_id, snapshot=True)))
        assert isinstance(first, Event)
        assert first.type == "run.snapshot"
        with pytest.raises(NotFound):
            client.info("nobody")
        found = []
        for _ in range(500):  # the list may lag by a moment
            found = [r for r in client.runs(state="done", limit=200)["runs"] if r["run_id"] == run_id]
            if found:
                break
            threading.Event().wait(0.02)
        assert found


def test_costs_and_searches(url: str, run_id: str) -> None:
    used = {"input_tokens": 1_000, "output_tokens": 10, "cost_usd": 0.5}
    with Client(url) as client:
        events: list[Any] = [
            {"type": "session.created", "payload": {"title": f"The costs of {run_id}", "agent": "counter"}},
            {"type": "message.start", "payload": {"message_id": "m", "role": "assistant", "model": "gpt-x"}},
            {"type": "message.end", "payload": {"message_id": "m", "usage": used}},
            {"type": "run.lifecycle", "payload": {"state": "done"}},
        ]
        last = client.append(run_id, events).last_seq
        found = []
        for _ in range(500):  # what is persisted may lag by a moment
            found = client.runs(q=f"costs {run_id}", agent="counter", model="gpt-x", order="events", limit=2)["runs"]
            if found and found[0]["last_seq"] == last:
                break
            threading.Event().wait(0.02)
        assert [r["run_id"] for r in found] == [run_id]
        assert found[0]["cost_usd"] == 0.5
        (cost,) = client.costs(run_id)["costs"]
        assert (cost["seq"], cost["model"], cost["cost_usd"]) == (last - 1, "gpt-x", 0.5)
        (whole,) = client.costs(run_id, by="child", limit=1)["costs"]
        assert (whole["child_id"], whole["messages"], whole["input_tokens"]) == (None, 1, 1_000)
        days = client.daily_costs()
        assert [d["model"] for d in days if d["model"] == "gpt-x" and d["messages"] >= 1]


def test_a_large_output_is_moved(url: str, run_id: str) -> None:
    with Client(url) as client:
        with client.run(run_id) as run, run.turn() as turn:
            with turn.message() as message:
                call = message.call("cat", {})
                message.text("y" * 1_000_000)
            call.finish("x" * 700_000)
        (end,) = [e for e in client.watch(run_id, types="tool.end") if isinstance(e, Event) and e.type == "tool.end"]
        content, kind = client.blob(run_id, str(end.payload["blob_ref"]))
        assert json.loads(content) == "x" * 700_000
        assert kind == "application/json"


def test_a_tap_behind_a_proxy_that_cuts(url: str, run_id: str) -> None:
    """Both taps yield every event of a run once, in order, and the one with a name goes on after its place."""
    seed = random.randrange(1 << 30)
    print("SEED", seed)
    write_run(url, run_id, 60, seed)
    with Client(url) as client:
        log = client.replay(run_id).splitlines()

    def by_thread() -> list[Event]:
        got: list[Event] = []
        with cutting(url, seed, 4000, 4) as proxy, Client(proxy.url, idle=0.3) as client:
            for record in taps.tap(client):
                if record.event is not None and record.event.run_id == run_id:
                    got.append(record.event)
                if len(got) == len(log):
                    break
        return got

    async def by_task() -> list[Event]:
        got: list[Event] = []
        with cutting(url, seed, 4000, 4) as proxy:
            async with AsyncClient(proxy.url, idle=0.3) as client:
                async with aclosing(ataps.tap(client, name=run_id)) as records:
                    async for record in records:
                        if record.event is not None and record.event.run_id == run_id:
                            got.append(record.event)
                        if len(got) == len(log):
                            break
                await ataps.acknowledge(client, run_id, record.cursor)
        return got

    async def after_the_place() -> Event:
        async with AsyncClient(url) as client, aclosing(ataps.tap(client, name=run_id)) as records:
            await client.append(run_id + "_2", [{"type": "custom.n", "payload": {}}])
            async for record in records:
                if record.event is not None and record.event.run_id in (run_id, run_id + "_2"):
                    return record.event
        raise AssertionError("a tap has ended")

    assert [e.line for e in by_thread()] == log
    assert [e.line for e in asyncio.run(by_task())] == log
    assert asyncio.run(after_the_place()).run_id == run_id + "_2"
