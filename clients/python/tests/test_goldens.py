"""The writer is held to the golden files of the writer in Go, for every moment and every ending."""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from agentstream._message import Call
from agentstream._payload import Closing, New
from agentstream._pen import Pen, Turn
from agentstream.errors import Over

TESTDATA = Path(__file__).parents[3] / "producers" / "testdata"
MOMENTS = json.loads((TESTDATA / "moments.json").read_text())


class Stage:
    """A run that is brought to a moment."""

    def __init__(self) -> None:
        self.events: list[New] = []
        counts: Counter[str] = Counter()

        def make_id(word: str) -> str:
            counts[word] += 1
            return f"{word}_{counts[word]}"

        self.pen = Pen("run_1", self._put, make_id=make_id, now=lambda: 0.0)
        self.turns: dict[str, Turn] = {}
        self.calls: dict[str, Call] = {}
        self.models: dict[str, Callable[[object, BaseException | None], None]] = {}
        self.pen.root.set_state("running")
        self.turns[""] = self.pen.root.begin_turn()

    def _put(self, events: Sequence[New]) -> None:
        for event in events:
            line = json.loads(event.line("run_1", "agent"))
            assert line["type"] == event.type
            assert line["payload"] == json.loads(event.payload)
        self.events += events

    def story(self, since: int = 0) -> str:
        lines = [f"{e.child + ' ' if e.child else ''}{e.type} {e.payload}\n" for e in self.events[since:]]
        return "".join(lines)

    def play(self, steps: Sequence[dict[str, Any]]) -> None:
        for step in steps:
            arguments = dict(step)
            do, lane = arguments.pop("do"), arguments.pop("lane", "")
            getattr(self, f"do_{do}")(lane, **arguments)

    def _message(self, lane: str) -> Any:
        return self.pen.lanes[lane].message

    def do_message(self, lane: str, model: str = "m1") -> None:
        self.turns[lane].message("", "", model, "")

    def do_text(self, lane: str, text: str) -> None:
        self._message(lane).text(text)

    def do_reasoning(self, lane: str, text: str) -> None:
        self._message(lane).reasoning(text)

    def do_sign(self, lane: str, text: str) -> None:
        self._message(lane).sign(text)

    def do_data(self, lane: str, kind: str, media_type: str, name: str, data: str) -> None:
        self._message(lane).data(kind, media_type, name, base64.b64decode(data))

    def do_end(self, lane: str, stop: str, usage: object) -> None:
        self._message(lane).end(stop, usage)

    def do_fail_message(self, lane: str, text: str) -> None:
        self._message(lane).close(Closing(text, failed=True))

    def do_call(self, lane: str, id: str, tool: str = "", pieces: Sequence[str] = ()) -> None:
        call = self._message(lane).call(id, tool or f"tool_{id}")
        self.calls[call.id] = call
        for piece in pieces:
            call.input(piece)

    def do_ready(self, lane: str, id: str, input: object = None, permission: str = "") -> None:
        self.calls[id].ready(input, permission)

    def do_run(self, lane: str, id: str) -> None:
        self.calls[id].run()

    def do_output(self, lane: str, id: str, text: str) -> None:
        self.calls[id].output(text)

    def do_finish(self, lane: str, id: str, output: object) -> None:
        self.calls[id].finish(output)

    def do_fail(self, lane: str, id: str, text: str) -> None:
        self.calls[id].fail(text)

    def do_user(self, lane: str, text: str) -> None:
        self.turns[lane].user(text)

    def do_task(self, lane: str, name: str) -> None:
        self.turns[lane].begin_task(name)

    def do_model(self, lane: str, provider: str, model: str) -> None:
        self.models[lane] = self.turns[lane].begin_model(provider, model)

    def do_model_ended(self, lane: str, usage: object) -> None:
        self.models[lane](usage, None)

    def do_model_failed(self, lane: str, text: str) -> None:
        self.models[lane](None, ValueError(text))

    def do_end_turn(self, lane: str) -> None:
        self.turns[lane].end("end_turn")

    def do_finish_lane(self, lane: str) -> None:
        self.pen.lanes[lane].set_state("done")

    def do_spawn(self, lane: str, id: str, call: str) -> None:
        child = self.pen.lanes[lane].spawn(id, "work", call, ())
        self.turns[id] = child.begin_turn()

    def do_emit(self, lane: str, type: str, payload: object) -> None:
        self.pen.lanes[lane].emit(type, json.dumps(payload, separators=(",", ":")))

    def do_ask(self, lane: str, id: str, text: str, options: Sequence[str] | None) -> None:
        AsyncLaneOf(self).request(lane, id, text, options)

    def do_step(self, lane: str, index: int, kind: str, checkpoint: str | None = None) -> None:
        AsyncLaneOf(self).step(lane, index, kind, checkpoint)


class AsyncLaneOf:
    """The methods of the public writer that write one event, without a server."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    def _lane(self, lane: str) -> Any:
        from agentstream import Lane

        class Unbounded:
            def _room(self) -> None:
                pass

        return Lane(Unbounded(), self._stage.pen.lanes[lane])  # type: ignore[arg-type]

    def request(self, lane: str, id: str, prompt: str, options: Sequence[str] | None) -> None:
        self._lane(lane).request(id, prompt, options)

    def step(self, lane: str, index: int, kind: str, checkpoint: str | None) -> None:
        self._lane(lane).step(index, kind, checkpoint)


ENDINGS = {
    "cancel": Closing("the user said stop"),
    "cancel-turn": Closing("the user said stop", turn_only=True),
    "fail": Closing("model: overloaded", failed=True),
    "recover": Closing("the agent began again", failed=True, turn_only=True),
}


def test_every_moment_of_go_is_here() -> None:
    assert {m["name"] for m in MOMENTS} == {p.stem for p in (TESTDATA / "endings").glob("*.txt")}
    assert len(MOMENTS) > 20


@pytest.mark.parametrize("moment", MOMENTS, ids=lambda m: str(m["name"]))
def test_moment(moment: dict[str, Any]) -> None:
    stage = Stage()
    stage.play(moment["steps"])
    assert stage.story() == (TESTDATA / "moments" / f"{moment['name']}.txt").read_text()


@pytest.mark.parametrize("moment", MOMENTS, ids=lambda m: str(m["name"]))
def test_endings(moment: dict[str, Any]) -> None:
    told = ""
    for name, closing in ENDINGS.items():
        stage = Stage()
        stage.play(moment["steps"])
        before, message, turn = len(stage.events), stage.pen.root.message, stage.turns[""]
        # What is ended twice is ended once. recover ends what is open in the lane, whatever turn it has.
        stage.pen.root.close(closing, turn if name == "cancel-turn" else None)
        stage.pen.root.close(closing, turn if name == "cancel-turn" else None)
        stage.pen.root.close(Closing("the agent left the turn", failed=True, turn_only=True), turn)
        told += f"# {name}\n{stage.story(before)}"
        if message is not None:
            with pytest.raises(Over):
                message.text("more")
    assert told == (TESTDATA / "endings" / f"{moment['name']}.txt").read_text()
