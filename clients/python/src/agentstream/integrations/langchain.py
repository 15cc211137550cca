"""LangChain and LangGraph: a callback handler that writes what a chain or a graph does.

    with client.run("run_1", patient=False) as run:
        graph.invoke(inputs, config={"callbacks": [AgentstreamCallbackHandler(run)]})

It never waits and never raises into the framework: what it could not write is in `error`. The outermost chain is a
turn, chains and nodes within it are tasks, models write messages, tools are calls. Models that answer at the same time
write into children. An interrupt of LangGraph is a question (`input.requested`), not an error.

What a person says is written once, before the first answer: the messages of the user with which the outermost chain is
called, or else those with which its first model is. It is left to you where your code writes it (`turn.user`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

from langchain_core.callbacks.base import BaseCallbackHandler

from .. import _json
from ..arun import AsyncRun
from ..run import Run
from ._recorder import Recorder
from ._turns import Turns, questions_of

_SIGNS = ("langsmith:hidden", "seq:step")


class AgentstreamCallbackHandler(BaseCallbackHandler):  # type: ignore[misc, unused-ignore]
    """Writes into a run, which is a block of `client.run`. One handler serves one run, by any number of threads."""

    raise_error = False
    run_inline = True  # in order, on the thread of the caller: it only enqueues

    def __init__(self, run: Run | AsyncRun) -> None:
        self._to = Turns(run)
        self._tasks: dict[UUID, Callable[[bool], None]] = {}
        self._awaits = False  # what a person said: the chain's input does not show it

    @property
    def error(self) -> BaseException | None:
        """Why something could not be written."""
        return self._to.error

    # Chains and nodes.

    def on_chain_start(self, serialized: Any, inputs: Any, *, run_id: UUID, **kwargs: Any) -> None:
        def write() -> None:
            outermost = not self._to.open
            turn = self._to.begin(run_id)
            if outermost:
                self._to.answer(getattr(inputs, "resume", None))  # a Command of LangGraph
            if kwargs.get("parent_run_id") is None:
                self._hear(inputs)
            name = str(kwargs.get("name") or "")
            tags = kwargs.get("tags") or ()
            if not outermost and name and not any(t.startswith(_SIGNS) for t in tags):
                self._tasks[run_id] = turn.begin_task(name[:60])

        self._to.write(write)

    def on_chain_end(self, outputs: Any, *, run_id: UUID, **kwargs: Any) -> None:
        def write() -> None:
            for interrupt in (outputs.get("__interrupt__") or ()) if isinstance(outputs, dict) else ():
                self._ask(interrupt)
            self._end_task(run_id, True)
            self._to.end(run_id)

        self._to.write(write)

    def on_chain_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        def write() -> None:
            bubble = any(c.__name__ == "GraphBubbleUp" for c in type(error).__mro__)
            if bubble:  # LangGraph's way to pause: a question, no failure
                for interrupt in error.args[0] if error.args and isinstance(error.args[0], Sequence) else ():
                    self._ask(interrupt)
            self._end_task(run_id, bubble)
            self._to.end(run_id, None if bubble else error)

        self._to.write(write)

    def _hear(self, inputs: Any) -> None:
        """Writes what a person says in the input of the outermost chain, or lets the first model's do it."""
        named = ("messages", "input", "question", "query") if isinstance(inputs, dict) else ()
        found = questions_of(next((inputs[name] for name in named if name in inputs), inputs))
        self._to.hear(found)
        goes_on = inputs is None or hasattr(inputs, "resume")
        self._awaits = not found and not goes_on

    def _end_task(self, run_id: UUID, ok: bool) -> None:
        end = self._tasks.pop(run_id, None)
        if end is not None:
            end(ok)

    def _ask(self, interrupt: Any) -> None:
        id = getattr(interrupt, "id", None) or getattr(interrupt, "interrupt_id", "")
        self._to.ask(str(id), getattr(interrupt, "value", interrupt))

    # Models.

    def on_chat_model_start(self, serialized: Any, messages: Any, *, run_id: UUID, **kwargs: Any) -> None:
        m = kwargs.get("metadata") or {}
        provider, model, node = (str(m.get(n) or "") for n in ("ls_provider", "ls_model_name", "langgraph_node"))
        said: list[str] = []
        if self._awaits or kwargs.get("parent_run_id") is None:
            said = questions_of(messages[0] if messages and isinstance(messages[0], list) else messages)
        self._awaits = False
        self._to.write(lambda: self._to.begin_model(run_id, provider, model, node, said))

    def on_llm_start(self, serialized: Any, prompts: Any, *, run_id: UUID, **kwargs: Any) -> None:
        self.on_chat_model_start(serialized, prompts, run_id=run_id, **kwargs)

    def on_llm_new_token(self, token: Any, *, chunk: Any = None, run_id: UUID, **kwargs: Any) -> None:
        recorder = self._to.model(run_id)
        message = getattr(chunk, "message", None)
        if recorder is None:
            return
        if message is None:
            self._to.write(lambda: recorder.text(token if isinstance(token, str) else ""))
        else:
            self._to.write(lambda: _read(recorder, message))

    def on_llm_end(self, response: Any, *, run_id: UUID, **kwargs: Any) -> None:
        def write() -> None:
            recorder = self._to.model(run_id)
            if recorder is None:
                return
            generation = response.generations[0][0] if response.generations and response.generations[0] else None
            message = getattr(generation, "message", None)
            streamed = bool(recorder.begin().blocks)
            if not streamed and message is None:
                recorder.text(getattr(generation, "text", ""))
            elif not streamed:
                _read(recorder, message)
            if message is not None:
                recorder.usage = getattr(message, "usage_metadata", None)
            self._to.end_model(run_id)

        self._to.write(write)

    def on_llm_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        if self._to.model(run_id) is not None:
            self._to.write(lambda: self._to.end_model(run_id, error))

    # Tools and retrievers.

    def on_tool_start(self, serialized: Any, input_str: str, *, run_id: UUID, **kwargs: Any) -> None:
        id = str(kwargs.get("tool_call_id") or run_id)
        name = str((serialized or {}).get("name") or kwargs.get("name") or "tool")
        given = kwargs.get("inputs")
        self._to.write(lambda: self._to.begin_tool(run_id, id, name, {"input": input_str} if given is None else given))

    def on_tool_end(self, output: Any, *, run_id: UUID, **kwargs: Any) -> None:
        content = getattr(output, "content", output)  # a ToolMessage
        failed = getattr(output, "status", "") == "error"
        self._to.write(lambda: self._to.end_tool(run_id, content, str(content) if failed else None))

    def on_tool_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        self._to.write(lambda: self._to.end_tool(run_id, error=error))

    def on_retriever_start(self, serialized: Any, query: str, *, run_id: UUID, **kwargs: Any) -> None:
        self.on_tool_start({"name": "retriever"}, query, run_id=run_id)

    def on_retriever_end(self, documents: Any, *, run_id: UUID, **kwargs: Any) -> None:
        self.on_tool_end([getattr(d, "page_content", str(d)) for d in documents], run_id=run_id)

    def on_retriever_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        self.on_tool_error(error, run_id=run_id)

    def on_custom_event(self, name: str, data: Any, *, run_id: UUID, **kwargs: Any) -> None:
        payload = data if isinstance(data, dict) else {"data": data}
        self._to.write(lambda: self._to.lane.emit(f"custom.{name}", _json.dump(payload)))


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
