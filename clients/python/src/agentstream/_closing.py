"""The ends of what is open, in the one order that readers of all protocols rely on.

For each lane, those below it first: the open blocks, the message with its content so far, the calls of models, the
calls of tools, the tasks, the turn, the state.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ._payload import MOST_KEPT, MOST_OF_A_REASON, Closing, New, Obj, lifecycle, shorten
from .event import FINAL_STATES

if TYPE_CHECKING:
    from ._message import Block, Message
    from ._pen import Lane


def close_lane(lane: Lane, closing: Closing) -> tuple[list[New], list[Lane]]:
    """Returns the events that end a lane, and the lanes that they end."""
    closing = Closing(shorten(closing.reason, MOST_OF_A_REASON), closing.failed, closing.turn_only)
    out: list[New] = []
    lanes: list[Lane] = []
    _close(lane, closing, not closing.turn_only, out, lanes)
    return out, lanes


def _close(lane: Lane, closing: Closing, end: bool, out: list[New], lanes: list[Lane]) -> None:
    for child in lane.below():
        _close(child, closing, True, out, lanes)
    lanes.append(lane)
    turn = lane.turn.id if lane.turn else ""

    def add(type: str, payload: object) -> None:
        out.append(lane.new(type, payload, turn))

    if lane.message is not None:
        for type, payload in close_message(lane.message, closing):
            add(type, payload)
    why = str(Obj().text("type", closing.word).some("message", closing.reason))
    for id in lane.models:
        add("model.end", Obj().text("call_id", id).yes("ok", False).raw("error", why))
    for id in lane.calls:
        o = Obj().text("call_id", id).yes("ok", False).text("error", closing.code)
        add("tool.end", o.raw("error_detail", why))
    for id in lane.tasks:
        add("task.end", Obj().text("task_id", id).yes("ok", False))
    if turn:
        add("turn.end", Obj().text("turn_id", turn).text("stop_reason", closing.word).some("reason", closing.reason))
    if end and lane.state not in FINAL_STATES:
        add("run.lifecycle", lifecycle(closing.state, closing.reason))


def close_message(message: Message, closing: Closing) -> list[tuple[str, Obj]]:
    """Returns the end of a message that was cut short."""
    out = [("block.end", cut_block(message, b)) for b in message.blocks if not b.ended]
    o, omitted = with_content(message)
    o.text("stop_reason", closing.word).raw("stop_sequence", "null").yes("incomplete", True)
    if closing.failed:
        o.raw("error", str(Obj().text("type", "error").some("message", shorten(closing.reason, MOST_OF_A_REASON))))
    return [*out, ("message.end", omitted(o))]


def cut_block(message: Message, block: Block) -> Obj:
    o = Obj().number("index", block.index).text("message_id", message.id).yes("complete", False)
    return o.text("problem", "cut short").some("call_id", block.call)


def with_content(message: Message) -> tuple[Obj, Callable[[Obj], Obj]]:
    """Returns the end of a message with its content, if that is known and fits, and what says that it was left out."""
    o, size, fits = Obj().text("message_id", message.id), message.size, False
    if not message.lost:
        content = "[" + ",".join(map(str, message.blocks)) + "]"
        size = len(content.encode())
        fits = size <= MOST_KEPT
        if fits:
            o.raw("content", content)

    def omitted(o: Obj) -> Obj:
        return o if fits else o.raw("omitted", '["content"]').number("omitted_bytes", size)

    return o, omitted
