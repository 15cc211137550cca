"""The writer for threads is the one for asyncio without await."""

import subprocess
import sys
from pathlib import Path


def test_run_is_made_of_arun() -> None:
    script = Path(__file__).parents[1] / "twins.py"
    done = subprocess.run([sys.executable, str(script), "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
