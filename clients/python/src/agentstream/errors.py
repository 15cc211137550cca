"""What can go wrong, sorted by what a caller can do about it."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any

__all__ = [
    "AgentstreamError",
    "Cancelled",
    "Conflict",
    "CursorAhead",
    "Ended",
    "Exists",
    "Expired",
    "Forbidden",
    "Lost",
    "NotFound",
    "Open",
    "Over",
    "ServerError",
    "Unauthorized",
    "Unavailable",
]


class AgentstreamError(Exception):
    """The base of all errors of this package."""


class Unavailable(AgentstreamError):
    """The server is away or busy, or did not answer in time: the same request may succeed later."""


class ServerError(AgentstreamError):
    """The server's refusal of a request, or its reason to end a stream.

    What the server did not say is empty, 0 or None. `line` is the line of the refused event in a batch, from 1,
    `field` a JSON pointer into it, and `stored` the number of events that are stored all the same.
    """

    def __init__(self, status: int, problem: Mapping[str, Any], retry_after: float = 0.0) -> None:
        self.status = status
        self.code = _text(problem, "code")
        self.message = _text(problem, "message")
        self.field = _text(problem, "field")
        self.request_id = _text(problem, "request_id")
        self.line = _number(problem, "line")
        self.first_seq = _number(problem, "first_seq")
        self.last_seq = _number(problem, "last_seq")
        self.stored = _number(problem, "stored")
        self.retry_after = retry_after
        super().__init__(status, problem, retry_after)

    def __str__(self) -> str:
        words = [_printable(w) for w in (self.code, self.message) if w]
        return f"{': '.join(words) or 'refused'} (HTTP {self.status})"


class NotFound(ServerError):
    """There is no such run, or it is another tenant's."""


class Expired(ServerError):
    """Events after the cursor are no longer kept: begin after `first_seq` - 1, or with a snapshot."""


class Unauthorized(ServerError):
    """There is no credential, or it has ended, and no other was to be had."""


class Forbidden(ServerError):
    """The credential does not allow this."""


class Conflict(ServerError):
    """The state of the run forbids it."""


class CursorAhead(Conflict):
    """The cursor is after the newest event, so it is not of this run or not of this log."""


class Ended(Conflict):
    """The run is over and takes nothing but a follow-up."""


class Exists(Conflict):
    """The run that was to begin has events already."""


class Busy(ServerError, Unavailable):
    """The server asks to try again later."""


class Over(AgentstreamError):
    """What an event belongs to has ended: the turn was cancelled, the message is complete, the run is over."""


class Open(AgentstreamError):
    """Something cannot begin, or end well, while something else is open."""


class Cancelled(Over):
    """A person has cancelled the run. Leave the run's block with it: the run then ends as aborted."""


class Lost(AgentstreamError):
    """Events that a run had accepted are not stored. `events` is how many, `cause` why the first is not.

    After Unavailable some of them may be stored all the same: the answer is missing.
    """

    def __init__(self, events: int, cause: BaseException) -> None:
        self.events = events
        self.cause = cause
        super().__init__(events, cause)

    def __str__(self) -> str:
        return f"{self.events} accepted events are not stored: {self.cause}"


_BY_CODE: dict[str, type[ServerError]] = {"CURSOR-AHEAD": CursorAhead, "RUN-ENDED": Ended, "RUN-EXISTS": Exists}
_BY_STATUS: dict[int, type[ServerError]] = {
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Expired,
    408: Busy,
    429: Busy,
    502: Busy,
    503: Busy,
    504: Busy,
}

#: How much of the body of a refusal is read, in bytes.
MOST_OF_A_REFUSAL = 64 << 10


def error_of(status: int, headers: Mapping[str, str], body: bytes) -> ServerError:
    """Reads a refusal. What is not the server's form, as of a proxy in between, is shown by its first line."""
    problem = problem_of(body)
    if problem is None:
        line = body.decode("utf-8", "replace").strip().split("\n", 1)[0]
        problem = {} if line.startswith("<") else {"message": line[:200]}  # a page in HTML says less than the status
    if not problem.get("request_id"):
        problem = {**problem, "request_id": headers.get("x-request-id", "")}
    return make_error(status, problem, retry_after(headers.get("retry-after", "")))


def make_error(status: int, problem: Mapping[str, Any], after: float = 0.0) -> ServerError:
    """Returns the error of the class that tells a caller what to do."""
    kind = _BY_CODE.get(_text(problem, "code")) or _BY_STATUS.get(status, ServerError)
    return kind(status, problem, after)


def last_word(data: bytes) -> ServerError | None:
    """Reads the frame that ends a stream. Without a status it is one to come back from: the cursor is safe."""
    problem = problem_of(data)
    if problem is None:
        return None
    code = _text(problem, "code")
    status = _number(problem, "status")
    if status == 0:
        status = {"CREDENTIAL-EXPIRED": 401, "UNAUTHORIZED": 401, "KAI-STREAM-CONN-0002": 410}.get(code, 503)
    return make_error(status, problem)


def problem_of(body: bytes) -> dict[str, Any] | None:
    """Returns the members of the server's error form, None of anything else."""
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        return None
    problem = answer.get("error") if isinstance(answer, dict) else None
    if isinstance(problem, dict) and (_text(problem, "code") or _text(problem, "message")):
        return problem
    return None


def retry_after(value: str) -> float:
    """Returns the seconds of a Retry-After header in either of its forms, 0 when there are none."""
    if value.isascii() and value.isdigit() and len(value) < 10:
        return float(value)
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    except (TypeError, ValueError, IndexError, OverflowError):
        return 0.0


def _text(problem: Mapping[str, Any], name: str) -> str:
    value = problem.get(name)
    return value if isinstance(value, str) else ""


def _number(problem: Mapping[str, Any], name: str) -> int:
    value = problem.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def _printable(text: str) -> str:
    """Escapes what could act on a terminal or break a line of a log."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)
