"""The examples, on a real server."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import httpx

from agentstream import Client, Event

EXAMPLES = Path(__file__).parents[3] / "examples" / "python"


def test_agent_and_watcher(url: str, run_id: str, tmp_path: Path) -> None:
    env = {**os.environ, "AGENTSTREAM_SERVER": url}
    agent = subprocess.Popen([sys.executable, EXAMPLES / "agent.py", run_id], env=env)
    with Client(url) as client:
        while True:  # until the agent has begun
            try:
                client.info(run_id)
                break
            except Exception:
                assert agent.poll() is None
        for item in client.watch(run_id, types="input.requested"):
            if isinstance(item, Event) and item.type == "input.requested":
                client.answer(run_id, str(item.payload["request_id"]), "a lake")
    assert agent.wait(60) == 0
    shown = subprocess.run(
        [sys.executable, EXAMPLES / "watcher.py", run_id],
        env=env,
        cwd=tmp_path,
        check=True,
        capture_output=True,
        text=True,
    )
    assert "On a lake, pelicans fish together, in a half circle." in shown.stdout
    again = subprocess.run(
        [sys.executable, EXAMPLES / "watcher.py", run_id],
        env=env,
        cwd=tmp_path,
        check=True,
        capture_output=True,
        text=True,
    )
    assert again.stdout == ""


def test_tutorial(url: str, tmp_path: Path) -> None:
    """The program of the tutorial, as it is printed there."""
    page = (EXAMPLES.parents[1] / "docs" / "tutorial.md").read_text()
    program = tmp_path / "agent.py"
    program.write_text(page.split("`agent.py`:\n\n```python\n", 1)[1].split("```", 1)[0])
    subprocess.run([sys.executable, program], env={**os.environ, "AGENTSTREAM_SERVER": url}, check=True, timeout=120)
    with Client(url) as client:
        words = "".join(e.text for e in client.watch("tutorial-python") if isinstance(e, Event))
        assert words == "Pelicans fish together, in a half circle. "
        assert client.info("tutorial-python")["state"] == "done"


def test_tickets(url: str, run_id: str) -> None:
    os.environ["AGENTSTREAM_SERVER"] = url
    sys.path.insert(0, str(EXAMPLES))
    import tickets  # type: ignore[import-not-found]

    async def main() -> None:
        transport = httpx.ASGITransport(tickets.app)
        async with (
            tickets.lifespan(tickets.app),
            httpx.AsyncClient(transport=transport, base_url="http://page") as page,
        ):
            assert "EventSource" in (await page.get("/")).text
            answer = await page.post(f"/tickets/{run_id}")
            assert f"/v1/agent/runs/{run_id}/stream?ticket=" in answer.json()["url"]
            assert (await page.post("/tickets/nobody")).status_code == 404

    with Client(url) as client:
        client.create(run_id)
    asyncio.run(main())
