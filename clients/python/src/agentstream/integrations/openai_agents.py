"""OpenAI Agents: a tracing processor, and a tee for the tokens of a streamed run.

    processor = AgentstreamProcessor()
    add_trace_processor(processor)

    with processor.into(run):
        result = Runner.run_streamed(agent, "…")
        async for event in processor.tee(result):
            …

A trace is a turn, unless one is open; agents are tasks, functions are calls of tools, answers of models are messages:
as a whole at their end, or by their tokens with `tee`. Tools that wait for an approval are questions (`tee`, or `ask`
with the result). What a person says is written once, before the first answer: from the result with `tee`, else from
what the first answer's span has, which is nothing where `trace_include_sensitive_data` is off; and not at all where
your code writes it (`turn.user`). It imports nothing of agents, and never raises into it: why something could not be
written is in `error`.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from .. import _json
from ..arun import AsyncRun
from ..run import Run
from ._recorder import Recorder
from ._turns import Turns, questions_of
from .openai import read

_target: ContextVar[_Trace | None] = ContextVar("agentstream_trace", default=None)


class _Trace:
    """What is written of the traces of one run."""

    def __init__(self, run: Run | AsyncRun) -> None:
        self.to = Turns(run)
        self.tasks: dict[str, Callable[[bool], None]] = {}
        self.streams = False  # answers are written by their tokens
        self.recorder: Recorder | None = None
        self.results: list[Any] = []  # of functions whose calls have not been written yet
        self.begun = False  # a turn, for the trace that runs
        self.heard = False  # what a person said is written, or nothing is known of it
        self.said: list[str] = []  # what is to be written when the turn begins
        self.handled: BaseException | None = None  # what was being handled when the trace began

    def open(self, id: str) -> None:
        self.begun, self.heard, self.handled = True, False, sys.exc_info()[1]
        self.to.begin(id)
        self.hear(self.said)

    def hear(self, said: list[str]) -> None:
        """Writes what a person has said, once for a trace."""
        if self.begun and said and not self.heard:
            self.to.hear(said)
            self.heard, self.said = True, []
        elif not self.begun:
            self.said = said

    def start(self, span: Any) -> None:
        if span.span_data.type == "agent":
            self.tasks[span.span_id] = self.to.begin(span.trace_id).begin_task(str(span.span_data.name)[:60])

    def end(self, span: Any) -> None:
        data, error = span.span_data, span.error
        if span.span_id in self.tasks:
            self.tasks.pop(span.span_id)(error is None)
        elif data.type in ("response", "generation") and not self.streams:
            self.hear(questions_of(getattr(data, "input", None)))
            recorder = self.to.begin_model(span.span_id, "openai", _model_of(data))
            recorder.usage = getattr(data, "usage", None) or getattr(getattr(data, "response", None), "usage", None)
            for item in _items_of(data):
                _write_item(recorder, item)
            self.to.end_model(span.span_id, None if error is None else RuntimeError(error["message"]))
        elif data.type == "function":
            self.results.append(span)
            self.flush()
        elif data.type == "handoff":
            payload = {"from": data.from_agent, "to": data.to_agent}
            self.to.lane.emit("custom.handoff", _json.dump(payload))

    def close(self, id: str) -> None:
        self.flush(rest=not self.streams)
        self.begun = False
        failed = sys.exc_info()[1]  # a trace is left by what makes its run fail
        self.to.end(id, failed if failed is not self.handled else None)

    def flush(self, rest: bool = False) -> None:
        """Writes what functions have returned, each once its call is there."""
        waiting, self.results = self.results, []
        for span in waiting:
            data, given = span.span_data, _load(span.span_data.input)
            named = {id: c for id, c in self.to.lane.calls.items() if c is not None and c.tool == data.name}
            same = [id for id, c in named.items() if _load(c.block.input) == given] or list(named)
            if not same and not rest:
                self.results.append(span)
                continue
            self.to.begin_tool(span.span_id, same[0] if same else span.span_id, data.name, given)
            failed = span.error["message"] if span.error else None
            detail = (span.error.get("data") or {}).get("error") if span.error else None
            self.to.end_tool(span.span_id, data.output, str(detail or failed) if failed else None)


class AgentstreamProcessor:
    """Writes the traces of agents that run within `into`. One serves all runs of a process."""

    def __init__(self) -> None:
        self._traces: dict[str, _Trace] = {}
        self.error: BaseException | None = None

    @contextmanager
    def into(self, run: Run | AsyncRun) -> Iterator[None]:
        """Has what runs in the block written into a run."""
        token = _target.set(_Trace(run))
        try:
            yield
        finally:
            _target.reset(token)

    def _write(self, trace: _Trace | None, action: Callable[[_Trace], object]) -> None:
        if trace is not None:
            trace.to.write(lambda: action(trace))
            self.error = self.error or trace.to.error

    def on_trace_start(self, trace: Any) -> None:
        target = _target.get()
        if target is not None:
            self._traces[trace.trace_id] = target
            self._write(target, lambda t: t.open(trace.trace_id))

    def on_trace_end(self, trace: Any) -> None:
        target = self._traces.pop(trace.trace_id, None)
        self._write(target, lambda t: t.close(trace.trace_id))

    def on_span_start(self, span: Any) -> None:
        self._write(self._traces.get(span.trace_id), lambda t: t.start(span))

    def on_span_end(self, span: Any) -> None:
        self._write(self._traces.get(span.trace_id), lambda t: t.end(span))

    def shutdown(self) -> None:
        """Has nothing to do."""

    def force_flush(self) -> None:
        """Has nothing to do: the run stores what is written."""

    def ask(self, result: Any) -> None:
        """Writes the approvals that a result waits for, as questions. The id of each is that of its call."""

        def write(trace: _Trace) -> None:
            for item in getattr(result, "interruptions", None) or ():
                raw = item.raw_item
                value = {"tool": raw.name, "input": _load(raw.arguments)}
                trace.to.ask(str(raw.call_id), value)

        self._write(_target.get(), write)

    async def tee(self, result: Any) -> AsyncIterator[Any]:
        """Hands the events of a streamed run through, and writes its tokens. Call it within `into`."""
        trace = _target.get()
        if trace is not None:
            trace.streams = True
            self._write(trace, lambda t: t.hear(questions_of(getattr(result, "input", None))))
        async for event in result.stream_events():
            if getattr(event, "type", "") == "raw_response_event":
                self._write(trace, lambda t: _read_token(t, event.data))  # noqa: B023
            yield event
        self._write(trace, lambda t: t.flush(rest=True))
        self.ask(result)


def _read_token(trace: _Trace, item: Any) -> None:
    if trace.recorder is None:
        trace.recorder = Recorder(trace.to.begin(""), "openai")
    read(trace.recorder, item)
    if getattr(item, "type", "") in ("response.completed", "response.failed", "response.incomplete"):
        recorder, trace.recorder = trace.recorder, None
        recorder.finish()
        trace.flush()


def _model_of(data: Any) -> str:
    return str(getattr(data, "model", None) or getattr(getattr(data, "response", None), "model", None) or "")


def _items_of(data: Any) -> list[Any]:
    return list(getattr(getattr(data, "response", None), "output", None) or getattr(data, "output", None) or ())


def _get(item: Any, name: str) -> Any:
    return item.get(name) if isinstance(item, dict) else getattr(item, name, None)


def _write_item(recorder: Recorder, item: Any) -> None:
    """Writes an item of an answer: of responses, or a message of chat completions."""
    if _get(item, "type") == "function_call":
        id = _get(item, "call_id")
        recorder.call(id, id, _get(item, "name"))
        recorder.ready(id, _load(_get(item, "arguments")))
    elif _get(item, "type") == "reasoning":
        for part in _get(item, "summary") or ():
            recorder.reasoning(_get(part, "text"))
    else:
        content = _get(item, "content")
        for part in [content] if isinstance(content, str) else content or ():
            recorder.text(part if isinstance(part, str) else _get(part, "text"))
        for call in _get(item, "tool_calls") or ():
            function = _get(call, "function")
            recorder.call(_get(call, "id"), _get(call, "id"), _get(function, "name"))
            recorder.ready(_get(call, "id"), _load(_get(function, "arguments")))


def _load(text: Any) -> Any:
    try:
        return _json.load(text) if isinstance(text, str) else text or {}
    except ValueError:
        return {"input": text}
