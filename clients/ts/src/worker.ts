// Tasks of a worker: messages of sessions, each handed out with a lease under which it is answered.

import { Backoff, sleep } from "./backoff.js";
import type { Receipt } from "./client.js";
import { ConnectionError, ServerError } from "./errors.js";
import { type AgentEvent, type NewEvent, parseEvent } from "./event.js";
import { eachField, elements } from "./json.js";
import { SSEParser } from "./sse.js";

/** How a worker works. */
export interface WorkOptions {
  /** How many tasks it has at once, 1 to 256. Default 8. */
  places?: number;
  /** Ends the work: what is under way is given up, and answered by another worker from its beginning. */
  signal?: AbortSignal;
  /** Milliseconds of silence after which the connection is given up. Default 45 000: signs of life come every 15 s. */
  idle?: number;
  /** Is told of answers that fail. */
  failed?: (task: Task, error: unknown) => void;
}

/** Writes an answer. What it returns is the stop reason of the turn; nothing is "end_turn". An error fails the turn. */
export type Answer = (task: Task) => Promise<string | undefined | void>;

/** What the work needs of a client. */
export interface WorkPlace {
  open: (places: number, signal: AbortSignal) => Promise<ReadableStream<Uint8Array>>;
  append: (run: string, events: readonly NewEvent[], lease: string) => Promise<Receipt>;
}

interface Fields {
  readonly lease: string;
  readonly run_id: string;
  readonly turn_id: string;
  readonly once?: boolean;
  readonly redelivered?: boolean;
  readonly session?: Readonly<Record<string, unknown>>;
}

/** One turn of a session. The server has begun it; it ends when the answer returns. */
export class Task {
  readonly run: string;
  readonly turn: string;
  /** The run is over with this turn. */
  readonly once: boolean;
  /** Another worker may have begun with this. */
  readonly redelivered: boolean;
  /** What the session was created with. */
  readonly session: Readonly<Record<string, unknown>>;
  /** The reason of a cancellation, if there is one: the signal is aborted then, and nothing can be appended. */
  cancelled: string | undefined;
  private through: number;
  private cancelSeq = 0;
  private readonly stop = new AbortController();
  private readonly waiting: AgentEvent[] = [];
  private wake: (() => void) | undefined;

  constructor(
    private readonly f: Fields,
    /** A message, or the answers to what an earlier turn has asked. */
    readonly events: readonly AgentEvent[],
    private readonly to: WorkPlace,
  ) {
    this.run = f.run_id;
    this.turn = f.turn_id;
    this.once = f.once === true;
    this.redelivered = f.redelivered === true;
    this.session = f.session ?? {};
    this.through = events.at(-1)!.seq;
  }

  /** Ends when a person cancels, or another worker has the task. */
  get signal(): AbortSignal {
    return this.stop.signal;
  }

  /** The message's text. */
  get text(): string {
    const content = (this.events.at(-1)!.payload as { content?: unknown }).content;
    if (typeof content === "string") return content;
    if (!Array.isArray(content)) return "";
    const texts = content.map((b: { text?: unknown } | null) => (typeof b?.text === "string" ? b.text : ""));
    return texts.filter((t) => t !== "").join("\n");
  }

  /** Appends events of the turn; resolves when they are durable. */
  async append(...events: NewEvent[]): Promise<Receipt> {
    this.stop.signal.throwIfAborted();
    return this.send(events);
  }

  /** Waits for what is sent meanwhile, and deals with it: a message is not answered again. */
  async told(): Promise<AgentEvent> {
    for (;;) {
      this.stop.signal.throwIfAborted();
      const next = this.waiting.shift();
      if (next !== undefined) {
        this.through = Math.max(this.through, next.seq);
        return next;
      }
      await new Promise<void>((resolve) => (this.wake = resolve));
    }
  }

  private async send(events: readonly NewEvent[]): Promise<Receipt> {
    return this.to.append(this.run, events.map((e) => ({ turn_id: this.turn, ...e })), this.f.lease);
  }

  /** @internal */
  hear(event: AgentEvent): void {
    if (event.type === "command.cancel" && event.child_id == null) {
      const { reason } = event.payload as { reason?: unknown };
      this.cancelled = typeof reason === "string" ? reason : "";
      this.cancelSeq = event.seq;
      this.giveUp(new Error("cancelled"));
      return;
    }
    this.waiting.push(event);
    this.wake?.();
  }

  /** @internal */
  giveUp(reason: Error): void {
    this.stop.abort(reason);
    this.wake?.();
  }

  /** @internal Answers, and ends the turn in one pack with the mark of what was answered. */
  async work(answer: Answer): Promise<unknown> {
    let error: unknown;
    let stop = "end_turn";
    try {
      stop = (await answer(this)) ?? stop;
    } catch (e) {
      error = e;
    }
    if (this.signal.aborted && this.cancelled === undefined) return undefined; // another worker has it
    if (this.cancelled !== undefined) stop = "cancelled";
    else if (error !== undefined) stop = "error";
    const state = stop === "cancelled" ? "aborted" : stop === "error" ? "error" : "done";
    const why = error === undefined ? null : String(error instanceof Error ? error.message : error);
    const end: NewEvent[] = [
      { type: "commands.taken", payload: { through: Math.max(this.through, this.cancelSeq) } },
      { type: "turn.end", payload: { turn_id: this.turn, stop_reason: stop } },
    ];
    if (this.once) end.push({ type: "run.lifecycle", payload: { state, reason: this.cancelled || why } });
    await this.send(end);
    return stop === "error" ? error : undefined;
  }
}

/** Works until the signal ends, or the server refuses for good. */
export async function work(to: WorkPlace, answer: Answer, o: WorkOptions): Promise<void> {
  const backoff = new Backoff({ first: 200, most: 10_000 });
  for (;;) {
    o.signal?.throwIfAborted();
    let hint: number | undefined;
    try {
      await connection(to, answer, o, () => backoff.reset());
    } catch (e) {
      o.signal?.throwIfAborted();
      if (e instanceof ServerError && !e.passing) throw e;
      hint = e instanceof ServerError ? e.retryAfter : 0;
    }
    await sleep(backoff.next(hint) ?? 0, o.signal);
  }
}

/** Works over one connection. Its tasks end with it. */
async function connection(to: WorkPlace, answer: Answer, o: WorkOptions, opened: () => void): Promise<void> {
  const tasks = new Map<string, Task>();
  const cut = new AbortController();
  const stop = () => cut.abort(o.signal?.reason);
  o.signal?.addEventListener("abort", stop, { once: true });
  let timer: ReturnType<typeof setTimeout> | undefined;
  const alive = () => {
    clearTimeout(timer);
    timer = setTimeout(() => cut.abort(new ConnectionError("the server is silent")), o.idle ?? 45_000);
  };
  const parser = new SSEParser({ frame: (f) => receive(f.event, f.data) });
  const receive = (name: string, data: string) => {
    if (name !== "task" && name !== "command" && name !== "end") return;
    const fields = JSON.parse(data) as Fields;
    const raw = new Map<string, string>();
    eachField(data, (field, text) => raw.set(field, text));
    const task = tasks.get(fields.turn_id); // the turns of a session may have one lease
    if (name === "command") task?.hear(parseEvent(raw.get("event")!));
    else if (name === "end") task?.giveUp(new Error("another worker has the task"));
    if (name !== "task") return;
    const begun = new Task(fields, elements(raw.get("events")!).map(parseEvent), to);
    tasks.set(fields.turn_id, begun);
    void begun
      .work(answer)
      .catch((e: unknown) => e)
      .then((e) => {
        tasks.delete(fields.turn_id);
        if (e !== undefined) o.failed?.(begun, e);
      });
  };
  try {
    alive();
    const reader = (await to.open(o.places ?? 8, cut.signal)).getReader();
    opened();
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      alive();
      parser.push(value);
    }
  } finally {
    clearTimeout(timer);
    o.signal?.removeEventListener("abort", stop);
    cut.abort();
    for (const task of tasks.values()) task.giveUp(new ConnectionError("the connection of the worker has ended"));
  }
}
