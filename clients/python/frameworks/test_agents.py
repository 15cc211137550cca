"""OpenAI Agents with a scripted model."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from agents import Agent, Model, ModelResponse, Runner, Usage, function_tool
from agents.tracing import generation_span, set_trace_processors
from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
    ResponseTextDeltaEvent,
)

from agentstream import AsyncClient
from agentstream.integrations.openai_agents import AgentstreamProcessor

from .conftest import Stored


def text(words: str) -> list[Any]:
    part = ResponseOutputText(annotations=[], text=words, type="output_text")
    return [ResponseOutputMessage(id="m1", content=[part], role="assistant", status="completed", type="message")]


def wants(*zones: str) -> list[Any]:
    return [
        ResponseFunctionToolCall(arguments=f'{{"tz":"{z}"}}', call_id=f"c{z}", name="clock", type="function_call")
        for z in zones
    ]


class Scripted(Model):
    """Answers in the order of its script."""

    def __init__(self, *answers: list[Any]) -> None:
        self._answers = iter(answers)

    async def get_response(self, *args: Any, **kwargs: Any) -> ModelResponse:
        output = next(self._answers)
        with generation_span(model="m", usage={"total_tokens": 8}) as span:  # as the SDK's own models have it
            span.span_data.input = [{"role": "system", "content": "Be short."}, *kwargs["input"]]
            calls = [
                {"id": i.call_id, "function": {"name": i.name, "arguments": i.arguments}}
                for i in output
                if i.type == "function_call"
            ]
            words = [i.content[0].text for i in output if i.type == "message"]
            message = {"role": "assistant", "content": "".join(words) or None, "tool_calls": calls or None}
            span.span_data.output = [message]
        return ModelResponse(output=output, usage=Usage(requests=1, total_tokens=8), response_id=None)

    async def stream_response(self, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        output = next(self._answers)
        for item in output:
            if item.type == "message":
                for word in item.content[0].text.split(" "):
                    yield ResponseTextDeltaEvent(
                        content_index=0,
                        delta=word + " ",
                        item_id="m1",
                        output_index=0,
                        sequence_number=1,
                        type="response.output_text.delta",
                        logprobs=[],
                    )
        whole = Response(
            id="r",
            created_at=0,
            model="m",
            object="response",
            output=output,
            tool_choice="auto",
            tools=[],
            parallel_tool_calls=True,
        )
        yield ResponseCompletedEvent(response=whole, sequence_number=2, type="response.completed")


@function_tool(failure_error_function=None)
def clock(tz: str) -> str:
    """Tells the time."""
    if tz == "Mars":
        raise ValueError("no clock there")
    return f"12:00 {tz}"


@function_tool(needs_approval=True)
def launch(tz: str) -> str:
    """Needs a person."""
    return tz


def play(stored: Stored, model: Scripted, *, stream: bool = False, tools: Any = (clock,)) -> AgentstreamProcessor:
    processor = AgentstreamProcessor()
    set_trace_processors([processor])  # type: ignore[list-item]
    agent = Agent(name="Keeper", model=model, tools=list(tools))

    async def go() -> None:
        url = str(stored.client._settings.base)
        async with AsyncClient(url) as client, client.run(stored.id, patient=False) as run:
            with processor.into(run):
                if stream:
                    async for _ in processor.tee(Runner.run_streamed(agent, "What time is it?")):
                        pass
                else:
                    processor.ask(await Runner.run(agent, "What time is it?"))

    asyncio.run(go())
    return processor


def test_tools_at_the_same_time(stored: Stored) -> None:
    assert play(stored, Scripted(wants("UTC", "CET"), text("It is noon."))).error is None
    story = stored.story()
    assert story.count("turn.start") == 1
    assert story.count("tool.start clock") == 2
    assert {"tool.end 12:00 UTC", "tool.end 12:00 CET"} <= set(story)
    assert {e["call_id"] for e in stored.payloads("tool.end")} == {"cUTC", "cCET"}
    assert stored.texts() == "It is noon."
    assert stored.texts("user") == "What time is it?"
    assert "task.start Keeper" in story
    assert story[-2:] == ["turn.end end_turn", "run.lifecycle done"]


def test_tokens(stored: Stored) -> None:
    assert play(stored, Scripted(wants("UTC"), text("It is noon.")), stream=True).error is None
    story = stored.story()
    assert stored.texts() == "It is noon. "
    assert stored.types().count("text.delta") == 1 + 3
    assert stored.texts("user") == "What time is it?"
    assert story.count("tool.end 12:00 UTC") == 1
    assert story[-2:] == ["turn.end end_turn", "run.lifecycle done"]


def test_an_error_of_a_tool(stored: Stored) -> None:
    with pytest.raises(Exception, match="no clock"):
        play(stored, Scripted(wants("Mars")))
    (end,) = stored.payloads("tool.end")
    assert end["ok"] is False
    assert stored.story()[-2:] == ["turn.end error", "run.lifecycle error"]


def test_an_error_of_a_streamed_run(stored: Stored) -> None:
    with pytest.raises(Exception, match="no clock"):
        play(stored, Scripted(wants("Mars")), stream=True)
    assert stored.texts("user") == "What time is it?"
    assert stored.story()[-2:] == ["turn.end error", "run.lifecycle error"]


def test_an_approval_is_a_question(stored: Stored) -> None:
    call = ResponseFunctionToolCall(arguments='{"tz":"Mars"}', call_id="c1", name="launch", type="function_call")
    processor = play(stored, Scripted([call]), tools=[launch])
    assert processor.error is None
    (asked,) = stored.payloads("input.requested")
    assert asked["request_id"] == "c1"
    assert asked["payload"] == {"tool": "launch", "input": {"tz": "Mars"}}
