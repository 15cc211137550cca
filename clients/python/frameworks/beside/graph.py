"""The graph that LangGraph's own server and this one serve: it asks for the time with a tool, asks a person on "ask",
fails on "fail", and else says what it was told."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, TypedDict

from langchain_core.language_models.chat_models import BaseChatModel, generate_from_stream
from langchain_core.messages import AIMessage, AIMessageChunk, AnyMessage, HumanMessage
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import tool
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.prebuilt import ToolNode
from langgraph.types import interrupt


class State(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]


@tool
def clock(tz: str) -> str:
    """Tells the time."""
    return f"12:00 {tz}"


class Scripted(BaseChatModel):
    """Says the words of a text, and then calls tools."""

    words: list[str]
    calls: list[dict[str, Any]] = []

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def _stream(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> Iterator[Any]:
        for word in self.words:
            yield ChatGenerationChunk(message=AIMessageChunk(content=word))
        chunks: Any = [{"index": n, "type": "tool_call_chunk", **c} for n, c in enumerate(self.calls)]
        yield ChatGenerationChunk(message=AIMessageChunk(content="", tool_call_chunks=chunks, chunk_position="last"))

    def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> ChatResult:
        return generate_from_stream(self._stream(messages))


async def agent(state: State, config: RunnableConfig) -> dict[str, Any]:
    last = state["messages"][-1]
    if last.content == "ask":
        return {"messages": [HumanMessage(str(interrupt({"question": "Which zone?"})))]}
    if last.content == "fail":
        raise ValueError("out of order")
    if last.content == "time?":
        calls = [{"id": "c0", "name": "clock", "args": '{"tz":"UTC"}'}]
        model = Scripted(words=["Let ", "me ", "look."], calls=calls)
    else:
        model = Scripted(words=["You ", "said ", str(last.content)])
    return {"messages": [await model.ainvoke(state["messages"], config)]}


def route(state: State) -> str:
    last = state["messages"][-1]
    if isinstance(last, HumanMessage):
        return "agent"
    return "tools" if isinstance(last, AIMessage) and last.tool_calls else END


builder = StateGraph(State)
builder.add_node("agent", agent)
builder.add_node("tools", ToolNode([clock]))
builder.add_edge(START, "agent")
builder.add_conditional_edges("agent", route, ["tools", "agent", END])
builder.add_edge("tools", "agent")
graph = builder.compile()
