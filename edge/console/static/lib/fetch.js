// Server-sent events over fetch: headers can be set, statuses be seen, and reading waits for the reader.
import { ConnectionError, ProtocolError, lastWord, readProblem, refusal } from "./errors.js";
import { SSEParser } from "./sse.js";
import { streamURL } from "./stream.js";
/** Connects with fetch and a bearer token. */
export class FetchTransport {
    url;
    credentials;
    fetch;
    constructor(url, credentials, fetch) {
        this.url = url;
        this.credentials = credentials;
        this.fetch = fetch;
    }
    used = "";
    refused() {
        return this.credentials.refused(this.used);
    }
    async *connect(a) {
        const cut = new AbortController();
        const stop = () => cut.abort(a.signal?.reason);
        if (a.signal?.aborted)
            stop();
        a.signal?.addEventListener("abort", stop, { once: true });
        try {
            const headers = { Accept: "text/event-stream", ...(await this.credentials.headers()) };
            this.used = this.credentials.used;
            const url = streamURL(this.url, a.cursor, a.view).href;
            const res = await watched(a, cut, () => this.fetch(url, { headers, signal: cut.signal, cache: "no-store" }));
            if (res.status === 204)
                return "over";
            if (res.status !== 200)
                throw await refusal(res);
            if (!/^text\/event-stream\b/i.test(res.headers.get("Content-Type") ?? "") || res.body === null) {
                throw new ProtocolError(`the answer is ${res.headers.get("Content-Type")}, not an event stream`);
            }
            yield { open: true };
            return yield* this.read(a, cut, res.body.getReader());
        }
        finally {
            a.signal?.removeEventListener("abort", stop);
            cut.abort();
        }
    }
    async *read(a, cut, reader) {
        let out = [];
        let last;
        const parser = new SSEParser({
            frame: (f) => {
                if (f.event === "stream.error")
                    last ??= lastWordOf(f);
                else if (last === undefined)
                    out.push({ line: f.data });
            },
            retry: (ms) => out.push({ hint: ms }),
        });
        for (;;) {
            const { done, value } = await watched(a, cut, () => reader.read());
            if (done)
                return "ended";
            parser.push(value);
            const ready = out;
            out = [];
            yield* ready;
            if (last !== undefined)
                throw last;
        }
    }
}
/** The error that a stream.error frame holds. */
export function lastWordOf(f) {
    const problem = readProblem(f.data);
    return problem === undefined ? new ConnectionError("the stream ended with an error") : lastWord(problem);
}
/**
 * Milliseconds after which a small request counts as lost that a connection needs first. It may have been sent on a connection that died
 * while the page was stopped; the next one is sent on another.
 */
export const quick = 5_000;
/** Runs one wait; the connection is cut when it takes longer than the watchdog allows. */
export async function watched(a, cut, wait) {
    const timer = setTimeout(() => cut.abort(new ConnectionError(`no sign of life in ${a.watchdog} ms`)), a.watchdog);
    try {
        return await wait();
    }
    catch (e) {
        throw cut.signal.aborted && cut.signal.reason instanceof Error ? cut.signal.reason : e;
    }
    finally {
        clearTimeout(timer);
    }
}
