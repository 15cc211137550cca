"""Watch, write and steer the runs of an agentstream server.

    async with AsyncClient("http://127.0.0.1:8080") as client:
        async for item in client.watch("run_1"):
            if isinstance(item, Gap):
                print("missing", item.first, item.last)
            else:
                print(item.seq, item.type, item.payload)

`Client` is the same for programs with threads. `client.run(id)` writes a run.
"""

from ._api import Blob, Cost, CostsPage, Page, Receipt, RunInfo, RunsPage, Ticket
from ._json import Raw
from ._trace import traceparent
from ._version import __version__
from ._watch import ConnectionLost, NotAStream, Stats
from .aclient import AsyncClient, AsyncWatch
from .arun import AsyncCall, AsyncChild, AsyncLane, AsyncMessage, AsyncModel, AsyncRun, AsyncTask, AsyncTurn
from .asession import AsyncSession
from .client import Client, Watch
from .errors import (
    AgentstreamError,
    Cancelled,
    Conflict,
    CursorAhead,
    Ended,
    Exists,
    Expired,
    Forbidden,
    Lost,
    NotFound,
    Open,
    Over,
    ServerError,
    Unauthorized,
    Unavailable,
)
from .event import Event, Gap
from .run import Call, Child, Lane, Message, Model, Run, Task, Turn
from .session import Session
from .worker import AsyncWorker, Worker

__all__ = [
    "AgentstreamError",
    "AsyncCall",
    "AsyncChild",
    "AsyncClient",
    "AsyncLane",
    "AsyncMessage",
    "AsyncModel",
    "AsyncRun",
    "AsyncSession",
    "AsyncTask",
    "AsyncTurn",
    "AsyncWatch",
    "AsyncWorker",
    "Blob",
    "Call",
    "Cancelled",
    "Child",
    "Client",
    "Conflict",
    "ConnectionLost",
    "Cost",
    "CostsPage",
    "CursorAhead",
    "Ended",
    "Event",
    "Exists",
    "Expired",
    "Forbidden",
    "Gap",
    "Lane",
    "Lost",
    "Message",
    "Model",
    "NotAStream",
    "NotFound",
    "Open",
    "Over",
    "Page",
    "Raw",
    "Receipt",
    "Run",
    "RunInfo",
    "RunsPage",
    "ServerError",
    "Session",
    "Stats",
    "Task",
    "Ticket",
    "Turn",
    "Unauthorized",
    "Unavailable",
    "Watch",
    "Worker",
    "__version__",
    "traceparent",
]
