"""What events are made of: objects of JSON, lines, names and errors as they stand in the log. No I/O."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import datetime, timezone

from . import _json
from .errors import Cancelled

MOST_OF_A_NAME = 256  # bytes
MOST_OF_A_REASON = 4 << 10
MOST_OF_AN_ERROR = 64 << 10
MOST_OF_AN_EVENT = 512 << 10
MOST_OF_A_USAGE = 16 << 10
#: The content of one open message, in bytes: more would not fit the event that ends it.
MOST_KEPT = 384 << 10
#: What frames an event besides its payload, at most.
ROOM_FOR_NAMES = 4 << 10

CODE_FAILED = "KAI-TOOL-FAIL-0001"
CODE_CANCELLED = "KAI-TOOL-CANCEL-0001"
CODE_LOST = "KAI-TOOL-LOST-0001"


class Obj:
    """A JSON object that is being written, member by member."""

    __slots__ = ("parts",)

    def __init__(self) -> None:
        self.parts: list[str] = []

    def text(self, name: str, value: str) -> Obj:
        self.parts.append(f'"{name}":"{_json.escape(value)}"')
        return self

    def some(self, name: str, value: str | None) -> Obj:
        """Adds a text, and nothing when it is empty."""
        return self.text(name, value) if value else self

    def raw(self, name: str, value: str | None) -> Obj:
        """Adds a value that is JSON, and nothing when there is none."""
        if value:
            self.parts.append(f'"{name}":{value}')
        return self

    def yes(self, name: str, value: bool) -> Obj:
        return self.raw(name, "true" if value else "false")

    def number(self, name: str, value: int) -> Obj:
        return self.raw(name, str(value))

    def __str__(self) -> str:
        return "{" + ",".join(self.parts) + "}"


@dataclass(slots=True)
class New:
    """An event to be written. `payload` is JSON."""

    type: str
    payload: str
    child: str = ""
    path: tuple[str, ...] = ()
    turn: str = ""
    actor: str = ""
    cause: str = ""

    @property
    def delta(self) -> bool:
        return self.type.endswith(".delta")

    def line(self, run: str, actor: str) -> bytes:
        """Returns the event as a line, without a line feed. Raises ValueError when it is too large for the log."""
        o = Obj().text("type", self.type).text("ts", _stamp()).text("run_id", run).some("child_id", self.child)
        o.some("turn_id", self.turn).some("cause", self.cause).text("actor", self.actor or actor)
        if self.path:
            o.raw("path", _json.dump(list(self.path)))
        line = str(o.raw("payload", self.payload)).encode()
        if len(line) > MOST_OF_AN_EVENT and self.type != "tool.end":  # whose output the server moves
            raise ValueError(f"{self.type} of {len(line)} bytes, {MOST_OF_AN_EVENT} allowed")
        return line


def _stamp() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")


@dataclass(frozen=True)
class Closing:
    """Why and how far something is ended before its time."""

    reason: str = ""
    failed: bool = False
    turn_only: bool = False

    @property
    def word(self) -> str:
        return "error" if self.failed else "cancelled"

    @property
    def code(self) -> str:
        return CODE_LOST if self.failed else CODE_CANCELLED

    @property
    def state(self) -> str:
        return "error" if self.failed else "aborted"


def lifecycle(state: str, reason: str) -> Obj:
    o = Obj().text("state", state)
    return o.text("reason", reason) if reason else o.raw("reason", "null")


def check_names(*names: str) -> None:
    """Raises ValueError of names that would not fit every event that has them."""
    for name in names:
        if len(name) > MOST_OF_A_NAME // 4 and len(name.encode("utf-8", "replace")) > MOST_OF_A_NAME:
            raise ValueError(f"a name of {len(name)} characters, {MOST_OF_A_NAME} bytes allowed")


def shorten(text: str, most: int) -> str:
    """Cuts a text for people to so many bytes, and adds how much is missing."""
    raw = text.encode("utf-8", "replace")
    if len(raw) <= most:
        return text
    kept = raw[:most].decode("utf-8", "ignore")
    return f"{kept}… ({len(raw) - len(kept.encode())} bytes more)"


def error_text(error: BaseException | str | None) -> str:
    """Returns the text of an error, its class when it has none."""
    if isinstance(error, str):
        return error or "unknown error"
    return str(error) or type(error).__name__


def error_of(error: BaseException | str | None) -> str:
    """Returns an error as events have it."""
    return str(Obj().text("type", "error").text("message", shorten(error_text(error), MOST_OF_AN_ERROR)))


def usage_of(usage: object) -> str | None:
    """Returns what a model used, an object; None where that is unknown."""
    if usage is None:
        return None
    text = _json.dump(usage)
    if text == "null":
        return None
    if not text.startswith("{"):
        raise ValueError("usage is not an object")
    if len(text) > MOST_OF_A_USAGE:
        raise ValueError(f"usage of {len(text)} bytes, {MOST_OF_A_USAGE} allowed")
    return text


def is_cancellation(error: BaseException) -> bool:
    """Whether an exception is no failure of the agent: it was told to stop."""
    kinds = (asyncio.CancelledError, Cancelled, KeyboardInterrupt, SystemExit, GeneratorExit)
    return isinstance(error, kinds)
