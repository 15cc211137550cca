// The events of all runs of a tenant, one after another, with a cursor each.
import { Backoff, sleep } from "./backoff.js";
import { ConnectionError, ProtocolError, ServerError, refusal } from "./errors.js";
import { parseEvent } from "./event.js";
import { eachField } from "./json.js";
/** Yields records over as many connections as it takes, until the signal ends it. */
export async function* tapEvents(config, o) {
    const backoff = new Backoff(config.backoff);
    // After the first record the cursor goes alone: with the name it would acknowledge what the caller has perhaps not dealt with.
    let at = o;
    for (let renewed = false;;) {
        let error;
        try {
            for await (const record of connect(config, at)) {
                renewed = false;
                backoff.reset();
                const { name: _, ...rest } = o;
                at = { ...rest, cursor: record.cursor };
                yield record;
            }
            error = new ConnectionError("the stream has ended");
        }
        catch (e) {
            o.signal?.throwIfAborted();
            error = e instanceof Error ? e : new ConnectionError(String(e));
        }
        if (error instanceof ProtocolError)
            throw error;
        if (error instanceof ServerError) {
            if (error.unauthorized && !renewed && (await config.credentials.refused(config.credentials.used))) {
                renewed = true;
                continue;
            }
            if (!error.passing)
                throw error;
        }
        const ms = backoff.next(error instanceof ServerError ? error.retryAfter : 0);
        if (ms === undefined)
            throw error;
        await sleep(ms, o.signal);
    }
}
/** Yields the records of one connection. */
async function* connect(config, o) {
    const url = new URL(config.url);
    const query = { types: o.types?.join(","), cursor: o.cursor, tap: o.name, from: o.from };
    for (const [name, value] of Object.entries(query))
        if (value !== undefined && value !== "")
            url.searchParams.set(name, value);
    const cut = new AbortController();
    const stop = () => cut.abort(o.signal?.reason);
    if (o.signal?.aborted)
        stop();
    o.signal?.addEventListener("abort", stop, { once: true });
    let timer;
    const wait = () => {
        clearTimeout(timer);
        timer = setTimeout(() => cut.abort(new ConnectionError("nothing came")), config.idle);
    };
    try {
        wait();
        const headers = { Accept: "application/x-ndjson", ...(await config.credentials.headers()) };
        const res = await config.fetch(url.href, { headers, signal: cut.signal, cache: "no-store" });
        if (res.status !== 200)
            throw await refusal(res);
        if (res.body === null)
            throw new ProtocolError("the answer has no body");
        const reader = res.body.getReader();
        const text = new TextDecoder();
        for (let rest = "";;) {
            wait();
            const { done, value } = await reader.read();
            clearTimeout(timer); // a caller may take its time
            if (done)
                return; // what has no line feed was cut
            rest += text.decode(value, { stream: true });
            const lines = rest.split("\n");
            rest = lines.pop() ?? "";
            for (const line of lines)
                if (line !== "")
                    yield recordOf(line);
        }
    }
    finally {
        clearTimeout(timer);
        o.signal?.removeEventListener("abort", stop);
        cut.abort();
    }
}
/** Reads a line. The event keeps numbers as they are. */
function recordOf(line) {
    const fields = new Map();
    try {
        eachField(line, (name, raw) => fields.set(name, raw));
    }
    catch {
        throw new ProtocolError(`a line is no record: ${line.slice(0, 80)}`);
    }
    const cursor = JSON.parse(fields.get("cursor") ?? "null");
    if (typeof cursor !== "string" || cursor === "")
        throw new ProtocolError(`a record has no cursor: ${line.slice(0, 80)}`);
    const event = fields.get("event");
    const gap = fields.get("gap");
    return { cursor, ...(event !== undefined && { event: parseEvent(event) }), ...(gap !== undefined && { gap: JSON.parse(gap) }) };
}
