"""Claude Agent SDK: its own messages, as its parser reads them from a script of the program's lines."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from claude_agent_sdk._internal.message_parser import parse_message

from agentstream import AsyncClient
from agentstream.integrations.claude_agent import tee

from .conftest import Stored


def answer(*blocks: dict[str, Any], id: str = "msg_1", parent: str | None = None) -> dict[str, Any]:
    message = {"id": id, "role": "assistant", "model": "claude", "content": list(blocks), "usage": {"output_tokens": 5}}
    return {"type": "assistant", "message": message, "parent_tool_use_id": parent, "session_id": "s"}


def result(id: str, content: str, *, error: bool = False, parent: str | None = None) -> dict[str, Any]:
    block = {"type": "tool_result", "tool_use_id": id, "content": content, "is_error": error}
    return {"type": "user", "message": {"role": "user", "content": [block]}, "parent_tool_use_id": parent}


def use(id: str, tool: str = "clock", **input: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": id, "name": tool, "input": input}


def says(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def piece(event: dict[str, Any]) -> dict[str, Any]:
    return {"type": "stream_event", "uuid": "u", "session_id": "s", "event": event, "parent_tool_use_id": None}


END = {
    "type": "result",
    "subtype": "success",
    "duration_ms": 1,
    "duration_api_ms": 1,
    "is_error": False,
    "num_turns": 1,
    "session_id": "s",
    "total_cost_usd": 0.1,
}


def play(stored: Stored, *lines: dict[str, Any], fail: bool = False) -> None:
    async def query() -> AsyncIterator[Any]:
        for line in lines:
            yield parse_message(line)
        if fail:
            raise RuntimeError("the program has ended")

    async def go() -> None:
        url = str(stored.client._settings.base)
        async with AsyncClient(url) as client, client.run(stored.id, patient=False) as run, run.turn() as turn:
            messages = tee(turn, query(), prompt="What time is it?")
            try:
                assert len([m async for m in messages]) == len(lines)
            finally:
                assert messages.error is None

    asyncio.run(go())


def test_tools_at_the_same_time(stored: Stored) -> None:
    asks = [answer(says("Let me look.")), answer(use("c1", tz="UTC")), answer(use("c2", tz="Mars"))]
    play(
        stored, *asks, result("c1", "12:00"), result("c2", "no clock", error=True), answer(says("Noon."), id="m2"), END
    )
    story = stored.story()
    assert stored.texts() == "Let me look.Noon."
    assert story.count("message.end tool_use") == 1
    assert [e["ok"] for e in stored.payloads("tool.end")] == [True, False]
    assert story[-2:] == ["turn.end end_turn", "run.lifecycle done"]


def test_tokens(stored: Stored) -> None:
    deltas = [
        piece({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": t}}) for t in "ab"
    ]
    play(
        stored,
        piece({"type": "message_start", "message": {"id": "msg_1", "model": "claude", "usage": {"input_tokens": 3}}}),
        piece({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
        *deltas,
        piece({"type": "content_block_stop", "index": 0}),
        answer(says("ab")),
        piece({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 5}}),
        piece({"type": "message_stop"}),
        END,
    )
    assert stored.texts() == "ab"
    assert stored.types().count("text.delta") == 1 + 2
    assert stored.texts("user") == "What time is it?"
    assert stored.types().count("message.start") == 1 + 1


def test_a_sub_agent_is_a_child(stored: Stored) -> None:
    play(
        stored,
        answer(use("t1", "Task", prompt="look")),
        answer(says("I look."), id="m2", parent="t1"),
        result("t1", "found"),
        answer(says("Done."), id="m3"),
        END,
    )
    (spawn,) = stored.payloads("child.spawn")
    assert spawn["call_id"] == "t1"
    assert stored.story()[-2:] == ["turn.end end_turn", "run.lifecycle done"]


def test_an_error(stored: Stored) -> None:
    with pytest.raises(RuntimeError):
        play(stored, answer(says("Let me")), fail=True)
    assert stored.story()[-1] == "run.lifecycle error"
