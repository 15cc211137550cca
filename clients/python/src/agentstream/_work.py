"""Tasks of a worker, as the server hands them out. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from . import _json
from .event import Event, parse

PATH: Final = "/v1/agent/work"


@dataclass(frozen=True, slots=True)
class Work:
    """A message, or answers to what an earlier turn has asked. `lease` goes with what is written."""

    lease: str
    run: str
    turn: str
    once: bool
    redelivered: bool
    session: Mapping[str, Any]
    events: tuple[Event, ...]


def read_work(data: bytes) -> Work:
    """Reads a task. Raises ValueError of what is none."""
    fields = _json.load(data)
    raw = dict(_json.members(data.decode("utf-8")))
    events = tuple(parse(line.encode()) for line in _json.elements(raw["events"]))
    if not events:
        raise ValueError("a task has no events")
    session = fields.get("session") or {}
    return Work(
        lease=fields["lease"],
        run=fields["run_id"],
        turn=fields["turn_id"],
        once=bool(fields.get("once")),
        redelivered=bool(fields.get("redelivered")),
        session=session,
        events=events,
    )


def read_told(data: bytes) -> tuple[str, Event]:
    """Reads what was sent to a session while it is answered: the turn and the command."""
    raw = dict(_json.members(data.decode("utf-8")))
    return _json.load(raw["turn_id"]), parse(raw["event"].encode())


def read_over(data: bytes) -> str:
    """Reads which turn has ended."""
    return str(_json.load(data)["turn_id"])


def text_of(content: Any) -> str:
    """Returns the text of a message: the string, or the texts of its blocks, a line each."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    texts = [b.get("text") for b in content if isinstance(b, dict)]
    return "\n".join(t for t in texts if isinstance(t, str) and t)
