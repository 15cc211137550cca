"""What people send to the agent of a run, sorted by who waits for it. No I/O."""

from __future__ import annotations

from collections import deque

from .event import Event

TYPES = ("command.*",)


class Commands:
    """Commands in the order of the log. Answers and decisions wait for who asked; all else is kept for the agent."""

    def __init__(self) -> None:
        self.answers: dict[str, Event] = {}
        self.decisions: dict[str, Event] = {}
        self.others: deque[Event] = deque()
        self.cancel: Event | None = None
        self.error: BaseException | None = None  # why no more will come

    def add(self, event: Event) -> None:
        request, plan = event.payload.get("request_id"), event.payload.get("plan_id")
        if event.type == "command.answer" and isinstance(request, str):
            self.answers[request] = event
        elif event.type in ("command.approve_plan", "command.reject_plan"):
            self.decisions[plan if isinstance(plan, str) else ""] = event
        elif event.type == "command.cancel" and event.child_id is None:
            self.cancel = self.cancel or event
        elif event.type.startswith("command."):
            self.others.append(event)

    def answer(self, request: str) -> Event | None:
        return self.answers.pop(request, None)

    def decision(self, plan: str) -> Event | None:
        """Returns what was decided about a plan, by its id or about the open one."""
        return self.decisions.pop(plan, None) or self.decisions.pop("", None)

    def next(self) -> Event | None:
        return self.others.popleft() if self.others else None
