"""Makes the modules for threads of those for asyncio: the same without await. With --check it only compares."""

import re
import sys
from pathlib import Path

SOURCE = Path(__file__).parent / "src" / "agentstream"

TWINS = {"aclient.py": "client.py", "arun.py": "run.py", "asession.py": "session.py", "ataps.py": "taps.py"}

WORDS = (
    (r"async (def|for|with) ", r"\1 "),
    (r"await ", ""),
    (r"__a(enter|exit|iter|next)__", r"__\1__"),
    (r"\baiter_bytes\b", "iter_bytes"),
    (r"\b_io_async\b", "_io_threads"),
    (r"\baclos(e|ing)\b", r"clos\1"),
    (r"from \.aclient ", "from .client "),
    (r"\barun\b", "run"),
    (r"\b(Stop)?Async", r"\1"),
    (r"Generator\[(\w+), None\]", r"Generator[\1, None, None]"),
    (r"for the tasks of one event loop of asyncio", "for any number of threads"),
    (r"a function or coroutine function that", "a function that"),
    (r"One task at a time", "One thread at a time"),
    (r"cancelled or interrupted, as by `asyncio.wait_for` or Ctrl-C", "interrupted, as by Ctrl-C"),
    (r"a read in another task", "a read in another thread"),
    (
        r"for asyncio\. `\w+\.py` is made of this file: see tests/test_twins\.py\.",
        "for threads, made by twins.py.",
    ),
)


def sync(name: str) -> str:
    """Returns the source of the twin of a module."""
    text = (SOURCE / name).read_text()
    for old, new in WORDS:
        text = re.sub(old, new, text)
    text = re.sub(r"(from collections\.abc import )(.+)", lambda m: m[1] + ", ".join(sorted(m[2].split(", "))), text)
    head, imports, rest = re.split(r"((?:^from \..*\n)+)", text, maxsplit=1, flags=re.M)
    return head + "".join(sorted(imports.splitlines(keepends=True))) + rest


if __name__ == "__main__":
    for name, twin in TWINS.items():
        if "--check" not in sys.argv:
            (SOURCE / twin).write_text(sync(name))
        elif (SOURCE / twin).read_text() != sync(name):
            sys.exit(f"{twin} is not what twins.py makes of {name}")
