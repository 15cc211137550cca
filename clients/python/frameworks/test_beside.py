"""One graph, served by LangGraph's own server and, by a worker, by this one: the same script gets the same events.

What differs is in testdata/beside.diff, and in the table of docs/dialects/langchain.md.
"""

from __future__ import annotations

import asyncio
import difflib
import json
import os
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph_sdk import get_client
from langgraph_sdk.schema import StreamMode

from agentstream import AsyncClient, AsyncWorker
from agentstream.integrations.langgraph import answer_with

from .beside.graph import builder
from .golden import FOLDER

MODES: list[StreamMode] = ["values", "updates", "messages-tuple"]


@pytest.fixture(scope="module")
def theirs() -> Iterator[str]:
    """LangGraph's own server, which keeps all in memory."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    folder = Path(__file__).parent / "beside"
    program = Path(sys.executable).with_name("langgraph")
    command = [str(program), "dev", "--no-browser", "--no-reload", "--host", "127.0.0.1", "--port", str(port)]
    quiet = {"LANGSMITH_TRACING": "false", "LANGGRAPH_CLI_NO_ANALYTICS": "1", "LANGGRAPH_NO_VERSION_CHECK": "true"}
    path = f"{program.parent}{os.pathsep}{os.environ['PATH']}"
    env = {**os.environ, **quiet, "PATH": path}
    server = subprocess.Popen(command, cwd=folder, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        url = f"http://127.0.0.1:{port}"
        while True:
            assert server.poll() is None, "LangGraph's server has ended"
            with suppress(httpx.TransportError):
                if httpx.get(f"{url}/ok").status_code == 200:
                    break
            time.sleep(0.2)
        yield url
    finally:
        server.terminate()
        server.wait()


def shorten(message: Any) -> dict[str, Any]:
    """Returns what matters of a message."""
    content = message.get("content")
    if isinstance(content, list):
        content = "".join(b.get("text", "") for b in content if b.get("type") == "text")
    kept = {
        "type": message["type"],
        "content": content,
        "calls": [(c["name"], c["args"]) for c in message.get("tool_calls") or ()],
        "chunks": [c["args"] for c in message.get("tool_call_chunks") or ()],
        "status": message.get("status"),
    }
    return {k: v for k, v in kept.items() if v}


def shape(event: str, data: Any) -> Any:
    """Returns what matters of an event."""
    if event in ("metadata", "end"):
        return sorted(data)
    if event == "values":
        waits = [i["value"] for i in data.get("__interrupt__") or ()]
        return [[shorten(m) for m in data.get("messages") or ()], *waits]
    if event == "updates":
        return {
            node: [i["value"] for i in value] if node == "__interrupt__" else shorten(value["messages"][0])
            for node, value in data.items()
        }
    return [shorten(data[0]), data[1]["langgraph_node"]] if event == "messages" else data


async def play(url: str) -> list[str]:
    """Plays the script, and returns what the SDK gets."""
    out: list[str] = []

    def say(*parts: Any) -> None:
        out.append(" ".join(p if isinstance(p, str) else json.dumps(p, sort_keys=True) for p in parts))

    async with get_client(url=url, api_key=None) as sdk:
        thread = (await sdk.threads.create(thread_id=str(uuid.uuid4())))["thread_id"]

        async def run(text: str | None, **more: Any) -> None:
            say("##", text or "resume")
            given: Any = {"messages": [{"role": "user", "content": text}]} if text is not None else None
            async for part in sdk.runs.stream(thread, "agent", input=given, stream_mode=MODES, **more):
                say(part.event, shape(part.event, part.data))
            found: Any = await sdk.threads.get(thread)
            say("thread", found["status"], [i["value"] for all in found["interrupts"].values() for i in all])
            state: Any = await sdk.threads.get_state(thread)
            say("state", state["next"], [shorten(m) for m in state["values"]["messages"]])

        await run("time?")
        await run("ask")
        await run(None, command={"resume": "CET"})
        await run("fail")
        await run("again")
        history: Any = await sdk.threads.get_history(thread, limit=50)
        say("history", [len(s["values"].get("messages") or ()) for s in history])
        past = next(s for s in history if len(s["values"].get("messages") or ()) == 4 and not s["next"])
        await run("fork", checkpoint_id=past["checkpoint"]["checkpoint_id"])
        runs = await sdk.runs.list(thread)
        say("runs", [r["status"] for r in runs])
        parts = sdk.runs.join_stream(thread, runs[0]["run_id"], last_event_id="-1")
        say("joined", [p.event async for p in parts])
    return out


async def play_with_worker(url: str) -> list[str]:
    async with AsyncClient(url) as client:
        graph = builder.compile(checkpointer=InMemorySaver())
        worker = asyncio.create_task(AsyncWorker(client, answer_with(graph)).run())
        try:
            return await play(url)
        finally:
            worker.cancel()
            await asyncio.gather(worker, return_exceptions=True)


def test_the_same_script_gets_the_same_events(theirs: str, url: str, request: pytest.FixtureRequest) -> None:
    want, have = asyncio.run(play(theirs)), asyncio.run(play_with_worker(url))
    got = "\n".join(difflib.unified_diff(want, have, "langgraph-api", "agentstream", lineterm="", n=0)) + "\n"
    path = FOLDER / "beside.diff"
    if request.config.getoption("--update"):
        path.write_text(got)
    assert got == path.read_text()
