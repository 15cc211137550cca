// Watching a run over as many connections as it takes, whatever carries them.
import { Backoff, sleep } from "./backoff.js";
import { ConnectionError, ProtocolError, ServerError } from "./errors.js";
import { finalStates, isFinal, parseEvent, unbundle } from "./event.js";
import { Track } from "./track.js";
import { Sight, onWake } from "./wake.js";
/**
 * Yields what follows the cursor, in order, each event once. It returns when the run is over and
 * the server has confirmed it; it throws what asking again cannot change, and the signal's reason.
 */
export async function* follow(transport, o) {
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
            if (next === undefined)
                return o.onState?.({ state: "over" });
            await w.pause(next);
        }
    }
    finally {
        stop();
        sight.stop();
    }
}
/** Why a connection is given up, or a pause, of a page that is shown again. */
const woken = new ConnectionError("the page was stopped and goes on");
class Watch {
    transport;
    o;
    track;
    backoff;
    refetch;
    asked = -1; // the position behind which the server was asked once more for what is missing
    refusals = 0; // credentials in a row that were not taken
    ended = false; // the last event is the end of the run
    heard = 0; // when the connection said something last
    now; // ends what is under way: a connection, or a pause
    pausing = false;
    constructor(transport, o) {
        this.transport = transport;
        this.o = o;
        this.track = new Track(o.after);
        this.backoff = new Backoff(o.backoff);
        this.refetch = (o.gaps ?? (o.detail === "full" ? "refetch" : "report")) === "refetch";
    }
    /**
     * Ends a pause, and a connection that is dead: surely, or because the page was out of sight for so many milliseconds and it has said
     * nothing since. The next one goes on behind the last event.
     */
    wake(sure, ms) {
        const silent = ms >= suspicious && Date.now() - this.heard >= ms;
        if (this.pausing || sure || silent)
            this.now?.abort(woken);
    }
    /** Gives the connection back, or ends the pause before the next one. */
    leave() {
        this.now?.abort(woken);
    }
    /** Runs what can be ended by wake or leave, and by the caller's signal. */
    begin() {
        const now = (this.now = new AbortController());
        const { signal } = this.o;
        const stop = () => now.abort(signal.reason);
        if (signal?.aborted)
            stop();
        signal?.addEventListener("abort", stop, { once: true });
        return { signal: now.signal, done: () => signal?.removeEventListener("abort", stop) };
    }
    /** Lives through one connection. undefined: the run is over. */
    async *once() {
        this.o.onState?.({ state: "connecting" });
        const before = this.track.cursor;
        const { signal, done } = this.begin();
        const connection = this.transport.connect({ cursor: this.track.cursor, view: this.o, watchdog: this.o.watchdog ?? 45_000, signal });
        let error;
        try {
            const end = yield* this.read(connection);
            if (end === "over")
                return undefined;
            if (end === "ended" && this.ended)
                return { pause: this.track.cursor === before };
            if (end === "again")
                return { pause: false };
            error = new ConnectionError("stream ended before its run did");
        }
        catch (e) {
            this.o.signal?.throwIfAborted();
            if (signal.aborted)
                return { pause: false, error: woken };
            error = await this.judge(e);
        }
        finally {
            done();
            await connection.return("ended");
        }
        return { pause: !(error instanceof ServerError && error.unauthorized), error };
    }
    async *read(c) {
        for (;;) {
            const r = await c.next();
            if (r.done)
                return r.value;
            this.heard = Date.now();
            const m = r.value;
            if ("open" in m)
                this.o.onState?.({ state: "open" });
            else if ("hint" in m)
                this.backoff.suggest(m.hint);
            else if (yield* this.take(parse(m.line)))
                return "again";
        }
    }
    /** Takes an event to its place; true when the connection is to be begun anew behind the last one. */
    async *take(event) {
        if (event.type === "stream.gap")
            return false; // the numbers of the next event say it too
        const place = this.track.place(event);
        const at = this.track.seq ?? 0;
        switch (place.kind) {
            case "old":
                return false;
            case "overlap":
                if (this.asked === at)
                    throw new ProtocolError(`event ${event.seq} begins before ${at + 1}, which is known`);
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
        const last = parts.pop();
        for (const part of parts)
            yield { event: part, more: true };
        yield { event: last };
        return false;
    }
    /** Gives what watching can go on behind, and throws the rest. */
    async judge(e) {
        if (e instanceof ProtocolError)
            throw e;
        if (!(e instanceof ServerError))
            return e instanceof Error ? e : new ConnectionError(String(e));
        if (e.unauthorized) {
            if (++this.refusals > 2 || !(await this.transport.refused()))
                throw e;
            return e;
        }
        if (!e.passing)
            throw e;
        return e;
    }
    async pause(next) {
        if (!next.pause)
            return;
        const error = next.error ?? new ConnectionError("the end of the run is not confirmed yet");
        const asked = error instanceof ServerError || error instanceof ConnectionError ? error.retryAfter : undefined;
        const ms = this.backoff.next(asked);
        if (ms === undefined)
            throw error;
        this.o.onState?.({ state: "waiting", ms, error });
        const { signal, done } = this.begin();
        this.pausing = true;
        try {
            await sleep(ms, signal);
        }
        catch {
            this.o.signal?.throwIfAborted(); // else the page goes on: now is the time
        }
        finally {
            this.pausing = false;
            done();
        }
    }
}
/** Milliseconds out of sight from which on a connection that has said nothing meanwhile counts as dead. */
const suspicious = 30_000;
/** Whether a run that is over goes on with the event: a message to the run itself that is not the system's, or another state. */
function reopens(e) {
    if (e.child_id !== null)
        return false;
    return e.type === "command.message" ? e.payload.role !== "system" : e.type === "run.lifecycle" && !isFinal(e);
}
/** The deltas of a bundle; any other event, and a bundle that cannot be read, is itself. */
function apart(event) {
    try {
        const parts = unbundle(event);
        return parts.length > 0 ? parts : [event];
    }
    catch {
        return [event];
    }
}
function parse(line) {
    try {
        return parseEvent(line);
    }
    catch (e) {
        throw new ProtocolError(`not an event: ${line.slice(0, 200)}`, { cause: e });
    }
}
/** Adds the query of a view to the address of a stream. */
export function streamURL(base, cursor, view) {
    const url = new URL(base);
    const q = url.searchParams;
    if (cursor !== "")
        q.set("after", cursor);
    else if (view.snapshot)
        q.set("snapshot", "true");
    if (view.detail === "full")
        q.set("detail", "full");
    if (view.child?.length)
        q.set("child", view.child.join(","));
    if (view.bundle ?? view.detail !== "full")
        q.set("bundle", "true");
    if (view.nested)
        q.set("nested", "true");
    if (view.types?.length)
        q.set("types", view.types.join(","));
    if (view.speed !== undefined)
        q.set("speed", String(view.speed));
    return url;
}
