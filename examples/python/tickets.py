"""A page that follows a run in the browser. The server's credential stays here: the page gets a ticket for each stream.

The server must let the page's address in: agentstream dev --cors-origin http://127.0.0.1:3001
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from agentstream import AsyncClient, NotFound
from fastapi import FastAPI, HTTPException
from fastapi.responses import HTMLResponse

SERVER = os.environ["AGENTSTREAM_SERVER"]

PAGE = """<!doctype html><title>a run</title><pre id="text"></pre>
<script>
const run = new URLSearchParams(location.search).get("run");
let after = 0, over = false;
async function follow() {
  const { url } = await (await fetch(`/tickets/${run}`, { method: "POST" })).json();
  const events = new EventSource(`${url}&after=${after}`);
  events.onmessage = ({ data, lastEventId }) => {
    const { type, child_id, payload } = JSON.parse(data);
    after = lastEventId;
    if (type === "text.delta") document.getElementById("text").append(payload.text);
    over = type === "run.lifecycle" && child_id === null && ["done", "aborted", "error"].includes(payload.state);
    if (over) events.close();
  };
  events.onerror = () => { events.close(); if (!over) setTimeout(follow, 1000); }; // a ticket is for one stream
}
follow();
</script>"""


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with AsyncClient(SERVER, os.environ.get("AGENTSTREAM_TOKEN")) as client:
        app.state.client = client
        yield


app = FastAPI(lifespan=lifespan)


@app.get("/", response_class=HTMLResponse)
async def page() -> str:
    return PAGE


@app.post("/tickets/{run}")
async def ticket(run: str) -> dict[str, str]:
    # Here is the place to ask whether this person may see this run.
    client: AsyncClient = app.state.client
    try:
        one = await client.ticket(run)
    except (NotFound, ValueError) as error:
        raise HTTPException(404, "there is no such run") from error
    return {"url": f"{SERVER}/v1/agent/runs/{run}/stream?ticket={one['ticket']}"}
