"""LangGraph's client for Python against one process: who leaves a run cancels it or does not, a run is joined, a stream
that was left goes on behind its last event, a run is awaited and cancelled, a thread is deleted. The first argument is the
product's program. It exits 0 when all is right."""

import asyncio
import json
import socket
import subprocess
import sys
import tempfile

from langgraph_sdk import get_client

LONG = {"messages": [{"role": "user", "content": " ".join(f"word{i}" for i in range(400))}]}
SHORT = {"messages": [{"role": "user", "content": "hi"}]}
MODE = ["messages-tuple"]


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


async def start(client):
    """Waits until the server answers."""
    for _ in range(300):
        try:
            return await client.threads.search(limit=1)
        except Exception:
            await asyncio.sleep(0.1)
    raise AssertionError("the server does not answer")


async def new_thread(client):
    return (await client.threads.create())["thread_id"]


async def expect_status(client, thread, run, wanted):
    for _ in range(600):
        status = (await client.runs.get(thread, run))["status"]
        if status in wanted:
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"run {run} is {status}, want one of {wanted}")


async def leave(client):
    """A stream is left after some parts; what the run does then is what was asked for."""
    for how, wanted in (("cancel", ("interrupted",)), ("continue", ("success",))):
        thread, run, parts = await new_thread(client), None, 0
        async for part in client.runs.stream(thread, "agent", input=LONG, stream_mode=MODE, on_disconnect=how):
            parts += 1
            if part.event == "metadata":
                run = part.data["run_id"]
            if run and parts > 10:
                break
        await expect_status(client, thread, run, wanted)
    thread = await new_thread(client)
    run = (await client.runs.create(thread, "agent", input=LONG))["run_id"]
    async for _ in client.runs.join_stream(thread, run, cancel_on_disconnect=True, stream_mode=MODE):
        break
    await expect_status(client, thread, run, ("interrupted",))


async def messages(stream, parts, most=None):
    """Appends the messages of a stream, at most so many, and returns the id of the run and of the last event."""
    run = last = None
    async for part in stream:
        last = part.id or last
        if part.event == "metadata":
            run = part.data["run_id"]
        if part.event == "messages":
            parts.append(json.dumps(part.data))
        if run and most and len(parts) >= most:
            break
    return run, last


async def resume(client):
    """A stream that is left goes on behind its last event, and is from its beginning what both parts are."""
    thread, parts, whole = await new_thread(client), [], []
    stream = client.runs.stream(thread, "agent", input=LONG, stream_mode=MODE, stream_resumable=True, on_disconnect="continue")
    run, last = await messages(stream, parts, 10)
    await messages(client.runs.join_stream(thread, run, last_event_id=last, stream_mode=MODE), parts)
    await messages(client.runs.join_stream(thread, run, last_event_id="-1", stream_mode=MODE), whole)
    assert parts == whole and len(whole) > 10, f"{len(parts)} messages in two parts, {len(whole)} in one"


async def control(client):
    """A run is joined, awaited and cancelled; a thread is read and deleted."""
    thread = await new_thread(client)
    run = (await client.runs.create(thread, "agent", input=LONG))["run_id"]
    joined = await client.runs.join(thread, run)
    assert len(joined["messages"]) == 2, joined
    await expect_status(client, thread, run, ("success",))
    values = await client.runs.wait(thread, "agent", input=SHORT)
    assert len(values["messages"]) == 4 and values["messages"][2]["content"] == "hi", values
    run = (await client.runs.create(thread, "agent", input=LONG))["run_id"]
    await client.runs.cancel(thread, run, wait=True)
    await expect_status(client, thread, run, ("interrupted",))
    assert (await client.threads.get_state(thread))["next"] == []
    assert len(await client.threads.get_history(thread, limit=2)) == 2
    assert (await client.threads.get(thread))["status"] == "idle"
    await client.threads.delete(thread)
    try:
        await client.threads.get(thread)
    except Exception as error:
        assert "404" in str(error) or "NotFound" in type(error).__name__, error
    else:
        raise AssertionError("a thread that was deleted is there")


async def check(port):
    client = get_client(url=f"http://127.0.0.1:{port}/langgraph")
    await start(client)
    for part in (leave, resume, control):
        await part(client)
        print("ok", part.__name__)


def main():
    port = free_port()
    with tempfile.TemporaryDirectory() as data:
        server = subprocess.Popen([sys.argv[1], "dev", "--listen", f"127.0.0.1:{port}", "--admin-listen", "off", "--data", data],
                                  stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            asyncio.run(asyncio.wait_for(check(port), 180))
        finally:
            server.terminate()
            server.wait()


main()
