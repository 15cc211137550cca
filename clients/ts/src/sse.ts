// The event stream format of the HTML standard, §9.2.6, read in pieces that are cut anywhere.

/** One dispatched frame. */
export interface SSEFrame {
  /** The event field; "message" when there was none. */
  event: string;
  /** The data lines, joined by line feeds. */
  data: string;
  /** The last id of the stream as of this frame; "" when there was none yet. */
  id: string;
}

/** What an SSEParser tells. Comments are signs of life; they tell nothing else. */
export interface SSEHandler {
  frame(frame: SSEFrame): void;
  /** A reconnection hint in milliseconds. */
  retry?(ms: number): void;
}

/** Where a frame stops growing, in UTF-16 units: a server that sends without end must not take the page with it. */
export const maxFrameLength = 128 << 20;

/**
 * An incremental parser. Lines end with CR, LF or CRLF; a byte order mark at the start is skipped;
 * a character may be cut between pieces. What a frame says counts only when its empty line has
 * arrived: a cursor from half a frame would skip the event in it. What is left at the end of the
 * stream is discarded with the parser.
 */
export class SSEParser {
  private readonly decoder = new TextDecoder("utf-8");
  private readonly handler: SSEHandler;
  private line: string[] = []; // pieces of the line that is still arriving
  private length = 0; // of the frame so far
  private afterCR = false; // a LF that comes next belongs to the CR before it
  private data: string[] = [];
  private event = "";
  private id = "";

  constructor(handler: SSEHandler) {
    this.handler = handler;
  }

  /** Takes the next piece. Frames that it completes are dispatched before it returns. */
  push(piece: Uint8Array): void {
    this.feed(this.decoder.decode(piece, { stream: true }));
  }

  private feed(text: string): void {
    let at = 0;
    if (this.afterCR && text.length > 0) {
      this.afterCR = false;
      if (text.charCodeAt(0) === 0x0a) at = 1;
    }
    let cr = text.indexOf("\r", at);
    let lf = text.indexOf("\n", at);
    while (cr >= 0 || lf >= 0) {
      const end = cr < 0 || (lf >= 0 && lf < cr) ? lf : cr;
      this.endLine(text.slice(at, end));
      at = end + 1;
      if (end === cr) {
        if (at === text.length) this.afterCR = true;
        else if (text.charCodeAt(at) === 0x0a) at++;
        cr = text.indexOf("\r", at);
      }
      if (lf >= 0 && lf < at) lf = text.indexOf("\n", at);
    }
    if (at < text.length) {
      this.grow(text.length - at);
      this.line.push(text.slice(at));
    }
  }

  private grow(n: number): void {
    this.length += n;
    if (this.length > maxFrameLength) throw new RangeError("server-sent event has no end");
  }

  private endLine(rest: string): void {
    this.grow(rest.length);
    let line = rest;
    if (this.line.length > 0) {
      this.line.push(rest);
      line = this.line.join("");
      this.line = [];
    }
    if (line === "") return this.dispatch();
    const colon = line.indexOf(":");
    if (colon === 0) return;
    let value = colon < 0 ? "" : line.slice(colon + 1);
    if (value.startsWith(" ")) value = value.slice(1);
    this.field(colon < 0 ? line : line.slice(0, colon), value);
  }

  private pendingID: string | undefined;

  private field(name: string, value: string): void {
    switch (name) {
      case "event":
        this.event = value;
        break;
      case "data":
        this.data.push(value);
        break;
      case "id":
        if (!value.includes("\0")) this.pendingID = value;
        break;
      case "retry":
        if (/^[0-9]{1,9}$/.test(value)) this.handler.retry?.(Number(value));
        break;
    }
  }

  private dispatch(): void {
    if (this.pendingID !== undefined) this.id = this.pendingID;
    const { event, data } = this;
    this.event = "";
    this.data = [];
    this.pendingID = undefined;
    this.length = 0;
    if (data.length > 0) this.handler.frame({ event: event || "message", data: data.join("\n"), id: this.id });
  }
}
