"""Pydantic AI with a scripted model."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from pydantic_ai import Agent, DeferredToolRequests
from pydantic_ai.models.function import AgentInfo, DeltaThinkingPart, DeltaToolCall, FunctionModel

from agentstream import AsyncClient
from agentstream.integrations.pydantic_ai import event_stream_handler

from .conftest import Stored


def scripted(*answers: list[Any]) -> FunctionModel:
    script = iter(answers)

    async def stream(messages: Any, info: AgentInfo) -> AsyncIterator[Any]:
        for item in next(script):
            yield item

    return FunctionModel(stream_function=stream)


def wants(*zones: str, tool: str = "clock") -> list[Any]:
    out: list[Any] = [{0: DeltaThinkingPart(content="Let me look.")}]
    for n, zone in enumerate(zones, 1):
        out.append({n: DeltaToolCall(name=tool, json_args='{"tz":', tool_call_id=f"c{zone}")})
        out.append({n: DeltaToolCall(json_args=f'"{zone}"}}')})
    return out


def play(stored: Stored, model: FunctionModel, **options: Any) -> None:
    agent: Agent[None, Any] = Agent(model, **options)

    @agent.tool_plain
    def clock(tz: str) -> str:
        """Tells the time."""
        if tz == "Mars":
            raise ValueError("no clock there")
        return f"12:00 {tz}"

    @agent.tool_plain(requires_approval=True)
    def launch(tz: str) -> str:
        """Needs a person."""
        return tz

    async def go() -> None:
        url = str(stored.client._settings.base)
        async with AsyncClient(url) as client, client.run(stored.id, patient=False) as run, run.turn() as turn:
            handler = event_stream_handler(turn)
            try:
                await agent.run("What time is it?", event_stream_handler=handler)
            finally:
                assert handler.error is None

    asyncio.run(go())


def test_tools_at_the_same_time(stored: Stored) -> None:
    play(stored, scripted(wants("UTC", "CET"), ["It is ", "noon."]))
    story = stored.story()
    assert stored.texts() == "It is noon."
    assert stored.types().count("text.delta") == 1 + 2
    assert stored.texts("user") == "What time is it?"
    assert story.count("tool.start clock") == 2
    assert {e["call_id"]: e["output"] for e in stored.payloads("tool.end")} == {
        "cUTC": "12:00 UTC",
        "cCET": "12:00 CET",
    }
    assert stored.types().count("reasoning.delta") == 1
    assert story[-2:] == ["turn.end end_turn", "run.lifecycle done"]


def test_an_error_of_a_tool(stored: Stored) -> None:
    with pytest.raises(ValueError, match="no clock"):
        play(stored, scripted(wants("Mars")))
    assert stored.story()[-1] == "run.lifecycle error"
    assert stored.payloads("tool.end")[0]["ok"] is False


def test_an_approval_is_a_question(stored: Stored) -> None:
    play(stored, scripted(wants("Mars", tool="launch")), output_type=[str, DeferredToolRequests])
    asked = stored.payloads("input.requested")
    assert [(a["request_id"], a["payload"]) for a in asked] == [("cMars", {"tool": "launch", "input": {"tz": "Mars"}})]
