"""Requests are sent in the trace of their caller, by OpenTelemetry's own packages."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator

import pytest
from opentelemetry import trace
from opentelemetry.instrumentation.httpx import HTTPXClientInstrumentor
from opentelemetry.sdk.trace import TracerProvider

from agentstream import AsyncClient, Client, traceparent

from .server import Request, Server, answer, serve

OWN = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
EVENTS = [{"type": "progress", "payload": {"message": "a"}}]


@pytest.fixture
def server() -> Iterator[Server]:
    def handle(request: Request, conn: socket.socket, n: int) -> None:
        answer(conn, 200, {"first_seq": n, "last_seq": n + request.body.count(b"\n")})

    with serve(handle) as server:
        yield server


@pytest.fixture(scope="module")
def tracer() -> trace.Tracer:
    return TracerProvider().get_tracer("test")


def traces(server: Server) -> list[str | None]:
    return [request.headers.get("traceparent") for request in server.requests]


def header(span: trace.Span) -> str:
    at = span.get_span_context()
    return f"00-{at.trace_id:032x}-{at.span_id:016x}-{at.trace_flags:02x}"


def test_requests_have_the_traceparent_that_is_given(server: Server) -> None:
    with Client(server.url) as client:
        client.append("run_1", EVENTS)
        with traceparent(OWN):
            client.append("run_1", EVENTS)
            with traceparent(None):
                client.pause("run_1")
            client.message("run_1", "hello")
        client.info("run_1")
    assert traces(server) == [None, OWN, None, OWN, None]
    for bad in ("x", OWN.upper(), OWN[:-1], "00-" + "0" * 32 + OWN[35:], OWN + "\r\nX: y"):
        with pytest.raises(ValueError, match="traceparent"), traceparent(bad):
            pass


def test_threads_send_in_the_current_span(server: Server, tracer: trace.Tracer) -> None:
    with Client(server.url) as client:
        with tracer.start_as_current_span("work") as span:
            client.append("run_1", EVENTS)
            run = client.run("run_1")
        with run:  # its thread has no span, nor has this one
            run.progress("b")
        client.append("run_1", EVENTS)
    assert set(traces(server)[:-1]) == {header(span)}
    assert len(server.requests) > 2
    assert traces(server)[-1] is None


def test_tasks_send_in_their_own_spans(server: Server, tracer: trace.Tracer) -> None:
    async def work(client: AsyncClient, run: str) -> tuple[str, str]:
        with tracer.start_as_current_span(run) as span:
            await client.append(run, EVENTS)
            return run, header(span)

    async def all_of_it() -> None:
        async with AsyncClient(server.url) as client:
            spans = dict(await asyncio.gather(*(work(client, f"run_{n}") for n in range(8))))
            sent = {r.target.split("/")[4]: r.headers.get("traceparent") for r in server.requests}
            assert sent == spans
            server.requests.clear()
            async with client.run("run_1") as run:
                with tracer.start_as_current_span("later"):
                    await run.progress("b")  # what a run says is in the trace of its beginning
        assert set(traces(server)) == {None}

    asyncio.run(all_of_it())


def test_an_instrumentation_of_httpx_puts_its_own_there(server: Server, tracer: trace.Tracer) -> None:
    HTTPXClientInstrumentor().instrument(tracer_provider=TracerProvider())
    try:
        with tracer.start_as_current_span("work") as span, Client(server.url) as client:
            client.append("run_1", EVENTS)
    finally:
        HTTPXClientInstrumentor().uninstrument()
    [sent] = traces(server)
    assert sent is not None
    assert sent[:36] == header(span)[:36]
    assert sent != header(span)
