"""The frameworks themselves, from PyPI, with scripted models, on a log in this process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.server import serve
from tests.test_run import Log

from agentstream import Client


class Stored:
    """A run and what was stored of it."""

    def __init__(self, client: Client, log: Log) -> None:
        self.client = client
        self.log = log

    def story(self) -> list[str]:
        """Returns the events without the marks of blocks, with what matters of each."""
        return [line for e in self.log.events if (line := _line(e))]

    def payloads(self, type: str) -> list[dict[str, Any]]:
        return [e["payload"] for e in self.log.events if e["type"] == type]


def _line(event: dict[str, Any]) -> str:
    kind, payload = event["type"], event["payload"]
    if kind in ("block.start", "block.end"):
        return ""
    for name in ("state", "stop_reason", "text", "tool", "name", "prompt", "output", "error"):
        if payload.get(name) is not None:
            value = payload[name]
            return f"{kind} {value['message'] if isinstance(value, dict) and 'message' in value else value}"
    return str(kind)


@pytest.fixture
def stored() -> Iterator[Stored]:
    log = Log()
    with serve(log) as server, Client(server.url) as client:
        yield Stored(client, log)
