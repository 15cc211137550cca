"""What is read of a tap, and its calls, without I/O."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from . import _json
from ._backoff import Pauses
from ._call import JSON, Op, Send, call
from .errors import AgentstreamError
from .event import Event, parse


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


class Place:
    """Where a tap goes on, and after which pauses."""

    def __init__(self, query: dict[str, str], give_up: float | None) -> None:
        self.query = {name: value for name, value in query.items() if value}
        self.pauses = Pauses(give_up)

    def read(self, line: bytes) -> Record:
        """Reads a record, after which the tap goes on."""
        record = read_record(line)
        self.pauses.reset()
        # Later the cursor goes alone: with the name it would acknowledge what is perhaps not dealt with.
        self.query["cursor"] = record.cursor
        self.query.pop("tap", None)
        return record


def acknowledgement(name: str, cursor: str, give_up: float | None) -> Op[None]:
    """Tells the server a place."""
    body = _json.dump({"cursor": cursor}).encode()
    headers = {"Accept": JSON, "Content-Type": JSON}
    yield from call(Send("POST", f"/v1/agent/taps/{quote(name, safe='')}", {}, headers, body), give_up)


def read_record(line: bytes) -> Record:
    """Reads a line of a tap."""
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
