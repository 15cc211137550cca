"""The client for asyncio. `client.py` is made of this file: see tests/test_twins.py."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import httpx

from . import _settings
from ._api import Api, Blob, Cost, CostsPage, Page, Receipt, RunInfo, RunsPage, Ticket, line_of, path_of
from ._call import Answer, Effect, Op, Refused, Send, Sleep
from ._io_async import Connection, Lock, Source, Stop, resolve
from ._watch import Machine, Options, Stats, names
from .arun import AsyncRun
from .errors import Unavailable, error_of
from .event import Event, Gap

__all__ = ["AsyncClient", "AsyncWatch"]

T = TypeVar("T")


class AsyncClient:
    """Speaks with one server, for the tasks of one event loop of asyncio. It connects to nothing by itself.

    `token` is a bearer token, or a function or coroutine function that returns one, which is called again when the
    server has refused the last one. `give_up` bounds, in seconds, how long requests are repeated while the server
    does not answer; None is without end. `idle` ends a stream on which nothing comes, `timeout` bounds one attempt of
    anything else. `http` is a client of yours, which is not closed. After a fork the child makes connections of its
    own.
    """

    def __init__(
        self,
        url: str,
        token: str | Source | None = None,
        *,
        give_up: float | None = None,
        idle: float = 60.0,
        timeout: float = 30.0,
        http: httpx.AsyncClient | None = None,
    ) -> None:
        self._settings = _settings.check(url, give_up, idle, timeout)
        self._api = Api(give_up)
        self._tokens = _Tokens(token)
        self._own = http is None
        self._http = http
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._closed = False
        self._open: weakref.WeakSet[AsyncWatch | AsyncRun] = weakref.WeakSet()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Ends the streams of this client and closes its connections."""
        with self._lock:
            self._closed = True
            watches = [w for w in self._open if isinstance(w, AsyncWatch)]
            http, self._http = self._http, None
        for watch in watches:
            await watch.aclose()
        if http is not None and self._own and self._pid == os.getpid():
            await http.aclose()

    # Reading.

    def watch(
        self,
        run: str,
        *,
        after: int = 0,
        detail: str = "default",
        types: str | Sequence[str] = (),
        child: str | Sequence[str] = (),
        nested: bool = False,
        snapshot: bool = False,
        speed: float = 0.0,
        refetch: bool = False,
    ) -> AsyncWatch:
        """Returns the events of a run after a cursor, over as many connections as that takes.

        detail "full" is every event as it is stored; the default joins deltas. child "-" is the run itself. snapshot
        begins with the sum of what has happened so far. refetch asks once more for what is missing before it is
        reported as a Gap.
        """
        options = Options(after, detail, names(types), names(child), nested, snapshot, speed, refetch)
        watch = AsyncWatch(self, path_of(run, "stream"), options)
        self._open.add(watch)
        return watch

    async def info(self, run: str) -> RunInfo:
        """Returns the state of a run."""
        return await self._do(self._api.info(run))

    async def snapshot(self, run: str, *, at: int = 0) -> dict[str, Any]:
        """Returns the sum of a run: now, or at an event. schema/contracts/snapshot.schema.json describes it."""
        return await self._do(self._api.snapshot(run, at))

    async def events(
        self,
        run: str,
        *,
        after: int = 0,
        before: int = 0,
        newest: bool = False,
        limit: int = 0,
        types: str | Sequence[str] = (),
        child: str | Sequence[str] = (),
        nested: bool = False,
    ) -> Page:
        """Returns a page of stored events: upwards after `after`, or with newest downwards before `before`."""
        query = {
            "after": after,
            "before": before,
            "limit": limit,
            "types": names(types),
            "child": names(child),
            "nested": nested,
        }
        return await self._do(self._api.events(run, query, newest))

    async def replay(self, run: str, *, after: int = 0, through: int = 0) -> bytes:
        """Returns the stored events, one a line, as they are in the log."""
        return await self._do(self._api.replay(run, after, through))

    async def runs(
        self,
        *,
        state: str | Sequence[str] = (),
        since: str = "",
        until: str = "",
        waits: bool = False,
        q: str = "",
        title: str = "",
        tag: str = "",
        agent: str = "",
        model: str = "",
        reason: str = "",
        order: str = "",
        direction: str = "",
        limit: int = 0,
        cursor: str | None = None,
    ) -> RunsPage:
        """Returns a page of the list of runs, newest first, or by `order` and `direction`. Times are RFC 3339.

        `q` is words, all of which are in id, title, agent, model, tags or the first words; `reason` is in the reason;
        `title`, `tag`, `agent` and `model` are exactly these.
        """
        query = {
            "state": names(state),
            "since": since,
            "until": until,
            "waits": waits,
            "q": q,
            "title": title,
            "tag": tag,
            "agent": agent,
            "model": model,
            "reason": reason,
            "order": order,
            "direction": direction,
            "limit": limit,
            "cursor": cursor,
        }
        return await self._do(self._api.runs(query))

    async def costs(self, run: str, *, by: str = "message", limit: int = 0, cursor: str | None = None) -> CostsPage:
        """Returns a page of what each message of a run has cost, or with by="child" the run itself and each child."""
        return await self._do(self._api.costs(run, {"by": by, "limit": limit, "cursor": cursor}))

    async def daily_costs(self, *, since: str = "", until: str = "") -> list[Cost]:
        """Returns what all runs have cost by UTC day and model, newest day first; the last 30 days without `since`."""
        return await self._do(self._api.daily_costs({"since": since, "until": until}))

    # Writing.

    async def create(self, run: str | None = None, *, planning_gate: str = "", key: str = "") -> str:
        """Begins a run and returns its id. A run also begins with its first event. Exists: it has events already."""
        return (await self._do(self._api.create(run, planning_gate, key)))[0]

    async def append(self, run: str, events: Iterable[Mapping[str, Any] | bytes], *, key: str = "") -> Receipt:
        """Stores events in order, exactly once for each key, and returns when they are durable.

        Without a key only the repeats within this call are safe. An event is `{"type": …, "payload": …}`, or a line.
        """
        return await self._do(self._api.append(run, [line_of(e) for e in events], key))

    def run(self, run: str, **options: Any) -> AsyncRun:
        """Returns a writer of a run: see `AsyncRun`, which has the options."""
        writer = AsyncRun(self, run, **options)
        self._open.add(writer)
        return writer

    async def put_blob(self, run: str, content: bytes, content_type: str = "application/octet-stream") -> Blob:
        """Stores content with a run, which must exist. The same content is stored once."""
        return await self._do(self._api.put_blob(run, content, content_type))

    async def blob(self, run: str, ref: str) -> tuple[bytes, str]:
        """Returns content that was stored with a run, and its type."""
        return await self._do(self._api.blob(run, ref))

    async def ticket(self, run: str) -> Ticket:
        """Returns a credential for one stream of a run, for browsers: `…/stream?ticket=`."""
        return await self._do(self._api.ticket(run))

    # Commands.

    async def command(self, run: str, name: str, *, key: str = "", **payload: Any) -> Receipt:
        """Sends a command, once for each key. It becomes an event of the run, which the agent obeys."""
        return await self._do(self._api.command(run, name, payload, key))

    async def approve(self, run: str, plan_id: str | None = None, *, key: str = "") -> Receipt:
        """Approves the open plan."""
        return await self.command(run, "approve_plan", plan_id=plan_id, key=key)

    async def reject(
        self, run: str, plan_id: str | None = None, reason: str | None = None, *, key: str = ""
    ) -> Receipt:
        """Rejects the open plan."""
        return await self.command(run, "reject_plan", plan_id=plan_id, reason=reason, key=key)

    async def pause(self, run: str, reason: str | None = None, *, key: str = "") -> Receipt:
        """Asks the agent to pause."""
        return await self.command(run, "pause", reason=reason, key=key)

    async def resume(self, run: str, *, key: str = "") -> Receipt:
        """Asks a paused agent to continue."""
        return await self.command(run, "resume", key=key)

    async def redirect(self, run: str, instruction: str, *, key: str = "") -> Receipt:
        """Gives the agent another instruction."""
        return await self.command(run, "redirect", instruction=instruction, key=key)

    async def cancel(self, run: str, reason: str | None = None, *, key: str = "") -> Receipt:
        """Asks the agent to end the run."""
        return await self.command(run, "cancel", reason=reason, key=key)

    async def answer(self, run: str, request_id: str, answer: Any, *, key: str = "") -> Receipt:
        """Answers a question of the agent."""
        return await self._do(self._api.command(run, "answer", {"request_id": request_id, "answer": answer}, key))

    async def message(self, run: str, content: Any, *, key: str = "") -> Receipt:
        """Sends the agent a message: a text, or blocks. After the run's end it is a follow-up."""
        return await self.command(run, "messages", content=content, key=key)

    # Carrying out.

    def _client(self) -> httpx.AsyncClient:
        with self._lock:
            if self._closed:
                raise RuntimeError("the client is closed")
            if self._own and self._pid != os.getpid():
                self._http = None  # connections are the parent's
                self._pid = os.getpid()
            if self._http is None:
                self._http = httpx.AsyncClient(follow_redirects=True)
            return self._http

    async def _do(self, op: Op[T], stop: Stop | None = None) -> T:
        """Carries out an operation. A stop that is set ends its pauses, and with them the operation."""
        try:
            effect = next(op)
            while True:
                try:
                    result = await self._effect(effect, stop)
                except BaseException as error:
                    effect = op.throw(error)
                else:
                    effect = op.send(result)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]

    async def _effect(self, effect: Effect, stop: Stop | None) -> Answer | bool | None:
        if isinstance(effect, Refused):
            return self._tokens.renew(effect.token)
        if isinstance(effect, Sleep):
            if await (stop or Stop()).wait(effect.seconds):
                raise RuntimeError("the writer was closed before the server answered")
            return None
        return await self._attempt(effect)

    async def _attempt(self, send: Send) -> Answer:
        send.token = await self._tokens.get()
        request = self._client().build_request(
            send.method,
            self._settings.base + send.path,
            params=send.query or None,
            content=send.body,
            headers=_settings.headers_of(send.token, dict(send.headers)),
            timeout=self._settings.of_call(),
        )
        try:
            response = await self._client().send(request, stream=True)
            return _settings.answer_of(response, await _bounded(response))
        except (httpx.TransportError, httpx.DecodingError) as error:
            raise _settings.lost_by(error) from error

    async def _stream(self, path: str, query: dict[str, str], headers: dict[str, str], token: str) -> httpx.Response:
        """Asks for a stream, whose body the caller reads and closes."""
        request = self._client().build_request(
            "GET",
            self._settings.base + path,
            params=query or None,
            headers=_settings.headers_of(token, headers),
            timeout=self._settings.of_stream(),
        )
        return await self._client().send(request, stream=True)

    async def _connect(self, path: str, query: dict[str, str], headers: dict[str, str], token: str) -> Connection:
        """Asks for a stream, and raises what any other answer than 200 means."""
        response = await self._stream(path, query, headers, token)
        if response.status_code != 200:
            raise error_of(response.status_code, response.headers, await _bounded(response))
        return Connection(response)


async def _bounded(response: httpx.Response) -> bytes:
    """Reads a body that is no stream, and closes the answer."""
    most = _settings.most_of(response.status_code)
    connection = Connection(response)
    body = bytearray()
    try:
        while (chunk := await connection.read()) is not None:
            body += chunk
            if len(body) > most:
                if response.status_code // 100 == 2:
                    raise _settings.too_large()
                break
    finally:
        await connection.aclose()
    return bytes(body)


class _Tokens:
    """Holds the credential, and gets another one when it was refused. Calls of the function do not overlap."""

    def __init__(self, token: str | Source | None) -> None:
        self._source = token if callable(token) else None
        self._token = None if callable(token) else _settings.check_token(token)
        self._getting = Lock()
        self._renewing = threading.Lock()

    @property
    def renewable(self) -> bool:
        return self._source is not None

    async def get(self) -> str:
        token = self._token
        if token is not None:
            return token
        async with self._getting:
            if self._token is None and self._source is not None:
                self._token = _settings.check_token(await resolve(self._source))
            return self._token or ""

    def renew(self, token: str) -> bool:
        """Forgets a token that was refused, and reports whether another one can be had."""
        if self._source is None:
            return False
        with self._renewing:
            if self._token == token:
                self._token = None
        return True


class AsyncWatch(AsyncIterator[Event | Gap]):
    """The events of a run, as an iterator that ends when the run is over and the server has confirmed it.

    One task at a time reads. A read that is cancelled or interrupted, as by `asyncio.wait_for` or Ctrl-C, loses
    nothing: the next one goes on after the last event, over another connection. A loop that is left closes the
    connection when the object is forgotten, `async with` does so at once. An error is raised once more by every later
    read.
    """

    def __init__(self, client: AsyncClient, path: str, options: Options) -> None:
        self._client = client
        self._path = path
        self._machine = Machine(options, client._settings.give_up)
        self._connection: Connection | None = None
        self._token = ""
        self._stop = Stop()

    @property
    def cursor(self) -> int:
        """The seq of the newest event that was handed out: `after` of a later watch."""
        return self._machine.cursor

    @property
    def stats(self) -> Stats:
        """What happened so far."""
        return self._machine.stats

    async def __aenter__(self) -> AsyncWatch:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __aiter__(self) -> AsyncWatch:
        return self

    async def __anext__(self) -> Event | Gap:
        machine = self._machine
        while True:
            item = machine.pop()
            if item is not None:
                return item
            if self._stop.is_set():
                await self._drop()
                raise StopAsyncIteration
            if machine.over or machine.error is not None:
                await self._drop()
                if machine.error is not None:
                    raise machine.error
                raise StopAsyncIteration
            try:
                connection = self._connection
                if connection is None or not connection.ours:
                    await self._connect()
                else:
                    await self._read(connection)
            except BaseException:
                await self._drop()
                raise

    async def _connect(self) -> None:
        machine, client = self._machine, self._client
        self._connection = None  # after a fork it is the parent's
        if await self._stop.wait(machine.pause()):
            return
        try:
            self._token = await client._tokens.get()
            response = await client._stream(self._path, *machine.request(), self._token)
        except (httpx.TransportError, Unavailable) as error:
            machine.lost(error if isinstance(error, Unavailable) else _settings.lost_by(error))
            return
        if response.status_code // 100 == 2:
            self._connection = Connection(response)
            machine.opened(response.status_code, response.headers)
        else:
            await self._refuse(response)
        if machine.over or machine.error is not None:
            await self._drop()

    async def _refuse(self, response: httpx.Response) -> None:
        try:
            body = await _bounded(response)
        except (httpx.TransportError, httpx.DecodingError):
            body = b""  # the status is enough
        tokens = self._client._tokens
        error = error_of(response.status_code, response.headers, body)
        self._machine.refused(error, response.status_code == 401 and tokens.renew(self._token))

    async def _read(self, connection: Connection) -> None:
        machine, tokens = self._machine, self._client._tokens
        try:
            chunk = await connection.read()
        except httpx.ReadTimeout:
            await self._drop()
            machine.silent()
            return
        except (httpx.TransportError, httpx.DecodingError) as error:
            await self._drop()
            machine.lost(_settings.lost_by(error))
            return
        if chunk is None:
            await self._drop()
            machine.closed()
            return
        machine.feed(chunk, tokens.renewable)
        if machine.expired:
            tokens.renew(self._token)
        if machine.stale:
            await self._drop()

    async def _drop(self) -> None:
        """Closes the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.aclose()

    async def aclose(self) -> None:
        """Ends the stream and closes its connection; a read in another task ends at once."""
        self._stop.set()
        connection = self._connection
        if connection is not None:
            await connection.aclose()

    def __del__(self) -> None:
        connection = getattr(self, "_connection", None)
        if connection is not None:
            connection.forget()
