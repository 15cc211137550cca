// What the transports of the browser have in common: they push, they cannot set headers, and they do
// not say why they failed.

import { ConnectionError, refusal } from "./errors.js";
import { type Fetch, quick, watched } from "./fetch.js";
import type { Credentials } from "./credentials.js";
import { Queue } from "./queue.js";
import { type Attempt, type Message, streamURL } from "./stream.js";

/** What a connection that pushes needs. */
export interface PushConfig {
  /** http(s) address of the stream. */
  readonly url: string;
  readonly credentials: Credentials;
  readonly fetch: Fetch;
  /** Gives a ticket for one connection. Absent: none is needed. */
  readonly ticket?: (() => Promise<string>) | undefined;
}

/** How a push connection is fed and closed. */
export interface Pushed {
  /** Ends the connection; nothing may be pushed afterwards. */
  close(): void;
  /** Holds incoming messages back, where that is possible. */
  pause?(): void;
  resume?(): void;
}

/** What the events of a connection are told to. */
export interface PushSink {
  opened(): void;
  message(line: string): void;
  /** A sign of life that is no message. */
  alive(): void;
  /** The stream is complete. */
  complete(): void;
  /** The connection is over: why, where it is known. */
  failed(error?: Error): void;
}

/** Runs one connection that pushes: its address with cursor and ticket, its queue, its watchdog. */
export async function* pushed(c: PushConfig, a: Attempt, open: (url: URL, sink: PushSink) => Pushed): AsyncGenerator<Message, "ended" | "over", void> {
  const url = streamURL(c.url, a.cursor, a.view);
  if (c.ticket !== undefined) url.searchParams.set("ticket", await c.ticket());
  a.signal?.throwIfAborted();
  const queue = new Queue<Message, "ended">();
  let received = 0;
  let opened = false;
  let paused = false;
  let timer: ReturnType<typeof setTimeout> | undefined;
  const alive = () => {
    clearTimeout(timer);
    timer = setTimeout(() => finish({ error: new ConnectionError(`no sign of life in ${a.watchdog} ms`) }), a.watchdog);
  };
  const finish = (end: { value: "ended" } | { error: Error }) => {
    clearTimeout(timer);
    queue.finish(end);
    connection?.close();
  };
  const stop = () => finish({ error: a.signal!.reason as Error });
  let connection: Pushed | undefined;
  alive();
  a.signal?.addEventListener("abort", stop, { once: true });
  try {
    connection = open(url, {
      opened: () => ((opened = true), alive(), void queue.push({ open: true }, 0)),
      message: (line) => {
        alive();
        received++;
        if (queue.push({ line }, line.length)) return;
        if (connection?.pause) (paused = true), connection.pause(), clearTimeout(timer);
        else finish({ error: new ConnectionError("the reader is too slow for a connection that cannot wait") });
      },
      alive,
      complete: () => finish({ value: "ended" }),
      failed: (e) => finish({ error: e ?? new ConnectionError("the connection broke") }),
    });
    for (;;) {
      const r = await queue.take();
      if ("value" in r) return received === 0 ? "over" : "ended";
      yield* r.items;
      if (paused) (paused = false), connection.resume?.(), alive();
    }
  } catch (e) {
    if (!opened && e instanceof ConnectionError && !a.signal?.aborted) {
      if (await over(c, a)) return "over";
    }
    throw e;
  } finally {
    clearTimeout(timer);
    a.signal?.removeEventListener("abort", stop);
    connection?.close();
  }
}

/**
 * Asks by HTTP what a connection was refused for, which browsers hide. True: the run is over. A
 * refusal is thrown; when there is none, the connection simply failed.
 */
async function over(c: PushConfig, a: Attempt): Promise<boolean> {
  const url = streamURL(c.url, a.cursor, a.view).href;
  const cut = new AbortController();
  const stop = () => cut.abort(a.signal?.reason);
  a.signal?.addEventListener("abort", stop, { once: true });
  let res: Response;
  try {
    const headers = await c.credentials.headers();
    res = await watched({ watchdog: quick }, cut, () => c.fetch(url, { method: "HEAD", headers, cache: "no-store", signal: cut.signal }));
  } catch {
    return false; // no better known than before
  } finally {
    a.signal?.removeEventListener("abort", stop);
  }
  if (res.status === 204) return true;
  if (res.status !== 200) throw await refusal(res);
  return false;
}
