// Watching a run over as many connections as it takes, whatever carries them.

import { Backoff, type BackoffOptions, sleep } from "./backoff.js";
import { ConnectionError, ProtocolError, ServerError } from "./errors.js";
import { type AgentEvent, finalStates, isFinal, parseEvent, unbundle } from "./event.js";
import { type Gap, Track } from "./track.js";
import { Sight, onWake } from "./wake.js";

/**
 * What watching yields: an event, or a gap. A gap is not an event and cannot be taken for one: the
 * type of `event` is undefined then, so that a reader has to say what it does about the loss.
 *
 * Deltas of several speakers that came together are yielded one by one and share id, ts, seq and
 * first_seq. `more` says that others of the same seq follow: whoever stores a cursor stores it where
 * there is no `more`.
 */
export type Item =
  | { readonly event: AgentEvent; readonly more?: true; readonly gap?: undefined }
  | { readonly gap: Gap; readonly more?: undefined; readonly event?: undefined };

/** Which part of a run, and in which detail. */
export interface View {
  /** Seq or id of the last event that the caller has. Absent: from the start. */
  after?: number | string;
  /** "full" gives every event of the log as it is; by default deltas are merged to at most ten a second. */
  detail?: "default" | "full";
  /** Children to show; "-" is the run itself. Absent: all. */
  child?: readonly string[];
  /** Show what is below the children too. */
  nested?: boolean;
  /** Types to show, such as "text.delta" or "tool.*". Absent: all. The end of the run is always shown. */
  types?: readonly string[];
  /** Let deltas of several speakers come together, ten times a second; watching takes them apart. Default: true, but with detail "full". */
  bundle?: boolean;
  /** Begin with a run.snapshot of everything so far, when there is no `after`. */
  snapshot?: boolean;
  /** Replay with the original timing, so many times faster. */
  speed?: number;
}

/** The state of a watch, for people. */
export type WatchState =
  | { readonly state: "connecting" | "open" | "hidden" | "over" }
  | { readonly state: "waiting"; readonly ms: number; readonly error: Error };

/** How watching behaves. */
export interface WatchOptions extends View {
  signal?: AbortSignal;
  backoff?: BackoffOptions;
  /** Milliseconds without a byte after which a connection counts as dead. Default 45 000, three keep-alives. */
  watchdog?: number;
  /**
   * Milliseconds after which a page that is out of sight gives its connection back. It goes on behind the last event when it is
   * shown. A browser has six connections to a server that speaks HTTP/1.1, and without this a seventh page waits for ever.
   * Default 30 000; Infinity keeps the connection. Outside of pages it means nothing.
   */
  hidden?: number;
  /**
   * What happens at a gap. "refetch" asks the server once more behind the last event before the gap,
   * and reports what is missing then too; "report" yields the gap at once. Default: "refetch" with
   * detail "full", where nothing may be missing; else "report", since a client that lags is spared deltas.
   */
  gaps?: "refetch" | "report";
  /** Is told about every gap, before it is yielded. */
  onGap?: (gap: Gap) => void;
  onState?: (state: WatchState) => void;
}

/** One thing that a connection says: that it is open, a reconnection hint in milliseconds, an event's line. */
export type Message = { readonly open: true } | { readonly hint: number } | { readonly line: string };

/** Where a connection begins and how it is given up. */
export interface Attempt {
  readonly cursor: string;
  readonly view: View;
  readonly watchdog: number;
  readonly signal: AbortSignal | undefined;
}

/**
 * One way to connect. It returns "ended" at a clean end and "over" when the server said that nothing
 * will come behind the cursor. It throws a ServerError for a refusal; anything else is a cut.
 * `refused` asks for another credential; it answers whether there will be one.
 */
export interface Transport {
  connect(attempt: Attempt): AsyncGenerator<Message, "ended" | "over", void>;
  refused(): Promise<boolean>;
}

/** Where the watcher is told to go next. */
type Next = { readonly pause: boolean; readonly error?: Error };

/**
 * Yields what follows the cursor, in order, each event once. It returns when the run is over and
 * the server has confirmed it; it throws what asking again cannot change, and the signal's reason.
 */
export async function* follow(transport: Transport, o: WatchOptions): AsyncGenerator<Item, void, void> {
  const w = new Watch(transport, o);
  const stop = onWake((sure, ms) => w.wake(sure, ms));
  const sight = new Sight(o.hidden ?? 30_000, () => w.leave());
  try {
    for (;;) {
      o.signal?.throwIfAborted();
      if (sight.lost) {
        o.onState?.({ state: "hidden" });
        await sight.back(o.signal);
      }
      const next = yield* w.once();
      if (next === undefined) return o.onState?.({ state: "over" });
      await w.pause(next);
    }
  } finally {
    stop();
    sight.stop();
  }
}

/** Why a connection is given up, or a pause, of a page that is shown again. */
const woken = new ConnectionError("the page was stopped and goes on");

class Watch {
  private readonly track: Track;
  private readonly backoff: Backoff;
  private readonly refetch: boolean;
  private asked = -1; // the position behind which the server was asked once more for what is missing
  private refusals = 0; // credentials in a row that were not taken
  private ended = false; // the last event is the end of the run
  private heard = 0; // when the connection said something last
  private now: AbortController | undefined; // ends what is under way: a connection, or a pause
  private pausing = false;

  constructor(private readonly transport: Transport, private readonly o: WatchOptions) {
    this.track = new Track(o.after);
    this.backoff = new Backoff(o.backoff);
    this.refetch = (o.gaps ?? (o.detail === "full" ? "refetch" : "report")) === "refetch";
  }

  /**
   * Ends a pause, and a connection that is dead: surely, or because the page was out of sight for so many milliseconds and it has said
   * nothing since. The next one goes on behind the last event.
   */
  wake(sure: boolean, ms: number): void {
    const silent = ms >= suspicious && Date.now() - this.heard >= ms;
    if (this.pausing || sure || silent) this.now?.abort(woken);
  }

  /** Gives the connection back, or ends the pause before the next one. */
  leave(): void {
    this.now?.abort(woken);
  }

  /** Runs what can be ended by wake or leave, and by the caller's signal. */
  private begin(): { signal: AbortSignal; done: () => void } {
    const now = (this.now = new AbortController());
    const { signal } = this.o;
    const stop = () => now.abort(signal!.reason);
    if (signal?.aborted) stop();
    signal?.addEventListener("abort", stop, { once: true });
    return { signal: now.signal, done: () => signal?.removeEventListener("abort", stop) };
  }

  /** Lives through one connection. undefined: the run is over. */
  async *once(): AsyncGenerator<Item, Next | undefined, void> {
    this.o.onState?.({ state: "connecting" });
    const before = this.track.cursor;
    const { signal, done } = this.begin();
    const connection = this.transport.connect({ cursor: this.track.cursor, view: this.o, watchdog: this.o.watchdog ?? 45_000, signal });
    let error: Error;
    try {
      const end = yield* this.read(connection);
      if (end === "over") return undefined;
      if (end === "ended" && this.ended) return { pause: this.track.cursor === before };
      if (end === "again") return { pause: false };
      error = new ConnectionError("stream ended before its run did");
    } catch (e) {
      this.o.signal?.throwIfAborted();
      if (signal.aborted) return { pause: false, error: woken };
      error = await this.judge(e);
    } finally {
      done();
      await connection.return("ended");
    }
    return { pause: !(error instanceof ServerError && error.unauthorized), error };
  }

  private async *read(c: AsyncGenerator<Message, "ended" | "over", void>): AsyncGenerator<Item, "ended" | "over" | "again", void> {
    for (;;) {
      const r = await c.next();
      if (r.done) return r.value;
      this.heard = Date.now();
      const m = r.value;
      if ("open" in m) this.o.onState?.({ state: "open" });
      else if ("hint" in m) this.backoff.suggest(m.hint);
      else if (yield* this.take(parse(m.line))) return "again";
    }
  }

  /** Takes an event to its place; true when the connection is to be begun anew behind the last one. */
  private async *take(event: AgentEvent): AsyncGenerator<Item, boolean, void> {
    if (event.type === "stream.gap") return false; // the numbers of the next event say it too
    const place = this.track.place(event);
    const at = this.track.seq ?? 0;
    switch (place.kind) {
      case "old":
        return false;
      case "overlap":
        if (this.asked === at) throw new ProtocolError(`event ${event.seq} begins before ${at + 1}, which is known`);
        this.asked = at;
        return true;
      case "gap":
        if (this.refetch && this.asked !== at) {
          this.asked = at;
          return true;
        }
        this.o.onGap?.(place.gap);
        yield { gap: place.gap };
    }
    this.track.advance(event);
    this.backoff.reset();
    this.refusals = 0;
    this.ended = isFinal(event) || (this.ended && !reopens(event)) || (event.type === "run.snapshot" && finalStates.has(String(event.payload.state)));
    const parts = apart(event);
    const last = parts.pop()!;
    for (const part of parts) yield { event: part, more: true };
    yield { event: last };
    return false;
  }

  /** Gives what watching can go on behind, and throws the rest. */
  private async judge(e: unknown): Promise<Error> {
    if (e instanceof ProtocolError) throw e;
    if (!(e instanceof ServerError)) return e instanceof Error ? e : new ConnectionError(String(e));
    if (e.unauthorized) {
      if (++this.refusals > 2 || !(await this.transport.refused())) throw e;
      return e;
    }
    if (!e.passing) throw e;
    return e;
  }

  async pause(next: Next): Promise<void> {
    if (!next.pause) return;
    const error = next.error ?? new ConnectionError("the end of the run is not confirmed yet");
    const asked = error instanceof ServerError || error instanceof ConnectionError ? error.retryAfter : undefined;
    const ms = this.backoff.next(asked);
    if (ms === undefined) throw error;
    this.o.onState?.({ state: "waiting", ms, error });
    const { signal, done } = this.begin();
    this.pausing = true;
    try {
      await sleep(ms, signal);
    } catch {
      this.o.signal?.throwIfAborted(); // else the page goes on: now is the time
    } finally {
      this.pausing = false;
      done();
    }
  }
}

/** Milliseconds out of sight from which on a connection that has said nothing meanwhile counts as dead. */
const suspicious = 30_000;

/** Whether a run that is over goes on with the event: a message to the run itself that is not the system's, or another state. */
function reopens(e: AgentEvent): boolean {
  if (e.child_id !== null) return false;
  return e.type === "command.message" ? e.payload.role !== "system" : e.type === "run.lifecycle" && !isFinal(e);
}

/** The deltas of a bundle; any other event, and a bundle that cannot be read, is itself. */
function apart(event: AgentEvent): AgentEvent[] {
  try {
    const parts = unbundle(event);
    return parts.length > 0 ? parts : [event];
  } catch {
    return [event];
  }
}

function parse(line: string): AgentEvent {
  try {
    return parseEvent(line);
  } catch (e) {
    throw new ProtocolError(`not an event: ${line.slice(0, 200)}`, { cause: e });
  }
}

/** Adds the query of a view to the address of a stream. */
export function streamURL(base: string, cursor: string, view: View): URL {
  const url = new URL(base);
  const q = url.searchParams;
  if (cursor !== "") q.set("after", cursor);
  else if (view.snapshot) q.set("snapshot", "true");
  if (view.detail === "full") q.set("detail", "full");
  if (view.child?.length) q.set("child", view.child.join(","));
  if (view.bundle ?? view.detail !== "full") q.set("bundle", "true");
  if (view.nested) q.set("nested", "true");
  if (view.types?.length) q.set("types", view.types.join(","));
  if (view.speed !== undefined) q.set("speed", String(view.speed));
  return url;
}
