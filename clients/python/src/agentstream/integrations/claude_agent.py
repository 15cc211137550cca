"""Claude Agent SDK: hands its messages through and writes what they say into a turn.

    async with run.turn() as turn:
        async for message in tee(turn, query(prompt=question, options=…), prompt=question):
            …

With `include_partial_messages` the answer streams. It imports nothing of claude_agent_sdk: messages are read by their
fields. Why something could not be written is in `tee.error`. Sub-agents write into children of the call that began
them. The SDK's messages do not repeat the prompt: with `prompt` it is written as a message of the user.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

from .._pen import Lane
from ..arun import AsyncTurn
from . import anthropic
from ._recorder import Recorder, turn_of
from ._turns import Turns, questions_of


class tee(AsyncIterator[Any]):
    """The messages of a query, which are written as they are read."""

    def __init__(self, turn: AsyncTurn, messages: Any, *, prompt: str = "") -> None:
        begun = turn_of(turn)
        self._messages = messages
        self._items: Any = None
        self._to = Turns(turn._run)
        self._to.write(lambda: self._to.hear(questions_of(prompt), begun))
        self._lanes: dict[str, Lane] = {}
        self._open: dict[str, tuple[str, Recorder]] = {}  # by lane: the id of the message, and who writes it
        self._partial: set[str] = set()

    @property
    def error(self) -> BaseException | None:
        """Why something could not be written."""
        return self._to.error

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        if self._items is None:
            self._items = aiter(self._messages)
        try:
            message = await anext(self._items)
        except StopAsyncIteration:
            self._to.write(self._close_all)
            raise
        except BaseException as error:
            cause = error
            self._to.write(lambda: self._fail(cause))
            raise
        self._to.write(lambda: self._read(message))
        return message

    def _read(self, message: Any) -> None:
        parent = getattr(message, "parent_tool_use_id", None) or ""
        if hasattr(message, "event"):
            self._read_partial(parent, message.event)
        elif hasattr(message, "total_cost_usd"):
            self._close_all()
        elif hasattr(message, "model") and isinstance(getattr(message, "content", None), list):
            self._read_answer(parent, message)
        elif isinstance(getattr(message, "content", None), list):
            self._close(parent)
            for block in message.content:
                if hasattr(block, "tool_use_id"):
                    self._end_tool(parent, block)

    def _lane(self, parent: str) -> Lane:
        """Returns the lane of a sub-agent, by the call that has begun it."""
        root = self._to.lane
        if parent == "":
            return root
        if parent not in self._lanes:
            self._lanes[parent] = root.spawn("", "", parent if parent in root.calls else "", ())
            self._lanes[parent].begin_turn()
        return self._lanes[parent]

    def _recorder(self, parent: str, id: str, model: str) -> Recorder:
        known = self._open.get(parent)
        if known is not None and known[0] == id:
            return known[1]
        self._close(parent)
        turn = self._lane(parent).turn
        if turn is None:
            raise RuntimeError("the turn is over")
        recorder = Recorder(turn, "anthropic", model)
        self._open[parent] = id, recorder
        return recorder

    def _read_partial(self, parent: str, event: Any) -> None:
        self._partial.add(parent)
        item = _by_fields(event)
        if item.type == "message_start":
            self._recorder(parent, item.message.id, getattr(item.message, "model", ""))
        if parent in self._open:
            recorder = self._open[parent][1]
            anthropic.read(recorder, item)
            if item.type == "message_stop":
                self._close(parent)
            elif recorder.over:
                del self._open[parent]

    def _read_answer(self, parent: str, message: Any) -> None:
        if parent in self._partial:  # its pieces have come
            return
        recorder = self._recorder(parent, getattr(message, "message_id", None) or "", message.model)
        recorder.usage = getattr(message, "usage", None) or recorder.usage
        for block in message.content:
            if hasattr(block, "thinking"):
                recorder.reasoning(block.thinking)
                recorder.sign(getattr(block, "signature", None))
            elif hasattr(block, "text"):
                recorder.text(block.text)
            elif hasattr(block, "input") and hasattr(block, "name"):
                recorder.call(block.id, block.id, block.name)
                recorder.ready(block.id, block.input)

    def _end_tool(self, parent: str, block: Any) -> None:
        child = self._lanes.pop(block.tool_use_id, None)
        if child is not None:
            self._close(block.tool_use_id)
            if child.turn is not None:
                child.turn.end("end_turn")
            child.set_state("done")
        call = self._lane(parent).calls.get(block.tool_use_id)
        if call is None:
            return
        call.run()
        if block.is_error:
            call.fail(str(block.content))
        else:
            call.finish(block.content)

    def _close(self, parent: str) -> None:
        known = self._open.pop(parent, None)
        if known is not None:
            known[1].finish()

    def _close_all(self) -> None:
        for parent in list(self._open):
            self._close(parent)

    def _fail(self, error: BaseException) -> None:
        for _, recorder in self._open.values():
            recorder.fail(error)
        self._open.clear()


def _by_fields(value: Any) -> Any:
    if isinstance(value, dict):
        raw = {"input", "usage"}
        return SimpleNamespace(**{k: v if k in raw else _by_fields(v) for k, v in value.items()})
    return [_by_fields(v) for v in value] if isinstance(value, list) else value
