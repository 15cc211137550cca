"""Our client in Python: watches a run until it is over, and prints a line of JSON for each event, as the scripts of js do."""

import asyncio
import json
import os
import sys
from urllib.parse import urlsplit

from agentstream import AsyncClient, Client, Event, Gap

AT = urlsplit(os.environ["STREAM"])
RUN = AT.path.split("/")[-2]
TOKEN = os.environ["TOKEN"]
DETAIL = os.environ["DETAIL"]
# A cut that is a silence is noticed by the watchdog. What a connection that lags was spared is in the log.
IDLE = 1.0
OPTIONS = {"detail": DETAIL, "refetch": True}


def write(item: Event | Gap) -> None:
    if isinstance(item, Gap):
        line = {"gap": {"first": item.first, "last": item.last, "cause": item.cause}}
    else:
        line = {"data": item.line.decode()}
    print(json.dumps(line), flush=True)


async def watch() -> dict[str, int]:
    async with AsyncClient(f"{AT.scheme}://{AT.netloc}", lambda: TOKEN, idle=IDLE) as client:
        async with client.watch(RUN, **OPTIONS) as items:
            async for item in items:
                write(item)
            return vars(items.stats)


def main() -> dict[str, int]:
    if sys.argv[1:] == ["async"]:
        return asyncio.run(watch())
    with Client(f"{AT.scheme}://{AT.netloc}", lambda: TOKEN, idle=IDLE) as client, client.watch(RUN, **OPTIONS) as items:
        for item in items:
            write(item)
        return vars(items.stats)


print(json.dumps({**main(), "over": True}), flush=True)
