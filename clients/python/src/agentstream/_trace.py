"""The trace in which requests are sent, so that the server keeps it with what they bring."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

#: In small letters, so that an instrumentation of httpx puts its own in this place.
HEADER = "traceparent"

_TRACEPARENT = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
_given: ContextVar[str | None] = ContextVar("agentstream_traceparent", default=None)


@contextmanager
def traceparent(value: str | None) -> Iterator[None]:
    """Sends requests of the block, and those of runs whose writers are made in it, with a W3C traceparent.

    It goes before that of OpenTelemetry's current span, with which requests are sent where opentelemetry-api is in use.
    None sends them without.
    """
    if value is not None and not _TRACEPARENT.fullmatch(value):
        raise ValueError("a traceparent is 00-, a trace id, a span id and flags, in lower case")
    token = _given.set(value or "")
    try:
        yield
    finally:
        _given.reset(token)


def current() -> str:
    """Returns the traceparent of a request that is sent now, "" for none."""
    given = _given.get()
    if given is not None:
        return given
    api = sys.modules.get("opentelemetry.trace")  # nothing has a span where nobody has loaded it
    if api is None:
        return ""
    at = api.get_current_span().get_span_context()
    if not at.is_valid:
        return ""
    return f"00-{at.trace_id:032x}-{at.span_id:016x}-{at.trace_flags & 3:02x}"
