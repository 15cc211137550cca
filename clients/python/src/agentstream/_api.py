"""The routes of the native protocol as operations without I/O (see `_call`), and what they return."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypedDict
from urllib.parse import quote

from . import _json
from ._call import JSON, NDJSON, Op, Send, call, read_json, store
from ._trace import HEADER
from .errors import AgentstreamError
from .event import Event, parse

__all__ = ["Blob", "Cost", "CostsPage", "Page", "Receipt", "RunInfo", "RunsPage", "Ticket"]

_RUN_ID = re.compile(r"[A-Za-z0-9_-]{1,128}")
_COMMANDS: Final = (
    "approve_plan",
    "reject_plan",
    "pause",
    "resume",
    "redirect",
    "cancel",
    "answer",
    "messages",
)


class RunInfo(TypedDict, total=False):
    """The state of a run. What the server does not know is None or absent; a list of runs has all of it."""

    run_id: str
    state: str
    reason: str | None
    last_seq: int
    started_at: str
    updated_at: str
    ended_at: str | None
    waits_for: str | None
    asked_at: str | None
    waits_since: str | None
    usage: dict[str, int] | None
    title: str | None
    opening: str | None
    agent: str | None
    tags: list[str]
    metadata: dict[str, Any] | None
    model: str | None
    cost_usd: float | None
    unpriced_models: list[str]


class RunsPage(TypedDict):
    """A part of the list of runs, newest first. `next_cursor` is None on the last page."""

    runs: list[RunInfo]
    next_cursor: str | None


class Cost(TypedDict, total=False):
    """What messages have used, and what that has cost by the prices of now; `cost_usd` is None when it is not known.

    `seq` is that of the message.end, where it is of one message. `child_id`, `day` and `model` are None where it is of
    several; `child_id` of the run itself is None too.
    """

    seq: int
    child_id: str | None
    day: str | None
    model: str | None
    messages: int
    unpriced_messages: int
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    cost_usd: float | None


class CostsPage(TypedDict):
    """A part of a run's costs. `next_cursor` is None on the last page."""

    costs: list[Cost]
    next_cursor: str | None


class Ticket(TypedDict):
    """A credential for one stream of one run, once, that may be part of a URL."""

    ticket: str
    expires_at: str


class Blob(TypedDict):
    """Content that is stored with a run. `blob_ref` is the same for the same content."""

    blob_ref: str
    bytes: int
    content_type: str


@dataclass(frozen=True)
class Receipt:
    """The numbers of what was stored. Other writers' events may lie between them. `replayed`: it was stored before."""

    first_seq: int
    last_seq: int
    replayed: bool = False


@dataclass(frozen=True)
class Page:
    """A part of a run's stored events. `next` is the `after`, or `before`, of the next page, also of an empty one."""

    events: Sequence[Event]
    next: int
    has_more: bool


def check_run(run: str) -> str:
    """Returns the id of a run. Raises ValueError of what is none."""
    if not _RUN_ID.fullmatch(run) or run == "-":
        raise ValueError(f"{run!r} is not the id of a run: 1 to 128 of A-Z a-z 0-9 _ -")
    return run


def path_of(run: str, *rest: str) -> str:
    """Returns the path of a resource of a run."""
    return "/".join(["/v1/agent/runs", check_run(run), *(quote(r, safe="") for r in rest)])


class Api:
    """The operations, for requests that are repeated for `give_up` seconds; None is without end."""

    def __init__(self, give_up: float | None) -> None:
        self._give_up = give_up

    def _get(self, path: str, query: Mapping[str, Any] | None = None) -> Op[Any]:
        plain = _words(query or {})
        answer = yield from call(Send("GET", path, plain, {"Accept": JSON}), self._give_up)
        return read_json(answer)

    def _store(self, path: str, body: bytes, kind: str, key: str, **more: str) -> Op[tuple[Any, Receipt]]:
        request = Send("POST", path, {}, {"Accept": JSON, "Content-Type": kind, **more}, body)
        answer = yield from store(request, key, self._give_up)
        value = read_json(answer)
        replayed = answer.headers.get("idempotency-replayed") == "true"
        first, last = value.get("first_seq"), value.get("last_seq")
        if not isinstance(first, int) or not isinstance(last, int) or not 1 <= first <= last:
            raise AgentstreamError(f"the server acknowledged {first} to {last}, which is no range")
        return value, Receipt(first, last, replayed)

    def info(self, run: str) -> Op[RunInfo]:
        return (yield from self._get(path_of(run)))  # type: ignore[no-any-return]

    def snapshot(self, run: str, at: int) -> Op[dict[str, Any]]:
        return (yield from self._get(path_of(run, "snapshot"), {"at": at}))  # type: ignore[no-any-return]

    def runs(self, query: Mapping[str, Any]) -> Op[RunsPage]:
        return (yield from self._get("/v1/agent/runs", query))  # type: ignore[no-any-return]

    def costs(self, run: str, query: Mapping[str, Any]) -> Op[CostsPage]:
        return (yield from self._get(path_of(run, "costs"), query))  # type: ignore[no-any-return]

    def daily_costs(self, query: Mapping[str, Any]) -> Op[list[Cost]]:
        return (yield from self._get("/v1/agent/costs", query))["costs"]  # type: ignore[no-any-return]

    def events(self, run: str, query: Mapping[str, Any], newest: bool) -> Op[Page]:
        order = {"order": "desc"} if newest else {}
        request = Send("GET", path_of(run, "events"), _words({**query, **order}), {"Accept": JSON})
        answer = yield from call(request, self._give_up)
        fields = dict(_json.members(answer.body.decode("utf-8")))
        lines = _json.elements(fields["events"])
        following = _json.load(fields.get("next_before" if newest else "next_after", "null"))
        more = _json.load(fields.get("has_more", "false"))
        return Page([parse(line.encode()) for line in lines], following or 0, bool(more))

    def replay(self, run: str, after: int, through: int) -> Op[bytes]:
        query = _words({"after": after, "through": through})
        answer = yield from call(Send("GET", path_of(run, "replay.jsonl"), query, {"Accept": NDJSON}), self._give_up)
        return answer.body

    def append(self, run: str, lines: Iterable[bytes], key: str) -> Op[Receipt]:
        return (yield from self._append(run, lines, key, {}))

    def send(self, run: str, lines: Iterable[bytes], key: str, trace: str, lease: str) -> Op[Receipt]:
        """Is `append` of a writer, whose trace is that of where it was made, and of a worker's lease."""
        leased = {"Agentstream-Lease": lease} if lease else {}
        return (yield from self._append(run, lines, key, {HEADER: trace, **leased}))

    def _append(self, run: str, lines: Iterable[bytes], key: str, more: Mapping[str, str]) -> Op[Receipt]:
        body = b"".join(line.rstrip(b"\n") + b"\n" for line in lines)
        _, receipt = yield from self._store(path_of(run, "events"), body, NDJSON, key, **more)
        return receipt

    def create(self, run: str | None, planning_gate: str, key: str) -> Op[tuple[str, Receipt]]:
        wanted = {"run_id": run and check_run(run), "planning_gate": planning_gate}
        body = _json.dump({name: value for name, value in wanted.items() if value}).encode()
        value, receipt = yield from self._store("/v1/agent/runs", body, JSON, key)
        return check_run(value["run_id"]), receipt

    def command(self, run: str, name: str, payload: Mapping[str, Any], key: str) -> Op[Receipt]:
        if name not in _COMMANDS:
            raise ValueError(f"{name!r} is no command: {', '.join(_COMMANDS)}")
        body = _json.dump({n: v for n, v in payload.items() if v is not None}).encode()
        _, receipt = yield from self._store(path_of(run, name), body, JSON, key)
        return receipt

    def ticket(self, run: str) -> Op[Ticket]:
        request = Send("POST", path_of(run, "tickets"), {}, {"Accept": JSON, "Content-Type": JSON}, b"{}")
        answer = yield from call(request, self._give_up)
        return read_json(answer)  # type: ignore[no-any-return]

    def put_blob(self, run: str, content: bytes, content_type: str) -> Op[Blob]:
        headers = {"Accept": JSON, "Content-Type": content_type}
        answer = yield from call(Send("PUT", path_of(run, "blobs"), {}, headers, content), self._give_up)
        blob: Blob = read_json(answer)
        if blob["blob_ref"] != _ref(content):
            raise AgentstreamError(f"the server stored other content: {blob['blob_ref']}")
        return blob

    def blob(self, run: str, ref: str) -> Op[tuple[bytes, str]]:
        answer = yield from call(Send("GET", path_of(run, "blobs", ref)), self._give_up)
        if _ref(answer.body) != ref:
            raise AgentstreamError(f"the content does not match its reference {ref}")
        return answer.body, answer.headers.get("content-type", "")


def _ref(content: bytes) -> str:
    return "blob_" + hashlib.sha256(content).hexdigest()


def _words(query: Mapping[str, Any]) -> dict[str, str]:
    return {name: _word(value) for name, value in query.items() if value not in (None, "", 0, False, ())}


def _word(value: Any) -> str:
    if value is True:
        return "true"
    if isinstance(value, str):
        return value
    if isinstance(value, Sequence):
        return ",".join(value)
    return str(value)


def line_of(event: Mapping[str, Any] | bytes) -> bytes:
    """Returns a new event as one line. Raises ValueError of what JSON cannot say."""
    if isinstance(event, bytes):
        return event
    if not isinstance(event.get("type"), str):
        raise ValueError("an event needs a type")
    return _json.dump(dict(event)).encode()
