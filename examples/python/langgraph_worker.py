"""Answers threads of LangGraph's clients with a graph that repeats what it is told. Run any number of these."""

import asyncio
import os
from typing import Any

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph

from agentstream import AsyncClient, AsyncWorker
from agentstream.integrations.langgraph import answer_with


def agent(state: MessagesState) -> dict[str, Any]:
    return {"messages": [("ai", f"You said: {state['messages'][-1].text}")]}


graph = StateGraph(MessagesState).add_node("agent", agent).add_edge(START, "agent")
compiled = graph.compile(checkpointer=InMemorySaver())


async def main() -> None:
    async with AsyncClient(os.environ["AGENTSTREAM_SERVER"], os.environ.get("AGENTSTREAM_TOKEN")) as client:
        await AsyncWorker(client, answer_with(compiled)).run()


if __name__ == "__main__":
    asyncio.run(main())
