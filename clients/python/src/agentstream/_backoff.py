"""Pauses between attempts: exponential with full jitter, so that clients of one fault do not come back in step."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from .errors import AgentstreamError, ServerError, Unauthorized, Unavailable

FIRST = 0.1
MOST = 10.0


class Backoff:
    """Spaces out attempts. Times are in seconds. `give_up` bounds failures in a row; None is never."""

    def __init__(self, give_up: float | None = None) -> None:
        self.give_up = give_up
        self.floor = 0.0  # the least pause that the server wants
        self._since: float | None = None
        self._next = 0.0

    def reset(self) -> None:
        """Is called after progress."""
        self._since = None
        self._next = 0.0

    def alive(self) -> None:
        """Is called after an answer without progress: no reason to give up, and none to come back faster."""
        self._since = None

    def pause(self, cause: BaseException) -> float:
        """Returns how long to wait: at least what the server asked for. Raises when it is time to give up."""
        hint = cause.retry_after if isinstance(cause, ServerError) else 0.0
        now = time.monotonic()
        if self._since is None:
            self._since = now
        if self._next <= 0:
            self._next = self.floor or FIRST
        self._next = max(self._next, self.floor)
        wait = max(hint, self.floor) + random.uniform(0, max(0.0, self._next - self.floor))
        self._next = max(self.floor, min(2 * self._next, MOST))
        if self.give_up is not None and now + wait - self._since > self.give_up:
            raise Unavailable(f"given up after {now - self._since:.0f} s: {cause}") from cause
        return wait


class Pauses:
    """Pauses between the connections of one stream. A refused token is replaced once."""

    def __init__(self, give_up: float | None) -> None:
        self._backoff = Backoff(give_up)
        self._renewed = False

    def reset(self) -> None:
        """Is called after progress."""
        self._backoff.reset()
        self._renewed = False

    def pause(self, error: AgentstreamError, renew: Callable[[str], bool], token: str) -> float:
        """Returns how many seconds to wait after an error. Raises what waiting does not mend."""
        if isinstance(error, Unauthorized) and not self._renewed and renew(token):
            self._renewed = True
            return 0.0
        if not isinstance(error, Unavailable):
            raise error
        return self._backoff.pause(error)
