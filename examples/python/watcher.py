"""Follows a run, and goes on where it stopped: the cursor is kept in a file beside what was shown."""

import os
import sys
from pathlib import Path

from agentstream import Client, Gap


def follow(run_id: str) -> None:
    cursor = Path(f"{run_id}.cursor")
    after = int(cursor.read_text()) if cursor.exists() else 0
    with Client(os.environ["AGENTSTREAM_SERVER"], os.environ.get("AGENTSTREAM_TOKEN")) as client:
        with client.watch(run_id, after=after) as watch:
            for item in watch:
                if isinstance(item, Gap):
                    print(f"[{item.first} to {item.last} did not come]")
                elif item.text:
                    print(item.text, end="", flush=True)
                else:
                    print(f"\n{item.seq} {item.type}")
                cursor.write_text(str(watch.cursor))


if __name__ == "__main__":
    follow(sys.argv[1] if len(sys.argv) > 1 else "tutorial-python")
