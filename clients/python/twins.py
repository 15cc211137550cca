"""Makes the modules for threads of those for asyncio: the same without await. With --check it only compares."""

import re
import sys
from pathlib import Path

SOURCE = Path(__file__).parent / "src" / "agentstream"

TWINS = {"arun.py": "run.py", "asession.py": "session.py"}

WORDS = (
    (r"async def ", "def "),
    (r"await ", ""),
    (r"__aenter__", "__enter__"),
    (r"__aexit__", "__exit__"),
    (r"async with ", "with "),
    (r"aclose", "close"),
    (r"from \.aclient ", "from .client "),
    (r"\barun\b", "run"),
    (r"\bAsync", ""),
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
    return text


if __name__ == "__main__":
    for name, twin in TWINS.items():
        if "--check" not in sys.argv:
            (SOURCE / twin).write_text(sync(name))
        elif (SOURCE / twin).read_text() != sync(name):
            sys.exit(f"{twin} is not what twins.py makes of {name}")
