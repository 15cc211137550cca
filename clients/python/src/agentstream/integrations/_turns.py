"""What the handlers of frameworks have in common: they never wait, and never raise into the framework."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from .. import _json
from .._payload import CODE_FAILED, Closing, Obj, error_of, error_text
from .._pen import Lane, Turn
from ..arun import AsyncRun
from ..errors import AgentstreamError
from ..run import Run
from ._recorder import Recorder


class Turns:
    """Writes into a run. A turn begins with whatever comes first, unless one is open, and ends with that."""

    def __init__(self, run: Run | AsyncRun) -> None:
        run._queue.patient = False
        self.lane = run._lane
        self.error: BaseException | None = None
        self.asked: set[str] = set()
        self._lock = threading.RLock()
        self._turn: Turn | None = None
        self._heard: Turn | None = None  # in which this has written what a person said
        self._root: object = None
        self._tools: dict[object, tuple[str, float]] = {}
        self._models: dict[object, tuple[Recorder, Lane]] = {}

    def write(self, action: Callable[[], object]) -> None:
        """Does something. Why it could not be done is in error."""
        with self._lock:
            try:
                action()
            except (AgentstreamError, ValueError, TypeError, AttributeError, RuntimeError, KeyError) as error:
                self.error = self.error or error

    @property
    def open(self) -> bool:
        """Whether a turn is open."""
        return self.lane.turn is not None

    def begin(self, key: object) -> Turn:
        """Returns the open turn, or begins one."""
        if self.lane.turn is not None:
            self._turn = self.lane.turn
        else:
            self._turn, self._root = self.lane.begin_turn(), key
        return self._turn

    def hear(self, texts: Iterable[str], turn: Turn | None = None) -> None:
        """Writes what a person has said, as messages of theirs; not where whoever began the turn has written it."""
        turn = turn or self.lane.turn
        if turn is None or turn.lane.message is not None or (turn.heard and turn is not self._heard):
            return
        for text in texts:
            turn.user(text)
            self._heard = turn

    def end(self, key: object, error: BaseException | None = None) -> None:
        """Ends the turn, if key has begun it."""
        turn = self._turn
        if turn is None or turn.over or self._root is None or key != self._root:
            return
        self._root = None
        if error is None and not self.lane.working():
            turn.end("end_turn")
        else:
            text = error_text(error) if error is not None else "the agent left what it had begun"
            waits = error is None and bool(self.asked)  # for a person: what it has begun goes on in another turn
            self.lane.close(Closing("" if waits else text, failed=not waits, turn_only=True), turn)

    def ask(self, id: str, value: Any) -> None:
        """Writes a question to a person, once."""
        id = id or self.lane.pen.make_id("ask")
        if id in self.asked:
            return
        self.asked.add(id)
        prompt = value if isinstance(value, str) else _json.dump(value)
        o = Obj().text("request_id", id).text("prompt", prompt)
        self.lane.emit("input.requested", o.raw("payload", _json.dump(value)))

    def answer(self, resume: Any) -> None:
        """Writes what a person has answered: values by the ids of questions, or one for the only question."""
        if resume is None:
            return
        by_id = isinstance(resume, Mapping) and bool(self.asked) and set(resume) <= self.asked
        answers = dict(resume) if by_id else {id: resume for id in self.asked if len(self.asked) == 1}
        for id, value in answers.items():
            self.asked.discard(id)
            self.lane.emit("input.answered", Obj().text("request_id", id).raw("answer", _json.dump(value)))

    # Models: those that answer at the same time write into children.

    def begin_model(
        self, key: object, provider: str, model: str, name: str = "", heard: Iterable[str] = ()
    ) -> Recorder:
        """Begins a call of a model. heard is what a person has said, if that is to be written before it."""
        turn, lane = self.begin(key), self.lane
        if lane.message is not None:
            lane = lane.spawn("", name, "", ())
            turn = lane.begin_turn()
        self.hear(heard, turn)
        recorder = Recorder(turn, provider, model)
        recorder.begin()
        self._models[key] = recorder, lane
        return recorder

    def model(self, key: object) -> Recorder | None:
        found = self._models.get(key)
        return found[0] if found else None

    def end_model(self, key: object, error: BaseException | None = None) -> None:
        recorder, lane = self._models.pop(key)
        if error is not None:
            recorder.fail(error)
        else:
            recorder.finish()
        if lane is not self.lane and error is None:
            recorder.turn.end("end_turn")
            lane.set_state("done")
        elif lane is not self.lane:
            lane.close(Closing(error_text(error or ""), failed=True))
        self.end(key, error)

    # Tools.

    def begin_tool(self, key: object, id: str, name: str, input: Any) -> None:
        turn = self.begin(key)
        self._tools[key] = id, self.lane.pen.now()
        if id in self.lane.calls:  # a model has asked for it
            turn.emit("tool.run", Obj().text("call_id", id))
            return
        o = Obj().text("call_id", id).text("tool", name)
        turn.emit("tool.start", o.raw("input", _json.dump(input)))

    def end_tool(self, key: object, output: Any = None, error: BaseException | str | None = None) -> None:
        found = self._tools.pop(key, None)
        if found is None:
            return
        id, began = found
        o = Obj().text("call_id", id).yes("ok", error is None)
        if error is None:
            o.raw("output", _json.dump(output))
        else:
            o.text("error", CODE_FAILED).raw("error_detail", error_of(error))
        self.begin(key).emit("tool.end", o.number("duration_ms", self.lane.pen.since(began)))
        self.end(key)


def questions_of(messages: Any) -> list[str]:
    """Returns what a person says in the input of an agent or of a model: a text, or the newest of its messages.

    Those are the messages of the user after the last answer, in the form of any provider or of LangChain.
    """
    if isinstance(messages, str):
        return [messages] if messages else []
    if not isinstance(messages, Iterable) or isinstance(messages, (bytes, Mapping)):
        messages = getattr(messages, "messages", ())  # a prompt of LangChain
    if not isinstance(messages, Iterable):
        return []
    found: list[str] = []
    for message in messages:
        if isinstance(message, str):
            found.append(message)
        elif isinstance(message, (tuple, list)) and len(message) == 2:  # LangChain: a role and a content
            found += [_text_of(message[1])] if message[0] in _PERSONS else []
        else:
            role = _field(message, "role") or _field(message, "type")
            if role in _PERSONS:
                found.append(_text_of(_field(message, "content")))
            elif role not in _STANDING:
                found.clear()
    return [text for text in found if text]


_PERSONS = ("user", "human", "HumanMessageChunk")
_STANDING = ("system", "developer")  # says nothing of who has answered


def _field(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)


def _text_of(content: Any) -> str:
    """Returns the texts of a content, which is one or a list of parts."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, (list, tuple)) else ()
    texts = [part if isinstance(part, str) else _field(part, "text") for part in parts]
    return "\n".join(text for text in texts if isinstance(text, str) and text)
