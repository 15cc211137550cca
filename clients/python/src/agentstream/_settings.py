"""What both clients have in common: where the server is, times, headers, and the list of their calls."""

from __future__ import annotations

import re
import ssl
from dataclasses import dataclass
from urllib.parse import urlsplit

import httpx

from . import _trace
from ._call import Answer
from ._version import __version__
from ._watch import ConnectionLost
from .errors import MOST_OF_A_REFUSAL, AgentstreamError, ServerError, error_of

#: A page of events is at most 4 MiB and one event, a snapshot holds the text of a run.
MOST_OF_AN_ANSWER = 256 << 20

_TOKEN = re.compile(r"[!-~]*")


@dataclass(frozen=True)
class Settings:
    """The checked configuration of a client. Times are in seconds."""

    base: str
    give_up: float | None
    idle: float
    timeout: float

    def of_stream(self) -> httpx.Timeout:
        """Returns the times of a stream: the read time is the watchdog, for a keep-alive comes every 15 s."""
        return httpx.Timeout(self.timeout, connect=min(10.0, self.timeout), read=self.idle)

    def of_call(self) -> httpx.Timeout:
        return httpx.Timeout(self.timeout, connect=min(10.0, self.timeout))


def check(url: str, give_up: float | None, idle: float, timeout: float) -> Settings:
    """Checks a configuration. A password in the address is not repeated in the error."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("url: want http://HOST[:PORT] or https://HOST[:PORT]")
    if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
        raise ValueError("url: want no user, query or fragment; a credential is the token's business")
    if idle <= 0 or timeout <= 0 or (give_up is not None and give_up < 0):
        raise ValueError("a time is not positive")
    return Settings(url.rstrip("/"), give_up, idle, timeout)


def check_token(token: str | None) -> str:
    """Returns a token that a header can carry. The error does not repeat it."""
    if not isinstance(token or "", str) or not _TOKEN.fullmatch(token or ""):
        raise ValueError("the token holds characters that no token has")
    return token or ""


def headers_of(token: str, more: dict[str, str] | None = None) -> dict[str, str]:
    """Returns the headers of a request. It is sent in the current trace, unless a header says another, or ""."""
    headers = {"User-Agent": f"agentstream-python/{__version__}", **(more or {})}
    trace = headers.pop(_trace.HEADER, None)
    if trace is None:
        trace = _trace.current()
    if trace:
        headers[_trace.HEADER] = trace
    if token:
        headers["Authorization"] = f"Bearer {token}"
    return headers


def too_large() -> ServerError:
    return error_of(413, {}, b"the answer is larger than this client reads")


def most_of(status: int) -> int:
    """Returns how much of a body is read, by its status."""
    return MOST_OF_AN_ANSWER if status // 100 == 2 else MOST_OF_A_REFUSAL


def answer_of(response: httpx.Response, body: bytes) -> Answer:
    return Answer(response.status_code, {k.lower(): v for k, v in response.headers.items()}, body)


class Untrusted(AgentstreamError):
    """The server's certificate is not trusted. Asking again does not change that."""


def lost_by(error: Exception) -> AgentstreamError:
    """Returns what an error of httpx means to a caller: that a connection is not to be had, or was lost."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return Untrusted(str(cause))
        cause = cause.__cause__ or cause.__context__
    return ConnectionLost(f"{type(error).__name__}: {error}")
