"""Taps for asyncio. `taps.py` is made of this file: see tests/test_twins.py.

A tap is the events of all runs of a tenant, with a cursor each:

async for record in tap(client, name="bill", types="message.end"):
    if record.event is not None:
        print(record.event.run_id, record.event.seq)
    await acknowledge(client, "bill", record.cursor)
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

import httpx

from . import _settings
from ._call import NDJSON
from ._io_async import Stop
from ._tap import Missing, Place, Record, acknowledgement
from ._watch import ConnectionLost, names
from .aclient import AsyncClient
from .errors import AgentstreamError

__all__ = ["Missing", "Record", "acknowledge", "tap"]


async def tap(
    client: AsyncClient,
    *,
    name: str = "",
    types: str | Sequence[str] = (),
    cursor: str = "",
    begin: str = "all",
) -> AsyncGenerator[Record, None]:
    """Yields the events of all runs, those of a run in order, over as many connections as that takes; it never ends.

    name is that under which the server keeps the place: without a cursor the tap goes on after what was acknowledged.
    begin is where it begins without a place: "all", "new" or an RFC 3339 time.
    """
    query = {"types": ",".join(names(types)), "tap": name, "cursor": cursor, "from": begin}
    place = Place(query, client._settings.give_up)
    while True:
        token = ""
        try:
            token = await client._tokens.get()
            async with aclosing(_lines(client, token, place)) as lines:
                async for line in lines:
                    yield place.read(line)
            error: AgentstreamError = ConnectionLost("the stream has ended")
        except (httpx.TransportError, httpx.DecodingError) as cause:
            error = _settings.lost_by(cause)
        except AgentstreamError as cause:
            error = cause
        await Stop().wait(place.pauses.pause(error, client._tokens.renew, token))


async def acknowledge(client: AsyncClient, name: str, cursor: str) -> None:
    """Tells the server that everything up to a cursor of a tap is dealt with. A place never moves back."""
    await client._do(acknowledgement(name, cursor, client._settings.give_up))


async def _lines(client: AsyncClient, token: str, place: Place) -> AsyncGenerator[bytes, None]:
    """Yields the lines of one connection. What has no line feed was cut."""
    connection = await client._connect("/v1/agent/events/stream", place.query, {"Accept": NDJSON}, token)
    rest = b""
    try:
        while (chunk := await connection.read()) is not None:
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                if line:
                    yield line
    finally:
        await connection.aclose()
