"""Pydantic AI: an event stream handler that writes what an agent does into a turn.

    async with run.turn() as turn:
        await agent.run(prompt, event_stream_handler=event_stream_handler(turn))

It imports nothing of pydantic_ai: events are read by their fields. It never raises into the agent's run: why something
could not be written is in `error`. Tools that wait for an approval are questions. The prompt is written first, as a
message of the user, unless your code writes one (`turn.user`).
"""

from __future__ import annotations

from collections.abc import AsyncIterable
from typing import Any

from .. import _json
from ..arun import AsyncTurn
from ._recorder import Recorder, turn_of
from ._turns import Turns, questions_of


class event_stream_handler:
    """Writes the events of one run of an agent."""

    def __init__(self, turn: AsyncTurn) -> None:
        self._turn = turn_of(turn)
        self._to = Turns(turn._run)
        self._recorder: Recorder | None = None
        self._kinds: dict[int, str] = {}
        self._agent: object = None  # the run of an agent whose prompt is written

    @property
    def error(self) -> BaseException | None:
        """Why something could not be written."""
        return self._to.error

    async def __call__(self, context: Any, events: AsyncIterable[Any]) -> None:
        """Is called by the agent for each answer of the model, and for each round of tools."""
        self._kinds.clear()
        self._to.write(lambda: self._hear(context))
        try:
            async for event in events:
                self._to.write(lambda: self._read(context, event))  # noqa: B023
        except Exception as error:
            cause = error
            self._to.write(lambda: self._close(cause))
            raise
        self._to.write(lambda: self._close(None))

    def _hear(self, context: Any) -> None:
        agent = getattr(context, "run_id", None) or "the only one"
        if agent == self._agent:
            return
        self._agent = agent
        prompt = getattr(context, "prompt", None)
        parts = prompt if isinstance(prompt, str) else [{"role": "user", "content": prompt}]
        self._to.hear(questions_of(parts), self._turn)

    def _close(self, error: BaseException | None) -> None:
        recorder, self._recorder = self._recorder, None
        if recorder is not None and error is not None:
            recorder.fail(error)
        elif recorder is not None:
            recorder.finish()

    def _read(self, context: Any, event: Any) -> None:
        kind = getattr(event, "event_kind", "")
        if kind == "part_start":
            if self._recorder is None:
                model = getattr(context, "model", None)
                names = str(getattr(model, "system", "") or ""), str(getattr(model, "model_name", "") or "")
                self._recorder = Recorder(self._turn, *names)
            self._start(self._recorder, event.index, event.part)
        elif kind == "part_delta" and self._recorder is not None:
            self._continue(self._recorder, event.index, event.delta)
        elif kind == "part_end" and self._recorder is not None and event.part.part_kind == "tool-call":
            self._recorder.ready(event.index)
        elif kind == "function_tool_call":
            self._close(None)
            part = event.part
            self._to.begin_tool(part.tool_call_id, part.tool_call_id, part.tool_name, _input(part.args))
        elif kind in ("function_tool_result", "output_tool_result"):
            self._end_tool(event.part)
        elif kind == "deferred_tool_requests":
            for part in (*event.requests.approvals, *event.requests.calls):
                self._to.ask(part.tool_call_id, {"tool": part.tool_name, "input": _input(part.args)})
                call = self._turn.lane.calls.get(part.tool_call_id)
                if call is not None:  # it goes on in a run of its own
                    call.fail("it waits for a person")

    def _start(self, recorder: Recorder, index: int, part: Any) -> None:
        self._kinds[index] = part.part_kind
        if part.part_kind == "text":
            recorder.text(part.content)
        elif part.part_kind == "thinking":
            recorder.reasoning(part.content)
        elif part.part_kind == "tool-call":
            recorder.call(index, part.tool_call_id, part.tool_name, _piece(part.args))

    def _continue(self, recorder: Recorder, index: int, delta: Any) -> None:
        if delta.part_delta_kind == "text":
            recorder.text(delta.content_delta)
        elif delta.part_delta_kind == "thinking":
            recorder.reasoning(delta.content_delta)
            recorder.sign(delta.signature_delta)
        elif delta.part_delta_kind == "tool_call":
            recorder.call(index, piece=_piece(delta.args_delta))

    def _end_tool(self, part: Any) -> None:
        if part.part_kind == "retry-prompt" or getattr(part, "outcome", "success") in ("failed", "denied"):
            self._to.end_tool(part.tool_call_id, error=str(part.content))
        else:
            self._to.end_tool(part.tool_call_id, part.content)


def _piece(args: Any) -> str | None:
    return args if args is None or isinstance(args, str) else _json.dump(args)


def _input(args: Any) -> Any:
    if not isinstance(args, str):
        return args or {}
    try:
        return _json.load(args)
    except ValueError:
        return {"input": args}
