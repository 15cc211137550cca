"""Golden files of runs: the events as they are stored, and what LangGraph's SDK reads of them through /threads.

Ids are numbered in the order in which they appear, times are gone, and calls that ran at the same time are in the order
of their ids. A child's events follow those of the run.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from langgraph_sdk import get_sync_client
from langgraph_sdk.schema import StreamMode

FOLDER = Path(__file__).parent / "testdata"

_ULID = r"[0-9A-HJKMNP-TV-Z]{26}"
_UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_ID = re.compile(rf"\b(?:([a-z]+)_)?({_ULID}|{_UUID}|[0-9a-f]{{16}}(?:[0-9a-f]{{8}}){{0,2}})\b")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z")
_DURATION = re.compile(r'"duration_ms": \d+')
_MODES: list[StreamMode] = ["updates", "messages-tuple", "custom", "tools"]
_OF_A_PLACE = ("id", "ts", "seq", "run_id")


def check(name: str, url: str, run: str, events: Iterable[dict[str, Any]], *, update: bool) -> None:
    """Compares a run with its golden file, or writes that."""
    lines = [*_events(events), *_thread(url, run)]
    got = _normalize("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))
    path = FOLDER / f"{re.sub(r'[^a-z_-]+', '-', name.lower()).strip('-')}.jsonl"
    if update:
        FOLDER.mkdir(exist_ok=True)
        path.write_text(got)
        return
    wanted = path.read_text() if path.exists() else ""
    diff = "\n".join(difflib.unified_diff(wanted.splitlines(), got.splitlines(), path.name, "got", lineterm="", n=1))
    assert got == wanted, f"the run is another one; pytest frameworks --update writes the file anew\n{diff}"


def _normalize(text: str) -> str:
    numbers: dict[str, str] = {}

    def number(found: re.Match[str]) -> str:
        prefix = found[1] or "id"
        return numbers.setdefault(found[0], f"{prefix}_{1 + sum(n.startswith(prefix + '_') for n in numbers.values())}")

    return _DURATION.sub('"duration_ms": 0', _TIME.sub("TIME", _ID.sub(number, text)))


def _events(events: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    lanes: dict[str | None, list[dict[str, Any]]] = {None: []}
    for event in events:
        kept = {k: v for k, v in event.items() if k not in _OF_A_PLACE and v is not None}
        lanes.setdefault(event["child_id"], []).append(kept)
    for lane in lanes.values():
        yield from _settle(lane, lambda e: e["payload"]["call_id"] if e["type"] in ("tool.run", "tool.end") else None)


def _thread(url: str, run: str) -> Iterator[dict[str, Any]]:
    with get_sync_client(url=url, api_key=None) as sdk:
        thread = sdk.threads.get(run)
        state = sdk.threads.get_state(run)
        assert state["values"] == thread["values"]
        assert sdk.threads.get_history(run)[0]["values"] == state["values"]
        yield {"thread": thread["status"], "interrupts": thread["interrupts"], "next": state["next"]}
        yield from ({"message": m} for m in _settle(_messages(thread["values"]), _call_of))
        parts = []
        for one in reversed(sdk.runs.list(run)):
            yield {"run": one["status"]}
            for part in sdk.runs.join_stream(run, one["run_id"], stream_mode=_MODES, last_event_id="-1"):
                if part.event != "values":  # which are the messages once more
                    parts.append({"part": part.event, "data": part.data})
        yield from _settle(parts, _call_of_part)


def _messages(values: Any) -> list[Any]:
    messages = (values or {}).get("messages") or []
    return list(messages)


def _call_of(message: Any) -> str | None:
    """Returns which call a message is the result of."""
    return message.get("tool_call_id") if message.get("type") == "tool" else None


def _call_of_part(part: Any) -> str | None:
    """Returns which call a part of a stream ends."""
    data = part["data"]
    if part["part"] == "tools" and data["event"] in ("on_tool_end", "on_tool_error"):
        return str(data["toolCallId"])
    return _call_of(data[0]) if part["part"] == "messages" else None


def _settle(items: list[Any], key: Callable[[Any], str | None]) -> Iterator[Any]:
    """Yields items, with those of calls that followed each other in the order of the calls."""
    together: list[tuple[str, Any]] = []
    for item in items:
        call = key(item)
        if call is not None:
            together.append((call, item))
            continue
        yield from (i for _, i in sorted(together, key=lambda t: t[0]))
        together = []
        yield item
    yield from (i for _, i in sorted(together, key=lambda t: t[0]))
