// The events of all runs of a tenant, one after another, with a cursor each.

import { Backoff, type BackoffOptions, sleep } from "./backoff.js";
import type { Credentials } from "./credentials.js";
import { ConnectionError, ProtocolError, ServerError, refusal } from "./errors.js";
import { type AgentEvent, parseEvent } from "./event.js";
import type { Fetch } from "./fetch.js";
import { eachField } from "./json.js";

/** Which events of all runs, and from where on. */
export interface TapOptions {
  /** By name, or with * at the end. Default: all. */
  types?: readonly string[];
  /** Go on after the record that had it. */
  cursor?: string;
  /** The server keeps the place under this name: without a cursor the tap goes on after what was acknowledged. */
  name?: string;
  /** Without a place: "all" (default), "new", or an RFC 3339 time. */
  from?: string;
  signal?: AbortSignal;
}

/** Events that are kept nowhere. */
export interface TapGap {
  readonly run_id?: string;
  readonly first_seq?: number;
  readonly last_seq?: number;
  readonly partition?: number;
  readonly reason: string;
}

/** An event or a gap, or neither: a place alone; and the cursor after it. */
export interface TapRecord {
  readonly cursor: string;
  readonly event?: AgentEvent;
  readonly gap?: TapGap;
}

/** What a tap stands on. */
export interface TapConfig {
  readonly url: string;
  readonly credentials: Credentials;
  readonly fetch: Fetch;
  readonly backoff?: BackoffOptions | undefined;
  /** Milliseconds without a byte after which a connection is given up. The server shows a sign of life every 15 s. */
  readonly idle: number;
}

/** Yields records over as many connections as it takes, until the signal ends it. */
export async function* tapEvents(config: TapConfig, o: TapOptions): AsyncGenerator<TapRecord, void, void> {
  const backoff = new Backoff(config.backoff);
  // After the first record the cursor goes alone: with the name it would acknowledge what the caller has perhaps not dealt with.
  let at: TapOptions = o;
  for (let renewed = false; ; ) {
    let error: Error;
    try {
      for await (const record of connect(config, at)) {
        renewed = false;
        backoff.reset();
        const { name: _, ...rest } = o;
        at = { ...rest, cursor: record.cursor };
        yield record;
      }
      error = new ConnectionError("the stream has ended");
    } catch (e) {
      o.signal?.throwIfAborted();
      error = e instanceof Error ? e : new ConnectionError(String(e));
    }
    if (error instanceof ProtocolError) throw error;
    if (error instanceof ServerError) {
      if (error.unauthorized && !renewed && (await config.credentials.refused(config.credentials.used))) {
        renewed = true;
        continue;
      }
      if (!error.passing) throw error;
    }
    const ms = backoff.next(error instanceof ServerError ? error.retryAfter : 0);
    if (ms === undefined) throw error;
    await sleep(ms, o.signal);
  }
}

/** Yields the records of one connection. */
async function* connect(config: TapConfig, o: TapOptions): AsyncGenerator<TapRecord, void, void> {
  const url = new URL(config.url);
  const query = { types: o.types?.join(","), cursor: o.cursor, tap: o.name, from: o.from };
  for (const [name, value] of Object.entries(query)) if (value !== undefined && value !== "") url.searchParams.set(name, value);
  const cut = new AbortController();
  const stop = () => cut.abort(o.signal?.reason);
  if (o.signal?.aborted) stop();
  o.signal?.addEventListener("abort", stop, { once: true });
  let timer: ReturnType<typeof setTimeout> | undefined;
  const wait = () => {
    clearTimeout(timer);
    timer = setTimeout(() => cut.abort(new ConnectionError("nothing came")), config.idle);
  };
  try {
    wait();
    const headers = { Accept: "application/x-ndjson", ...(await config.credentials.headers()) };
    const res = await config.fetch(url.href, { headers, signal: cut.signal, cache: "no-store" });
    if (res.status !== 200) throw await refusal(res);
    if (res.body === null) throw new ProtocolError("the answer has no body");
    const reader = res.body.getReader();
    const text = new TextDecoder();
    for (let rest = ""; ; ) {
      wait();
      const { done, value } = await reader.read();
      clearTimeout(timer); // a caller may take its time
      if (done) return; // what has no line feed was cut
      rest += text.decode(value, { stream: true });
      const lines = rest.split("\n");
      rest = lines.pop() ?? "";
      for (const line of lines) if (line !== "") yield recordOf(line);
    }
  } finally {
    clearTimeout(timer);
    o.signal?.removeEventListener("abort", stop);
    cut.abort();
  }
}

/** Reads a line. The event keeps numbers as they are. */
function recordOf(line: string): TapRecord {
  const fields = new Map<string, string>();
  try {
    eachField(line, (name, raw) => fields.set(name, raw));
  } catch {
    throw new ProtocolError(`a line is no record: ${line.slice(0, 80)}`);
  }
  const cursor: unknown = JSON.parse(fields.get("cursor") ?? "null");
  if (typeof cursor !== "string" || cursor === "") throw new ProtocolError(`a record has no cursor: ${line.slice(0, 80)}`);
  const event = fields.get("event");
  const gap = fields.get("gap");
  return { cursor, ...(event !== undefined && { event: parseEvent(event) }), ...(gap !== undefined && { gap: JSON.parse(gap) as TapGap }) };
}
