// Server-sent events over fetch: headers can be set, statuses be seen, and reading waits for the reader.

import type { Credentials } from "./credentials.js";
import { ConnectionError, ProtocolError, lastWord, readProblem, refusal } from "./errors.js";
import { type SSEFrame, SSEParser } from "./sse.js";
import { type Attempt, type Message, type Transport, streamURL } from "./stream.js";

/** fetch, or something like it. */
export type Fetch = (input: string, init: RequestInit) => Promise<Response>;

/** Connects with fetch and a bearer token. */
export class FetchTransport implements Transport {
  constructor(
    private readonly url: string,
    private readonly credentials: Credentials,
    private readonly fetch: Fetch,
  ) {}

  private used = "";

  refused(): Promise<boolean> {
    return this.credentials.refused(this.used);
  }

  async *connect(a: Attempt): AsyncGenerator<Message, "ended" | "over", void> {
    const cut = new AbortController();
    const stop = () => cut.abort(a.signal?.reason);
    if (a.signal?.aborted) stop();
    a.signal?.addEventListener("abort", stop, { once: true });
    try {
      const headers = { Accept: "text/event-stream", ...(await this.credentials.headers()) };
      this.used = this.credentials.used;
      const url = streamURL(this.url, a.cursor, a.view).href;
      const res = await watched(a, cut, () => this.fetch(url, { headers, signal: cut.signal, cache: "no-store" }));
      if (res.status === 204) return "over";
      if (res.status !== 200) throw await refusal(res);
      if (!/^text\/event-stream\b/i.test(res.headers.get("Content-Type") ?? "") || res.body === null) {
        throw new ProtocolError(`the answer is ${res.headers.get("Content-Type")}, not an event stream`);
      }
      yield { open: true };
      return yield* this.read(a, cut, res.body.getReader());
    } finally {
      a.signal?.removeEventListener("abort", stop);
      cut.abort();
    }
  }

  private async *read(a: Attempt, cut: AbortController, reader: ReadableStreamDefaultReader<Uint8Array>): AsyncGenerator<Message, "ended", void> {
    let out: Message[] = [];
    let last: Error | undefined;
    const parser = new SSEParser({
      frame: (f) => {
        if (f.event === "stream.error") last ??= lastWordOf(f);
        else if (last === undefined) out.push({ line: f.data });
      },
      retry: (ms) => out.push({ hint: ms }),
    });
    for (;;) {
      const { done, value } = await watched(a, cut, () => reader.read());
      if (done) return "ended";
      parser.push(value);
      const ready = out;
      out = [];
      yield* ready;
      if (last !== undefined) throw last;
    }
  }
}

/** The error that a stream.error frame holds. */
export function lastWordOf(f: Pick<SSEFrame, "data">): Error {
  const problem = readProblem(f.data);
  return problem === undefined ? new ConnectionError("the stream ended with an error") : lastWord(problem);
}

/**
 * Milliseconds after which a small request counts as lost that a connection needs first. It may have been sent on a connection that died
 * while the page was stopped; the next one is sent on another.
 */
export const quick = 5_000;

/** Runs one wait; the connection is cut when it takes longer than the watchdog allows. */
export async function watched<T>(a: Pick<Attempt, "watchdog">, cut: AbortController, wait: () => Promise<T>): Promise<T> {
  const timer = setTimeout(() => cut.abort(new ConnectionError(`no sign of life in ${a.watchdog} ms`)), a.watchdog);
  try {
    return await wait();
  } catch (e) {
    throw cut.signal.aborted && cut.signal.reason instanceof Error ? cut.signal.reason : e;
  } finally {
    clearTimeout(timer);
  }
}
