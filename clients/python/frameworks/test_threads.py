"""A graph that answers threads of a real server (AGENTSTREAM_SERVER), read and steered by LangGraph's own SDK."""

from __future__ import annotations

import asyncio
import json
import os
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import interrupt
from langgraph_sdk import get_client

from agentstream import AsyncClient, AsyncWorker
from agentstream.integrations.langgraph import answer_with

from .beside.graph import Scripted
from .test_langchain import State, clock

URL = os.environ["AGENTSTREAM_SERVER"]


def graph() -> Any:
    """Asks for the time with a tool, asks a person on "ask", and else says what it was told."""

    async def agent(state: State, config: RunnableConfig) -> dict[str, Any]:
        last = state["messages"][-1]
        if last.content == "time?":
            zones = enumerate(("UTC", "CET"))
            calls = [{"id": f"c{n}", "name": "clock", "args": json.dumps({"tz": zone})} for n, zone in zones]
            model = Scripted(words=["Let me", " look."], calls=calls)
        elif last.content == "ask":
            return {"messages": [HumanMessage(str(interrupt({"question": "Which zone?"})))]}
        elif last.content == "fail":
            raise ValueError("out of order")
        else:
            model = Scripted(words=["You said ", str(last.content)])
        return {"messages": [await model.ainvoke(state["messages"], config)]}

    def route(state: State) -> str:
        last = state["messages"][-1]
        if isinstance(last, HumanMessage):
            return "agent"
        return "tools" if isinstance(last, AIMessage) and last.tool_calls else END

    made = StateGraph(State)
    made.add_node("agent", agent)
    made.add_node("tools", ToolNode([clock]))
    made.add_edge(START, "agent")
    made.add_conditional_edges("agent", route, ["tools", "agent", END])
    made.add_edge("tools", "agent")
    return made.compile(checkpointer=InMemorySaver())


@asynccontextmanager
async def working() -> AsyncIterator[Any]:
    async with AsyncClient(URL) as client:
        task = asyncio.create_task(AsyncWorker(client, answer_with(graph())).run())
        sdk = get_client(url=URL, api_key=None)
        try:
            yield sdk
        finally:
            await sdk.aclose()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def with_worker(test: Callable[[Any], Awaitable[None]]) -> None:
    async def run() -> None:
        async with working() as sdk:
            await asyncio.wait_for(test(sdk), 60)

    asyncio.run(run())


def said(state: Any) -> list[tuple[str, Any]]:
    return [(m["type"], m["content"]) for m in state["values"]["messages"]]


async def stream(sdk: Any, thread: str, text: str | None, **more: Any) -> list[Any]:
    given = {"messages": [{"role": "user", "content": text}]} if text is not None else None
    parts = sdk.runs.stream(thread, "agent", input=given, stream_mode=["values", "updates", "messages-tuple"], **more)
    return [part async for part in parts]


def test_messages_tools_and_states() -> None:
    async def test(sdk: Any) -> None:
        thread = (await sdk.threads.create(thread_id=str(uuid.uuid4())))["thread_id"]
        parts = await stream(sdk, thread, "time?")
        names = {p.event for p in parts}
        assert {"metadata", "values", "updates", "messages"} <= names
        pieces = [p.data[0] for p in parts if p.event == "messages"]
        texts = [p["content"] for p in pieces if "AI" in p["type"] and p["content"]]
        assert texts[:2] == ["Let me", " look."]  # the model streams, which the node only invokes
        state = await sdk.threads.get_state(thread)
        kinds = [m["type"] for m in state["values"]["messages"]]
        assert kinds == ["human", "ai", "tool", "tool", "ai"]
        assert sorted(m["content"] for m in state["values"]["messages"] if m["type"] == "tool") == [
            "12:00 CET",
            "12:00 UTC",
        ]
        await stream(sdk, thread, "more")
        assert said(await sdk.threads.get_state(thread))[-2:] == [("human", "more"), ("ai", "You said more")]

    with_worker(test)


def test_interrupts_and_failures() -> None:
    async def test(sdk: Any) -> None:
        thread = (await sdk.threads.create(thread_id=str(uuid.uuid4())))["thread_id"]
        await stream(sdk, thread, "ask")
        found = await sdk.threads.get(thread)
        assert found["status"] == "interrupted"
        (waits,) = [i for all in found["interrupts"].values() for i in all]
        assert waits["value"] == {"question": "Which zone?"}
        await stream(sdk, thread, None, command={"resume": "CET"})
        assert said(await sdk.threads.get_state(thread))[-2:] == [("human", "CET"), ("ai", "You said CET")]
        parts = await stream(sdk, thread, "fail")
        assert (await sdk.threads.get(thread))["status"] == "error", parts[-1]

    with_worker(test)


def test_a_fork_of_a_thread_and_of_a_checkpoint() -> None:
    async def test(sdk: Any) -> None:
        thread = (await sdk.threads.create(thread_id=str(uuid.uuid4())))["thread_id"]
        await stream(sdk, thread, "one")
        await stream(sdk, thread, "two")
        history = await sdk.threads.get_history(thread, limit=20)
        after_one = next(s for s in history if len(s["values"].get("messages") or ()) == 2)
        await stream(sdk, thread, "three", checkpoint_id=after_one["checkpoint"]["checkpoint_id"])
        got = [text for _, text in said(await sdk.threads.get_state(thread))]
        assert got == ["one", "You said one", "three", "You said three"]

    with_worker(test)
