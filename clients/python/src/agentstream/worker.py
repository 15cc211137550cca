"""Workers: they answer the sessions that people open, each message once, together with any number of others."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Generic, TypeVar

import httpx

from . import _io_threads, _settings
from ._backoff import Pauses
from ._sse import Frame, Parser
from ._work import PATH, Work, read_over, read_told, read_work
from .asession import AsyncSession
from .errors import AgentstreamError, Lost, Unavailable
from .session import Session

if TYPE_CHECKING:
    from .aclient import AsyncClient
    from .client import Client

__all__ = ["AsyncWorker", "Worker"]

S = TypeVar("S", Session, AsyncSession)
log = logging.getLogger("agentstream.worker")


class _Desk(Generic[S]):
    """The sessions that are being answered, by turn: the turns of a session may have one lease. No I/O."""

    def __init__(self, begin: Callable[[Work], S], cancel: Callable[[S], None]) -> None:
        self.open: dict[str, S] = {}
        self._begin: Callable[[Work], S] = begin
        self._cancel: Callable[[S], None] = cancel
        self._lock = threading.Lock()

    def receive(self, frame: Frame) -> S | None:
        """Reads a frame. Returns a session that is to be answered."""
        data = frame.data or b"{}"
        if frame.event == "task":
            work = read_work(data)
            session = self._begin(work)
            with self._lock:
                self.open[work.turn] = session
            return session
        if frame.event == "command":
            turn, event = read_told(data)
            told = self.open.get(turn)
            if told is not None:
                told._hear(event)
                if told.cancelled:
                    self._cancel(told)
        elif frame.event == "end":
            ended = self.open.get(read_over(data))
            if ended is not None and not ended._ending:
                ended._give_up()
                self._cancel(ended)
        return None

    def close(self, session: S) -> None:
        with self._lock:
            self.open.pop(session._work.turn, None)

    def give_up(self) -> list[S]:
        """Gives all up: their leases have ended with the connection."""
        with self._lock:
            all = list(self.open.values())
        for session in all:
            if not session._ending:
                session._give_up()
            self._cancel(session)
        return all


def _report(session: Session | AsyncSession, error: BaseException) -> None:
    if isinstance(error, Lost):
        log.info("session %s: %s", session.id, error)
    else:
        log.warning("session %s: the answer failed", session.id, exc_info=error)


_HEADERS = {"Accept": "text/event-stream"}


class AsyncWorker:
    """Answers sessions with a coroutine function. `places` is how many it answers at once.

    The answer writes with `session.run` and `session.turn`. When it returns, the turn ends well; an exception fails
    the turn, and not the session. It is cancelled when a person cancels, or when the server has given the session to
    another worker: then nothing more is written.
    """

    def __init__(
        self,
        client: AsyncClient,
        answer: Callable[[AsyncSession], Awaitable[object]],
        *,
        places: int = 8,
        actor: str = "agent",
    ) -> None:
        self._client, self._answer, self._places, self._actor = client, answer, places, actor
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._desk: _Desk[AsyncSession] = _Desk(self._begin, self._cancel)

    async def run(self) -> None:
        """Answers until it is cancelled, which gives up what is under way: other workers answer that from its start."""
        pauses = Pauses(self._client._settings.give_up)
        try:
            while True:
                token = await self._client._tokens.get()
                try:
                    await self._stream(token, pauses)
                    error: AgentstreamError = Unavailable("the server has ended the stream of tasks")
                except AgentstreamError as cause:
                    error = cause
                await self._give_up()
                await asyncio.sleep(pauses.pause(error, self._client._tokens.renew, token))
        finally:
            await self._give_up()

    async def _stream(self, token: str, pauses: Pauses) -> None:
        try:
            connection = await self._client._connect(PATH, {"places": str(self._places)}, _HEADERS, token)
            try:
                pauses.reset()
                parser = Parser()
                while (chunk := await connection.read()) is not None:
                    for frame in parser.feed(chunk):
                        self._receive(frame)
            finally:
                await connection.aclose()
        except (httpx.TransportError, httpx.DecodingError) as error:
            raise _settings.lost_by(error) from error

    def _receive(self, frame: Frame) -> None:
        session = self._desk.receive(frame)
        if session is not None:
            task = asyncio.create_task(self._work(session), name=f"agentstream-answer-{session.id}")
            self._tasks[session._work.turn] = task

    def _begin(self, work: Work) -> AsyncSession:
        session = AsyncSession(self._client, work, self._actor)
        self._client._open.add(session.run)
        return session

    def _cancel(self, session: AsyncSession) -> None:
        task = self._tasks.get(session._work.turn)
        if task is not None and not session._ending:
            task.cancel()

    async def _work(self, session: AsyncSession) -> None:
        error: BaseException | None = None
        try:
            await self._answer(session)
        except (Exception, asyncio.CancelledError) as cause:
            error = cause
        session._ending = True
        try:
            await session._end(error)
        except Exception as cause:
            error = cause
        finally:
            self._desk.close(session)
            self._tasks.pop(session._work.turn, None)
        if isinstance(error, Exception) and not session.cancelled:
            _report(session, error)

    async def _give_up(self) -> None:
        self._desk.give_up()
        tasks = list(self._tasks.values())
        if tasks:
            await asyncio.gather(*tasks, return_exceptions=True)


class Worker:
    """Is AsyncWorker for programs with threads: the answer is a function, which has a thread for each session.

    It cannot be cancelled from outside: what it writes raises Cancelled, or Lost, and it should look at
    `session.cancelled` between long steps.
    """

    def __init__(
        self, client: Client, answer: Callable[[Session], object], *, places: int = 8, actor: str = "agent"
    ) -> None:
        self._client, self._answer, self._places, self._actor = client, answer, places, actor
        self._desk: _Desk[Session] = _Desk(self._begin, lambda session: None)
        self._threads: dict[str, threading.Thread] = {}
        self._stop = threading.Event()
        self._connection: _io_threads.Connection | None = None

    def close(self) -> None:
        """Ends `run`, from any thread, which gives up what is under way: other workers answer that from its start."""
        self._stop.set()
        connection = self._connection
        if connection is not None:
            connection.close()

    def run(self) -> None:
        """Answers until `close` is called."""
        pauses = Pauses(self._client._settings.give_up)
        try:
            while not self._stop.is_set():
                token = self._client._tokens.get()
                try:
                    for frame in self._frames(token, pauses):
                        self._receive(frame)
                    error: AgentstreamError = Unavailable("the server has ended the stream of tasks")
                except AgentstreamError as cause:
                    error = cause
                self._desk.give_up()
                if not self._stop.is_set():
                    self._stop.wait(pauses.pause(error, self._client._tokens.renew, token))
        finally:
            self._desk.give_up()
            for thread in list(self._threads.values()):
                thread.join()

    def _frames(self, token: str, pauses: Pauses) -> Iterator[Frame]:
        try:
            connection = self._client._connect(PATH, {"places": str(self._places)}, _HEADERS, token)
            self._connection = connection
            try:
                pauses.reset()
                parser = Parser()
                while not self._stop.is_set() and (chunk := connection.read()) is not None:
                    yield from parser.feed(chunk)
            finally:
                self._connection = None
                connection.close()
        except (httpx.TransportError, httpx.DecodingError) as error:
            raise _settings.lost_by(error) from error

    def _receive(self, frame: Frame) -> None:
        session = self._desk.receive(frame)
        if session is not None:
            name = f"agentstream-answer-{session.id}"
            thread = threading.Thread(target=self._work, args=(session,), name=name, daemon=True)
            self._threads[session._work.turn] = thread
            thread.start()

    def _begin(self, work: Work) -> Session:
        session = Session(self._client, work, self._actor)
        self._client._open.add(session.run)
        return session

    def _work(self, session: Session) -> None:
        error: BaseException | None = None
        try:
            self._answer(session)
        except Exception as cause:
            error = cause
        session._ending = True
        try:
            session._end(error)
        except Exception as cause:
            error = cause
        finally:
            self._desk.close(session)
            self._threads.pop(session._work.turn, None)
        if isinstance(error, Exception) and not session.cancelled:
            _report(session, error)
