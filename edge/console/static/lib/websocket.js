// The stream over WebSocket: text frames, one event each, subprotocol koder-agent-stream-v1.
import { ConnectionError, lastWord } from "./errors.js";
import { pushed } from "./push.js";
/** The subprotocol that is offered. */
export const subprotocol = "koder-agent-stream-v1";
/** Connects with a WebSocket. A browser cannot set headers on it: credentials travel as one-use tickets. */
export class WebSocketTransport {
    config;
    socket;
    constructor(config, socket) {
        this.config = config;
        this.socket = socket;
    }
    refused() {
        return this.config.credentials.refused(this.config.credentials.used);
    }
    connect(a) {
        return pushed(this.config, a, (url, sink) => {
            url.protocol = url.protocol === "https:" ? "wss:" : "ws:";
            return open(new this.socket(url.href, subprotocol), sink);
        });
    }
}
function open(ws, sink) {
    ws.addEventListener("open", () => sink.opened());
    ws.addEventListener("message", (e) => {
        if (typeof e.data === "string")
            sink.message(e.data);
        else
            sink.failed(new ConnectionError("a binary message"));
    });
    ws.addEventListener("error", () => { }); // close follows, and says more
    ws.addEventListener("close", (e) => {
        if (e.code === 1000)
            sink.complete();
        else
            sink.failed(closeError(e.code, e.reason));
    });
    ws.on?.("ping", () => sink.alive());
    return {
        close: () => (ws.terminate ? ws.terminate() : ws.close()),
        ...(ws.pause && ws.resume ? { pause: () => ws.pause(), resume: () => ws.resume() } : {}),
    };
}
/** The server's reasons begin with its code; 1006 is a connection that was cut. */
function closeError(code, reason) {
    const word = /^[A-Z][A-Z0-9]*(-[A-Z0-9]+)*/.exec(reason)?.[0];
    if (word === undefined)
        return new ConnectionError(`closed with ${code}${reason ? ": " + reason : ""}`);
    return lastWord({ code: word, message: `closed with ${code}` });
}
