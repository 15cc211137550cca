"""What a run has said and the server has not stored yet. No I/O, and no lock: the sinks have that.

The first event is sent at once. What comes while a request is on its way goes into the next one, so that packs grow
with the load. Each request has one key, which it keeps until it is answered.
"""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from ._api import Receipt
from ._payload import New, Obj
from ._trace import current
from .errors import Cancelled, Lost, ServerError

MOST_EVENTS = 1024
MOST_BYTES = 512 << 10


@dataclass
class Batch:
    """What one request stores."""

    lines: list[bytes]
    key: str


class Queue:
    """The events of one run in the order of their calls, which are not divided. `most` is in bytes."""

    def __init__(self, run: str, actor: str, most: int, patient: bool) -> None:
        self.run = run
        self.actor = actor
        self.most = most
        self.patient = patient
        self.bytes = 0
        self.dropped = 0  # events since the last loss
        self.accepted = 0  # calls
        self.stored = 0  # of those
        self.first: Receipt | None = None
        self.last: Receipt | None = None
        self.failed: Lost | None = None
        self.closed = False
        self.cancelled: tuple[str, int] | None = None  # the reason, and the seq of the command
        self.trace = current()  # with which it is sent, by whomever
        self.lease = ""  # of a worker, for whose task is written
        self.through = 0  # the newest command that the worker's turn has dealt with
        self.ending = False  # the end is written, also after a cancellation
        self._calls: deque[list[bytes]] = deque()
        self._sent: tuple[Batch, int] | None = None

    def check(self) -> None:
        """Raises why no more is accepted."""
        if self.failed is not None:
            raise self.failed
        if self.closed:
            raise RuntimeError(f"run {self.run}: the writer is closed")
        if self.cancelled is not None and not self.ending:
            raise Cancelled(f"run {self.run} is cancelled: {self.cancelled[0] or 'no reason given'}")

    @property
    def full(self) -> bool:
        return self.bytes >= self.most

    def put(self, events: Sequence[New]) -> bool:
        """Accepts events, all or none. Reports whether there is something new to send.

        A writer that must not wait drops deltas when there is no space, and all else when there is twice as much; it
        says so with `loss` as soon as there is.
        """
        self.check()
        lines = [e.line(self.run, self.actor) for e in events]
        if not self.patient and self.full:
            if self.bytes >= 2 * self.most or all(e.delta for e in events):
                self.dropped += len(lines)
                return False
        elif self.dropped:
            loss = New("loss", str(Obj().text("reason", "the buffer was full").number("events", self.dropped)))
            lines.insert(0, loss.line(self.run, self.actor))
            self.dropped = 0
        self._calls.append(lines)
        self.bytes += sum(map(len, lines))
        self.accepted += 1
        return True

    @property
    def waiting(self) -> bool:
        """Whether something is not stored yet."""
        return self.failed is None and self.stored < self.accepted

    def batch(self) -> Batch | None:
        """Returns what the next request stores, None when nothing waits."""
        if not self._calls or self.failed is not None:
            return None
        lines, size, calls = list(self._calls.popleft()), 0, 1
        size = sum(map(len, lines))
        while self._calls:
            more = self._calls[0]
            size += sum(map(len, more))
            if len(lines) + len(more) > MOST_EVENTS or size > MOST_BYTES:
                break
            lines += self._calls.popleft()
            calls += 1
        batch = Batch(lines, secrets.token_hex(16))
        self._sent = batch, calls
        return batch

    def note_stored(self, receipt: Receipt) -> None:
        assert self._sent is not None
        batch, calls = self._sent
        self._sent = None
        self.first = self.first or receipt
        self.last = receipt
        self.stored += calls
        self.bytes -= sum(map(len, batch.lines))

    def fail(self, error: BaseException) -> None:
        """Stops the writer: what waits will not be sent."""
        events = sum(map(len, self._calls)) + self.dropped
        if self._sent is not None:
            events += len(self._sent[0].lines) - (error.stored if isinstance(error, ServerError) else 0)
        self._calls.clear()
        self.bytes = 0
        self.failed = self.failed or Lost(events, error)
