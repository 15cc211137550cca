"""The writer of a run for threads, made by twins.py."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

from . import _json
from ._ids import new_id
from ._message import Call as PenCall
from ._message import Message as PenMessage
from ._payload import Closing, Obj, error_text, is_cancellation
from ._pen import Lane as PenLane
from ._pen import Pen
from ._pen import Turn as PenTurn
from ._queue import Queue
from ._sink import Sink
from .errors import Cancelled, Lost
from .event import Event

if TYPE_CHECKING:
    from .client import Client

__all__ = ["Call", "Child", "Lane", "Message", "Model", "Run", "Task", "Turn"]


class Lane:
    """The run itself, or one of its children."""

    def __init__(self, run: Run, lane: PenLane) -> None:
        self._run = run
        self._lane = lane

    @property
    def state(self) -> str:
        """The newest state that was written, "" before the first."""
        return self._lane.state

    def turn(self) -> Turn:
        """Returns a turn, which begins with its block and ends with it: one answer of the agent."""
        return Turn(self)

    def child(
        self, prompt: str = "", *, id: str = "", call: Call | None = None, tools: Sequence[str] = ()
    ) -> Child:
        """Returns a child, which begins and ends with its block. call is the tool call that delegates to it."""
        return Child(self, id, prompt, call.id if call else "", tools)

    def set_state(self, state: str, reason: str = "") -> None:
        """Writes run.lifecycle. Final states need nothing to be open: `finish`, `cancel` and `fail` see to that."""
        self._run._room()
        self._lane.set_state(state, reason)

    def emit(self, type: str, payload: Mapping[str, Any] | None = None) -> None:
        """Writes an event of any type of the catalogue, or `custom.*`, as part of the open turn."""
        self._run._room()
        self._lane.emit(type, _json.dump({} if payload is None else payload))

    def step(self, index: int, kind: str, checkpoint: str | None = None) -> None:
        """Writes that a step of the run is complete."""
        o = Obj().number("step_index", index).text("step_kind", kind)
        self._run._room()
        self._lane.emit("step.boundary", o.raw("checkpoint_id", _json.dump(checkpoint)))

    def checkpoint(self, id: str) -> None:
        """Writes that the agent has stored a checkpoint."""
        self._run._room()
        self._lane.emit("checkpoint.created", Obj().text("checkpoint_id", id))

    def progress(self, message: str = "", done: float | None = None, total: float | None = None) -> None:
        """Writes how far something is, for people."""
        o = Obj().some("message", message)
        for name, value in (("done", done), ("total", total)):
            o.raw(name, None if value is None else _json.dump(value))
        self._run._room()
        self._lane.emit("progress", o)

    def request(
        self, id: str, prompt: str, options: Sequence[str] | None = None, schema: Mapping[str, Any] | None = None
    ) -> None:
        """Writes a question to a person, without waiting: see `ask`."""
        o = Obj().text("request_id", id).some("prompt", prompt)
        o.raw("options", None if options is None else _json.dump(list(options)))
        self._run._room()
        self._lane.emit("input.requested", o.raw("schema", None if schema is None else _json.dump(schema)))

    def answered(self, id: str, answer: Any) -> None:
        """Writes that a question has its answer; None: no answer came in time."""
        self._run._room()
        self._lane.emit("input.answered", Obj().text("request_id", id).raw("answer", _json.dump(answer)))

    def ask(
        self,
        prompt: str,
        options: Sequence[str] | None = None,
        *,
        schema: Mapping[str, Any] | None = None,
        id: str = "",
        timeout: float | None = None,
    ) -> Any:
        """Asks a person, waits for the answer, and returns it.

        Cancelled: the run was cancelled meanwhile. TimeoutError: nobody answered within so many seconds; the question
        is then answered with null.
        """
        id = id or new_id("ask")
        self.request(id, prompt, options, schema)
        try:
            command = self._run._sink.command(lambda c: c.answer(id), timeout)
        except TimeoutError:
            self.answered(id, None)
            raise
        answer = command.payload.get("answer")
        payload = Obj().text("request_id", id).raw("answer", _json.dump(answer))
        self._lane.emit_all([("input.answered", payload), *self._run._mark(command)])
        return answer

    def propose(self, plan: Mapping[str, Any], *, timeout: float | None = None) -> bool:
        """Proposes a plan, waits for a person's decision, and returns whether it was approved.

        A plan has an id and steps, each with an id and a title. After a rejection, whose reason is in `rejection`, the
        state is planning again.
        """
        id = str(plan.get("id") or new_id("plan"))
        steps = [{"id": str(n + 1), **s} for n, s in enumerate(plan.get("steps", ()))]
        proposal = Obj().raw("plan", _json.dump({**plan, "id": id, "steps": steps})).text("planning_gate", "required")
        waiting = Obj().text("state", "awaiting_approval").raw("reason", "null")
        self._run._room()
        self._lane.emit_all([("plan.proposal", proposal), ("run.lifecycle", waiting)])
        command = self._run._sink.command(lambda c: c.decision(id), timeout)
        approved = command.type == "command.approve_plan"
        self.rejection = None if approved else str(command.payload.get("reason") or "")
        state = Obj().text("state", "running" if approved else "planning").raw("reason", "null")
        self._lane.emit_all([("run.lifecycle", state), *self._run._mark(command)])
        return approved

    #: Why the last plan was rejected.
    rejection: str | None = None

    def finish(self) -> None:
        """Ends the lane well. Open: a turn or a child has not ended."""
        self._run._room()
        self._lane.set_state("done")

    def cancel(self, reason: str = "") -> None:
        """Ends the lane, with all that is open in it and below it, as aborted. Who still writes there gets Over."""
        self._run._close(self._lane, Closing(reason))

    def fail(self, error: BaseException | str) -> None:
        """Is `cancel` for a failure: the lane ends in state error."""
        self._run._close(self._lane, Closing(error_text(error), failed=True))


class Run(Lane):
    """Writes a run, in order and exactly once: `with client.run("id") as run`.

    The block begins with state running and ends the run: done, after an exception in state error, after a cancellation
    aborted. Calls return before their events are stored, and wait while `buffer` bytes wait to be; with patient=False
    they never wait: deltas are dropped when there is no space, and the run says so with `loss`. `commands` watches from
    the beginning for a person who cancels the run: then the next call raises Cancelled. `grace` bounds, in seconds, how
    long the end of the block waits for the server; Lost says what is not stored then. With end=False the run goes on
    after the block. lease is a worker's: see `Session`.
    """

    def __init__(
        self,
        client: Client,
        run: str,
        *,
        actor: str = "agent",
        buffer: int = 4 << 20,
        patient: bool = True,
        commands: bool = False,
        grace: float = 60.0,
        begin: bool = True,
        end: bool = True,
        lease: str = "",
        make_id: Callable[[str], str] = new_id,
    ) -> None:
        from ._api import check_run

        self._queue = Queue(check_run(run), actor, buffer, patient)
        self._client = client
        self._commands, self._grace, self._begin, self._end = commands, grace, begin, end
        self._queue.lease = lease
        self._sink = Sink(client, self._queue)
        self._pen = Pen(run, self._sink.put, actor, make_id)
        super().__init__(self, self._pen.root)

    @property
    def id(self) -> str:
        """The run's id."""
        return self._queue.run

    @property
    def last_seq(self) -> int:
        """The newest number that the server has acknowledged, 0 before the first."""
        return self._queue.last.last_seq if self._queue.last else 0

    @property
    def cancel_requested(self) -> bool:
        """Whether a person has cancelled the run. It is noticed with `commands`, and after `ask` and `propose`."""
        return self._queue.cancelled is not None

    def _room(self) -> None:
        self._sink.room()

    def flush(self, timeout: float | None = None) -> None:
        """Returns when all that was written is stored. Lost: it cannot be, or not within so many seconds."""
        self._sink.flush(timeout)

    def next_command(self, timeout: float | None = None) -> Event:
        """Waits for what a person sends, besides answers, decisions and cancellations: see `settle`."""
        command = self._sink.command(lambda c: c.next(), timeout)
        if self._queue.lease:
            self._mark(command)
        return command

    def _mark(self, command: Event) -> list[tuple[str, Obj]]:
        """Returns the event that marks commands up to this one as obeyed. That of a worker goes with the turn's end."""
        if self._queue.lease:
            self._queue.through = max(self._queue.through, command.seq)
            return []
        return [("commands.taken", Obj().number("through", command.seq))]

    def _taken(self) -> list[tuple[str, Obj]]:
        """Returns the mark of a worker's turn."""
        return [("commands.taken", Obj().number("through", self._queue.through))]

    def settle(self, command: Event, *effects: tuple[str, Mapping[str, Any]]) -> None:
        """Writes that a command was obeyed, in one pack with the events that are its effect."""
        self._room()
        events = [*((t, _json.dump(p)) for t, p in effects), *self._mark(command)]
        if events:
            self._lane.emit_all(events)

    def _close(self, lane: PenLane, closing: Closing, turn: PenTurn | None = None) -> None:
        cancelled = self._queue.cancelled
        more = []
        if cancelled is not None and lane is self._lane and not closing.turn_only:
            more = [("commands.taken", Obj().number("through", cancelled[1]))]
        ending, self._queue.ending = self._queue.ending, True
        try:
            lane.close(closing, turn, more)
        finally:
            self._queue.ending = ending

    def __enter__(self) -> Run:
        if self._begin:
            self.set_state("running")
        if self._commands:
            self._sink.listen()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self._end_well()
            elif not isinstance(error, Lost):
                cancelled = self._queue.cancelled
                if isinstance(error, Cancelled) and cancelled is not None:
                    self.cancel(cancelled[0])
                elif is_cancellation(error):
                    self.cancel(error_text(error))
                else:
                    self.fail(error)
        finally:
            self.close()

    def _end_well(self) -> None:
        if not self._end or self._lane.state in ("done", "aborted", "error"):
            return
        self._queue.ending = True
        if self._lane.turn or self._lane.working():
            self._close(self._lane, Closing("the agent left what it had begun", failed=True))
            return
        self._lane.set_state("done")

    def close(self) -> None:
        """Stores what was written, within the grace, and ends what the writer has begun. The run may be open still."""
        self._sink.close(self._grace)


class Child(Lane):
    """A child of a lane, as a block: it ends done, in error, or aborted."""

    def __init__(self, parent: Lane, id: str, prompt: str, call: str, tools: Sequence[str]) -> None:
        super().__init__(parent._run, parent._lane)
        self._wanted = id, prompt, call, tools

    @property
    def id(self) -> str:
        """The child's run id, once it has begun."""
        return self._lane.id

    def __enter__(self) -> Child:
        self._run._room()
        self._lane = self._lane.spawn(*self._wanted)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._lane.state in ("done", "aborted", "error"):
            return
        if error is None:
            self.finish()
        elif is_cancellation(error):
            self.cancel(error_text(error))
        elif not isinstance(error, Lost):
            self.fail(error)


class Turn:
    """One answer: everything between a person's message and the agent's next silence."""

    #: The stop reason of its end.
    stop: str = "end_turn"

    def __init__(self, lane: Lane) -> None:
        self._run = lane._run
        self._lane = lane._lane
        self._open: PenTurn | None = None

    def _adopt(self, id: str) -> None:
        """Goes on with a turn that the server has begun."""
        self._open = self._lane.adopt_turn(id)

    @property
    def _turn(self) -> PenTurn:
        if self._open is None:
            raise RuntimeError("the turn has not begun: use it as a block")
        return self._open

    @property
    def id(self) -> str:
        """The turn's id."""
        return self._turn.id

    def __enter__(self) -> Turn:
        self._run._room()
        self._open = self._lane.begin_turn()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._turn.over or isinstance(error, Lost):
            return
        if error is None:
            self.end(self.stop)
        elif is_cancellation(error):
            cancelled = self._run._queue.cancelled
            self.cancel(cancelled[0] if cancelled else error_text(error))
        else:
            self.fail(error)

    def end(self, stop: str = "end_turn") -> None:
        """Ends the turn well. Open: a message, a call or a child has not ended."""
        self._run._room()
        self._turn.end(stop)

    def cancel(self, reason: str = "") -> None:
        """Ends the turn with all that is open in it, children too. The run goes on."""
        self._run._close(self._lane, Closing(reason, turn_only=True), self._turn)

    def fail(self, error: BaseException | str) -> None:
        """Is `cancel` for a failure."""
        self._run._close(self._lane, Closing(error_text(error), failed=True, turn_only=True), self._turn)

    def user(self, text: str) -> None:
        """Writes what a person wrote, as a message of theirs."""
        self._run._room()
        self._turn.user(text)

    def message(self, *, model: str = "", provider: str = "", role: str = "assistant", id: str = "") -> Message:
        """Returns a message, which begins and ends with its block."""
        return Message(self, id, role, model, provider)

    def model(self, provider: str = "", model: str = "") -> Model:
        """Returns a call of a model, which begins and ends with its block. Its `usage` may be set."""
        return Model(self, provider, model)

    def task(self, name: str) -> Task:
        """Returns a task, which begins and ends with its block."""
        return Task(self, name)


class Model:
    """A call of a model, as a block."""

    #: What the model used, by the provider's names.
    usage: Mapping[str, Any] | None = None

    def __init__(self, turn: Turn, provider: str, model: str) -> None:
        self._of = turn
        self._names = provider, model
        self._ended: Callable[[object, BaseException | None], None] | None = None

    def __enter__(self) -> Model:
        self._of._run._room()
        self._ended = self._of._turn.begin_model(*self._names)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._ended is None or self._of._turn.over or (error is not None and is_cancellation(error)):
            return  # the turn's end is the model's
        if not isinstance(error, Lost):
            self._of._run._room()
            self._ended(self.usage, error)


class Task:
    """A task within a turn, as a block."""

    def __init__(self, turn: Turn, name: str) -> None:
        self._of = turn
        self._name = name
        self._ended: Callable[[bool], None] | None = None

    def __enter__(self) -> Task:
        self._of._run._room()
        self._ended = self._of._turn.begin_task(self._name)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._ended is not None and not self._of._turn.over and not isinstance(error, Lost):
            if error is None or not is_cancellation(error):
                self._of._run._room()
                self._ended(error is None)


class Message:
    """A message, as a block: text, reasoning, data and calls of tools. It ends with its whole content."""

    #: The stop reason of its end; None: tool_use when it has calls, else end_turn.
    stop: str | None = None
    #: What the model used, by the provider's names.
    usage: Mapping[str, Any] | None = None

    def __init__(self, turn: Turn, id: str, role: str, model: str, provider: str) -> None:
        self._of = turn
        self._wanted = id, role, model, provider
        self._open: PenMessage | None = None

    @property
    def _message(self) -> PenMessage:
        if self._open is None:
            raise RuntimeError("the message has not begun: use it as a block")
        return self._open

    @property
    def id(self) -> str:
        """The message's id."""
        return self._message.id

    def __enter__(self) -> Message:
        self._of._run._room()
        self._open = self._of._turn.message(*self._wanted)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._message.over or self._of._turn.over or isinstance(error, Lost):
            return
        if error is None:
            self.end()
        elif not is_cancellation(error):  # else the turn's end is the message's
            self.fail(error)

    def text(self, text: str) -> None:
        """Writes a piece of text."""
        self._of._run._room()
        self._message.text(text)

    def reasoning(self, text: str) -> None:
        """Writes a piece of a thought."""
        self._of._run._room()
        self._message.reasoning(text)

    def sign(self, signature: str) -> None:
        """Ends the open block of reasoning with the provider's signature."""
        self._of._run._room()
        self._message.sign(signature)

    def data(self, kind: str, media_type: str, data: bytes, name: str = "") -> None:
        """Writes an image, audio or file."""
        self._of._run._room()
        self._message.data(kind, media_type, name, data)

    def call(self, tool: str, input: Any = None, *, id: str = "", permission: str = "") -> Call:
        """Writes a call of a tool with its whole input."""
        self._of._run._room()
        call = self._message.call(id, tool)
        call.ready(input, permission)
        return Call(self._of, call)

    def begin_call(self, tool: str, *, id: str = "") -> Call:
        """Begins a call whose input streams: `input` writes pieces of its JSON, and `ready` ends them."""
        self._of._run._room()
        return Call(self._of, self._message.call(id, tool))

    def end(self, stop: str | None = None, usage: Mapping[str, Any] | None = None) -> None:
        """Ends the message before its block does."""
        message = self._message
        calls = any(b.call for b in message.blocks)
        reason = stop if stop is not None else self.stop
        if reason is None:
            reason = "tool_use" if calls else "end_turn"
        self._of._run._room()
        message.end(reason if message.actor == "" else "", usage if usage is not None else self.usage)

    def fail(self, error: BaseException | str) -> None:
        """Ends a message that the model did not, with its content so far. The turn can go on."""
        self._message.close(Closing(error_text(error), failed=True))


class Call:
    """One call of a tool."""

    def __init__(self, turn: Turn, call: PenCall) -> None:
        self._of = turn
        self._call = call

    @property
    def id(self) -> str:
        """The call's id."""
        return self._call.id

    @property
    def tool(self) -> str:
        """The tool's name."""
        return self._call.tool

    def input(self, piece: str) -> None:
        """Writes a piece of the input's JSON."""
        self._of._run._room()
        self._call.input(piece)

    def ready(self, input: Any = None, *, permission: str = "") -> None:
        """Ends the input. permission "ask": somebody must confirm the call first."""
        self._of._run._room()
        self._call.ready(input, permission)

    def start(self) -> None:
        """Writes that the tool begins to work. Until then the call waits."""
        self._of._run._room()
        self._call.run()

    def output(self, text: str) -> None:
        """Writes a piece of what a running tool prints."""
        self._of._run._room()
        self._call.output(text)

    def finish(self, output: Any = None) -> None:
        """Ends the call well."""
        self._of._run._room()
        self._call.finish(output)

    def fail(self, error: BaseException | str, code: str = "") -> None:
        """Ends the call with the tool's error."""
        self._of._run._room()
        self._call.fail(error, code)
