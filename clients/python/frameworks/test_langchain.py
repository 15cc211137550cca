"""LangChain and LangGraph with scripted models."""

import asyncio
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.prebuilt import ToolNode
from langgraph.types import Command, interrupt

from agentstream import AsyncClient
from agentstream.integrations.langchain import AgentstreamCallbackHandler

from .conftest import Stored


@tool
def clock(tz: str) -> str:
    """Tells the time."""
    if tz == "Mars":
        raise ValueError("no clock there")
    return f"12:00 {tz}"


class State(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]


def graph_of(*answers: AIMessage, handle: bool = True) -> Any:
    model = GenericFakeChatModel(messages=iter(answers))

    def agent(state: State, config: RunnableConfig) -> dict[str, Any]:
        return {"messages": [model.invoke(state["messages"], config)]}

    def route(state: State) -> str:
        last = state["messages"][-1]
        return "tools" if isinstance(last, AIMessage) and last.tool_calls else END

    graph = StateGraph(State)
    graph.add_node("agent", agent)
    graph.add_node("tools", ToolNode([clock], handle_tool_errors=handle))
    graph.add_edge(START, "agent")
    graph.add_conditional_edges("agent", route, ["tools", END])
    graph.add_edge("tools", "agent")
    return graph


def wants(*zones: str) -> AIMessage:
    calls: Any = [{"id": f"c{n}", "name": "clock", "args": {"tz": z}, "type": "tool_call"} for n, z in enumerate(zones)]
    return AIMessage("Let me look.", tool_calls=calls)


QUESTION: Any = {"messages": [HumanMessage("What time is it?")]}


def test_a_model_alone_streams(stored: Stored) -> None:
    model = GenericFakeChatModel(messages=iter([AIMessage("Hello, big world")]))
    with stored.client.run(stored.id, patient=False) as run:
        handler = AgentstreamCallbackHandler(run)
        list(model.stream("hi", config={"callbacks": [handler]}))
        assert handler.error is None
    assert stored.texts() == "Hello, big world"
    assert stored.types().count("text.delta") == 1 + 5
    assert stored.texts("user") == "hi"
    assert stored.story()[-4:] == ["message.end end_turn", "model.end", "turn.end end_turn", "run.lifecycle done"]


def test_tools(stored: Stored) -> None:
    graph = graph_of(wants("UTC", "CET"), AIMessage("It is noon.")).compile()
    with stored.client.run(stored.id, patient=False) as run:
        handler = AgentstreamCallbackHandler(run)
        graph.invoke(QUESTION, config={"callbacks": [handler]})
        assert handler.error is None
    story = stored.story()
    assert story[-1] == "run.lifecycle done"
    assert story.count("turn.start") == 1
    assert story.count("task.start agent") == 2
    assert story.count("tool.start clock") == 2
    assert {"tool.end 12:00 UTC", "tool.end 12:00 CET"} <= set(story)
    assert stored.types().count("tool.run") == 2
    assert story.count("message.end tool_use") == 1
    assert stored.texts("user") == "What time is it?"  # once, for two answers
    starts, ends = (len([s for s in story if s.startswith(f"task.{w}")]) for w in ("start", "end"))
    assert starts == ends


def test_errors_of_tools_and_of_graphs(stored: Stored) -> None:
    graph = graph_of(wants("Mars"), handle=False).compile()
    with pytest.raises(ValueError, match="no clock"), stored.client.run(stored.id, patient=False) as run:
        handler = AgentstreamCallbackHandler(run)
        try:
            graph.invoke(QUESTION, config={"callbacks": [handler]})
        finally:
            assert handler.error is None
    assert stored.payloads("tool.end")[0]["error_detail"]["message"] == "no clock there"
    assert "turn.end error" in stored.story()
    assert stored.story()[-1] == "run.lifecycle error"


def test_interrupts_are_questions(stored: Stored) -> None:
    def ask(state: State) -> dict[str, Any]:
        return {"messages": [HumanMessage(interrupt("Which zone?"))]}

    graph = StateGraph(State)
    graph.add_node("ask", ask)
    graph.add_edge(START, "ask")
    compiled = graph.compile(checkpointer=InMemorySaver())
    with stored.client.run(stored.id, patient=False) as run:
        handler = AgentstreamCallbackHandler(run)
        config: Any = {"callbacks": [handler], "configurable": {"thread_id": "t"}}
        compiled.invoke(QUESTION, config=config)
        compiled.invoke(Command(resume="CET"), config=config)
        assert handler.error is None
    story = stored.story()
    assert story.count("input.requested Which zone?") == 1
    (asked,), (answered,) = stored.payloads("input.requested"), stored.payloads("input.answered")
    assert answered == {"request_id": asked["request_id"], "answer": "CET"}
    assert story.count("turn.end end_turn") == 2
    assert stored.texts("user") == "What time is it?"  # an answer to a question is none of its own
    assert not [s for s in story if "error" in s]


def test_async_and_at_the_same_time(stored: Stored) -> None:
    models = [GenericFakeChatModel(messages=iter([AIMessage(f"I am {n} of two")])) for n in "ab"]

    def node(model: Any) -> Any:
        async def speak(state: State, config: RunnableConfig) -> dict[str, Any]:
            said = [c async for c in model.astream("hi", config)]
            return {"messages": [AIMessage("".join(str(c.content) for c in said))]}

        return speak

    graph = StateGraph(State)
    for name, model in zip("ab", models, strict=True):
        graph.add_node(name, node(model))
        graph.add_edge(START, name)
    compiled = graph.compile()

    async def main() -> None:
        async with AsyncClient(stored.client._settings.base) as client:
            async with client.run(stored.id, patient=False) as run:
                handler = AgentstreamCallbackHandler(run)
                await compiled.ainvoke(QUESTION, config={"callbacks": [handler]})
                assert handler.error is None

    asyncio.run(main())
    texts: dict[str, str] = {}
    for event in stored.events:
        if event["type"] == "text.delta" and event["actor"] == "agent":
            child = event.get("child_id") or ""
            texts[child] = texts.get(child, "") + event["payload"]["text"]
    assert "".join(sorted(texts.values())) in ("I am a of twoI am b of two",)
    assert stored.story()[-1] == "run.lifecycle done"


def test_what_a_person_says_is_written_once(stored: Stored) -> None:
    model = GenericFakeChatModel(messages=iter([AIMessage("Fine."), AIMessage("Again."), AIMessage("By hand.")]))
    chat = ChatPromptTemplate.from_messages([("system", "Be short."), ("user", "How are {whom}?")]) | model
    with stored.client.run(stored.id, patient=False) as run:
        handler = AgentstreamCallbackHandler(run)
        config: Any = {"callbacks": [handler]}
        chat.invoke({"whom": "you"}, config)  # the chain's input does not show it, the model's does
        history: Any = [
            HumanMessage("How are you?"),
            AIMessage("Fine."),
            HumanMessage([{"type": "text", "text": "More"}]),
        ]
        model.invoke(history, config)
        with run.turn() as turn:
            turn.user("What I say myself")
            model.invoke("What I say myself", config)
        assert handler.error is None
    assert stored.texts("user") == "How are you?MoreWhat I say myself"
    assert stored.texts() == "Fine.Again.By hand."
