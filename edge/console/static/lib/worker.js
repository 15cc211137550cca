// Tasks of a worker: messages of sessions, each handed out with a lease under which it is answered.
import { Backoff, sleep } from "./backoff.js";
import { ConnectionError, ServerError } from "./errors.js";
import { parseEvent } from "./event.js";
import { eachField, elements } from "./json.js";
import { SSEParser } from "./sse.js";
/** One turn of a session. The server has begun it; it ends when the answer returns. */
export class Task {
    f;
    events;
    to;
    run;
    turn;
    /** The run is over with this turn. */
    once;
    /** Another worker may have begun with this. */
    redelivered;
    /** What the session was created with. */
    session;
    /** The reason of a cancellation, if there is one: the signal is aborted then, and nothing can be appended. */
    cancelled;
    through;
    cancelSeq = 0;
    stop = new AbortController();
    waiting = [];
    wake;
    constructor(f, 
    /** A message, or the answers to what an earlier turn has asked. */
    events, to) {
        this.f = f;
        this.events = events;
        this.to = to;
        this.run = f.run_id;
        this.turn = f.turn_id;
        this.once = f.once === true;
        this.redelivered = f.redelivered === true;
        this.session = f.session ?? {};
        this.through = events.at(-1).seq;
    }
    /** Ends when a person cancels, or another worker has the task. */
    get signal() {
        return this.stop.signal;
    }
    /** The message's text. */
    get text() {
        const content = this.events.at(-1).payload.content;
        if (typeof content === "string")
            return content;
        if (!Array.isArray(content))
            return "";
        const texts = content.map((b) => (typeof b?.text === "string" ? b.text : ""));
        return texts.filter((t) => t !== "").join("\n");
    }
    /** Appends events of the turn; resolves when they are durable. */
    async append(...events) {
        this.stop.signal.throwIfAborted();
        return this.send(events);
    }
    /** Waits for what is sent meanwhile, and deals with it: a message is not answered again. */
    async told() {
        for (;;) {
            this.stop.signal.throwIfAborted();
            const next = this.waiting.shift();
            if (next !== undefined) {
                this.through = Math.max(this.through, next.seq);
                return next;
            }
            await new Promise((resolve) => (this.wake = resolve));
        }
    }
    async send(events) {
        return this.to.append(this.run, events.map((e) => ({ turn_id: this.turn, ...e })), this.f.lease);
    }
    /** @internal */
    hear(event) {
        if (event.type === "command.cancel" && event.child_id == null) {
            const { reason } = event.payload;
            this.cancelled = typeof reason === "string" ? reason : "";
            this.cancelSeq = event.seq;
            this.giveUp(new Error("cancelled"));
            return;
        }
        this.waiting.push(event);
        this.wake?.();
    }
    /** @internal */
    giveUp(reason) {
        this.stop.abort(reason);
        this.wake?.();
    }
    /** @internal Answers, and ends the turn in one pack with the mark of what was answered. */
    async work(answer) {
        let error;
        let stop = "end_turn";
        try {
            stop = (await answer(this)) ?? stop;
        }
        catch (e) {
            error = e;
        }
        if (this.signal.aborted && this.cancelled === undefined)
            return undefined; // another worker has it
        if (this.cancelled !== undefined)
            stop = "cancelled";
        else if (error !== undefined)
            stop = "error";
        const state = stop === "cancelled" ? "aborted" : stop === "error" ? "error" : "done";
        const why = error === undefined ? null : String(error instanceof Error ? error.message : error);
        const end = [
            { type: "commands.taken", payload: { through: Math.max(this.through, this.cancelSeq) } },
            { type: "turn.end", payload: { turn_id: this.turn, stop_reason: stop } },
        ];
        if (this.once)
            end.push({ type: "run.lifecycle", payload: { state, reason: this.cancelled || why } });
        await this.send(end);
        return stop === "error" ? error : undefined;
    }
}
/** Works until the signal ends, or the server refuses for good. */
export async function work(to, answer, o) {
    const backoff = new Backoff({ first: 200, most: 10_000 });
    for (;;) {
        o.signal?.throwIfAborted();
        let hint;
        try {
            await connection(to, answer, o, () => backoff.reset());
        }
        catch (e) {
            o.signal?.throwIfAborted();
            if (e instanceof ServerError && !e.passing)
                throw e;
            hint = e instanceof ServerError ? e.retryAfter : 0;
        }
        await sleep(backoff.next(hint) ?? 0, o.signal);
    }
}
/** Works over one connection. Its tasks end with it. */
async function connection(to, answer, o, opened) {
    const tasks = new Map();
    const cut = new AbortController();
    const stop = () => cut.abort(o.signal?.reason);
    o.signal?.addEventListener("abort", stop, { once: true });
    let timer;
    const alive = () => {
        clearTimeout(timer);
        timer = setTimeout(() => cut.abort(new ConnectionError("the server is silent")), o.idle ?? 45_000);
    };
    const parser = new SSEParser({ frame: (f) => receive(f.event, f.data) });
    const receive = (name, data) => {
        if (name !== "task" && name !== "command" && name !== "end")
            return;
        const fields = JSON.parse(data);
        const raw = new Map();
        eachField(data, (field, text) => raw.set(field, text));
        const task = tasks.get(fields.turn_id); // the turns of a session may have one lease
        if (name === "command")
            task?.hear(parseEvent(raw.get("event")));
        else if (name === "end")
            task?.giveUp(new Error("another worker has the task"));
        if (name !== "task")
            return;
        const begun = new Task(fields, elements(raw.get("events")).map(parseEvent), to);
        tasks.set(fields.turn_id, begun);
        void begun
            .work(answer)
            .catch((e) => e)
            .then((e) => {
            tasks.delete(fields.turn_id);
            if (e !== undefined)
                o.failed?.(begun, e);
        });
    };
    try {
        alive();
        const reader = (await to.open(o.places ?? 8, cut.signal)).getReader();
        opened();
        for (;;) {
            const { done, value } = await reader.read();
            if (done)
                return;
            alive();
            parser.push(value);
        }
    }
    finally {
        clearTimeout(timer);
        o.signal?.removeEventListener("abort", stop);
        cut.abort();
        for (const task of tasks.values())
            task.giveUp(new ConnectionError("the connection of the worker has ended"));
    }
}
