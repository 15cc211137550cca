"""Ids of messages, turns and calls: a word and a ULID."""

from __future__ import annotations

import secrets
import time

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


def new_id(word: str) -> str:
    """Returns a new id. It sorts by its time, in milliseconds."""
    value = int(time.time() * 1000) << 80 | secrets.randbits(80)
    return word + "_" + "".join(_ALPHABET[value >> shift & 31] for shift in range(125, -1, -5))
