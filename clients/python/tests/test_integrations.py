"""What reads streams of models, by items that have the fields of theirs. frameworks/ has the packages themselves."""

from __future__ import annotations

import json
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from agentstream import Client
from agentstream.integrations import anthropic, openai

from .server import serve
from .test_run import Log


def items(text: str) -> list[Any]:
    return [json.loads(line, object_hook=lambda d: SimpleNamespace(**d)) for line in text.splitlines()]


CHAT = """{"choices":[{"delta":{"content":"Let me look."},"finish_reason":null}],"model":"m"}
{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"c1","function":{"name":"clock","arguments":"{\\"a\\":"}}]},"finish_reason":null}]}
{"choices":[{"delta":{"tool_calls":[{"index":0,"id":null,"function":{"name":null,"arguments":"1}"}}]},"finish_reason":"tool_calls"}]}
{"choices":[],"usage":{"total_tokens":8}}"""

MESSAGES = """{"type":"message_start","message":{"model":"m","usage":{"input_tokens":3}}}
{"type":"content_block_start","index":0,"content_block":{"type":"text"}}
{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Let me look."}}
{"type":"content_block_stop","index":0}
{"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"c1","name":"clock"}}
{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"{\\"a\\":1}"}}
{"type":"content_block_stop","index":1}
{"type":"message_delta","delta":{"stop_reason":"tool_use"},"usage":{"output_tokens":5}}"""


@pytest.mark.parametrize(("module", "text"), [(openai, CHAT), (anthropic, MESSAGES)])
def test_a_stream_is_written_as_it_is_read(module: Any, text: str) -> None:
    log = Log()
    with serve(log) as server, Client(server.url) as client:
        with client.run("r", patient=False) as run, run.turn() as turn:
            tee = module.tee(turn, items(text))
            assert len(list(tee)) == len(text.splitlines())
            assert tee.error is None
            (call,) = tee.calls
            call.finish("12:00")
    (end,) = [e["payload"] for e in log.events if e["type"] == "message.end"]
    assert [b.get("input") or b.get("text") for b in end["content"]] == ["Let me look.", {"a": 1}]
    assert end["stop_reason"] == "tool_use"
    assert sum(end["usage"].values()) == 8
    assert log.types()[-3:] == ["tool.end", "turn.end", "run.lifecycle"]


def test_nothing_is_imported_before_it_is_used() -> None:
    script = (
        "import sys, agentstream, agentstream.integrations.openai, agentstream.integrations.anthropic\n"
        "print([m for m in sys.modules if m in ('openai', 'anthropic', 'langchain_core', 'pydantic')])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
