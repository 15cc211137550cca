"""LangGraph: answers threads with a graph.

    async with AsyncClient(url) as client:
        await AsyncWorker(client, answer_with(graph)).run()

Clients of LangGraph (its SDKs, useStream, Agent Chat) see messages, tools, states, updates, checkpoints and interrupts
of the thread as the graph brings them about, and so does every other client. The graph needs a checkpointer, a durable
one where several workers answer: it knows where an interrupt waits.
"""

from __future__ import annotations

import importlib
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from .. import _json
from .._payload import Obj
from ..asession import AsyncSession
from .langchain import AgentstreamCallbackHandler

# With "messages" LangGraph lets models stream that a node only invokes: the handler hears their tokens.
_MODES = ["values", "updates", "checkpoints", "custom", "messages"]


def answer_with(graph: Any, *, input_of: Callable[[AsyncSession], Any] | None = None) -> Callable[..., Awaitable[None]]:
    """Returns an answer for AsyncWorker. `input_of` makes the graph's input of a message; default: `messages`."""

    async def answer(session: AsyncSession) -> None:
        handler = AgentstreamCallbackHandler(session.run)
        config = _config_of(session)
        kept = bool(getattr(graph, "checkpointer", None))
        if kept:
            await _begin_fork(session, graph)
        given = _resume(session) if session.answers else (input_of or _message)(session)
        settings = {**config, "callbacks": [*(config.get("callbacks") or ()), handler]}
        for request, value in session.answers.items():
            await session.run.answered(request, value)
        async for part in graph.astream(given, settings, stream_mode=_MODES, subgraphs=True):
            await session.run._room()
            handler._to.write(lambda: _write(session, part, kept))  # noqa: B023
        if handler._to.asked:
            session.stop = "interrupt"
        if handler.error is not None:
            raise handler.error

    return answer


def _message(session: AsyncSession) -> dict[str, Any]:
    payload = session.events[-1].payload
    return {"messages": [{"role": "user", "content": session.content, "id": payload.get("message_id")}]}


def _resume(session: AsyncSession) -> Any:
    command: Any = importlib.import_module("langgraph.types").Command
    return command(resume=dict(session.answers))


def _config_of(session: AsyncSession) -> dict[str, Any]:
    """Returns the config that the client has sent, for this thread."""
    payload = session.events[-1].payload
    run = payload.get("run")
    config = payload.get("config") or (run.get("config") if isinstance(run, Mapping) else None) or {}
    known = {k: v for k, v in config.items() if k in ("configurable", "metadata", "recursion_limit", "tags")}
    return {**known, "configurable": {**(config.get("configurable") or {}), "thread_id": session.id}}


async def _begin_fork(session: AsyncSession, graph: Any) -> None:
    """Gives the graph the state that the thread has in the log and not in the checkpointer: a copy of another one."""
    own = {"configurable": {"thread_id": session.id}}
    if (await graph.aget_state(own)).created_at is not None:
        return
    page = await session.run._client.events(session.id, newest=True, limit=100, types="state.values")
    for event in page.events:
        values = event.payload.get("values")
        if event.payload.get("namespace") or not isinstance(values, Mapping) or "__interrupt__" in values:
            continue
        await graph.aupdate_state(own, dict(values))
        return


def _id_of(config: Any) -> str:
    configurable = (config or {}).get("configurable") or {}
    return str(configurable.get("checkpoint_id") or "")


def _write(session: AsyncSession, part: tuple[tuple[str, ...], str, Any], kept: bool) -> None:
    """Writes a part of the stream. A state that is kept comes after its checkpoint, as LangGraph's clients know it."""
    namespace, mode, data = part
    lane = session.run._lane

    def new() -> Obj:
        return Obj().raw("namespace", _json.dump(list(namespace)) if namespace else None)

    if mode == "values" and (namespace or not kept):
        lane.emit("state.values", new().raw("values", _plain(data)))
    elif mode == "updates" and isinstance(data, Mapping):
        for node, values in data.items():
            if node != "__interrupt__" and isinstance(values, Mapping):
                lane.emit("state.update", new().text("node", str(node)).raw("values", _plain(values)))
    elif mode == "checkpoints" and not namespace:
        id, parent, metadata = _id_of(data.get("config")), _id_of(data.get("parent_config")), data.get("metadata") or {}
        o = Obj().text("checkpoint_id", id).raw("parent_id", _json.dump(parent or None))
        o.raw("step", _plain(metadata.get("step"))).raw("source", _plain(metadata.get("source")))
        lane.emit("checkpoint.created", o)
        lane.emit("state.values", Obj().raw("values", _plain(data.get("values") or {})))
    elif mode == "custom":
        lane.emit("custom.langgraph", new().raw("data", _plain(data)))


def _plain(value: Any) -> str:
    """Returns JSON of a state. Messages are as clients of LangGraph know them: type, content, id and so on."""
    return _json.dump(_flat(value))


def _flat(value: Any) -> Any:
    if hasattr(value, "model_dump") and isinstance(getattr(value, "type", None), str):
        return _flat(value.model_dump())
    if isinstance(value, Mapping):
        return {str(k): _flat(v) for k, v in value.items() if k != "__interrupt__"}
    if isinstance(value, (list, tuple)):
        return [_flat(v) for v in value]
    return value if isinstance(value, (str, int, float, bool, type(None))) else str(value)
