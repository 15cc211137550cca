// The HTTP API of one server.

import { Backoff, type BackoffOptions, sleep } from "./backoff.js";
import type { RunState } from "./catalogue.js";
import { Credentials, type TokenSource } from "./credentials.js";
import { ConnectionError, ServerError, refusal } from "./errors.js";
import { type AgentEvent, type NewEvent, formatEvent, parseEvent } from "./event.js";
import { type EventSourceConstructor, EventSourceTransport } from "./eventsource.js";
import { type Fetch, FetchTransport, quick } from "./fetch.js";
import { eachField, elements, stringify } from "./json.js";
import { Publisher } from "./publisher.js";
import type { PushConfig } from "./push.js";
import { type Item, type Transport, type WatchOptions, follow } from "./stream.js";
import type { Snapshot } from "./snapshot.js";
import { parseSnapshot } from "./snapshot.js";
import { type TapOptions, type TapRecord, tapEvents } from "./tap.js";
import { ownTraceparent } from "./trace.js";
import { type WebSocketConstructor, WebSocketTransport } from "./websocket.js";
import { type Answer as WorkAnswer, type WorkOptions, work } from "./worker.js";

/** Which server, and as whom. */
export interface ClientOptions {
  /** Address of the server, with or without a path. */
  url: string;
  /** A bearer token, or a function that gives one; it is called again when the last one has expired. */
  token?: TokenSource;
  fetch?: Fetch;
  /** For transport "websocket" where there is no global one (Node before 22): the package ws. */
  WebSocket?: WebSocketConstructor;
  /** For transport "eventsource" where there is no global one. */
  EventSource?: EventSourceConstructor;
  /** For requests that are no streams. By default six attempts. */
  backoff?: BackoffOptions;
  /** Milliseconds that a request that is no stream may take. Default 30 000. */
  timeout?: number;
  /**
   * The W3C traceparent that a request is sent with, which the server keeps with what it brings; called for each. Default: that of
   * OpenTelemetry's active span, unless an instrumentation of fetch adds it.
   */
  traceparent?: () => string | undefined;
}

/** What carries a watch. */
export interface TransportOptions {
  /** Default "fetch", which alone sees statuses, sets headers and waits for its reader. */
  transport?: "fetch" | "websocket" | "eventsource";
  /** For "eventsource": custom types that the run may hold. */
  customTypes?: readonly string[];
  /** For "websocket" and "eventsource": gives a one-use ticket. Default: createTicket, when the client has a token. */
  ticket?: () => Promise<string>;
}

/** The answer to an append or a command. */
export interface Receipt {
  readonly first_seq: number;
  readonly last_seq: number;
  /** The request was a repeat: this is the answer to the first. */
  readonly replayed: boolean;
}

/** One page request of a run's events. */
export interface EventsQuery {
  after?: number;
  before?: number;
  limit?: number;
  types?: readonly string[];
  child?: readonly string[];
  order?: "asc" | "desc";
}

/** What is known of a run. Fields that a server adds are kept. */
export interface RunInfo {
  readonly run_id: string;
  readonly state: RunState;
  readonly reason?: string | null;
  readonly last_seq?: number;
  readonly started_at?: string | null;
  readonly updated_at?: string | null;
  /** null while the run goes on. */
  readonly ended_at?: string | null;
  /** In lists: what the run waits for; null for nothing. */
  readonly waits_for?: "answer" | "approval" | "resume" | null;
  /** In lists: when the oldest question was asked that nobody has answered. */
  readonly asked_at?: string | null;
  readonly waits_since?: string | null;
  /** In lists: null when it has none. So is `agent`, the agent's id. */
  readonly title?: string | null;
  /** In lists: first words of its first message, by which a run without a title is shown; null when they are not known. */
  readonly opening?: string | null;
  /** In lists. */
  readonly tags?: readonly string[];
  /** In lists: null when it has none, or one that is too large for a list. */
  readonly metadata?: Readonly<Record<string, unknown>> | null;
  readonly agent?: string | null;
  /** In lists: of the newest message that has ended and names one; null when that is not known. */
  readonly model?: string | null;
  /** In lists: what providers reported; null when none did. */
  readonly cost_usd?: number | null;
  /** Models of messages whose cost is not known, which `cost_usd` lacks. */
  readonly unpriced_models?: readonly string[];
  readonly [field: string]: unknown;
}

/** A page of runs; `next_cursor` asks for the one behind it, null when there is none. */
export interface RunsPage {
  readonly runs: readonly RunInfo[];
  readonly next_cursor: string | null;
}

/** Which runs. Times are RFC 3339. */
export interface RunsQuery {
  state?: readonly RunState[];
  since?: string;
  until?: string;
  /** Only runs that wait for somebody. */
  waits?: boolean;
  /** Words, all of which are in id, title, agent, model, tags or the first words of the first message. */
  q?: string;
  /** Exactly, as are tag, agent and model. */
  title?: string;
  tag?: string;
  agent?: string;
  model?: string;
  /** In the reason. */
  reason?: string;
  order?: "started" | "updated" | "duration" | "events";
  direction?: "desc" | "asc";
  limit?: number;
  cursor?: string;
}

/** What messages have used, and what that has cost by the prices of now. */
export interface Cost {
  /** Of the message.end in the run; absent where it is of several messages. */
  readonly seq?: number;
  /** null: the run itself, or all of them. */
  readonly child_id: string | null;
  /** UTC, YYYY-MM-DD; null: several. */
  readonly day: string | null;
  /** null: not known, or several. */
  readonly model: string | null;
  readonly messages: number;
  /** Messages that have used something, and whose cost is not known. */
  readonly unpriced_messages: number;
  /** Without those of a cache. */
  readonly input_tokens: number;
  readonly output_tokens: number;
  readonly cache_read_tokens: number;
  readonly cache_write_tokens: number;
  /** Of the messages of which it is known; null: of none. */
  readonly cost_usd: number | null;
}

/** A page of costs; `next_cursor` asks for the one behind it, null when there is none. */
export interface CostsPage {
  readonly costs: readonly Cost[];
  readonly next_cursor: string | null;
}

/** By message, in the order of the run, or by child, the run itself first. `limit` is at most 1,000. */
export interface CostsQuery {
  by?: "message" | "child";
  limit?: number;
  cursor?: string;
}

/** The commands, as their paths name them. */
export type CommandName = "approve_plan" | "reject_plan" | "pause" | "resume" | "redirect" | "cancel" | "answer" | "messages" | "update";

/** By what people find a run. */
export interface Description {
  /** At most 512 characters. */
  title?: string;
  /** At most 32 of 1 to 64 characters, without commas. */
  tags?: readonly string[];
  /** At most 16 strings of 512 characters, with names of 64. */
  metadata?: Readonly<Record<string, string>>;
}

/** How a request that writes is made repeatable. */
export interface WriteOptions {
  /** 1 to 255 printable ASCII characters. Default: a random one, so that repeats after a cut are safe. */
  idempotencyKey?: string;
  signal?: AbortSignal;
  /** With append: that of a worker's task; see work. */
  lease?: string;
  /** With createRun and append: describes the run, if it begins with this request. */
  about?: Description;
  /** The W3C traceparent that the server keeps with what is written. Default: what the client's option of that name gives. */
  traceparent?: string | undefined;
}

/** What the server says of content that it keeps with a run. */
export interface BlobInfo {
  /** For the payload of a tool.end; the same for the same content. */
  readonly blob_ref: string;
  readonly bytes: number;
  /** As it was sent first. */
  readonly content_type: string;
}

interface Call {
  method: "GET" | "POST" | "PUT";
  path: string;
  query?: Record<string, string | number | boolean | undefined>;
  body?: string | Uint8Array;
  type?: string;
  key?: string;
  headers?: Record<string, string>;
  signal?: AbortSignal | undefined;
  readonly timeout?: number;
  readonly traceparent?: string | undefined;
}

interface Answer {
  readonly text: string;
  readonly bytes: Uint8Array;
  readonly headers: Headers;
}

/** Speaks to one server. It holds no connection beside those of its watches. */
export class Client {
  private readonly base: string;
  private readonly credentials: Credentials;
  private readonly fetch: Fetch;
  private readonly streams: Fetch; // fetch with the trace of whoever reads
  private readonly publisher: Publisher;

  constructor(private readonly o: ClientOptions) {
    this.base = new URL(o.url).href.replace(/\/+$/, "");
    this.credentials = new Credentials(o.token);
    // The page's fetch must be called as a function of the window, not of this object.
    this.fetch = o.fetch ?? ((input, init) => fetch(input, init));
    this.streams = (input, init) => this.fetch(input, { ...init, headers: { ...(init.headers as Record<string, string>), ...traced(this.traceparent()) } });
    this.publisher = new Publisher({
      alone: (run, lines, traceparent) => this.receipt(this.write(path(run, "events"), lines.join("\n") + "\n", "application/x-ndjson", { traceparent })),
      all: async (body, key, traceparent) => (await this.call(this.write("/v1/agent/events", body, "application/x-ndjson", { idempotencyKey: key, traceparent }))).text,
      key: randomKey,
      backoff: { first: 200, most: 5000, attempts: 5, ...o.backoff },
    });
  }

  /** The traceparent of a request that has none of its own; "" for none. */
  private traceparent(): string {
    return (this.o.traceparent === undefined ? ownTraceparent(new URL(this.base).origin) : this.o.traceparent()) ?? "";
  }

  /** Yields what a run says, over as many connections as it takes; see follow. */
  watch(run: string, o: WatchOptions & TransportOptions = {}): AsyncGenerator<Item, void, void> {
    return follow(this.transport(run, o), o);
  }

  private transport(run: string, o: TransportOptions): Transport {
    const url = this.base + path(run, "stream");
    if (o.transport === undefined || o.transport === "fetch") return new FetchTransport(url, this.credentials, this.streams);
    const ticket = o.ticket ?? (this.o.token === undefined ? undefined : async () => (await this.createTicket(run)).ticket);
    const config: PushConfig = { url, credentials: this.credentials, fetch: this.fetch, ticket };
    if (o.transport === "websocket") {
      return new WebSocketTransport(config, this.o.WebSocket ?? (globalThis.WebSocket as unknown as WebSocketConstructor));
    }
    return new EventSourceTransport(config, this.o.EventSource ?? (globalThis.EventSource as unknown as EventSourceConstructor), o.customTypes);
  }

  /** Yields the events of all runs of the tenant, those of a run in order, over as many connections as it takes. */
  tap(o: TapOptions = {}): AsyncGenerator<TapRecord, void, void> {
    return tapEvents({ url: `${this.base}/v1/agent/events/stream`, credentials: this.credentials, fetch: this.streams, backoff: this.o.backoff, idle: 60_000 }, o);
  }

  /** Says that everything up to a cursor of a named tap has been dealt with. The place on the server never moves back. */
  async acknowledge(name: string, cursor: string, signal?: AbortSignal): Promise<void> {
    await this.call({ method: "POST", path: `/v1/agent/taps/${encodeURIComponent(name)}`, body: JSON.stringify({ cursor }), type: "application/json", signal });
  }

  /** Begins a run. 409 RUN-EXISTS when it has events already. */
  createRun(run: { run_id?: string; planning_gate?: "required" | "preview" | "off" } & Description = {}, w: WriteOptions = {}): Promise<RunInfo> {
    return this.json(this.write("/v1/agent/runs", JSON.stringify(run), "application/json", w));
  }

  /**
   * Appends events; resolves when all of them are durable. After a cut it is repeated under the same key. What is appended to
   * several runs at a time goes into one request, where there is neither a key nor a signal.
   */
  async append(run: string, events: Iterable<NewEvent>, w: WriteOptions = {}): Promise<Receipt> {
    const list = Array.from(events);
    const lines = list.map(formatEvent);
    const own = list.some((e) => (e as { run_id?: string }).run_id !== undefined || (e.extra?.has("key") ?? false));
    const plain = w.idempotencyKey === undefined && w.signal === undefined && w.about === undefined && w.lease === undefined;
    if (lines.length > 0 && !own && plain) return this.publisher.append(run, lines, w.traceparent ?? this.traceparent());
    const body = lines.map((l) => l + "\n").join("");
    return this.receipt(this.write(path(run, "events"), body, "application/x-ndjson", w));
  }

  /** One page of a run's events, as they are stored. */
  async page(run: string, q: EventsQuery = {}, signal?: AbortSignal): Promise<AgentEvent[]> {
    return (await this.pageAndMore(run, q, signal)).events;
  }

  /** All events behind `after` that are stored by now, page by page. */
  async *events(run: string, q: Omit<EventsQuery, "order" | "before"> = {}, signal?: AbortSignal): AsyncGenerator<AgentEvent, void, void> {
    for (let after = q.after ?? 0, more = true; more; ) {
      const page = await this.pageAndMore(run, { ...q, after }, signal);
      yield* page.events;
      ({ next: after, more } = page);
    }
  }

  /** A page, where the next one begins, and whether there is one: a page may be empty where `types` or `child` hide much. */
  private async pageAndMore(run: string, q: EventsQuery, signal?: AbortSignal): Promise<{ events: AgentEvent[]; next: number; more: boolean }> {
    const query = { ...q, types: q.types?.join(","), child: q.child?.join(",") };
    const { text } = await this.call({ method: "GET", path: path(run, "events"), query, signal });
    const fields = new Map<string, string>();
    eachField(text, (name, raw) => fields.set(name, raw));
    const events = elements(fields.get("events") ?? "[]").map(parseEvent);
    return { events, next: Number(fields.get("next_after") ?? 0), more: fields.get("has_more") === "true" };
  }

  /** State, newest seq and times of a run. */
  run(run: string, signal?: AbortSignal): Promise<RunInfo> {
    return this.json({ method: "GET", path: path(run), signal });
  }

  /** One page of the tenant's runs, newest first, as they are persisted by now. */
  runsPage(q: RunsQuery = {}, signal?: AbortSignal): Promise<RunsPage> {
    return this.json({ method: "GET", path: "/v1/agent/runs", query: { ...q, state: q.state?.join(",") }, signal });
  }

  /** All of the tenant's runs, page by page. */
  async *runs(q: Omit<RunsQuery, "cursor"> = {}, signal?: AbortSignal): AsyncGenerator<RunInfo, void, void> {
    for (let cursor: string | null = ""; cursor !== null; ) {
      const page: RunsPage = await this.runsPage({ ...q, cursor }, signal);
      yield* page.runs;
      cursor = page.next_cursor;
    }
  }

  /** One page of what a run's messages, or its children, have cost, as far as they are persisted by now. */
  costsPage(run: string, q: CostsQuery = {}, signal?: AbortSignal): Promise<CostsPage> {
    return this.json({ method: "GET", path: path(run, "costs"), query: { ...q }, signal });
  }

  /** All costs of a run, page by page. */
  async *costs(run: string, q: Omit<CostsQuery, "cursor"> = {}, signal?: AbortSignal): AsyncGenerator<Cost, void, void> {
    for (let cursor: string | null = ""; cursor !== null; ) {
      const page: CostsPage = await this.costsPage(run, { ...q, cursor }, signal);
      yield* page.costs;
      cursor = page.next_cursor;
    }
  }

  /** What the tenant's runs have cost by UTC day and model, newest day first: by default of 30 days, at most of 366. */
  async dailyCosts(q: { since?: string; until?: string } = {}, signal?: AbortSignal): Promise<readonly Cost[]> {
    return (await this.json<CostsPage>({ method: "GET", path: "/v1/agent/costs", query: { ...q }, signal })).costs;
  }

  /** Everything up to the newest event, or up to `at`, summed up. To go on, watch with `after: snapshot.last_seq`. */
  async snapshot(run: string, signal?: AbortSignal, at?: number): Promise<Snapshot> {
    return parseSnapshot((await this.call({ method: "GET", path: path(run, "snapshot"), query: { at }, signal })).text);
  }

  /**
   * Keeps content with a run, which must exist; resolves when it is durable. It may be repeated: the same content is kept
   * once. An output that is too large for its event need not be put: the server moves it by itself.
   */
  putBlob(run: string, content: string | Uint8Array, contentType = "application/octet-stream", signal?: AbortSignal): Promise<BlobInfo> {
    return this.json({ method: "PUT", path: path(run, "blobs"), body: content, type: contentType, signal });
  }

  /** Content that is kept with a run, as it was put. */
  async blob(run: string, ref: string, signal?: AbortSignal): Promise<{ readonly content: Uint8Array; readonly contentType: string }> {
    const { bytes, headers } = await this.call({ method: "GET", path: path(run, "blobs", encodeURIComponent(ref)), signal });
    return { content: bytes, contentType: headers.get("Content-Type") ?? "" };
  }

  /** Sends a command, with `child_id` in its payload to a child. 409 when the run's state forbids it. */
  command(run: string, name: CommandName, payload: object = {}, w: WriteOptions = {}): Promise<Receipt> {
    return this.receipt(this.write(path(run, name), stringify(payload), "application/json", w));
  }

  approvePlan(run: string, planID?: string, w?: WriteOptions): Promise<Receipt> {
    return this.command(run, "approve_plan", planID === undefined ? {} : { plan_id: planID }, w);
  }

  rejectPlan(run: string, reason?: string, w?: WriteOptions): Promise<Receipt> {
    return this.command(run, "reject_plan", reason === undefined ? {} : { reason }, w);
  }

  pause(run: string, w?: WriteOptions): Promise<Receipt> {
    return this.command(run, "pause", {}, w);
  }

  resume(run: string, w?: WriteOptions): Promise<Receipt> {
    return this.command(run, "resume", {}, w);
  }

  redirect(run: string, instruction: string, w?: WriteOptions): Promise<Receipt> {
    return this.command(run, "redirect", { instruction }, w);
  }

  /** Asks the agent to stop. Leaving a stream never does. */
  cancel(run: string, reason?: string, w?: WriteOptions): Promise<Receipt> {
    return this.command(run, "cancel", reason === undefined ? {} : { reason }, w);
  }

  answer(run: string, requestID: string, answer: unknown, w?: WriteOptions): Promise<Receipt> {
    return this.command(run, "answer", { request_id: requestID, answer }, w);
  }

  /** Sends a message of the user, also to a run that is over: a follow-up. */
  send(run: string, content: string | readonly unknown[], w?: WriteOptions): Promise<Receipt> {
    return this.command(run, "messages", { content }, w);
  }

  /** Changes what is said of a run: what is named; null takes it away, also a key of metadata. Also of a run that is over. */
  update(run: string, said: { [F in keyof Description]: Description[F] | Readonly<Record<string, string | null>> | null }, w?: WriteOptions): Promise<Receipt> {
    return this.command(run, "update", said, w);
  }

  /** Makes a ticket: it opens one stream of this run, once, for about a minute. */
  createTicket(run: string, signal?: AbortSignal): Promise<{ readonly ticket: string; readonly [field: string]: unknown }> {
    return this.json({ method: "POST", path: path(run, "tickets"), signal, timeout: quick });
  }

  /**
   * Answers the sessions that people open, together with any number of other workers: each message is answered once.
   * It rejects with the signal's reason, or when the server refuses for good. See docs/workers.md.
   */
  work(answer: WorkAnswer, o: WorkOptions = {}): Promise<void> {
    return work(
      {
        open: (places, signal) => this.openWork(places, signal),
        append: (run, events, lease) => this.append(run, events, { lease }),
      },
      answer,
      o,
    );
  }

  private async openWork(places: number, signal: AbortSignal): Promise<ReadableStream<Uint8Array>> {
    for (let renewed = false; ; renewed = true) {
      const used = await this.credentials.headers();
      const init = { headers: { Accept: "text/event-stream", ...used }, signal, cache: "no-store" as const };
      const res = await this.streams(`${this.base}/v1/agent/work?places=${places}`, init);
      if (res.status === 200 && res.body !== null) return res.body;
      const error = await refusal(res);
      if (!error.unauthorized || renewed) throw error;
      if (!(await this.credentials.refused((used.Authorization ?? "").slice(7)))) throw error;
    }
  }

  private async receipt(c: Call): Promise<Receipt> {
    const { text, headers } = await this.call(c);
    const { first_seq, last_seq } = JSON.parse(text) as Receipt;
    return { first_seq, last_seq, replayed: headers.get("Idempotency-Replayed") === "true" };
  }

  private write(to: string, body: string, type: string, w: WriteOptions): Call {
    return { method: "POST", path: to, body, type, key: w.idempotencyKey ?? randomKey(), headers: { ...describe(w.about), ...leased(w.lease) }, signal: w.signal, traceparent: w.traceparent };
  }

  private async json<T>(c: Call): Promise<T> {
    const { text } = await this.call(c);
    return (text === "" ? {} : JSON.parse(text)) as T;
  }

  /** Sends a request until it is answered for good, and renews a refused token once. */
  private async call(c: Call): Promise<Answer> {
    const backoff = new Backoff({ first: 200, most: 5000, attempts: 5, ...this.o.backoff });
    const trace = traced(c.traceparent ?? this.traceparent()); // while the caller's span is active
    for (let renewed = false; ; ) {
      let error: Error;
      const used = await this.credentials.headers();
      try {
        return await this.attempt(c, { ...trace, ...used });
      } catch (e) {
        c.signal?.throwIfAborted();
        error = e instanceof Error ? e : new ConnectionError(String(e));
      }
      if (error instanceof ServerError) {
        if (error.unauthorized && !renewed && (await this.credentials.refused((used.Authorization ?? "").slice(7)))) {
          renewed = true;
          continue;
        }
        if (!error.passing) throw error;
      }
      const ms = backoff.next(error instanceof ServerError ? error.retryAfter : 0);
      if (ms === undefined) throw error;
      await sleep(ms, c.signal);
    }
  }

  private async attempt(c: Call, own: Record<string, string>): Promise<Answer> {
    const url = new URL(this.base + c.path);
    for (const [k, v] of Object.entries(c.query ?? {})) if (v !== undefined && v !== "") url.searchParams.set(k, String(v));
    const headers: Record<string, string> = { Accept: "application/json", ...c.headers, ...own };
    if (c.type !== undefined) headers["Content-Type"] = c.type;
    if (c.key !== undefined) headers["Idempotency-Key"] = c.key;
    const cut = new AbortController();
    const stop = () => cut.abort(c.signal?.reason);
    if (c.signal?.aborted) stop();
    c.signal?.addEventListener("abort", stop, { once: true });
    const timer = setTimeout(() => cut.abort(new ConnectionError("no answer in time")), Math.min(this.o.timeout ?? 30_000, c.timeout ?? Infinity));
    try {
      const init: RequestInit = { method: c.method, headers, signal: cut.signal, cache: "no-store" };
      if (c.body !== undefined) init.body = c.body as BodyInit;
      const res = await this.fetch(url.href, init);
      if (res.status < 200 || res.status > 299) throw await refusal(res);
      const bytes = new Uint8Array(await res.arrayBuffer());
      return { get text() { return new TextDecoder().decode(bytes); }, bytes, headers: res.headers };
    } finally {
      clearTimeout(timer);
      c.signal?.removeEventListener("abort", stop);
    }
  }
}

/** The path of a run's resource; the id cannot leave its place. */
function path(run: string, ...rest: string[]): string {
  return ["/v1/agent/runs", encodeURIComponent(run), ...rest].join("/");
}

/** The header of what a worker writes. */
function leased(lease: string | undefined): Record<string, string> {
  return lease === undefined ? {} : { "Agentstream-Lease": lease };
}

/** The header of a request in a trace; in small letters, so that an instrumentation of a browser's fetch puts its own in this place. */
function traced(traceparent: string): Record<string, string> {
  return traceparent === "" ? {} : { traceparent };
}

/** The headers that describe a run where it begins. */
function describe({ title, tags, metadata }: Description = {}): Record<string, string> {
  const headers: Record<string, string> = {};
  if (title !== undefined) headers["Agentstream-Run-Title"] = encodeURIComponent(title);
  if (tags !== undefined) headers["Agentstream-Run-Tags"] = tags.map(encodeURIComponent).join(",");
  if (metadata !== undefined) headers["Agentstream-Run-Metadata"] = Object.entries(metadata).map(([k, v]) => `${encodeURIComponent(k)}=${encodeURIComponent(v)}`).join(",");
  return headers;
}

/** A key that nobody else uses. crypto is missing in Node 18, randomUUID on pages that are not secure. */
function randomKey(): string {
  const bytes = new Uint8Array(16);
  const source = globalThis.crypto as Crypto | undefined;
  if (source !== undefined) source.getRandomValues(bytes);
  else bytes.forEach((_, i) => (bytes[i] = Math.floor(Math.random() * 256)));
  return "ts-" + Array.from(bytes, (b) => b.toString(16).padStart(2, "0")).join("");
}
