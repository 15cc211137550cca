"""Messages and calls of tools, as they are written."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import TYPE_CHECKING

from . import _json
from ._closing import close_message, cut_block, with_content
from ._payload import (
    CODE_FAILED,
    MOST_KEPT,
    MOST_OF_A_NAME,
    MOST_OF_AN_EVENT,
    ROOM_FOR_NAMES,
    Closing,
    Obj,
    check_names,
    error_of,
    shorten,
    usage_of,
)
from .errors import Over

if TYPE_CHECKING:
    from ._pen import Turn

#: The most text of one event, in bytes before escaping: longer text takes several.
MOST_OF_A_PIECE = 64 << 10
#: How much of an image or a file one event carries, in bytes before base64.
MOST_OF_DATA = 96 << 10

_ROLES = ("user", "assistant", "system", "tool")


def role_of(role: str) -> tuple[str, str]:
    """Returns a role and the actor of its events: readers without messages must not take others' for the agent's."""
    role = role or "assistant"
    if role not in _ROLES:
        raise ValueError(f"role {role!r} is none of {', '.join(_ROLES)}")
    return role, "" if role == "assistant" else role


def whole(text: str) -> str:
    """Joins halves of characters that are there as surrogates; one without its other half becomes U+FFFD."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


class Rest:
    """The first half of a character whose other half has not come."""

    __slots__ = ("half",)

    def __init__(self) -> None:
        self.half = ""

    def join(self, piece: str, emit: Callable[[str], None]) -> None:
        """Writes what is whole, and keeps the rest. After an error it is what it was."""
        text = self.half + piece
        half = text[-1:] if "\ud800" <= text[-1:] <= "\udbff" else ""
        text = whole(text[: len(text) - len(half)])
        if text or not half:
            emit(text)
        self.half = half

    def flush(self, emit: Callable[[str], None]) -> None:
        if self.half:
            emit("\ufffd")
            self.half = ""


def pieces(text: str) -> list[str]:
    """Cuts a text into what one event takes each, at whole characters."""
    if len(text) <= MOST_OF_A_PIECE // 4:
        return [text]
    raw, out, at = text.encode(), [], 0
    while len(raw) - at > MOST_OF_A_PIECE:
        end = at + MOST_OF_A_PIECE
        while raw[end] & 0xC0 == 0x80:
            end -= 1
        out.append(raw[at:end].decode())
        at = end
    return [*out, raw[at:].decode()]


class Block:
    """A block of a message. `parts` are the pieces of its text, as they stand inside a JSON string."""

    __slots__ = ("call", "complete", "ended", "index", "input", "kind", "media", "parts", "signature", "tool")

    def __init__(self, index: int, kind: str, call: str = "", tool: str = "") -> None:
        self.index, self.kind, self.call, self.tool = index, kind, call, tool
        self.parts: list[str] = []
        self.ended = self.complete = False
        self.input: str | None = None
        self.media: str | None = None
        self.signature: str | None = None

    def __str__(self) -> str:
        """Returns the block so far, as content has it."""
        o, text = Obj().text("type", self.kind), "".join(self.parts)
        if self.call and self.ended and self.complete and (self.input is not None or not text):
            return str(o.text("id", self.call).text("name", self.tool).raw("input", self.input or "{}"))
        if self.call:
            return str(o.text("id", self.call).text("name", self.tool).raw("partial_json", f'"{text}"'))
        if self.kind == "reasoning":
            o = Obj().text("type", "thinking").raw("thinking", f'"{text}"')
            return str(o if self.signature is None else o.text("signature", self.signature))
        if self.media is not None and not text:
            return str(o.text("media_type", self.media).raw("source", '{"kind":"deltas"}'))
        return str(o.raw("text", f'"{text}"'))


class Message:
    """A message that is being written: text, reasoning and calls in blocks, which begin and end by themselves."""

    def __init__(self, turn: Turn, id: str, actor: str) -> None:
        self.turn, self.id, self.actor = turn, id, actor
        self.blocks: list[Block] = []
        self.open: Block | None = None  # of text or reasoning
        self.over = False
        self.size = 0  # bytes of the content, about
        self.lost = False  # it is not kept any more
        self._rest = Rest()

    def check(self, doing: str) -> None:
        """Raises Over of a message that may not go on."""
        self.turn.check(f"{doing} message {self.id}")
        if self.over or self.turn.lane.message is not self:
            raise Over(f"run {self.turn.lane.pen.run}: {doing} message {self.id}: it is over")

    def emit(self, type: str, payload: object) -> None:
        self.turn.emit(type, payload, self.actor)

    def text(self, text: str) -> None:
        """Writes a piece of text."""
        self._piece("text", text)

    def reasoning(self, text: str) -> None:
        """Writes a piece of a thought."""
        self._piece("reasoning", text)

    def _piece(self, kind: str, text: str) -> None:
        with self.turn.lane.pen.lock:
            self.check("go on with")
            if self.open is not None and self.open.kind != kind:
                self.end_open()
            if self.open is None:
                self.open = self.begin_block(Block(len(self.blocks), kind))
            block = self.open
            self._rest.join(text, lambda piece: self.delta(block, f"{kind}.delta", piece))

    def begin_block(self, block: Block) -> Block:
        o = Obj().number("index", block.index).text("kind", block.kind).text("message_id", self.id)
        if block.call:
            o.text("call_id", block.call).text("tool", block.tool)
        self.emit("block.start", o)
        self.blocks.append(block)
        self.size += 64
        return block

    def end_block(self, block: Block, more: Obj | None = None) -> None:
        o = Obj().number("index", block.index).text("message_id", self.id).yes("complete", True)
        if more is not None:
            o.parts += more.parts
        self.emit("block.end", o)
        block.ended = block.complete = True

    def flush_rest(self) -> None:
        block = self.open
        if block is not None:
            self._rest.flush(lambda piece: self.delta(block, f"{block.kind}.delta", piece))

    def end_open(self, more: Obj | None = None) -> None:
        block = self.open
        if block is not None:
            self.flush_rest()
            self.end_block(block, more)
            self.open = None

    def delta(self, block: Block, type: str, text: str) -> None:
        """Writes a piece of a block, and keeps it for the end of the message."""
        for piece in pieces(text):
            inner = _json.escape(piece)
            call = f'"call_id":"{_json.escape(block.call)}",' if type == "tool.input.delta" else ""
            self.emit(type, f'{{{call}"text":"{inner}","index":{block.index}}}')
            self.size += len(inner) if inner.isascii() else len(inner.encode())
            if self.size > 2 * MOST_KEPT:
                self.lost = True
                for other in self.blocks:
                    other.parts.clear()
            if not self.lost:
                block.parts.append(inner)

    def sign(self, signature: str) -> None:
        """Ends the open block of reasoning with the provider's signature."""
        with self.turn.lane.pen.lock:
            self.check("sign a thought of")
            if self.open is None or self.open.kind != "reasoning":
                raise ValueError(f"message {self.id}: no thought is open")
            block = self.open
            self.end_open(Obj().text("signature", signature))
            block.signature = signature

    def data(self, kind: str, media_type: str, name: str, data: bytes) -> None:
        """Writes a block of bytes: kind image, audio or file."""
        check_names(kind, media_type, name)
        if not kind:
            raise ValueError(f"message {self.id}: data needs a kind")
        with self.turn.lane.pen.lock:
            self.check("put data in")
            self.end_open()
            block = Block(len(self.blocks), kind)
            block.media = media_type
            self.begin_block(block)
            for at in range(0, max(len(data), 1), MOST_OF_DATA):
                piece = base64.b64encode(data[at : at + MOST_OF_DATA]).decode()
                o = Obj().text("media_type", media_type).text("data", piece).number("index", block.index)
                self.emit("data.delta", o.some("name", name))
            self.end_block(block)

    def call(self, id: str, tool: str) -> Call:
        """Begins a call of a tool: its input streams, and `ready` makes it a call."""
        id = id or self.turn.lane.pen.make_id("call")
        check_names(id, tool)
        if not tool:
            raise ValueError(f"message {self.id}: a call needs a tool")
        with self.turn.lane.pen.lock:
            self.check("call a tool in")
            self.end_open()
            return Call(self.turn, id, tool, self, self.begin_block(Block(len(self.blocks), "tool_use", id, tool)))

    def end(self, stop: str, usage: object) -> None:
        """Ends the message: its whole content, the stop reason, and the usage. Calls that still stream are cut."""
        used = usage_of(usage)
        check_names(stop)
        with self.turn.lane.pen.lock:
            self.check("end")
            self.end_open()
            for block in self.blocks:
                if not block.ended:
                    self.emit("block.end", cut_block(self, block))
                    block.ended = True
            o, omitted = with_content(self)
            if stop:
                o.text("stop_reason", stop)
            else:
                o.raw("stop_reason", "null")
            self.emit("message.end", omitted(o.raw("stop_sequence", "null").raw("usage", used)))
            self._forget()

    def close(self, closing: Closing) -> None:
        """Ends a message that was cut short, with its content so far. The turn can go on."""
        with self.turn.lane.pen.lock:
            self.check("fail")
            self.flush_rest()
            for type, payload in close_message(self, closing):
                self.emit(type, payload)
            self._forget()

    def _forget(self) -> None:
        self.over, self.open = True, None
        self.turn.lane.message = None


class Call:
    """One call of a tool: its input while the model streams it, its output while the tool runs."""

    def __init__(self, turn: Turn, id: str, tool: str, message: Message, block: Block) -> None:
        self.turn, self.id, self.tool = turn, id, tool
        self.message, self.block = message, block
        self._cut = False  # the input was too much to be kept
        self._began = 0.0
        self._in, self._out = Rest(), Rest()

    def input(self, piece: str) -> None:
        """Writes a piece of the input, which is JSON when it is whole."""
        with self.turn.lane.pen.lock:
            self._check_input()
            self._in.join(piece, self._emit_input)

    def _check_input(self) -> None:
        if self.block.ended:
            raise Over(f"run {self.turn.lane.pen.run}: the input of call {self.id}: it is over")
        self.message.check(f"say the input of call {self.id} in")

    def _emit_input(self, piece: str) -> None:
        self.message.delta(self.block, "tool.input.delta", piece)

    def ready(self, input: object = None, permission: str = "") -> None:
        """Ends the input: block.end and tool.start. input is the whole where no pieces were streamed.

        permission is "ask" when somebody must confirm the call first, or "deny".
        """
        given = None if input is None else _json.dump(input)
        lane = self.turn.lane
        with lane.pen.lock:
            self._check_input()
            self._in.flush(self._emit_input)
            text = self._joined() if given is None else given
            o = Obj().text("call_id", self.id).text("tool", self.tool).raw("input", text)
            start = str(o.number("index", self.block.index).some("permission", permission))
            if len(start.encode()) + ROOM_FOR_NAMES > MOST_OF_AN_EVENT:  # before half of it is written
                raise ValueError(f"call {self.id}: an input of {len(text)} characters is too large")
            self.message.end_block(self.block, Obj().text("call_id", self.id).raw("input", text))
            self.block.input = text
            self.message.size += len(text)
            self._began = lane.pen.now()
            self.turn.emit("tool.start", start)
            lane.calls[self.id] = self

    def _joined(self) -> str:
        if self.message.lost:
            raise ValueError(f"call {self.id}: its input is too large to be kept")
        inner = "".join(self.block.parts)
        if not inner:
            return "{}"
        text = str(_json.load(f'"{inner}"'))
        try:
            _json.load(text)
        except ValueError:
            raise ValueError(f"call {self.id}: the pieces of its input are not JSON") from None
        return text

    def _check_running(self, doing: str) -> None:
        if self.turn.over or self.id not in self.turn.lane.calls:
            raise Over(f"run {self.turn.lane.pen.run}: {doing} call {self.id}: it is over")

    def run(self) -> None:
        """Records that the tool begins to work. Between ready and run the call waits, for a person or its turn."""
        with self.turn.lane.pen.lock:
            self._check_running("run")
            self.turn.emit("tool.run", Obj().text("call_id", self.id))

    def output(self, text: str) -> None:
        """Writes a piece of what a running tool prints."""
        with self.turn.lane.pen.lock:
            self._check_running("print in")
            self._out.join(text, self._emit_output)

    def _emit_output(self, text: str) -> None:
        for piece in pieces(text):
            self.turn.emit("tool.output.delta", Obj().text("call_id", self.id).text("text", piece))

    def finish(self, output: object = None) -> None:
        """Ends the call well, with its output."""
        text = None if output is None else _json.dump(output)
        self._end(Obj().text("call_id", self.id).yes("ok", True).raw("output", text))

    def fail(self, error: BaseException | str, code: str = "") -> None:
        """Ends the call with the tool's error, and a code of yours or that of all errors of tools."""
        o = Obj().text("call_id", self.id).yes("ok", False).text("error", shorten(code or CODE_FAILED, MOST_OF_A_NAME))
        self._end(o.raw("error_detail", error_of(error)))

    def _end(self, o: Obj) -> None:
        with self.turn.lane.pen.lock:
            self._check_running("end")
            self._out.flush(self._emit_output)
            self.turn.emit("tool.end", o.number("duration_ms", self.turn.lane.pen.since(self._began)))
