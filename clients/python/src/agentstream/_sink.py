"""Carries what a run says to the server: with a thread, which ends when it is idle, or with a task."""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from ._commands import TYPES, Commands
from ._payload import New
from ._queue import Queue
from .errors import Cancelled, Lost, Unavailable
from .event import Event

if TYPE_CHECKING:
    from .aclient import AsyncClient, AsyncWatch
    from .client import Client, Watch

T = TypeVar("T")

#: How long the thread of a run waits for more before it ends, in seconds.
LINGER = 1.0
#: How long the interpreter waits at its end for what is not stored yet, in seconds.
AT_EXIT = 5.0


class Sink:
    """The sink of a writer for threads."""

    def __init__(self, client: Client, queue: Queue) -> None:
        self._client = client
        self._queue = queue
        self._changed = threading.Condition()
        self._sender: threading.Thread | None = None
        self._listener: threading.Thread | None = None
        self._watch: Watch | None = None
        self._stop = threading.Event()
        self._pid = os.getpid()
        self.commands = Commands()
        _open.add(self)

    def put(self, events: Sequence[New]) -> None:
        """Accepts events, all or none."""
        if self._pid != os.getpid():
            raise RuntimeError(f"run {self._queue.run}: the writer was made before the fork: make one of your own")
        with self._changed:
            if self._queue.put(events):
                self._start()
                self._changed.notify_all()

    def _start(self) -> None:
        if self._sender is None:
            name = f"agentstream-{self._queue.run}"
            self._sender = threading.Thread(target=self._send, name=name, daemon=True)
            self._sender.start()

    def _send(self) -> None:
        queue = self._queue
        while True:
            with self._changed:
                batch = queue.batch()
                if batch is None and not queue.closed:
                    self._changed.wait(LINGER)
                    batch = queue.batch()
                if batch is None:
                    self._sender = None
                    self._changed.notify_all()
                    return
            try:
                receipt = self._client._do(
                    self._client._api.send(queue.run, batch.lines, batch.key, queue.trace, queue.lease), self._stop
                )
            except Exception as error:
                with self._changed:
                    queue.fail(error)
                    self._changed.notify_all()
            else:
                with self._changed:
                    queue.note_stored(receipt)
                    self._changed.notify_all()

    def room(self) -> None:
        """Waits while there is no space, if the writer may wait. Raises why nothing more is accepted."""
        queue = self._queue
        if queue.patient and queue.full:
            self._wait(lambda: queue.failed is not None or not queue.full, None)
        queue.check()

    def _wait(self, ready: Callable[[], bool], timeout: float | None) -> bool:
        with self._changed:
            return self._changed.wait_for(ready, timeout)

    def flush(self, timeout: float | None = None) -> None:
        """Returns when all that was accepted is stored. Raises Lost of what cannot be."""
        queue = self._queue
        target = queue.accepted
        if not self._wait(lambda: queue.failed is not None or queue.stored >= target, timeout):
            raise Lost(queue.accepted - queue.stored, Unavailable(f"not stored within {timeout:g} s"))
        if queue.failed is not None:
            raise queue.failed

    def close(self, timeout: float | None) -> None:
        """Accepts no more, and returns when all is stored and nothing of the sink is left."""
        try:
            self.flush(timeout)
        finally:
            with self._changed:
                self._queue.closed = True
                if self._queue.waiting:
                    self._queue.fail(Unavailable("the writer was closed before the server answered"))
                self._stop.set()
                self._changed.notify_all()
                sender, listener, watch = self._sender, self._listener, self._watch
            if watch is not None:
                watch.close()
            for thread in (sender, listener):
                if thread is not None and thread is not threading.current_thread():
                    thread.join(2 * AT_EXIT)
            _open.discard(self)

    # Commands.

    def listen(self) -> None:
        """Begins to watch for commands, once. A worker hears of them otherwise."""
        if self._listener is None and not self._queue.lease:
            self.flush()
            first = self._queue.first
            self._watch = self._client.watch(
                self._queue.run, after=first.first_seq if first else 0, detail="full", types=TYPES
            )
            name = f"agentstream-{self._queue.run}-commands"
            self._listener = threading.Thread(target=self._hear, args=(self._watch,), name=name, daemon=True)
            self._listener.start()

    def _hear(self, watch: Watch) -> None:
        error: BaseException = Unavailable("the run is over")
        try:
            for item in watch:
                if isinstance(item, Event):
                    with self._changed:
                        self._note(item)
                        self._changed.notify_all()
        except Exception as cause:
            error = cause
        with self._changed:
            self.commands.error = error
            self._changed.notify_all()

    def fail(self, error: BaseException) -> None:
        """Stops the writer: nothing more is sent."""
        with self._changed:
            self._queue.fail(error)
            self._changed.notify_all()

    def hear(self, event: Event) -> None:
        """Receives a command that a worker was handed."""
        with self._changed:
            self._note(event)
            self._changed.notify_all()

    def _note(self, event: Event) -> None:
        self.commands.add(event)
        if self.commands.cancel is not None and self._queue.cancelled is None:
            cancel = self.commands.cancel
            self._queue.cancelled = str(cancel.payload.get("reason") or ""), cancel.seq

    def command(self, find: Callable[[Commands], T | None], timeout: float | None = None) -> T:
        """Waits for a command. Raises Cancelled when the run is cancelled meanwhile, TimeoutError after timeout."""
        self.listen()
        end = None if timeout is None else time.monotonic() + timeout
        with self._changed:
            while True:
                found = find(self.commands)
                if found is not None:
                    return found
                self._queue.check()
                if self.commands.error is not None:
                    raise self.commands.error
                left = None if end is None else end - time.monotonic()
                if left is not None and left <= 0:
                    raise TimeoutError(f"run {self._queue.run}: nobody answered within {timeout:g} s")
                self._changed.wait(left)


_open: weakref.WeakSet[Sink] = weakref.WeakSet()


@atexit.register
def _flush_at_exit() -> None:
    end = time.monotonic() + AT_EXIT
    for sink in list(_open):
        if sink._pid == os.getpid():
            with suppress(Exception):
                sink.flush(max(0.0, end - time.monotonic()))


class AsyncSink:
    """The sink of a writer for asyncio. `put` may be called from any thread, all else from the loop."""

    def __init__(self, client: AsyncClient, queue: Queue) -> None:
        self._client = client
        self._queue = queue
        self._lock = threading.Lock()
        self._loop = asyncio.get_running_loop()
        self._waiters: set[asyncio.Future[None]] = set()
        self._sender: asyncio.Task[None] | None = None
        self._listener: asyncio.Task[None] | None = None
        self._watch: AsyncWatch | None = None
        self.commands = Commands()

    def put(self, events: Sequence[New]) -> None:
        """Accepts events, all or none."""
        with self._lock:
            news = self._queue.put(events)
        if not news or self._sender is not None:
            return
        if threading.get_ident() == getattr(self._loop, "_thread_id", None):
            self._start()
        else:
            self._loop.call_soon_threadsafe(self._start)

    def _start(self) -> None:
        if self._sender is None and self._queue.waiting:
            self._sender = self._loop.create_task(self._send(), name=f"agentstream-{self._queue.run}")

    async def _send(self) -> None:
        queue = self._queue
        try:
            while True:
                await asyncio.sleep(0)  # what one step of a program says goes into one pack
                with self._lock:
                    batch = queue.batch()
                    if batch is None:
                        self._sender = None
                        break
                try:
                    receipt = await self._client._do(
                        self._client._api.send(queue.run, batch.lines, batch.key, queue.trace, queue.lease)
                    )
                except Exception as error:
                    with self._lock:
                        queue.fail(error)
                else:
                    with self._lock:
                        queue.note_stored(receipt)
                self._announce()
        except asyncio.CancelledError:
            with self._lock:
                queue.fail(Unavailable("the writer was closed before the server answered"))
            raise
        finally:
            self._announce()

    def _announce(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
        self._waiters.clear()

    async def _wait(self, ready: Callable[[], bool], timeout: float | None) -> bool:
        end = None if timeout is None else self._loop.time() + timeout
        while not ready():
            left = None if end is None else end - self._loop.time()
            if left is not None and left <= 0:
                return False
            waiter: asyncio.Future[None] = self._loop.create_future()
            self._waiters.add(waiter)
            try:
                await asyncio.wait([waiter], timeout=left)
            finally:
                self._waiters.discard(waiter)
        return True

    async def room(self) -> None:
        """Waits while there is no space, if the writer may wait. Raises why nothing more is accepted."""
        queue = self._queue
        if queue.patient and queue.full:
            await self._wait(lambda: queue.failed is not None or not queue.full, None)
        queue.check()

    async def flush(self, timeout: float | None = None) -> None:
        """Returns when all that was accepted is stored. Raises Lost of what cannot be."""
        queue = self._queue
        target = queue.accepted
        if not await self._wait(lambda: queue.failed is not None or queue.stored >= target, timeout):
            raise Lost(queue.accepted - queue.stored, Unavailable(f"not stored within {timeout:g} s"))
        if queue.failed is not None:
            raise queue.failed

    async def close(self, timeout: float | None) -> None:
        """Accepts no more, and returns when all is stored and nothing of the sink is left."""
        try:
            await self.flush(timeout)
        finally:
            self._queue.closed = True
            if self._watch is not None:
                await self._watch.aclose()
            for task in (self._sender, self._listener):
                if task is not None:
                    task.cancel()
                    with suppress(asyncio.CancelledError, Exception):
                        await task

    # Commands.

    async def listen(self) -> None:
        """Begins to watch for commands, once. A worker hears of them otherwise."""
        if self._listener is None and not self._queue.lease:
            await self.flush()
            first = self._queue.first
            self._watch = self._client.watch(
                self._queue.run, after=first.first_seq if first else 0, detail="full", types=TYPES
            )
            name = f"agentstream-{self._queue.run}-commands"
            self._listener = self._loop.create_task(self._hear(self._watch), name=name)

    async def _hear(self, watch: AsyncWatch) -> None:
        try:
            async for item in watch:
                if isinstance(item, Event):
                    self._note(item)
                    self._announce()
            self.commands.error = Unavailable("the run is over")
        except Exception as cause:
            self.commands.error = cause
        finally:
            self._announce()

    def fail(self, error: BaseException) -> None:
        """Stops the writer: nothing more is sent."""
        with self._lock:
            self._queue.fail(error)
        self._announce()

    def hear(self, event: Event) -> None:
        """Receives a command that a worker was handed."""
        self._note(event)
        self._announce()

    def _note(self, event: Event) -> None:
        self.commands.add(event)
        if self.commands.cancel is not None and self._queue.cancelled is None:
            cancel = self.commands.cancel
            self._queue.cancelled = str(cancel.payload.get("reason") or ""), cancel.seq

    async def command(self, find: Callable[[Commands], T | None], timeout: float | None = None) -> T:
        """Waits for a command. Raises Cancelled when the run is cancelled meanwhile, TimeoutError after timeout."""
        await self.listen()
        found: list[T] = []

        def ready() -> bool:
            one = find(self.commands)
            if one is not None:
                found.append(one)
            return bool(found) or self._queue.cancelled is not None or self.commands.error is not None

        if not await self._wait(ready, timeout):
            raise TimeoutError(f"run {self._queue.run}: nobody answered within {timeout:g} s")
        if found:
            return found[0]
        self._queue.check()
        raise self.commands.error or Cancelled(f"run {self._queue.run} is cancelled")
