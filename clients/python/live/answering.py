"""A worker that is killed: it says in a file of which message it asks a model, and answers in pieces.

python -m live.answering URL FILE sync|async
"""

from __future__ import annotations

import asyncio
import os
import sys
import time

from agentstream import AsyncClient, AsyncSession, AsyncWorker, Client, Session, Worker

PIECES = 6


def note(file: str, session: Session | AsyncSession) -> None:
    """Notes a question to a model, before it is asked."""
    with open(file, "a") as out:
        out.write(f"{session.id} {session.events[-1].seq} {os.getpid()}\n")


def answer(session: Session) -> None:
    note(sys.argv[2], session)
    with session.turn.message(model="scripted") as message:
        for n in range(PIECES):
            message.text(f"{session.text} {n};")
            time.sleep(0.02)


async def answer_async(session: AsyncSession) -> None:
    note(sys.argv[2], session)
    async with session.turn.message(model="scripted") as message:
        for n in range(PIECES):
            await message.text(f"{session.text} {n};")
            await asyncio.sleep(0.02)


async def main() -> None:
    async with AsyncClient(sys.argv[1]) as client:
        await AsyncWorker(client, answer_async, places=4).run()


if __name__ == "__main__":
    if sys.argv[3] == "async":
        asyncio.run(main())
    else:
        with Client(sys.argv[1]) as client:
            Worker(client, answer, places=4).run()
