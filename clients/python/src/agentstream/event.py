"""Events as they are read, and gaps between them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from . import _json

__all__ = ["FINAL_STATES", "Event", "Gap"]

#: The states that end a run.
FINAL_STATES: Final = frozenset({"done", "aborted", "error"})

_TEXTS = ("id", "ts", "child_id", "turn_id", "cause", "actor")
_MOST_SEQ = (1 << 53) - 1


@dataclass(frozen=True, slots=True)
class Event:
    """One event. `line` is what the server sent, and the truth: numbers of `payload` are rounded as Python does."""

    line: bytes = field(repr=False)
    type: str
    run_id: str
    #: Position in the run, from 1.
    seq: int
    #: The first of the events that this one stands for, hidden ones included: `seq` when it stands for itself.
    first_seq: int
    payload: Mapping[str, Any]
    id: str = ""
    #: RFC 3339, for people: order comes from seq alone.
    ts: str = ""
    #: Who spoke: a child's run id, None for the run itself.
    child_id: str | None = None
    turn_id: str | None = None
    cause: str | None = None
    actor: str | None = None
    #: Run ids from the root to a nested child, both included.
    path: tuple[str, ...] = ()

    @property
    def ends_run(self) -> bool:
        """Whether it is the end of its run: the lifecycle of the run itself, in a final state."""
        return self.type == "run.lifecycle" and self.child_id is None and self.payload.get("state") in FINAL_STATES

    @property
    def text(self) -> str:
        """The text of a delta, "" of any other event."""
        value = self.payload.get("text") if self.type.endswith(".delta") else None
        return value if isinstance(value, str) else ""


@dataclass(frozen=True, slots=True)
class Gap:
    """Events `first` to `last` are missing before the next event, or the next event says what was said already.

    The second is so when `overlap` is true: the next event stands for `first` to `last`, some of which have been
    delivered. `cause` is why, when something came in their place that cannot be read.
    """

    first: int
    last: int
    overlap: bool = False
    cause: str = ""


def parse(line: bytes) -> Event:
    """Reads one line. Unknown types and fields pass: a log may be newer than its reader.

    Raises ValueError of what is not an event.
    """
    fields = _json.load(line)
    if not isinstance(fields, dict):
        raise ValueError("an event is an object")
    return _event(line, fields)


def _event(line: bytes, fields: dict[str, Any]) -> Event:
    for name in ("type", "run_id"):
        if not isinstance(fields.get(name), str) or not fields[name]:
            raise ValueError(f"an event has no {name}")
    texts: dict[str, Any] = {}
    for name in _TEXTS:
        value = fields.get(name)
        if value is None:
            continue
        if not isinstance(value, str):
            raise ValueError(f"an event's {name} is not a text")
        texts[name] = value or None if name not in ("id", "ts") else value
    seq = _position(fields, "seq")
    first = _position(fields, "first_seq") if fields.get("first_seq") is not None else seq
    if first > seq:
        raise ValueError("an event's first_seq is after its seq")
    path = fields.get("path") or []
    if not isinstance(path, list) or not all(isinstance(p, str) for p in path):
        raise ValueError("an event's path is not a list of run ids")
    payload = fields.get("payload")
    if payload is None:
        payload = {}
    if not isinstance(payload, dict):
        raise ValueError("an event's payload is not an object")
    return Event(
        line=line,
        type=fields["type"],
        run_id=fields["run_id"],
        seq=seq,
        first_seq=first,
        payload=payload,
        path=tuple(path),
        **texts,
    )


def _position(fields: dict[str, Any], name: str) -> int:
    value = fields.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _MOST_SEQ:
        raise ValueError(f"an event's {name} is not a position")
    return value


_OWN = frozenset({"id", "ts", "run_id", "seq", "first_seq"})
_ORDER = ("id", "ts", "type", "run_id", "child_id", "seq", "first_seq", "turn_id", "path", "cause", "actor")


def unbundle(event: Event) -> list[Event]:
    """Takes a delta.bundle apart into its deltas, which share id, ts, seq and first_seq. Any other event is itself.

    Each has the line that it would have had alone. A bundle that cannot be read stays whole.
    """
    if event.type != "delta.bundle":
        return [event]
    try:
        outer = dict(_json.members(event.line.decode("utf-8")))
        parts = _json.elements(dict(_json.members(outer["payload"]))["deltas"])
        return [parse(_line_of_part(outer, part)) for part in parts] or [event]
    except (ValueError, KeyError):
        return [event]


def _line_of_part(outer: dict[str, str], part: str) -> bytes:
    fields = {name: raw for name, raw in _json.members(part) if name not in _OWN}
    fields.update({name: outer[name] for name in _OWN if name in outer})
    payload = fields.pop("payload", "{}")
    if fields.get("first_seq") == fields.get("seq"):
        fields.pop("first_seq", None)
    names = [n for n in _ORDER if n in fields] + [n for n in fields if n not in _ORDER]
    inner = "".join(f'"{_json.escape(n)}":{fields[n]},' for n in names)
    return f'{{{inner}"payload":{payload}}}'.encode()
