// Appends of several runs in one request: what is appended while a request is on its way goes into the next one.
import { Backoff, sleep } from "./backoff.js";
import { ConnectionError, ServerError } from "./errors.js";
const mostRequests = 4; // at a time, of different runs
const mostLength = 1 << 20; // of one request, about
/** Stores batches of many runs with few requests. Batches of one run are stored in the order of the calls. */
export class Publisher {
    to;
    waiting = [];
    busy = new Set();
    active = 0;
    due = false; // begin is going to be called
    apart = false; // the server takes a request for each run
    constructor(to) {
        this.to = to;
    }
    append(run, lines, traceparent = "") {
        return new Promise((resolve, reject) => {
            this.waiting.push({ run, lines, traceparent, resolve, reject });
            if (this.due)
                return;
            this.due = true;
            queueMicrotask(() => this.begin()); // what is appended together goes together
        });
    }
    /** Sends requests while something waits whose run is in none. */
    begin() {
        this.due = false;
        while (this.active < mostRequests) {
            const batch = [];
            const left = [];
            const held = new Set();
            let size = 0;
            for (const b of this.waiting) {
                const length = b.lines.reduce((n, l) => n + l.length + 1, 0);
                if (this.busy.has(b.run) || held.has(b.run) || (batch.length > 0 && (this.apart || size + length > mostLength || b.traceparent !== batch[0].traceparent))) {
                    held.add(b.run); // none overtakes it
                    left.push(b);
                    continue;
                }
                batch.push(b);
                size += length;
                this.busy.add(b.run);
            }
            this.waiting = left;
            if (batch.length === 0)
                return;
            this.active++;
            void this.send(batch).finally(() => {
                for (const b of batch)
                    this.busy.delete(b.run);
                this.active--;
                this.begin();
            });
        }
    }
    async send(batch) {
        if (batch.length > 1 && (await this.sendAll(batch)))
            return;
        for (const b of batch)
            await this.to.alone(b.run, b.lines, b.traceparent).then(b.resolve, b.reject);
    }
    /** Whether all were answered; not, where the server has no such request. */
    async sendAll(batch) {
        const body = batch.flatMap((b) => b.lines.map((l) => addressed(b.run, l) + "\n")).join("");
        const key = this.to.key();
        const backoff = new Backoff(this.to.backoff);
        try {
            for (;;) {
                const again = settle(batch, await this.to.all(body, key, batch[0].traceparent));
                if (again === undefined)
                    return true;
                const ms = backoff.next(again.retryAfter ?? 0);
                if (ms === undefined)
                    throw again;
                await sleep(ms);
            }
        }
        catch (e) {
            if (e instanceof ServerError && (e.status === 404 || e.status === 405)) {
                this.apart = true;
                return false;
            }
            for (const b of batch)
                b.reject(e); // it has no effect on those that were answered
            return true;
        }
    }
}
/** Puts the run into a line that does not name it. */
function addressed(run, line) {
    return '{"run_id":' + JSON.stringify(run) + "," + line.slice(1);
}
/** Answers the batches; returns why the same is to be sent again, if it is. */
function settle(batch, text) {
    const first = new Map();
    let n = 1;
    for (const b of batch) {
        first.set(b.run, n);
        n += b.lines.length;
    }
    const of = (a) => batch.find((b) => b.run === a.run_id) ?? batch.find((b) => (a.line ?? 0) >= first.get(b.run) && (a.line ?? 0) < first.get(b.run) + b.lines.length);
    let again;
    const pending = new Set(batch);
    for (const line of text.split("\n")) {
        if (line === "")
            continue;
        const a = JSON.parse(line);
        const b = of(a);
        if (b === undefined)
            continue;
        pending.delete(b);
        if (a.error === undefined) {
            b.resolve({ first_seq: a.first_seq ?? 0, last_seq: a.last_seq ?? 0, replayed: false });
            continue;
        }
        const { retry_after: retry, ...problem } = a.error;
        if (a.line !== undefined)
            problem.line = a.line - first.get(b.run) + 1;
        const error = new ServerError(problem.status ?? 0, problem, retry === undefined ? undefined : retry * 1000);
        if (retry !== undefined)
            again = error;
        else
            b.reject(error);
    }
    if (again === undefined)
        for (const b of pending)
            b.reject(new ConnectionError("the server has not answered for the run"));
    return again;
}
