"""LangChain and LangGraph: a callback handler that writes what a chain or a graph does.

    with client.run("run_1", patient=False) as run:
        graph.invoke(inputs, config={"callbacks": [AgentstreamCallbackHandler(run)]})

It never waits and never raises into the framework: what it could not write is in `error`. The outermost chain is a
turn, chains and nodes within it are tasks, models write messages, tools are calls. Models that answer at the same time
write into children. An interrupt of LangGraph is a question (`input.requested`), not an error.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

from langchain_core.callbacks.base import BaseCallbackHandler

from .. import _json
from .._payload import Closing, Obj, error_of, error_text
from .._pen import Lane, Turn
from ..arun import AsyncRun
from ..errors import AgentstreamError
from ..run import Run
from ._recorder import Recorder

_SIGNS = ("langsmith:hidden", "seq:step")


class AgentstreamCallbackHandler(BaseCallbackHandler):  # type: ignore[misc, unused-ignore]
    """Writes into a run, which is a block of `client.run`. One handler serves one run, by any number of threads."""

    raise_error = False
    run_inline = True  # in order, on the thread of the caller: it only enqueues

    def __init__(self, run: Run | AsyncRun) -> None:
        run._queue.patient = False
        self._lane = run._lane
        self._lock = threading.RLock()
        self._turn: Turn | None = None
        self._root: UUID | None = None
        self._models: dict[UUID, tuple[Recorder, Lane]] = {}
        self._tasks: dict[UUID, Callable[[bool], None]] = {}
        self._tools: dict[UUID, tuple[str, float]] = {}
        self._asked: set[str] = set()
        self.error: BaseException | None = None

    def _write(self, action: Callable[[], None]) -> None:
        with self._lock:
            try:
                action()
            except (AgentstreamError, ValueError, TypeError, AttributeError, RuntimeError) as error:
                self.error = self.error or error

    def _begin(self, run_id: UUID) -> Turn:
        """Begins the turn with whatever comes first."""
        if self._turn is None or self._turn.over:
            self._turn, self._root = self._lane.begin_turn(), run_id
        return self._turn

    def _end(self, run_id: UUID, error: BaseException | None) -> None:
        """Ends the turn with what has begun it."""
        turn = self._turn
        if run_id != self._root or turn is None or turn.over:
            return
        if error is None and not self._lane.working():
            turn.end("end_turn")
        else:
            text = error_text(error) if error is not None else "the chain left what it had begun"
            self._lane.close(Closing(text, failed=True, turn_only=True), turn)

    # Chains and nodes.

    def on_chain_start(self, serialized: Any, inputs: Any, *, run_id: UUID, **kwargs: Any) -> None:
        def write() -> None:
            outermost = self._turn is None or self._turn.over
            turn = self._begin(run_id)
            name = str(kwargs.get("name") or "")
            tags = kwargs.get("tags") or ()
            if not outermost and name and not any(t.startswith(_SIGNS) for t in tags):
                self._tasks[run_id] = turn.begin_task(name[:60])

        self._write(write)

    def on_chain_end(self, outputs: Any, *, run_id: UUID, **kwargs: Any) -> None:
        def write() -> None:
            for interrupt in (outputs.get("__interrupt__") or ()) if isinstance(outputs, dict) else ():
                self._ask(interrupt)
            self._end_task(run_id, True)
            self._end(run_id, None)

        self._write(write)

    def on_chain_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        def write() -> None:
            bubble = any(c.__name__ == "GraphBubbleUp" for c in type(error).__mro__)
            if bubble:  # LangGraph's way to pause: a question, no failure
                for interrupt in error.args[0] if error.args and isinstance(error.args[0], Sequence) else ():
                    self._ask(interrupt)
            self._end_task(run_id, bubble)
            self._end(run_id, None if bubble else error)

        self._write(write)

    def _end_task(self, run_id: UUID, ok: bool) -> None:
        end = self._tasks.pop(run_id, None)
        if end is not None:
            end(ok)

    def _ask(self, interrupt: Any) -> None:
        id = str(
            getattr(interrupt, "id", None) or getattr(interrupt, "interrupt_id", "") or self._lane.pen.make_id("ask")
        )
        value = getattr(interrupt, "value", interrupt)
        if id in self._asked:
            return
        self._asked.add(id)
        prompt = value if isinstance(value, str) else _json.dump(value)
        o = Obj().text("request_id", id).text("prompt", prompt)
        self._lane.emit("input.requested", o.raw("value", _json.dump(value)))

    # Models.

    def on_chat_model_start(self, serialized: Any, messages: Any, *, run_id: UUID, **kwargs: Any) -> None:
        def write() -> None:
            turn, lane = self._begin(run_id), self._lane
            metadata = kwargs.get("metadata") or {}
            if lane.message is not None:  # another model is answering: this one is a child's
                lane = lane.spawn("", str(metadata.get("langgraph_node") or ""), "", ())
                turn = lane.begin_turn()
            recorder = Recorder(turn, str(metadata.get("ls_provider") or ""), str(metadata.get("ls_model_name") or ""))
            recorder.begin()
            self._models[run_id] = recorder, lane

        self._write(write)

    def on_llm_start(self, serialized: Any, prompts: Any, *, run_id: UUID, **kwargs: Any) -> None:
        self.on_chat_model_start(serialized, prompts, run_id=run_id, **kwargs)

    def on_llm_new_token(self, token: Any, *, chunk: Any = None, run_id: UUID, **kwargs: Any) -> None:
        def write() -> None:
            recorder = self._models[run_id][0]
            message = getattr(chunk, "message", None)
            if message is None:
                recorder.text(token if isinstance(token, str) else "")
            else:
                _read(recorder, message)

        if run_id in self._models:
            self._write(write)

    def on_llm_end(self, response: Any, *, run_id: UUID, **kwargs: Any) -> None:
        def write() -> None:
            recorder, lane = self._models.pop(run_id)
            generation = response.generations[0][0] if response.generations and response.generations[0] else None
            message = getattr(generation, "message", None)
            opened = recorder.begin()
            if not opened.blocks:  # nothing was streamed
                if message is None:
                    recorder.text(getattr(generation, "text", ""))
                else:
                    _read(recorder, message)
            if message is not None:
                recorder.usage = getattr(message, "usage_metadata", None)
            recorder.finish()
            if lane is not self._lane:
                recorder.turn.end("end_turn")
                lane.set_state("done")
            self._end(run_id, None)

        if run_id in self._models:
            self._write(write)

    def on_llm_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        def write() -> None:
            recorder, lane = self._models.pop(run_id)
            recorder.fail(error)
            if lane is not self._lane:
                lane.close(Closing(error_text(error), failed=True))
            self._end(run_id, error)

        if run_id in self._models:
            self._write(write)

    # Tools and retrievers.

    def on_tool_start(self, serialized: Any, input_str: str, *, run_id: UUID, **kwargs: Any) -> None:
        def write() -> None:
            turn = self._begin(run_id)
            id = str(kwargs.get("tool_call_id") or run_id)
            self._tools[run_id] = id, self._lane.pen.now()
            if id in self._lane.calls:  # a model has asked for it
                turn.emit("tool.run", Obj().text("call_id", id))
                return
            name = str((serialized or {}).get("name") or kwargs.get("name") or "tool")
            given = kwargs.get("inputs")
            o = Obj().text("call_id", id).text("tool", name)
            turn.emit("tool.start", o.raw("input", _json.dump({"input": input_str} if given is None else given)))

        self._write(write)

    def on_tool_end(self, output: Any, *, run_id: UUID, **kwargs: Any) -> None:
        content = getattr(output, "content", output)  # a ToolMessage
        failed = getattr(output, "status", "") == "error"
        o = Obj().yes("ok", not failed)
        if failed:
            o.text("error", "KAI-TOOL-FAIL-0001").raw("error_detail", error_of(str(content)))
        self._end_tool(run_id, o if failed else o.raw("output", _json.dump(content)))

    def on_tool_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        o = Obj().yes("ok", False).text("error", "KAI-TOOL-FAIL-0001")
        self._end_tool(run_id, o.raw("error_detail", error_of(error)))

    def _end_tool(self, run_id: UUID, outcome: Obj) -> None:
        def write() -> None:
            id, began = self._tools.pop(run_id)
            o = Obj().text("call_id", id)
            o.parts += outcome.parts
            self._begin(run_id).emit("tool.end", o.number("duration_ms", self._lane.pen.since(began)))
            self._end(run_id, None)

        if run_id in self._tools:
            self._write(write)

    def on_retriever_start(self, serialized: Any, query: str, *, run_id: UUID, **kwargs: Any) -> None:
        self.on_tool_start({"name": "retriever"}, query, run_id=run_id)

    def on_retriever_end(self, documents: Any, *, run_id: UUID, **kwargs: Any) -> None:
        self.on_tool_end([getattr(d, "page_content", str(d)) for d in documents], run_id=run_id)

    def on_retriever_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        self.on_tool_error(error, run_id=run_id)

    def on_custom_event(self, name: str, data: Any, *, run_id: UUID, **kwargs: Any) -> None:
        self._write(
            lambda: self._lane.emit(f"custom.{name}", _json.dump(data if isinstance(data, dict) else {"data": data}))
        )


def _read(recorder: Recorder, message: Any) -> None:
    """Writes a message, or a chunk of one: its content is a text or a list of blocks."""
    content = message.content if isinstance(message.content, list) else [{"type": "text", "text": message.content}]
    for block in content:
        if isinstance(block, str):
            recorder.text(block)
        elif block.get("type") in ("text", "output_text"):
            recorder.text(block.get("text"))
        elif block.get("type") in ("reasoning", "thinking"):
            recorder.reasoning(block.get("reasoning") or block.get("thinking"))
    chunks = getattr(message, "tool_call_chunks", None)
    if chunks is not None:
        for chunk in chunks:
            recorder.call(chunk.get("index"), chunk.get("id"), chunk.get("name"), chunk.get("args"))
        return
    for call in getattr(message, "tool_calls", None) or ():
        recorder.call(call["id"], call["id"], call["name"])
        recorder.ready(call["id"], call["args"])
