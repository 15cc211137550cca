"""Writes a run: a message word by word, a tool, and a question that a person answers in the console or with `agentstream answer`."""

import asyncio
import os
import sys
from datetime import datetime, timezone

from agentstream import AsyncClient, Cancelled


async def play(run_id: str) -> None:
    async with AsyncClient(os.environ["AGENTSTREAM_SERVER"], os.environ.get("AGENTSTREAM_TOKEN")) as client:
        async with client.run(run_id, commands=True) as run, run.turn() as turn:
            await turn.user("What do pelicans do at this hour?")
            async with turn.message() as message:
                await message.reasoning("I need the time.")
                call = await message.call("clock", {"tz": "UTC"})
            await call.start()
            await call.finish(datetime.now(timezone.utc).isoformat())
            place = await run.ask("Where are the pelicans?", ["a lake", "the sea"])
            async with turn.message() as message:
                for word in f"On {place}, pelicans fish together, in a half circle.".split(" "):
                    await message.text(word + " ")
                    await asyncio.sleep(0.05)


if __name__ == "__main__":
    try:
        asyncio.run(play(sys.argv[1] if len(sys.argv) > 1 else "tutorial-python"))
    except Cancelled as error:  # the run has ended as aborted
        print(error)
