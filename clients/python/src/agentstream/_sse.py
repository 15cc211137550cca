"""Server-sent events: bytes in pieces that are cut anywhere become frames. No I/O.

httpx-sse is not used, although it reads lines well: it decodes to text first, so that an event would no longer be the
bytes of the log; a byte order mark costs it the first frame; it knows no bound; and it reads from a response of httpx,
where the machine of `_watch` needs frames of bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from .errors import AgentstreamError

#: The most of one frame, in bytes. An event has at most 512 KiB, a snapshot the text of a run.
MOST = 256 << 20

#: The longest pause that a server may ask for with retry:, in seconds.
MOST_RETRY = 60.0

_LINE_END = re.compile(rb"\r\n|\n|\r")


class FrameTooLarge(AgentstreamError):
    """A frame has no end."""


@dataclass(slots=True)
class Frame:
    """One dispatched frame. `data` is None when the frame has only an id."""

    id: str
    event: str
    data: bytes | None


class Parser:
    """Reads a stream. A frame counts only when its empty line has arrived: the id of half a frame would skip it."""

    def __init__(self, most: int = MOST) -> None:
        self.retry = 0.0  # seconds; 0: the server has not asked for a pause
        self._most = most
        self._last_id = ""
        self.reset()

    def reset(self) -> None:
        """Forgets the frame that a broken connection left half, but not the id of the last whole one."""
        self._line = bytearray()
        self._data: list[bytes] = []
        self._size = 0
        self._event = ""
        self._next_id = self._last_id
        self._first = True
        self._skip_lf = False

    def feed(self, chunk: bytes) -> Iterator[Frame]:
        """Yields the frames that end in the chunk. It must be read to its end before the next one comes."""
        if self._skip_lf and chunk:
            self._skip_lf = False
            if chunk[:1] == b"\n":
                chunk = chunk[1:]
        start = 0
        for end in _LINE_END.finditer(chunk):
            line = chunk[start : end.start()]
            if self._line:
                line = bytes(self._line) + line
                self._line = bytearray()
            start = end.end()
            frame = self._end_line(line)
            if frame is not None:
                yield frame
        # A line feed that comes first in the next chunk belongs to the carriage return that ends this one.
        self._skip_lf = chunk.endswith(b"\r") or (self._skip_lf and not chunk)
        self._line += chunk[start:]
        self._check(len(self._line))

    def _check(self, more: int) -> None:
        if self._size + more > self._most:
            raise FrameTooLarge(f"a frame of {self._size + more} bytes has no end")

    def _end_line(self, line: bytes) -> Frame | None:
        if self._first:
            self._first = False
            line = line.removeprefix(b"\xef\xbb\xbf")
        if not line:
            return self._dispatch()
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._check(len(value))
            self._data.append(value)
            self._size += len(value) + 1
        elif name == b"event":
            self._event = value.decode("utf-8", "replace")
        elif name == b"id" and b"\0" not in value:
            self._next_id = value.decode("utf-8", "replace")
        elif name == b"retry" and value.isdigit() and len(value) < 11:
            self.retry = min(int(value) / 1000, MOST_RETRY)
        return None

    def _dispatch(self) -> Frame | None:
        frame = Frame(self._next_id, self._event, b"\n".join(self._data) if self._data else None)
        moved = self._next_id != self._last_id
        self._last_id = self._next_id
        self._data = []
        self._size = 0
        self._event = ""
        return frame if frame.data is not None or moved else None
