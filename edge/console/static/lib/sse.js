// The event stream format of the HTML standard, §9.2.6, read in pieces that are cut anywhere.
/** Where a frame stops growing, in UTF-16 units: a server that sends without end must not take the page with it. */
export const maxFrameLength = 128 << 20;
/**
 * An incremental parser. Lines end with CR, LF or CRLF; a byte order mark at the start is skipped;
 * a character may be cut between pieces. What a frame says counts only when its empty line has
 * arrived: a cursor from half a frame would skip the event in it. What is left at the end of the
 * stream is discarded with the parser.
 */
export class SSEParser {
    decoder = new TextDecoder("utf-8");
    handler;
    line = []; // pieces of the line that is still arriving
    length = 0; // of the frame so far
    afterCR = false; // a LF that comes next belongs to the CR before it
    data = [];
    event = "";
    id = "";
    constructor(handler) {
        this.handler = handler;
    }
    /** Takes the next piece. Frames that it completes are dispatched before it returns. */
    push(piece) {
        this.feed(this.decoder.decode(piece, { stream: true }));
    }
    feed(text) {
        let at = 0;
        if (this.afterCR && text.length > 0) {
            this.afterCR = false;
            if (text.charCodeAt(0) === 0x0a)
                at = 1;
        }
        let cr = text.indexOf("\r", at);
        let lf = text.indexOf("\n", at);
        while (cr >= 0 || lf >= 0) {
            const end = cr < 0 || (lf >= 0 && lf < cr) ? lf : cr;
            this.endLine(text.slice(at, end));
            at = end + 1;
            if (end === cr) {
                if (at === text.length)
                    this.afterCR = true;
                else if (text.charCodeAt(at) === 0x0a)
                    at++;
                cr = text.indexOf("\r", at);
            }
            if (lf >= 0 && lf < at)
                lf = text.indexOf("\n", at);
        }
        if (at < text.length) {
            this.grow(text.length - at);
            this.line.push(text.slice(at));
        }
    }
    grow(n) {
        this.length += n;
        if (this.length > maxFrameLength)
            throw new RangeError("server-sent event has no end");
    }
    endLine(rest) {
        this.grow(rest.length);
        let line = rest;
        if (this.line.length > 0) {
            this.line.push(rest);
            line = this.line.join("");
            this.line = [];
        }
        if (line === "")
            return this.dispatch();
        const colon = line.indexOf(":");
        if (colon === 0)
            return;
        let value = colon < 0 ? "" : line.slice(colon + 1);
        if (value.startsWith(" "))
            value = value.slice(1);
        this.field(colon < 0 ? line : line.slice(0, colon), value);
    }
    pendingID;
    field(name, value) {
        switch (name) {
            case "event":
                this.event = value;
                break;
            case "data":
                this.data.push(value);
                break;
            case "id":
                if (!value.includes("\0"))
                    this.pendingID = value;
                break;
            case "retry":
                if (/^[0-9]{1,9}$/.test(value))
                    this.handler.retry?.(Number(value));
                break;
        }
    }
    dispatch() {
        if (this.pendingID !== undefined)
            this.id = this.pendingID;
        const { event, data } = this;
        this.event = "";
        this.data = [];
        this.pendingID = undefined;
        this.length = 0;
        if (data.length > 0)
            this.handler.frame({ event: event || "message", data: data.join("\n"), id: this.id });
    }
}
