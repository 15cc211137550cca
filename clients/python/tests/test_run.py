"""The writers on a server that answers late, cuts, refuses, or is away."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import threading
import time
from typing import Any

import pytest

from agentstream import AsyncClient, Client, Ended, Lost, Open, Over, Unavailable

from .server import Request, answer, begin_stream, cut, send, serve
from .test_client import _nothing_is_left  # noqa: F401
from .test_watch import frame, line


class Log:
    """A log of one run: stores each batch once by its key. trouble decides what happens to an answer."""

    def __init__(self, trouble: Any = None) -> None:
        self.events: list[dict[str, Any]] = []
        self.keys: dict[str, tuple[bytes, int, int]] = {}
        self.batches: list[int] = []
        self.trouble = trouble
        self.lock = threading.Lock()
        self.open = threading.Event()
        self.open.set()
        self.commands: list[dict[str, Any]] = []
        self.commanded = threading.Condition()

    def __call__(self, request: Request, conn: socket.socket, n: int) -> None:
        if request.method == "GET":
            self.stream(request, conn)
            return
        self.open.wait(20)
        key = request.headers["idempotency-key"]
        with self.lock:
            if key not in self.keys:
                events = [json.loads(e) for e in request.body.splitlines()]
                first = len(self.events) + 1
                self.events += events
                self.batches.append(len(events))
                self.keys[key] = request.body, first, len(self.events)
            body, first, last = self.keys[key]
            assert body == request.body
        if self.trouble is not None and self.trouble(n):
            cut(conn, reset=n % 2 == 0)
            return
        answer(conn, 200, {"first_seq": first, "last_seq": last})

    def stream(self, request: Request, conn: socket.socket) -> None:
        begin_stream(conn)
        sent = 0
        while True:
            with self.commanded:
                self.commanded.wait_for(lambda n=sent: len(self.commands) > n, 0.2)  # type: ignore[misc]
                more = self.commands[sent:]
            for command in more:
                seq = 1000 + sent
                send(
                    conn,
                    frame(line(seq, command["type"], first=2 if sent == 0 else seq, payload=command["payload"]), seq),
                )
                sent += 1
            conn.setblocking(False)
            try:
                if conn.recv(1) == b"":
                    return
            except BlockingIOError:
                pass
            finally:
                conn.setblocking(True)

    def command(self, type: str, **payload: Any) -> None:
        with self.commanded:
            self.commands.append({"type": type, "payload": payload})
            self.commanded.notify_all()

    def types(self) -> list[str]:
        return [e["type"] for e in self.events]

    def texts(self) -> str:
        return "".join(e["payload"]["text"] for e in self.events if e["type"] == "text.delta")


def test_answers_that_are_cut_store_once() -> None:
    log = Log(lambda n: n % 2 == 1)
    with serve(log) as server, Client(server.url) as client:
        with client.run("r") as run, run.turn() as turn, turn.message() as message:
            for i in range(300):
                message.text(f"{i} ")
                if i % 5 == 0:
                    run.flush()
    assert log.texts() == "".join(f"{i} " for i in range(300))
    assert log.types()[-1] == "run.lifecycle"
    assert len(log.batches) > 50


def test_packs_grow_with_the_load() -> None:
    log = Log()
    log.open.clear()
    with serve(log) as server, Client(server.url) as client:
        with client.run("r") as run, run.turn() as turn, turn.message() as message:
            for i in range(3000):
                message.text(str(i))
            log.open.set()
    assert max(log.batches) == 1024
    assert len(log.batches) < 20


def test_a_full_buffer_makes_the_agent_wait() -> None:
    log = Log()
    log.open.clear()
    with serve(log) as server, Client(server.url) as client:
        with client.run("r", buffer=20_000) as run, run.turn() as turn, turn.message() as message:
            threading.Timer(0.3, log.open.set).start()
            for _ in range(500):
                message.text("x" * 100)
                assert run._queue.bytes < 25_000
    assert log.texts() == "x" * 50_000


def test_callbacks_do_not_wait_and_say_what_they_dropped() -> None:
    log = Log()
    log.open.clear()
    with serve(log) as server, Client(server.url) as client:
        with client.run("r", buffer=20_000, patient=False) as run, run.turn() as turn:
            with turn.message() as message:
                for _ in range(500):
                    message.text("x" * 100)
            log.open.set()
            run.flush()
    (loss,) = [e for e in log.events if e["type"] == "loss"]
    (whole,) = [e for e in log.events if e["type"] == "message.end"]
    deltas = log.types().count("text.delta")
    assert loss["payload"]["events"] == 500 - deltas > 0
    assert whole["payload"]["content"] == [{"type": "text", "text": "x" * 50_000}]


def test_a_refusal_stops_the_writer() -> None:
    def handle(request: Request, conn: socket.socket, n: int) -> None:
        answer(conn, 409, {"error": {"code": "RUN-ENDED", "message": "over"}})

    with serve(handle) as server, Client(server.url) as client:
        with pytest.raises(Lost) as caught:
            with client.run("r") as run:
                run.flush()
        assert isinstance(caught.value.cause, Ended)
        assert caught.value.events == 1


def test_the_grace_bounds_the_end() -> None:
    with serve(lambda r, c, n: cut(c)) as server, Client(server.url) as client:
        with pytest.raises(Lost) as caught:
            with client.run("r", grace=0.2):
                pass
        assert isinstance(caught.value.cause, Unavailable)


@pytest.mark.parametrize("error", [ValueError("bad"), KeyboardInterrupt()])
def test_exceptions_end_the_run(error: BaseException) -> None:
    log = Log()
    with serve(log) as server, Client(server.url) as client:
        with pytest.raises(type(error)):
            with client.run("r") as run, run.turn() as turn, turn.model("m", "m"), turn.message() as message:
                message.text("half")
                message.begin_call("x").input('{"a')
                raise error
    want = "error" if isinstance(error, ValueError) else "aborted"
    assert log.events[-1]["payload"]["state"] == want
    assert log.types()[-5:] == ["block.end", "message.end", "model.end", "turn.end", "run.lifecycle"]
    assert log.types().count("turn.end") == log.types().count("message.end") == log.types().count("model.end") == 1


def test_cancellation_is_aborted() -> None:
    log = Log()

    async def agent(client: AsyncClient) -> None:
        async with client.run("r") as run, run.turn() as turn, turn.message() as message:
            await message.text("half")
            await asyncio.sleep(60)

    async def main(url: str) -> None:
        async with AsyncClient(url) as client:
            task = asyncio.create_task(agent(client))
            await asyncio.sleep(0.2)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert len(asyncio.all_tasks()) == 1

    with serve(log) as server:
        asyncio.run(main(server.url))
    assert log.events[-1]["payload"]["state"] == "aborted"
    assert log.types()[-3:] == ["message.end", "turn.end", "run.lifecycle"]


def test_ask_and_propose() -> None:
    log = Log()

    async def main(url: str) -> None:
        async with AsyncClient(url) as client, client.run("r") as run:
            asked = asyncio.create_task(run.ask("Which?", ["a", "b"], id="q1"))
            await asyncio.sleep(0.1)
            log.command("command.answer", request_id="other", answer="no")
            log.command("command.answer", request_id="q1", answer="b")
            assert await asked == "b"
            proposed = asyncio.create_task(run.propose({"id": "p1", "steps": [{"title": "Read"}]}))
            await asyncio.sleep(0.1)
            log.command("command.reject_plan", plan_id="p1", reason="too long")
            assert not await proposed
            assert run.rejection == "too long"
            log.command("command.message", content="Shorter.")
            command = await run.next_command(5)
            await run.settle(command, ("custom.read", {}))
            with pytest.raises(TimeoutError):
                await run.ask("Late?", timeout=0.1)
            log.command("command.cancel", reason="enough")
            with pytest.raises(Over):
                await run.ask("Still there?")
            raise_over = run.cancel_requested
            assert raise_over

    with serve(log) as server:
        asyncio.run(main(server.url))
    assert [e["payload"]["through"] for e in log.events if e["type"] == "commands.taken"][:3] == [1001, 1002, 1003]


def test_a_cancelled_run_is_aborted() -> None:
    log = Log()
    with serve(log) as server, Client(server.url) as client:
        with pytest.raises(Over), client.run("r", commands=True) as run, run.turn() as turn:
            log.command("command.cancel", reason="enough")
            with turn.message() as message:
                for _ in range(1000):
                    message.text("x")
                    time.sleep(0.01)
    assert log.types()[-2:] == ["commands.taken", "run.lifecycle"]
    assert log.events[-1]["payload"] == {"state": "aborted", "reason": "enough"}


def test_what_is_over_and_what_is_open() -> None:
    log = Log()
    with serve(log) as server, Client(server.url) as client, client.run("r") as run:
        with run.turn() as turn:
            with pytest.raises(Open):
                run.turn().__enter__()
            with turn.message() as message:
                call = message.call("clock", {})
                with pytest.raises(Open), turn.message():
                    pass
            with pytest.raises(Over):
                message.text("late")
            with pytest.raises(Open):
                turn.end()
            call.finish("12:00")
            with pytest.raises(Over):
                call.finish("again")
        with run.child("work", id="c1") as child:
            with child.turn() as turn, turn.message() as message:
                message.text("x")
        with pytest.raises(ValueError, match="JSON compliant"):
            run.emit("custom.x", {"x": float("nan")})
        with pytest.raises(ValueError, match="allowed"):
            run.emit("custom.x", {"x": "y" * 600_000})
    assert log.types()[-1] == "run.lifecycle"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_writer_is_not_taken_over_a_fork() -> None:
    log = Log()
    with serve(log) as server, Client(server.url) as client, client.run("r") as run:
        child = os.fork()
        if child == 0:
            try:
                run.emit("custom.x")
            except RuntimeError:
                os._exit(0)
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_the_interpreter_waits_at_its_end() -> None:
    log = Log()
    script = (
        "import sys; from agentstream import Client\n"
        "run = Client(sys.argv[1]).run('r'); run.__enter__(); run.emit('custom.last')\n"
    )
    with serve(log) as server:
        env = {k: v for k, v in os.environ.items() if k != "PYTHONWARNINGS"}
        subprocess.run([sys.executable, "-c", script, server.url], check=True, timeout=60, env=env)
    assert log.types() == ["run.lifecycle", "custom.last"]
