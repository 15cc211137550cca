"""Plain `anthropic`: writes a streamed call of messages.

    with client.messages.stream(model="claude", max_tokens=100, messages=[…]) as stream:
        for event in tee(turn, stream):
            …

It also reads `client.messages.create(…, stream=True)`. Afterwards `tee.calls` are the calls of tools that the model
wants. It imports nothing of anthropic: the events are read by their fields.
"""

from __future__ import annotations

from typing import Any

from .. import _json
from .._pen import Turn as PenTurn
from ..arun import AsyncTurn
from ..run import Turn
from ._recorder import Recorder, Tee, turn_of


def tee(turn: Turn | AsyncTurn | PenTurn, stream: Any, *, model: str = "") -> Tee:
    """Returns the stream, whose events are written into the turn as they are read: by `for` or by `async for`."""
    return Tee(stream, Recorder(turn_of(turn), "anthropic", model), read)


def read(recorder: Recorder, event: Any) -> None:
    """Writes an event. Those that the helper adds to the API's (`text`, `input_json` …) say the same again."""
    kind = getattr(event, "type", "")
    if kind == "message_start":
        recorder.begin(event.message.model)
        recorder.usage = _merge(recorder.usage, event.message.usage)
    elif kind == "content_block_start":
        block = event.content_block
        if block.type in ("tool_use", "server_tool_use"):
            recorder.call(event.index, block.id, block.name)
    elif kind == "content_block_delta":
        _read_delta(recorder, event.index, event.delta)
    elif kind == "content_block_stop":
        recorder.ready(event.index)
    elif kind == "message_delta":
        recorder.usage = _merge(recorder.usage, event.usage)
        recorder.stop = event.delta.stop_reason or recorder.stop
    elif kind == "error":
        recorder.fail(RuntimeError(getattr(event.error, "message", "the model's answer failed")))


def _read_delta(recorder: Recorder, index: int, delta: Any) -> None:
    if delta.type == "text_delta":
        recorder.text(delta.text)
    elif delta.type == "thinking_delta":
        recorder.reasoning(delta.thinking)
    elif delta.type == "signature_delta":
        recorder.sign(delta.signature)
    elif delta.type == "input_json_delta":
        recorder.call(index, piece=delta.partial_json)


def _merge(old: Any, new: Any) -> Any:
    """Returns the newest of each member of usage: the end repeats what the beginning said, or leaves it out."""
    if new is None:
        return old
    value = _json.load(_json.dump(new))
    return {**(old or {}), **{k: v for k, v in value.items() if v is not None}} if isinstance(value, dict) else old
