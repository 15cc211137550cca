"""The parser of server-sent events: golden bytes cut everywhere, and a slow reference that reads all at once."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentstream._sse import FrameTooLarge, Parser

Got = list[tuple[str, str, "bytes | None"]]


def read(*chunks: bytes, parser: Parser | None = None) -> Got:
    parser = parser or Parser()
    return [(f.id, f.event, f.data) for chunk in chunks for f in parser.feed(chunk)]


def reference(stream: bytes) -> Got:
    """Reads a whole stream by the words of WHATWG HTML §9.2.6, line by line."""
    out: Got = []
    last = id = event = ""
    data: list[bytes] = []
    lines = re.split(rb"\r\n|\n|\r", stream.removeprefix(b"\xef\xbb\xbf"))[:-1]
    for line in lines:
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if not line:
            if data or id != last:
                out.append((id, event, b"\n".join(data) if data else None))
            last, event, data = id, "", []
        elif name == b"data":
            data.append(value)
        elif name == b"event":
            event = value.decode("utf-8", "replace")
        elif name == b"id" and b"\0" not in value:
            id = value.decode("utf-8", "replace")
    return out


GOLDEN = {
    "a line separator is text": (
        "data: a\u2028b\u2029c\u0085d\nid: 1\n\n".encode(),
        [("1", "", "a\u2028b\u2029c\u0085d".encode())],
    ),
    "carriage returns": (b"data: a\r\nid: 1\r\rdata: b\rid: 2\n\r\n", [("1", "", b"a"), ("2", "", b"b")]),
    "an id with NUL": (b"id: 1\ndata: a\n\nid: 2\0\ndata: b\n\n", [("1", "", b"a"), ("1", "", b"b")]),
    "a byte order mark": (b"\xef\xbb\xbfdata: a\nid: 1\n\n", [("1", "", b"a")]),
    "bytes that are no UTF-8": (b"data: \xff\xfe\nid: 1\n\n", [("1", "", b"\xff\xfe")]),
    "an id alone": (b"id: 7\n\n", [("7", "", None)]),
    "comments and unknown fields": (b": keepalive\n\nfoo: bar\ndata\ndata:x\nevent: e\n\n", [("", "e", b"\nx")]),
    "half a frame": (b"data: a\nid: 1\n\ndata: b\nid: 2\n", [("1", "", b"a")]),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_bytes_cut_everywhere(name: str) -> None:
    stream, want = GOLDEN[name]
    assert reference(stream) == want
    assert read(stream) == want
    assert read(*(stream[i : i + 1] for i in range(len(stream)))) == want
    for at in range(len(stream)):
        assert read(stream[:at], b"", stream[at:]) == want


def test_a_line_of_a_mebibyte() -> None:
    line = b"x" * (1 << 20)
    stream = b"data: " + line + b"\r\nid: 1\r\n\r\n"
    assert read(*(stream[i : i + 1000] for i in range(0, len(stream), 1000))) == [("1", "", line)]


def test_a_frame_without_end() -> None:
    parser = Parser(most=1000)
    with pytest.raises(FrameTooLarge):
        read(*[b"data: " + b"x" * 90 + b"\n"] * 20, parser=parser)
    with pytest.raises(FrameTooLarge):
        read(*[b"x" * 90] * 20, parser=Parser(most=1000))


def test_a_cut_forgets_half_a_frame_and_keeps_the_id() -> None:
    parser = Parser()
    assert read(b"data: a\nid: 1\n\ndata: b\nid: 2\n", parser=parser) == [("1", "", b"a")]
    parser.reset()
    assert read(b"\n\ndata: c\n\n", parser=parser) == [("1", "", b"c")]


@pytest.mark.parametrize(
    ("field", "want"), [(b"1500", 1.5), (b"-1", 0.0), (b"x", 0.0), (b"+1", 0.0), (b"99999999", 60.0)]
)
def test_retry(field: bytes, want: float) -> None:
    parser = Parser()
    read(b"retry: " + field + b"\n\n", parser=parser)
    assert parser.retry == want


PIECES = st.sampled_from(
    [b"data: a", b"data:b", b"data", b"id: 1", b"id:2", b"id: 3\0", b"event: e", b": c", b"\r", b"\n", b"\r\n", b"\n\n",
     b"\xef\xbb\xbf", "\u2028".encode(), b"retry: 5", b"x", b" "]
)  # fmt: skip


@given(st.lists(PIECES, max_size=40).map(b"".join), st.data())
def test_like_the_reference(stream: bytes, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.sets(st.integers(0, len(stream)), max_size=8)))
    chunks = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    assert read(*chunks) == reference(stream)
