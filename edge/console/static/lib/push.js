// What the transports of the browser have in common: they push, they cannot set headers, and they do
// not say why they failed.
import { ConnectionError, refusal } from "./errors.js";
import { quick, watched } from "./fetch.js";
import { Queue } from "./queue.js";
import { streamURL } from "./stream.js";
/** Runs one connection that pushes: its address with cursor and ticket, its queue, its watchdog. */
export async function* pushed(c, a, open) {
    const url = streamURL(c.url, a.cursor, a.view);
    if (c.ticket !== undefined)
        url.searchParams.set("ticket", await c.ticket());
    a.signal?.throwIfAborted();
    const queue = new Queue();
    let received = 0;
    let opened = false;
    let paused = false;
    let timer;
    const alive = () => {
        clearTimeout(timer);
        timer = setTimeout(() => finish({ error: new ConnectionError(`no sign of life in ${a.watchdog} ms`) }), a.watchdog);
    };
    const finish = (end) => {
        clearTimeout(timer);
        queue.finish(end);
        connection?.close();
    };
    const stop = () => finish({ error: a.signal.reason });
    let connection;
    alive();
    a.signal?.addEventListener("abort", stop, { once: true });
    try {
        connection = open(url, {
            opened: () => ((opened = true), alive(), void queue.push({ open: true }, 0)),
            message: (line) => {
                alive();
                received++;
                if (queue.push({ line }, line.length))
                    return;
                if (connection?.pause)
                    (paused = true), connection.pause(), clearTimeout(timer);
                else
                    finish({ error: new ConnectionError("the reader is too slow for a connection that cannot wait") });
            },
            alive,
            complete: () => finish({ value: "ended" }),
            failed: (e) => finish({ error: e ?? new ConnectionError("the connection broke") }),
        });
        for (;;) {
            const r = await queue.take();
            if ("value" in r)
                return received === 0 ? "over" : "ended";
            yield* r.items;
            if (paused)
                (paused = false), connection.resume?.(), alive();
        }
    }
    catch (e) {
        if (!opened && e instanceof ConnectionError && !a.signal?.aborted) {
            if (await over(c, a))
                return "over";
        }
        throw e;
    }
    finally {
        clearTimeout(timer);
        a.signal?.removeEventListener("abort", stop);
        connection?.close();
    }
}
/**
 * Asks by HTTP what a connection was refused for, which browsers hide. True: the run is over. A
 * refusal is thrown; when there is none, the connection simply failed.
 */
async function over(c, a) {
    const url = streamURL(c.url, a.cursor, a.view).href;
    const cut = new AbortController();
    const stop = () => cut.abort(a.signal?.reason);
    a.signal?.addEventListener("abort", stop, { once: true });
    let res;
    try {
        const headers = await c.credentials.headers();
        res = await watched({ watchdog: quick }, cut, () => c.fetch(url, { method: "HEAD", headers, cache: "no-store", signal: cut.signal }));
    }
    catch {
        return false; // no better known than before
    }
    finally {
        a.signal?.removeEventListener("abort", stop);
    }
    if (res.status === 204)
        return true;
    if (res.status !== 200)
        throw await refusal(res);
    return false;
}
