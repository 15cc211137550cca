"""Makes src/agentstream/run.py of arun.py: the same without await. With --check it only compares."""

import re
import sys
from pathlib import Path

SOURCE = Path(__file__).parent / "src" / "agentstream"

WORDS = (
    (r"async def ", "def "),
    (r"await ", ""),
    (r"__aenter__", "__enter__"),
    (r"__aexit__", "__exit__"),
    (r"async with ", "with "),
    (r"aclose", "close"),
    (r"\.aclient", ".client"),
    (r"\bAsync", ""),
    (
        r"for asyncio\. `run\.py` is made of this file: see tests/test_twins\.py\.",
        "for threads, made of arun.py by twins.py.",
    ),
)


def sync() -> str:
    """Returns the source of run.py."""
    text = (SOURCE / "arun.py").read_text()
    for old, new in WORDS:
        text = re.sub(old, new, text)
    return text


if __name__ == "__main__":
    if "--check" in sys.argv:
        sys.exit(0 if (SOURCE / "run.py").read_text() == sync() else "run.py is not what twins.py makes of arun.py")
    (SOURCE / "run.py").write_text(sync())
