"""The events that a run is written with, in the framing that all protocols need. No I/O.

A `Lane` is the run itself or one of its children; a `Turn` is one answer; a `Message` has blocks of text, reasoning
and tool calls; a `Call` is one call of a tool. Each call writes all its events or none. What has been cancelled
writes nothing any more, so that there is exactly one ending. The bytes are those of the writer in Go: both are held
to the golden files in producers/testdata.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from . import _json
from ._closing import close_lane
from ._ids import new_id
from ._message import Call, Message, role_of
from ._payload import Closing, New, Obj, check_names, error_of, lifecycle, usage_of
from .errors import Open, Over
from .event import FINAL_STATES

_ID = re.compile(r"[A-Za-z0-9_-]{1,128}")


@dataclass
class Pen:
    """One run. `put` receives the events of a call together; what it raises fails the call and nothing is noted."""

    run: str
    put: Callable[[Sequence[New]], None]
    actor: str = "agent"
    make_id: Callable[[str], str] = new_id
    now: Callable[[], float] = time.monotonic
    lock: threading.RLock = field(default_factory=threading.RLock)
    lanes: dict[str, Lane] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_names(self.actor)
        self.root = Lane(self, "")
        self.lanes[""] = self.root

    def since(self, began: float) -> int:
        """Returns a duration for an event, in milliseconds."""
        return int((self.now() - began) * 1000)


class Lane:
    """The run itself, or one of its children."""

    def __init__(self, pen: Pen, id: str, parent: Lane | None = None) -> None:
        self.pen = pen
        self.id = id
        self.parent = parent
        self.path: tuple[str, ...] = ()
        if parent is not None:
            self.path = (*(parent.path or (pen.run,)), id)
        self.state = ""
        self.turn: Turn | None = None
        self.message: Message | None = None
        self.models: dict[str, None] = {}
        self.calls: dict[str, Call | None] = {}
        self.tasks: dict[str, None] = {}

    def below(self) -> list[Lane]:
        return [lane for lane in self.pen.lanes.values() if lane.parent is self]

    def new(self, type: str, payload: object, turn: str = "", actor: str = "") -> New:
        return New(type, str(payload), self.id, self.path, turn, actor)

    def check_over(self, type: str) -> None:
        """Raises Over of a lane that takes no event any more. Only the run itself can go on: with a new state."""
        root_over = self.pen.root.state in FINAL_STATES
        own_over = self.id != "" and self.state in FINAL_STATES
        if own_over or (root_over and (self.id != "" or type != "run.lifecycle")):
            raise Over(f"run {self.pen.run}: {type} of {self.id or 'the run'}: it is over")

    def emit(self, type: str, payload: object, actor: str = "") -> None:
        """Writes an event as part of the open turn, where there is one."""
        with self.pen.lock:
            self.check_over(type)
            event = self.new(type, payload, self.turn.id if self.turn else "", actor)
            self.pen.put([event])
            self.note(event)

    def emit_all(self, events: Sequence[tuple[str, object]]) -> None:
        """Writes events that belong together."""
        with self.pen.lock:
            for type, _ in events:
                self.check_over(type)
            turn = self.turn.id if self.turn else ""
            made = [self.new(type, payload, turn) for type, payload in events]
            self.pen.put(made)
            for event in made:
                self.note(event)

    def note(self, event: New) -> None:
        """Keeps what an event says that is made by hand: states, and what begins and ends by ids."""
        kind, _, what = event.type.partition(".")
        if event.type == "run.lifecycle":
            self.state = str(_json.load(event.payload).get("state", ""))
            return
        if what not in ("start", "end") or kind not in ("model", "tool", "task"):
            return
        payload = _json.load(event.payload)
        openings: dict[str, dict[str, Any]] = {"model": self.models, "tool": self.calls, "task": self.tasks}
        open_ids = openings[kind]
        id = payload.get("task_id" if kind == "task" else "call_id")
        if isinstance(id, str) and what == "start":
            open_ids.setdefault(id, None)
        elif isinstance(id, str):
            open_ids.pop(id, None)

    def set_state(self, state: str, reason: str = "") -> None:
        with self.pen.lock:
            if state in FINAL_STATES and self.state in FINAL_STATES:
                raise Over(f"run {self.pen.run}: state {state}: it is over")
            if state in FINAL_STATES and (self.turn or self.working()):
                raise Open(f"run {self.pen.run}: state {state}: something is open")
            self.emit("run.lifecycle", lifecycle(state, reason))

    def working(self) -> bool:
        """Whether anything is open that belongs to a turn and must end before it, children included."""
        if self.message or self.models or self.calls or self.tasks:
            return True
        return any(c.state not in FINAL_STATES or c.turn or c.working() for c in self.below())

    def begin_turn(self) -> Turn:
        with self.pen.lock:
            if self.turn is not None:
                raise Open(f"run {self.pen.run}: turn {self.turn.id} is open")
            turn = Turn(self, self.pen.make_id("turn"))
            self.check_over("turn.start")
            self.pen.put([self.new("turn.start", Obj().text("turn_id", turn.id), turn.id)])
            self.turn = turn
            return turn

    def adopt_turn(self, id: str) -> Turn:
        """Goes on with a turn that somebody else has begun."""
        with self.pen.lock:
            self.turn = Turn(self, id)
            self.turn.heard = True  # what it answers is in the log
            return self.turn

    def spawn(self, id: str, prompt: str, call: str, tools: Sequence[str]) -> Lane:
        """Announces a child and returns its lane, in state running."""
        pen = self.pen
        id = id or pen.make_id("run")
        if not _ID.fullmatch(id) or id == "-":
            raise ValueError(f"{id!r} is not the id of a run")
        payload = Obj().text("child_id", id).some("prompt", prompt).some("call_id", call)
        if tools:
            payload.raw("tools_allowed", _json.dump(list(tools)))
        with pen.lock:
            if id in pen.lanes or id == pen.run:
                raise Open(f"run {pen.run}: child {id} exists already")
            child = Lane(pen, id, self)
            # Parent and call of a spawn are the child's: the event is in the parent's lane.
            self.emit("child.spawn", payload)
            pen.lanes[id] = child
            child.emit("run.lifecycle", lifecycle("running", ""))
            return child

    def close(self, closing: Closing, turn: Turn | None = None, more: Sequence[tuple[str, object]] = ()) -> bool:
        """Ends what is open, in the one order that readers rely on. False: there was nothing to end."""
        with self.pen.lock:
            if self.pen.root.state in FINAL_STATES or (turn is not None and turn.over):
                return False
            events, lanes = close_lane(self, closing)
            if not events:
                return False
            if more:
                at = len(events) - 1
                if at > 0 and events[at - 1].type == "turn.end" and events[at - 1].child == self.id:
                    at -= 1
                events[at:at] = [self.new(t, p, self.turn.id if self.turn else "") for t, p in more]
            self.pen.put(events)
            for lane in lanes:
                lane.forget()
            for event in events:
                if event.type == "run.lifecycle":
                    self.pen.lanes[event.child].note(event)
            return True

    def forget(self) -> None:
        """Forgets all that is open: whoever still writes there gets Over."""
        if self.message is not None:
            self.message.over = True
        if self.turn is not None:
            self.turn.over = True
        self.turn = self.message = None
        self.models.clear()
        self.calls.clear()
        self.tasks.clear()


class Turn:
    """One answer: everything between a person's message and the agent's next silence."""

    def __init__(self, lane: Lane, id: str) -> None:
        self.lane = lane
        self.id = id
        self.over = False
        self.heard = False  # what a person said is written

    def check(self, doing: str) -> None:
        if self.over:
            raise Over(f"run {self.lane.pen.run}: {doing} in turn {self.id}: it is over")

    def emit(self, type: str, payload: object, actor: str = "") -> None:
        with self.lane.pen.lock:
            self.check(type)
            self.lane.emit(type, payload, actor)

    def end(self, stop: str, more: Sequence[tuple[str, object]] = (), run: bool = False) -> None:
        """Ends the turn well, together with events of its lane, and with run the lane as well."""
        lane = self.lane
        with lane.pen.lock:
            self.check("turn.end")
            if lane.working():
                raise Open(f"run {lane.pen.run}: turn {self.id}: something is open")
            lane.check_over("turn.end")
            events = [lane.new(t, p, self.id) for t, p in more]
            events.append(lane.new("turn.end", Obj().text("turn_id", self.id).some("stop_reason", stop), self.id))
            if run:
                events.append(lane.new("run.lifecycle", lifecycle("done", "")))
            lane.pen.put(events)
            for event in events:
                lane.note(event)
            self.over = True
            lane.turn = None

    def message(self, id: str, role: str, model: str, provider: str) -> Message:
        lane, id = self.lane, id or self.lane.pen.make_id("msg")
        check_names(id, model, provider)
        role, actor = role_of(role)
        with lane.pen.lock:
            if lane.message is not None and not self.over:
                raise Open(f"run {lane.pen.run}: message {lane.message.id} is open")
            payload = Obj().text("message_id", id).text("role", role).some("model", model).some("provider", provider)
            self.emit("message.start", payload, actor)
            self.heard = self.heard or role == "user"
            lane.message = Message(self, id, actor)
            return lane.message

    def user(self, text: str) -> None:
        """Writes what a person wrote, as a message of theirs."""
        message = self.message("", "user", "", "")
        if text:
            message.text(text)
        message.end("", None)

    def begin_task(self, name: str) -> Callable[[bool], None]:
        """Begins a task and returns a function that ends it, well or not."""
        check_names(name)
        lane, id = self.lane, self.lane.pen.make_id("task")
        self.emit("task.start", Obj().text("task_id", id).text("name", name))

        def end(ok: bool) -> None:
            with lane.pen.lock:
                if self.over or id not in lane.tasks:
                    raise Over(f"run {lane.pen.run}: task {id}: it is over")
                self.emit("task.end", Obj().text("task_id", id).text("name", name).yes("ok", ok))

        return end

    def begin_model(self, provider: str, model: str) -> Callable[[object, BaseException | None], None]:
        """Begins a call of a model and returns a function that ends it, with its usage or its error."""
        check_names(provider, model)
        lane, id = self.lane, self.lane.pen.make_id("model")
        began = lane.pen.now()
        self.emit("model.start", Obj().text("call_id", id).some("model", model).some("provider", provider))

        def end(usage: object, error: BaseException | None) -> None:
            o = Obj().text("call_id", id).yes("ok", error is None)
            o.raw("usage", usage_of(usage) if error is None else None)
            o.number("duration_ms", lane.pen.since(began)).raw("error", error_of(error) if error else None)
            with lane.pen.lock:
                if self.over or id not in lane.models:
                    raise Over(f"run {lane.pen.run}: call of a model {id}: it is over")
                self.emit("model.end", o)

        return end
