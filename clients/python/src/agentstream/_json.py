"""JSON whose text is kept: values of an object as they were written, and strings as the server writes them."""

from __future__ import annotations

import dataclasses
import json
import json.decoder
import re
from collections.abc import Callable
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

_scanstring: Callable[[str, int, bool], tuple[str, int]] = json.decoder.scanstring  # type: ignore[attr-defined]

_SPACE = re.compile(r"[ \t\n\r]*")


def _whole_number(digits: str) -> int | Decimal:
    # Python refuses to read an int of more than 4,300 digits, which a payload may have.
    return int(digits) if len(digits) < 4300 else Decimal(digits)


_decoder = json.JSONDecoder(parse_int=_whole_number)


def load(text: str | bytes) -> Any:
    """Reads JSON. Raises ValueError of what is none, also of what is nested too deep."""
    if isinstance(text, bytes):
        text = text.decode("utf-8")
    try:
        return _decoder.decode(text)
    except RecursionError as error:
        raise ValueError("JSON is nested too deep") from error


class Raw:
    """A value whose JSON is there already and is sent as it is."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        load(text)
        self.text = text.strip()


def dump(value: Any) -> str:
    """Writes a value as JSON on one line. Raises ValueError of what JSON cannot say, such as NaN.

    A lone surrogate, which UTF-8 cannot hold, is escaped.
    """
    if isinstance(value, Raw):
        return value.text.replace("\n", "").replace("\r", "")
    if isinstance(value, str):
        return f'"{escape(value)}"'
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_plain)
    return _SURROGATE.sub(lambda m: f"\\u{ord(m[0]):04x}", text)


def _plain(value: Any) -> Any:
    """Makes plain values of objects that know how: of pydantic, and dataclass-like ones of SDKs."""
    for name in ("model_dump", "to_dict", "dict"):
        method = getattr(value, name, None)
        if callable(method):
            return method(mode="json") if name == "model_dump" else method()
    if isinstance(value, (set, frozenset)):
        return list(value)
    if isinstance(value, SimpleNamespace):
        return vars(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    return str(value)


_SURROGATE = re.compile("[\ud800-\udfff]")
_ESCAPED = re.compile('["\\\\\x00-\x1f\ud800-\udfff]')
_SHORT = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def _escape_one(match: re.Match[str]) -> str:
    char = match[0]
    short = _SHORT.get(char)
    if short is not None:
        return short
    # A surrogate without its other half is no character: readers in other languages make U+FFFD of it.
    return f"\\u{ord(char):04x}" if char < "\ud800" else "\ufffd"


def escape(text: str) -> str:
    """Returns the inside of a JSON string, with the escapes that the writers in Go use."""
    return _ESCAPED.sub(_escape_one, text)


def members(text: str) -> list[tuple[str, str]]:
    """Returns the names and the values, as they are written, of an object."""
    out: list[tuple[str, str]] = []
    at = _skip(text, 0)
    if text[at : at + 1] != "{":
        raise ValueError("not an object")
    at = _skip(text, at + 1)
    while text[at : at + 1] != "}":
        if text[at : at + 1] != '"':
            raise ValueError("an object's member has no name")
        name, at = _scanstring(text, at + 1, True)
        at = _skip(text, at)
        if text[at : at + 1] != ":":
            raise ValueError("an object's member has no value")
        start = _skip(text, at + 1)
        at = _end(text, start)
        out.append((name, text[start:at]))
        at = _skip(text, at)
        if text[at : at + 1] == ",":
            at = _skip(text, at + 1)
        elif text[at : at + 1] != "}":
            raise ValueError("an object has no end")
    return out


def elements(text: str) -> list[str]:
    """Returns the values of a list as they are written."""
    out: list[str] = []
    at = _skip(text, 0)
    if text[at : at + 1] != "[":
        raise ValueError("not a list")
    at = _skip(text, at + 1)
    while text[at : at + 1] != "]":
        end = _end(text, at)
        out.append(text[at:end])
        at = _skip(text, end)
        if text[at : at + 1] == ",":
            at = _skip(text, at + 1)
        elif text[at : at + 1] != "]":
            raise ValueError("a list has no end")
    return out


def _skip(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return at if match is None else match.end()


def _end(text: str, at: int) -> int:
    try:
        return _decoder.raw_decode(text, at)[1]
    except RecursionError as error:
        raise ValueError("JSON is nested too deep") from error
