"""What the client for asyncio does by its own means. `_io_threads.py` has the same names for threads."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Union

import httpx

__all__ = ["Connection", "Lock", "Source", "Stop", "resolve"]

#: A function that returns a credential.
Source = Callable[[], Union[str, Awaitable[str]]]
Lock = asyncio.Lock


class Stop:
    """Ends what waits for it."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def set(self) -> None:
        self._event.set()

    def is_set(self) -> bool:
        return self._event.is_set()

    async def wait(self, timeout: float) -> bool:
        """Waits, and reports whether it was set."""
        if timeout > 0 and not self.is_set():
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._event.wait(), timeout)
        return self.is_set()


async def resolve(source: Source) -> str:
    """Calls a function for credentials."""
    token = source()
    return await token if inspect.isawaitable(token) else token


class Connection:
    """An answer whose body one task reads."""

    ours = True  # loops do not survive a fork

    def __init__(self, response: httpx.Response) -> None:
        self._response = response
        self._chunks = response.aiter_bytes()
        self._loop = asyncio.get_running_loop()

    async def read(self) -> bytes | None:
        """Returns the next part of the body. None is its end."""
        try:
            return await self._chunks.__anext__()
        except StopAsyncIteration:
            return None

    async def aclose(self) -> None:
        """Closes it; a read in another task ends at once."""
        with suppress(Exception):
            await self._response.aclose()

    def forget(self) -> None:
        """Closes it when nobody knows it any more, from wherever the object is collected."""
        if not self._loop.is_closed():
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(lambda: self._loop.create_task(self.aclose()))
