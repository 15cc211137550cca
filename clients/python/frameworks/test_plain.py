"""The clients of OpenAI and Anthropic, on servers that say what theirs say."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import anthropic
import openai
import pytest
from tests.server import Request, begin_stream, cut, end_stream, send, serve

from agentstream import AsyncClient, Turn
from agentstream.integrations import anthropic as of_anthropic
from agentstream.integrations import openai as of_openai

from .conftest import Stored


def sse(*events: Any, names: bool = False) -> bytes:
    out = b""
    for event in events:
        name = f"event: {event['type']}\n" if names else ""
        out += f"{name}data: {event if isinstance(event, str) else json.dumps(event)}\n\n".encode()
    return out


@contextmanager
def provider(body: bytes, cut_it: bool = False) -> Iterator[str]:
    """A provider that answers with the body, and returns its address."""

    def handle(request: Request, conn: socket.socket, n: int) -> None:
        begin_stream(conn)
        send(conn, body)
        if cut_it:
            cut(conn)
        else:
            end_stream(conn)

    with serve(handle) as server:
        yield server.url


def chunk(delta: Any, finish: str | None = None, **more: Any) -> dict[str, Any]:
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish}]
    return {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "gpt", "choices": choices, **more}


def call(index: int, **fields: Any) -> dict[str, Any]:
    return {"tool_calls": [{"index": index, **fields}]}


CHAT = sse(
    chunk({"role": "assistant", "content": ""}),
    chunk({"content": "Let me "}),
    chunk({"content": "look."}),
    chunk(call(0, id="c1", type="function", function={"name": "clock", "arguments": ""})),
    chunk(call(0, function={"arguments": '{"tz":'})),
    chunk(call(1, id="c2", type="function", function={"name": "list", "arguments": "{}"})),
    chunk(call(0, function={"arguments": '"UTC"}'})),
    chunk({}, "tool_calls"),
    chunk(None, usage={"prompt_tokens": 3, "completion_tokens": 5, "total_tokens": 8}),
    "[DONE]",
)


@pytest.fixture(autouse=True)
def closing() -> Iterator[ExitStack]:
    """Closes the providers' clients."""
    with ExitStack() as stack:
        yield stack


def create(url: str, closing: ExitStack) -> Any:
    client = closing.enter_context(openai.OpenAI(api_key="k", base_url=url, max_retries=0))
    return client.chat.completions.create(model="gpt", messages=[{"role": "user", "content": "?"}], stream=True)


def finish_all(turn: Turn, tee: Any) -> None:
    for one in tee.calls:
        one.finish(f"result of {one.tool}")


def test_openai_chat(stored: Stored, closing: ExitStack) -> None:
    with provider(CHAT) as url, stored.client.run(stored.id, patient=False) as run, run.turn() as turn:
        tee = of_openai.tee(turn, create(url, closing))
        assert len(list(tee)) == 9
        assert tee.error is None
        assert [(c.tool, c.block.input) for c in tee.calls] == [("clock", '{"tz":"UTC"}'), ("list", "{}")]
        finish_all(turn, tee)
    assert stored.story() == [
        "run.lifecycle running",
        "turn.start",
        "model.start",
        "message.start",
        "text.delta Let me ",
        "text.delta look.",
        'tool.input.delta {"tz":',
        "tool.input.delta {}",
        'tool.input.delta "UTC"}',
        "tool.start clock",
        "tool.start list",
        "message.end tool_use",
        "model.end",
        "tool.end result of clock",
        "tool.end result of list",
        "turn.end end_turn",
        "run.lifecycle done",
    ]
    (end,) = stored.payloads("message.end")
    assert end["usage"]["total_tokens"] == 8
    assert [b["type"] for b in end["content"]] == ["text", "tool_use", "tool_use"]


def test_openai_async_and_broken(stored: Stored) -> None:
    async def main(url: str) -> None:
        model = openai.AsyncOpenAI(api_key="k", base_url=url, max_retries=0)
        async with AsyncClient(stored.client._settings.base) as client:
            async with client.run(stored.id, patient=False) as run, run.turn() as turn:
                messages: Any = [{"role": "user", "content": "?"}]
                stream = await model.chat.completions.create(model="gpt", messages=messages, stream=True)
                tee = of_openai.tee(turn, stream)
                with pytest.raises(openai.APIConnectionError):
                    async for _ in tee:
                        pass
                assert tee.error is None
        await model.close()

    with provider(CHAT[:600], cut_it=True) as url:
        asyncio.run(main(url))
    assert stored.payloads("message.end")[0]["incomplete"]
    assert [w.split()[0] for w in stored.story()[-4:]] == ["message.end", "model.end", "turn.end", "run.lifecycle"]


def test_openai_responses(stored: Stored, closing: ExitStack) -> None:
    response: dict[str, Any] = {
        "id": "resp", "object": "response", "created_at": 1, "model": "gpt", "output": [], "status": "in_progress",
        "parallel_tool_calls": True, "tool_choice": "auto", "tools": [],
    }  # fmt: skip
    item = {
        "type": "function_call",
        "id": "fc",
        "call_id": "c1",
        "name": "clock",
        "arguments": "",
        "status": "in_progress",
    }
    usage = {
        "input_tokens": 3, "output_tokens": 5, "total_tokens": 8,
        "input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0},
    }  # fmt: skip
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": response},
        {
            "type": "response.reasoning_summary_text.delta",
            "item_id": "r",
            "output_index": 0,
            "summary_index": 0,
            "delta": "Hm.",
        },
        {
            "type": "response.output_text.delta",
            "item_id": "m",
            "output_index": 1,
            "content_index": 0,
            "delta": "Now.",
            "logprobs": [],
        },
        {"type": "response.output_item.added", "output_index": 2, "item": item},
        {"type": "response.function_call_arguments.delta", "item_id": "fc", "output_index": 2, "delta": '{"a":1}'},
        {
            "type": "response.output_item.done",
            "output_index": 2,
            "item": {**item, "arguments": '{"a":1}', "status": "completed"},
        },
        {"type": "response.completed", "response": {**response, "status": "completed", "usage": usage}},
    ]
    for n, event in enumerate(events):
        event["sequence_number"] = n
    with (
        provider(sse(*events, names=True)) as url,
        stored.client.run(stored.id, patient=False) as run,
        run.turn() as turn,
    ):
        client = closing.enter_context(openai.OpenAI(api_key="k", base_url=url, max_retries=0))
        tee = of_openai.tee(turn, client.responses.create(model="gpt", input="?", stream=True))
        list(tee)
        assert tee.error is None
        finish_all(turn, tee)
    (end,) = stored.payloads("message.end")
    assert [b["type"] for b in end["content"]] == ["thinking", "text", "tool_use"]
    assert end["content"][2]["input"] == {"a": 1}
    assert end["usage"]["total_tokens"] == 8
    assert stored.story()[-1] == "run.lifecycle done"


MESSAGE: dict[str, Any] = {
    "id": "msg", "type": "message", "role": "assistant", "model": "claude", "content": [], "stop_reason": None,
    "stop_sequence": None, "usage": {"input_tokens": 3, "output_tokens": 1},
}  # fmt: skip


def block(index: int, start: dict[str, Any], *deltas: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"type": "content_block_start", "index": index, "content_block": start},
        *({"type": "content_block_delta", "index": index, "delta": d} for d in deltas),
        {"type": "content_block_stop", "index": index},
    ]


ANTHROPIC = sse(
    {"type": "message_start", "message": MESSAGE},
    *block(
        0,
        {"type": "thinking", "thinking": "", "signature": ""},
        {"type": "thinking_delta", "thinking": "Hm."},
        {"type": "signature_delta", "signature": "sig"},
    ),
    *block(1, {"type": "text", "text": ""}, {"type": "text_delta", "text": "Let me look."}),
    *block(
        2,
        {"type": "tool_use", "id": "c1", "name": "clock", "input": {}},
        {"type": "input_json_delta", "partial_json": '{"tz":'},
        {"type": "input_json_delta", "partial_json": '"UTC"}'},
    ),
    {
        "type": "message_delta",
        "delta": {"stop_reason": "tool_use", "stop_sequence": None},
        "usage": {"output_tokens": 9},
    },
    {"type": "message_stop"},
    names=True,
)


@pytest.mark.parametrize("helper", [True, False])
def test_anthropic(stored: Stored, closing: ExitStack, helper: bool) -> None:
    arguments: Any = {"model": "claude", "max_tokens": 9, "messages": [{"role": "user", "content": "?"}]}
    with provider(ANTHROPIC) as url, stored.client.run(stored.id, patient=False) as run, run.turn() as turn:
        client = closing.enter_context(anthropic.Anthropic(api_key="k", base_url=url, max_retries=0))
        if helper:
            with client.messages.stream(**arguments) as stream:
                tee = of_anthropic.tee(turn, stream)
                list(tee)
                assert tee.get_final_message().stop_reason == "tool_use"
        else:
            tee = of_anthropic.tee(turn, client.messages.create(**arguments, stream=True))
            list(tee)
        assert tee.error is None
        finish_all(turn, tee)
    (end,) = stored.payloads("message.end")
    assert end["content"] == [
        {"type": "thinking", "thinking": "Hm.", "signature": "sig"},
        {"type": "text", "text": "Let me look."},
        {"type": "tool_use", "id": "c1", "name": "clock", "input": {"tz": "UTC"}},
    ]
    assert end["usage"] == {"input_tokens": 3, "output_tokens": 9}
    assert stored.story()[-3:] == ["tool.end result of clock", "turn.end end_turn", "run.lifecycle done"]


def test_anthropic_fails(stored: Stored, closing: ExitStack) -> None:
    error = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    body = ANTHROPIC[: ANTHROPIC.index(b"event: message_delta")] + sse(error, names=True)
    url = closing.enter_context(provider(body))
    client = closing.enter_context(anthropic.Anthropic(api_key="k", base_url=url, max_retries=0))
    with (
        pytest.raises(anthropic.APIStatusError),
        stored.client.run(stored.id, patient=False) as run,
        run.turn() as turn,
    ):
        messages: Any = [{"role": "user", "content": "?"}]
        tee = of_anthropic.tee(
            turn, client.messages.create(model="claude", max_tokens=9, messages=messages, stream=True)
        )
        try:
            list(tee)
        finally:
            assert tee.error is None
    assert stored.payloads("message.end")[0]["incomplete"]
    assert stored.story()[-1] == "run.lifecycle error"


def test_the_writer_never_reaches_the_reader(stored: Stored, closing: ExitStack) -> None:
    with provider(CHAT) as url, stored.client.run(stored.id, patient=False) as run, run.turn() as turn:
        turn.end()
        tee = of_openai.tee(turn, create(url, closing))
        assert len(list(tee)) == 9
        assert tee.error is not None
