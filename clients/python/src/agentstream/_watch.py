"""The reading of a run as a state machine without I/O: one for the client with threads and the one with asyncio.

The driver opens what `request` describes when `pause` seconds are over, reports what came of it (`opened`, `refused`,
`lost`), feeds the bytes of the body and its end (`feed`, `closed`, `silent`), and hands out what `pop` returns, until
`over` or an error. Nothing that was fed is lost when a read is cancelled: it waits in the machine.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ._backoff import Backoff
from ._sse import Frame, FrameTooLarge, Parser
from .errors import AgentstreamError, ServerError, Unauthorized, Unavailable, last_word
from .event import FINAL_STATES, Event, Gap, parse, unbundle

#: How long the question whether a run has ended for good is repeated, in seconds.
CONFIRM = 10.0


class ConnectionLost(Unavailable):
    """A request was not answered, or not completely."""


class _StreamEnd(ConnectionLost):
    """The server ended the stream in order."""


class _Silence(ConnectionLost):
    """No sign of life: the connection is half open."""


class NotAStream(AgentstreamError):
    """The answer is no stream: this is not an agentstream server, or a proxy answered."""


@dataclass(frozen=True)
class Options:
    """Which events of a run are wanted. See `Client.watch`."""

    after: int = 0
    detail: str = ""
    types: Sequence[str] = ()
    child: Sequence[str] = ()
    nested: bool = False
    snapshot: bool = False
    speed: float = 0.0
    refetch: bool = False

    def __post_init__(self) -> None:
        if self.after < 0:
            raise ValueError(f"after {self.after} is no position")
        if self.snapshot and self.after:
            raise ValueError("a snapshot begins at the beginning: leave after out")
        if self.detail not in ("", "default", "full"):
            raise ValueError(f'detail {self.detail!r} is neither "default" nor "full"')

    def query(self, after: int) -> dict[str, str]:
        """Returns the parameters of a connection that starts after a position."""
        full = self.detail == "full"
        query = {
            "detail": "full" if full else "",
            "child": ",".join(self.child),
            "types": ",".join(self.types),
            "nested": "true" if self.nested else "",
            "bundle": "" if full else "true",  # which arrive taken apart
            "snapshot": "true" if self.snapshot and after == 0 else "",
            "speed": repr(self.speed) if self.speed else "",
        }
        return {name: value for name, value in query.items() if value}


@dataclass
class Stats:
    """Counters of a stream."""

    connections: int = 0  # that the server accepted
    duplicates: int = 0  # events that came again and were skipped
    gaps: int = 0
    passed_over: int = 0  # frames that are not events and have no position: newer than this library
    dropped: int = 0  # deltas that the server left out for this reader, as it reports with the end
    unconfirmed: bool = False  # the run's end came, and the server was away before it had confirmed it


class Machine:
    """Reads one run. `error` is why it has failed for good; `over` is True when the run is over."""

    def __init__(self, options: Options, give_up: float | None = None) -> None:
        self.options = options
        self.cursor = options.after  # of what was handed out
        self.stats = Stats()
        self.over = False
        self.error: BaseException | None = None
        self.expired = False  # the server has ended the connection because of its credential
        self._parser = Parser()
        self._out: deque[tuple[Event | Gap, int]] = deque()  # with the cursor that it moves to
        self._last = options.after  # of what was read
        self._through = options.after  # up to here nothing more is for this client, by the server
        self._asked = -1  # the place after which a gap was asked for once more
        self._usual = Backoff(give_up)
        self._final = Backoff(CONFIRM)
        self._due = 0.0
        self._ended = False  # the newest event is the run's end
        self._again = False  # this connection is left for another one after the same event
        self._fresh = False  # the token replaces one that was refused, and was not accepted yet
        self._begin()

    def _begin(self) -> None:
        self._answered = False
        self._moved = False
        self._confirming = self._ended

    # What the driver asks.

    def pop(self) -> Event | Gap | None:
        """Returns what is next for the caller, None when more has to be read."""
        if not self._out:
            return None
        item, self.cursor = self._out.popleft()
        return item

    @property
    def pending(self) -> bool:
        """Whether `pop` returns something."""
        return bool(self._out)

    @property
    def stale(self) -> bool:
        """Whether the connection is to be closed: a gap is asked for once more, on another one."""
        return self._again

    def pause(self) -> float:
        """Returns how many seconds remain until the next connection is due."""
        return max(0.0, self._due - time.monotonic())

    def request(self) -> tuple[dict[str, str], dict[str, str]]:
        """Returns query and headers of the next connection."""
        self._begin()
        self._parser.reset()
        self._again = self.expired = False
        after = max(self._last, self._through)
        headers = {"Accept": "text/event-stream", "Cache-Control": "no-cache", "Accept-Encoding": "identity"}
        if after:
            headers["Last-Event-ID"] = str(after)
        return self.options.query(after), headers

    # What the driver reports.

    def opened(self, status: int, headers: Mapping[str, str]) -> None:
        """Is called with an answer of 2xx. When `over`, `error` or `stale` says so, there is no body to read."""
        if status == 204:
            self.over = True
            return
        media = headers.get("content-type", "").partition(";")[0].strip().lower()
        if status != 200 or media != "text/event-stream":
            self.error = NotAStream(f"the answer is {media or 'without a type'} (HTTP {status}), not text/event-stream")
            return
        self._answered = True
        self._fresh = False
        self.stats.connections += 1

    def refused(self, error: ServerError, renewable: bool) -> None:
        """Is called with any other answer. renewable: there is a function that returns another token."""
        self._connection_ended(error, renewable)

    def lost(self, cause: BaseException) -> None:
        """Is called when there is no connection, or when it broke."""
        self._connection_ended(cause, False)

    def closed(self) -> None:
        """Is called when the body has ended in order."""
        self._connection_ended(_StreamEnd("the server ended the stream"), False)

    def silent(self) -> None:
        """Is called when nothing has come for too long."""
        self._connection_ended(_Silence("no sign of life"), False)

    def feed(self, chunk: bytes, renewable: bool = False) -> None:
        """Reads bytes of the body. Afterwards `stale`, `over` or `error` may say that the connection is done."""
        try:
            for frame in self._parser.feed(chunk):
                if not self._again and self.error is None:
                    self._read(frame, renewable)
        except FrameTooLarge as error:
            self.error = error

    # Frames.

    def _read(self, frame: Frame, renewable: bool) -> None:
        place = int(frame.id) if frame.id.isascii() and frame.id.isdigit() and len(frame.id) < 17 else 0
        if frame.data is None:  # the cursor moves over what this client does not see
            self._through = max(self._through, place)
            return
        try:
            event = parse(frame.data)
        except ValueError as error:
            self._read_other(frame.data, place, error, renewable)
            return
        if event.type == "stream.gap":  # the numbers of the next event say it too
            return
        if event.seq <= self._last:
            self.stats.duplicates += 1
            return
        before = max(self._last, self._through)
        if event.first_seq > before + 1:
            if self._ask_again():
                return
            self._put_gap(Gap(before + 1, event.first_seq - 1))
        elif event.first_seq <= self._last:
            if self._ask_again():
                return
            self._put_gap(Gap(event.first_seq, event.seq, overlap=True))
        self._put(event)

    def _ask_again(self) -> bool:
        """Reports whether a gap is worth another connection, which is so the first time."""
        if not self.options.refetch or self._asked == self._last:
            return False
        self._asked = self._last
        self._again = True
        self._due = 0.0
        return True

    def _put_gap(self, gap: Gap) -> None:
        self.stats.gaps += 1
        self._out.append((gap, self.cursor if not self._out else self._out[-1][1]))

    def _put(self, event: Event) -> None:
        self._moved = True
        before = self._last
        self._last = event.seq
        self._note_end(event)
        parts = unbundle(event)
        for part in parts[:-1]:  # the cursor moves with the last of those that came together
            self._out.append((part, before))
        self._out.append((parts[-1], event.seq))

    def _note_end(self, event: Event) -> None:
        if event.ends_run:
            self._ended = True
            dropped = event.payload.get("dropped_count")
            if isinstance(dropped, int):
                self.stats.dropped = dropped
        elif event.type == "run.snapshot":  # of a run that is over nothing else may come
            self._ended = event.payload.get("state") in FINAL_STATES
        elif self._ended and _reopens(event):
            self._ended = False

    def _read_other(self, data: bytes, place: int, cause: ValueError, renewable: bool) -> None:
        """Handles a frame that is no event: the server's last word, one that cannot be read, or something newer."""
        word = last_word(data)
        if word is not None:
            self._again = True
            self.expired = isinstance(word, Unauthorized)
            self._connection_ended(word, renewable)
            return
        if place <= max(self._last, self._through):
            self.stats.passed_over += 1
            return
        if self._ask_again():
            return
        self._put_gap(Gap(max(self._last, self._through) + 1, place, cause=str(cause)[:200]))
        self._through = place

    # Ends.

    def _connection_ended(self, error: BaseException, renewable: bool) -> None:
        """Decides what follows: another connection when it is due, the end, or an error."""
        confirming = self._confirming and not self._moved
        if confirming and isinstance(error, (_StreamEnd, _Silence)):
            self.over = True
            return
        if self._answered:
            self._usual.alive()
        if self._moved:
            self._usual.reset()
        self._due = 0.0
        if isinstance(error, Unauthorized):
            if self._fresh or not renewable:
                self.error = error
                return
            self._fresh = True
            if not self._answered or self._moved:
                return
            self._wait(error, confirming)  # tokens that end at once are asked for in steps
        elif self._ended and not confirming:
            # A run that was followed up has an end in its middle. Only the next answer tells: 204, or more events.
            self._final = Backoff(CONFIRM)
        elif not isinstance(error, Unavailable):
            self.error = error
        else:
            self._wait(error, confirming)

    def _wait(self, error: BaseException, confirming: bool) -> None:
        backoff = self._final if confirming else self._usual
        backoff.floor = self._parser.retry
        try:
            self._due = time.monotonic() + backoff.pause(error)
        except Unavailable as gave_up:
            if confirming:
                self.stats.unconfirmed = True
                self.over = True
            else:
                self.error = gave_up


def _reopens(event: Event) -> bool:
    """Whether a run that is over goes on with the event: a message that is not the system's, or another state."""
    if event.child_id is not None:
        return False
    if event.type == "command.message":
        return event.payload.get("role") != "system"
    return event.type == "run.lifecycle" and not event.ends_run


def names(value: str | Sequence[str]) -> tuple[str, ...]:
    """Returns a list of names that may be given as one, or separated by commas."""
    return tuple(value.split(",")) if isinstance(value, str) and value else tuple(value)


__all__ = ["CONFIRM", "ConnectionLost", "Machine", "NotAStream", "Options", "Stats", "names"]
