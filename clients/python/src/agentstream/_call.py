"""Requests that are no streams, without I/O: each is a generator of effects, which a driver carries out.

An effect is a `Send`, answered by an `Answer` or a raised error; a `Sleep`; or a `Refused`, which asks whether another
token can be had. The driver with threads and the one with asyncio are a dozen lines each.
"""

from __future__ import annotations

import secrets
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar, Union

from . import _json
from ._backoff import Backoff
from .errors import AgentstreamError, Unauthorized, Unavailable, error_of

T = TypeVar("T")


@dataclass
class Send:
    """One attempt of a request. `path` is escaped."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    token: str = ""  # that the driver has sent it with


@dataclass
class Sleep:
    """A pause in seconds."""

    seconds: float


@dataclass
class Refused:
    """The server has refused a token. The result is whether another one can be had."""

    token: str


@dataclass
class Answer:
    """What the server answered."""

    status: int
    headers: Mapping[str, str]
    body: bytes


Effect = Union[Send, Sleep, Refused]
Op = Generator[Effect, Any, T]

JSON: Final = "application/json"
NDJSON: Final = "application/x-ndjson"


def call(request: Send, give_up: float | None) -> Op[Answer]:
    """Sends a request until it has a final answer.

    What was not answered, and what the server asks to send again, is repeated with the very same bytes and key, so
    that it takes effect once. A refused token is replaced once.
    """
    backoff = Backoff(give_up)
    renewed = False
    while True:
        try:
            answer: Answer = yield request
            if answer.status // 100 == 2:
                return answer
            raise error_of(answer.status, answer.headers, answer.body)
        except Unauthorized:
            if renewed or not (yield Refused(request.token)):
                raise
            renewed = True
        except Unavailable as error:
            yield Sleep(backoff.pause(error))


def store(request: Send, key: str, give_up: float | None) -> Op[Answer]:
    """Is `call` for what stores something: with the key, or one of its own."""
    request.headers = {**request.headers, "Idempotency-Key": key or secrets.token_hex(16)}
    return call(request, give_up)


def read_json(answer: Answer) -> Any:
    """Reads the body of an answer."""
    try:
        return _json.load(answer.body)
    except ValueError as error:
        raise AgentstreamError(f"the answer is not JSON (HTTP {answer.status}): {error}") from error
