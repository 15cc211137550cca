"""Plain `openai`: writes a streamed call of chat completions or of responses.

    stream = client.chat.completions.create(model="gpt", messages=[…], stream=True)
    for chunk in tee(turn, stream):
        …

Add `stream_options={"include_usage": True}` for the usage of chat completions. Afterwards `tee.calls` are the calls of
tools that the model wants. It imports nothing of openai: the chunks are read by their fields.
"""

from __future__ import annotations

from typing import Any

from .._pen import Turn as PenTurn
from ..arun import AsyncTurn
from ..run import Turn
from ._recorder import Recorder, Tee, turn_of

_STOPS = {"stop": "end_turn", "tool_calls": "tool_use", "function_call": "tool_use", "length": "max_tokens"}


def tee(turn: Turn | AsyncTurn | PenTurn, stream: Any, *, model: str = "") -> Tee:
    """Returns the stream, whose items are written into the turn as they are read: by `for` or by `async for`."""
    return Tee(stream, Recorder(turn_of(turn), "openai", model), read)


def read(recorder: Recorder, item: Any) -> None:
    """Writes an item of either stream."""
    if hasattr(item, "choices"):
        _read_chunk(recorder, item)
    else:
        _read_event(recorder, item)


def _read_chunk(recorder: Recorder, chunk: Any) -> None:
    recorder.begin(getattr(chunk, "model", "") or "")
    if getattr(chunk, "usage", None) is not None:
        recorder.usage = chunk.usage
    for choice in chunk.choices[:1]:  # a run has one answer: others of the same request are not written
        delta = choice.delta
        for name in ("reasoning_content", "reasoning"):  # of servers that speak the same protocol
            thought = getattr(delta, name, None)
            if isinstance(thought, str):
                recorder.reasoning(thought)
                break
        recorder.text(getattr(delta, "content", None) or getattr(delta, "refusal", None))
        for call in getattr(delta, "tool_calls", None) or ():
            function = call.function
            recorder.call(call.index, call.id, function and function.name, function and function.arguments)
        if choice.finish_reason:
            recorder.stop = _STOPS.get(choice.finish_reason, choice.finish_reason)


def _read_event(recorder: Recorder, event: Any) -> None:
    kind = getattr(event, "type", "")
    if kind == "response.created":
        recorder.begin(event.response.model)
    elif kind in ("response.output_text.delta", "response.refusal.delta"):
        recorder.text(event.delta)
    elif kind in ("response.reasoning_text.delta", "response.reasoning_summary_text.delta"):
        recorder.reasoning(event.delta)
    elif kind == "response.output_item.added" and event.item.type == "function_call":
        recorder.call(event.item.id or event.output_index, event.item.call_id, event.item.name)
    elif kind == "response.function_call_arguments.delta":
        recorder.call(event.item_id or event.output_index, piece=event.delta)
    elif kind == "response.output_item.done" and event.item.type == "function_call":
        recorder.ready(event.item.id or event.output_index)
    elif kind in ("response.completed", "response.incomplete"):
        recorder.usage = event.response.usage
        details = getattr(event.response, "incomplete_details", None)
        reason = getattr(details, "reason", None)
        if reason:
            recorder.stop = "max_tokens" if reason == "max_output_tokens" else reason
    elif kind == "response.failed":
        error = getattr(event.response, "error", None)
        recorder.fail(RuntimeError(getattr(error, "message", None) or "the response failed"))
    elif kind == "error":
        recorder.fail(RuntimeError(event.message))
