"""The frameworks themselves, from PyPI, with scripted models, on a real server (AGENTSTREAM_SERVER).

What a test has written is compared with its golden file, and so is what LangGraph's SDK reads of it as a thread.
`pytest frameworks --update` writes the files; read the diff.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator
from typing import Any

import pytest

from agentstream import Client

from . import golden


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update", action="store_true", help="write the golden files")


class Stored:
    """A run and what was stored of it."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.id = f"run_{secrets.token_hex(8)}"

    @property
    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.client.replay(self.id).splitlines()]

    def types(self) -> list[str]:
        return [e["type"] for e in self.events]

    def texts(self, actor: str = "agent") -> str:
        """Returns what the agent has said, or somebody else."""
        return "".join(e["payload"]["text"] for e in self.events if e["type"] == "text.delta" and e["actor"] == actor)

    def story(self) -> list[str]:
        """Returns the events without the marks of blocks, with what matters of each."""
        return [line for e in self.events if (line := _line(e))]

    def payloads(self, type: str) -> list[dict[str, Any]]:
        return [e["payload"] for e in self.events if e["type"] == type]


def _line(event: dict[str, Any]) -> str:
    kind, payload = event["type"], event["payload"]
    if kind in ("block.start", "block.end"):
        return ""
    for name in ("state", "stop_reason", "text", "tool", "name", "prompt", "output", "error"):
        if payload.get(name) is not None:
            value = payload[name]
            return f"{kind} {value['message'] if isinstance(value, dict) and 'message' in value else value}"
    return str(kind)


@pytest.fixture(scope="session")
def url() -> str:
    return os.environ["AGENTSTREAM_SERVER"]


@pytest.fixture
def stored(url: str, request: pytest.FixtureRequest) -> Iterator[Stored]:
    with Client(url) as client:
        run = Stored(client)
        yield run
        name = f"{request.node.path.stem.removeprefix('test_')}-{request.node.name.removeprefix('test_')}"
        golden.check(name, url, run.id, run.events, update=request.config.getoption("--update"))
