"""The events of all runs of a tenant, with a cursor each.

for record in tap(client, name="bill", types="message.end"):
    if record.event is not None:
        print(record.event.run_id, record.event.seq)
    acknowledge(client, "bill", record.cursor)
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import httpx

from . import _json, _settings
from ._backoff import Backoff
from ._call import JSON, NDJSON, Op, Send, call
from ._watch import ConnectionLost, names
from .client import Client
from .errors import AgentstreamError, ServerError, Unavailable, error_of
from .event import Event, parse

__all__ = ["Missing", "Record", "acknowledge", "tap"]


@dataclass(frozen=True)
class Missing:
    """Events that are kept nowhere. Without a run it is a partition of the log whose runs are not known."""

    run_id: str | None
    first: int
    last: int
    reason: str
    partition: int | None = None


@dataclass(frozen=True)
class Record:
    """An event or what is missing, or neither: a place alone. `cursor` is the place after it."""

    cursor: str
    event: Event | None = None
    missing: Missing | None = None


def tap(
    client: Client,
    *,
    name: str = "",
    types: str | Sequence[str] = (),
    cursor: str = "",
    begin: str = "all",
) -> Iterator[Record]:
    """Yields the events of all runs, those of a run in order, over as many connections as that takes; it never ends.

    name is that under which the server keeps the place: without a cursor the tap goes on after what was acknowledged.
    begin is where it begins without a place: "all", "new" or an RFC 3339 time.
    """
    query = {"types": ",".join(names(types)), "tap": name, "cursor": cursor, "from": begin}
    backoff = Backoff(client._settings.give_up)
    renewed = False
    while True:
        token = ""
        try:
            token = client._tokens.get()
            for record in _connect(client, token, {k: v for k, v in query.items() if v}):
                renewed = False
                backoff.reset()
                # Later the cursor goes alone: with the name it would acknowledge what is perhaps not dealt with.
                query["cursor"], query["tap"] = record.cursor, ""
                yield record
        except httpx.TransportError as error:
            lost = _settings.lost_by(error)
            if not isinstance(lost, Unavailable):
                raise lost from error
            time.sleep(backoff.pause(0.0, lost))
        except Unavailable as error:
            time.sleep(backoff.pause(error.retry_after if isinstance(error, ServerError) else 0.0, error))
        except ServerError as error:
            if error.status != 401 or renewed or not client._tokens.renew(token):
                raise
            renewed = True
        else:
            time.sleep(backoff.pause(0.0, ConnectionLost("the stream has ended")))


def acknowledge(client: Client, name: str, cursor: str) -> None:
    """Tells the server that everything up to a cursor of a tap is dealt with. A place never moves back."""
    client._do(_acknowledge(name, cursor, client._settings.give_up))


def _acknowledge(name: str, cursor: str, give_up: float | None) -> Op[None]:
    body = _json.dump({"cursor": cursor}).encode()
    headers = {"Accept": JSON, "Content-Type": JSON}
    yield from call(Send("POST", f"/v1/agent/taps/{quote(name, safe='')}", {}, headers, body), give_up)


def _connect(client: Client, token: str, query: dict[str, str]) -> Iterator[Record]:
    """Yields the records of one connection."""
    http = client._client()
    with http.stream(
        "GET",
        client._settings.base + "/v1/agent/events/stream",
        params=query,
        headers=_settings.headers_of(token, {"Accept": NDJSON}),
        timeout=client._settings.of_stream(),
    ) as response:
        if response.status_code != 200:
            raise error_of(response.status_code, response.headers, response.read())
        rest = b""
        for chunk in response.iter_bytes():
            *lines, rest = (rest + chunk).split(b"\n")  # what has no line feed was cut
            yield from (_record(line) for line in lines if line)


def _record(line: bytes) -> Record:
    try:
        fields: dict[str, str] = dict(_json.members(line.decode()))
        cursor = _json.load(fields["cursor"])
        event = parse(fields["event"].encode()) if "event" in fields else None
        gap: dict[str, Any] | None = _json.load(fields["gap"]) if "gap" in fields else None
    except (ValueError, KeyError) as error:
        raise AgentstreamError(f"a line is no record of a tap: {line[:80]!r}") from error
    missing = gap and Missing(
        gap.get("run_id"), gap.get("first_seq", 0), gap.get("last_seq", 0), gap["reason"], gap.get("partition")
    )
    return Record(cursor, event, missing or None)
