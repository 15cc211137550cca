"""Writes what a model's stream says, whoever's stream it is. It never waits: see `client.run(…, patient=False)`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

from .. import _json
from .._message import Call, Message
from .._payload import Closing, error_text, is_cancellation
from .._pen import Turn as PenTurn
from ..arun import AsyncTurn
from ..errors import Lost, Over
from ..run import Turn


def turn_of(turn: Turn | AsyncTurn | PenTurn) -> PenTurn:
    """Returns the turn of the pen, whose calls do not wait: from now on, deltas are dropped when there is no space."""
    if isinstance(turn, PenTurn):
        return turn
    turn._run._queue.patient = False
    return turn._turn


class Recorder:
    """One answer of a model: model.start, a message with text, thoughts and calls, and model.end.

    `calls` are the calls of tools that the model wants, once it has ended: each has `finish` and `fail`.
    """

    def __init__(self, turn: PenTurn, provider: str, model: str = "") -> None:
        self.turn = turn
        self.calls: list[Call] = []
        self.usage: Any = None
        self.stop = ""
        self._provider = provider
        self._model = model
        self._message: Message | None = None
        self._begun: dict[object, Call] = {}
        self._last: object = None
        self._end_model: Callable[[object, BaseException | None], None] | None = None
        self.over = False

    def begin(self, model: str = "", id: str = "") -> Message:
        """Begins the message, once."""
        if self._end_model is None:
            self._model = self._model or model or ""
            self._end_model = self.turn.begin_model(self._provider, self._model)
        if self._message is None:
            self._message = self.turn.message(id, "assistant", self._model, self._provider)
        return self._message

    def text(self, text: str | None) -> None:
        if text:
            self.begin().text(text)

    def reasoning(self, text: str | None) -> None:
        if text:
            self.begin().reasoning(text)

    def sign(self, signature: str | None) -> None:
        message = self.begin()
        if signature and message.open is not None and message.open.kind == "reasoning":
            message.sign(signature)

    def call(self, key: object, id: str | None = None, tool: str | None = None, piece: str | None = None) -> None:
        """Writes a piece of a call of a tool. key is what its pieces have in common; None is the last one's."""
        key = self._last if key is None else key
        self._last = key
        call = self._begun.get(key)
        if call is None:
            call = self.begin().call(id or "", tool or "tool")
            self._begun[key] = call
        if piece and not call.block.ended:
            call.input(piece)

    def ready(self, key: object, input: Any = None) -> None:
        """Ends the input of a call. One that is no JSON stays what it is: the message's end cuts it."""
        call = self._begun.get(key)
        if call is None or call.block.ended:
            return
        try:
            call.ready(input)
        except ValueError:
            return
        self.calls.append(call)

    def finish(self) -> None:
        """Ends the answer well."""
        if self.over:
            return
        message = self.begin()
        for key in self._begun:
            self.ready(key)
        usage = _plain(self.usage)
        message.end(self.stop or ("tool_use" if self.calls else "end_turn"), usage)
        self._close(usage, None)

    def fail(self, error: BaseException) -> None:
        """Ends the answer as a failure, with what there is of it. A cancellation is the turn's business."""
        if self.over or is_cancellation(error):
            self.over = True
            return
        if self._message is not None and not self._message.over:
            self._message.close(Closing(error_text(error), failed=True))
        else:
            self.begin().close(Closing(error_text(error), failed=True))
        self._close(None, error)

    def _close(self, usage: Any, error: BaseException | None) -> None:
        self.over = True
        if self._end_model is not None:
            self._end_model(usage, error)


def _plain(usage: Any) -> Any:
    """Returns usage as an object without what is not there."""
    if usage is None:
        return None
    value = _json.load(_json.dump(usage))
    return {k: v for k, v in value.items() if v is not None} if isinstance(value, dict) else None


class Tee(Iterator[Any]):
    """Hands a stream through and writes what it says. An error of the writer never reaches the stream's reader.

    Works on what is iterated by `for` and by `async for`, and on what is entered by `with` before.
    """

    def __init__(self, stream: Any, recorder: Recorder, read: Callable[[Recorder, Any], None]) -> None:
        self._stream = stream
        self._items: Any = None
        self._read = read
        self.recorder = recorder
        self.error: BaseException | None = None  # why no more is written

    @property
    def calls(self) -> list[Call]:
        """The calls of tools that the model wants: each has `finish` and `fail`."""
        return self.recorder.calls

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def _write(self, action: Callable[[], None]) -> None:
        if self.error is not None:
            return
        try:
            action()
        except (Lost, Over, ValueError, RuntimeError, AttributeError, TypeError) as error:
            self.error = error

    def __next__(self) -> Any:
        if self._items is None:
            self._items = iter(self._stream)
        try:
            item = next(self._items)
        except StopIteration:
            self._write(self.recorder.finish)
            raise
        except BaseException as error:
            cause = error
            self._write(lambda: self.recorder.fail(cause))
            raise
        self._write(lambda: self._read(self.recorder, item))
        return item

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        if self._items is None:
            self._items = aiter(self._stream)
        try:
            item = await anext(self._items)
        except StopAsyncIteration:
            self._write(self.recorder.finish)
            raise
        except BaseException as error:
            cause = error
            self._write(lambda: self.recorder.fail(cause))
            raise
        self._write(lambda: self._read(self.recorder, item))
        return item
