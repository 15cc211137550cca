"""A session that a worker answers, for threads, made by twins.py."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from . import run
from ._ids import new_id
from ._payload import Closing, error_text, is_cancellation
from ._work import Work, text_of
from .errors import Lost
from .event import Event

if TYPE_CHECKING:
    from .client import Client

__all__ = ["Session"]


class Session:
    """One turn of a session, which the worker begins and ends. `run` and `turn` write it."""

    #: The stop reason of the turn's end.
    stop: str = "end_turn"

    def __init__(self, client: Client, work: Work, actor: str) -> None:
        self._work = work
        self.run = run.Run(client, work.run, actor=actor, begin=False, end=False, lease=work.lease)
        self.run._queue.through = work.events[-1].seq
        self.turn = run.Turn(self.run)
        self.turn._adopt(work.turn)
        self._given_up = False
        self._ending = False  # the answer has returned

    @property
    def id(self) -> str:
        """The session's run id."""
        return self._work.run

    @property
    def created(self) -> Mapping[str, Any]:
        """What the session was created with."""
        return self._work.session

    @property
    def events(self) -> Sequence[Event]:
        """What the turn answers: a message, or the answers to what was asked by `interrupt`."""
        return self._work.events

    @property
    def content(self) -> Any:
        """The message as it was written: a text, or blocks. None where answers begin the turn."""
        payload = self.events[-1].payload
        return payload.get("content", payload.get("instruction"))

    @property
    def text(self) -> str:
        """The message's text."""
        return text_of(self.content)

    @property
    def answers(self) -> Mapping[str, Any]:
        """The answers by what was asked (`interrupt`); empty where a message begins the turn."""
        all = [e.payload for e in self.events if e.type == "command.answer"]
        return {str(p.get("request_id")): p.get("answer") for p in all}

    @property
    def redelivered(self) -> bool:
        """Whether another worker may have begun with this."""
        return self._work.redelivered

    @property
    def cancelled(self) -> bool:
        """Whether a person has cancelled the turn. Whatever is written then raises Cancelled."""
        return self.run.cancel_requested

    def told(self, timeout: float | None = None) -> Event:
        """Waits for what is sent meanwhile, such as a message, and deals with it: it is not answered again.

        TimeoutError: nothing came within so many seconds.
        """
        return self.run.next_command(timeout)

    def interrupt(
        self,
        prompt: str,
        options: Sequence[str] | None = None,
        *,
        schema: Mapping[str, Any] | None = None,
        id: str = "",
    ) -> str:
        """Asks a person for something without waiting, and returns the request's id: end the answer after it.

        The answer begins another turn, with `answers`, on whatever worker is there then.
        """
        id = id or new_id("ask")
        self.run.request(id, prompt, options, schema)
        self.stop = "interrupt"
        return id

    def _give_up(self) -> None:
        """Is for a lease that has ended: nothing more is written."""
        self._given_up = True
        self.run._sink.fail(RuntimeError("the lease has ended: another worker answers"))

    def _hear(self, event: Event) -> None:
        self.run._sink.hear(event)

    def _end(self, error: BaseException | None) -> None:
        """Ends the turn, in one pack with the mark of what was answered."""
        run = self.run
        try:
            if self._given_up or isinstance(error, Lost):
                return
            if error is None and run._lane.working() and not self.turn._turn.over:
                error = RuntimeError("the answer left what it had begun")
            cancelled = run._queue.cancelled
            if cancelled is not None:
                run._queue.through = max(run._queue.through, cancelled[1])
            run._queue.ending = True
            if error is None and cancelled is None:
                self.turn._turn.end(self.stop, run._taken(), self._work.once)
                return
            reason = cancelled[0] if cancelled else error_text(error or "")
            failed = cancelled is None and error is not None and not is_cancellation(error)
            closing = Closing(reason, failed=failed, turn_only=not self._work.once)
            run._lane.close(closing, None if self._work.once else self.turn._turn, run._taken())
        finally:
            run.close()
