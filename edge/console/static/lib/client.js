// The HTTP API of one server.
import { Backoff, sleep } from "./backoff.js";
import { Credentials } from "./credentials.js";
import { ConnectionError, ServerError, refusal } from "./errors.js";
import { formatEvent, parseEvent } from "./event.js";
import { EventSourceTransport } from "./eventsource.js";
import { FetchTransport, quick } from "./fetch.js";
import { eachField, elements, stringify } from "./json.js";
import { Publisher } from "./publisher.js";
import { follow } from "./stream.js";
import { parseSnapshot } from "./snapshot.js";
import { tapEvents } from "./tap.js";
import { ownTraceparent } from "./trace.js";
import { WebSocketTransport } from "./websocket.js";
import { work } from "./worker.js";
/** Speaks to one server. It holds no connection beside those of its watches. */
export class Client {
    o;
    base;
    credentials;
    fetch;
    streams; // fetch with the trace of whoever reads
    publisher;
    constructor(o) {
        this.o = o;
        this.base = new URL(o.url).href.replace(/\/+$/, "");
        this.credentials = new Credentials(o.token);
        // The page's fetch must be called as a function of the window, not of this object.
        this.fetch = o.fetch ?? ((input, init) => fetch(input, init));
        this.streams = (input, init) => this.fetch(input, { ...init, headers: { ...init.headers, ...traced(this.traceparent()) } });
        this.publisher = new Publisher({
            alone: (run, lines, traceparent) => this.receipt(this.write(path(run, "events"), lines.join("\n") + "\n", "application/x-ndjson", { traceparent })),
            all: async (body, key, traceparent) => (await this.call(this.write("/v1/agent/events", body, "application/x-ndjson", { idempotencyKey: key, traceparent }))).text,
            key: randomKey,
            backoff: { first: 200, most: 5000, attempts: 5, ...o.backoff },
        });
    }
    /** The traceparent of a request that has none of its own; "" for none. */
    traceparent() {
        return (this.o.traceparent === undefined ? ownTraceparent(new URL(this.base).origin) : this.o.traceparent()) ?? "";
    }
    /** Yields what a run says, over as many connections as it takes; see follow. */
    watch(run, o = {}) {
        return follow(this.transport(run, o), o);
    }
    transport(run, o) {
        const url = this.base + path(run, "stream");
        if (o.transport === undefined || o.transport === "fetch")
            return new FetchTransport(url, this.credentials, this.streams);
        const ticket = o.ticket ?? (this.o.token === undefined ? undefined : async () => (await this.createTicket(run)).ticket);
        const config = { url, credentials: this.credentials, fetch: this.fetch, ticket };
        if (o.transport === "websocket") {
            return new WebSocketTransport(config, this.o.WebSocket ?? globalThis.WebSocket);
        }
        return new EventSourceTransport(config, this.o.EventSource ?? globalThis.EventSource, o.customTypes);
    }
    /** Yields the events of all runs of the tenant, those of a run in order, over as many connections as it takes. */
    tap(o = {}) {
        return tapEvents({ url: `${this.base}/v1/agent/events/stream`, credentials: this.credentials, fetch: this.streams, backoff: this.o.backoff, idle: 60_000 }, o);
    }
    /** Says that everything up to a cursor of a named tap has been dealt with. The place on the server never moves back. */
    async acknowledge(name, cursor, signal) {
        await this.call({ method: "POST", path: `/v1/agent/taps/${encodeURIComponent(name)}`, body: JSON.stringify({ cursor }), type: "application/json", signal });
    }
    /** Begins a run. 409 RUN-EXISTS when it has events already. */
    createRun(run = {}, w = {}) {
        return this.json(this.write("/v1/agent/runs", JSON.stringify(run), "application/json", w));
    }
    /**
     * Appends events; resolves when all of them are durable. After a cut it is repeated under the same key. What is appended to
     * several runs at a time goes into one request, where there is neither a key nor a signal.
     */
    async append(run, events, w = {}) {
        const list = Array.from(events);
        const lines = list.map(formatEvent);
        const own = list.some((e) => e.run_id !== undefined || (e.extra?.has("key") ?? false));
        const plain = w.idempotencyKey === undefined && w.signal === undefined && w.about === undefined && w.lease === undefined;
        if (lines.length > 0 && !own && plain)
            return this.publisher.append(run, lines, w.traceparent ?? this.traceparent());
        const body = lines.map((l) => l + "\n").join("");
        return this.receipt(this.write(path(run, "events"), body, "application/x-ndjson", w));
    }
    /** One page of a run's events, as they are stored. */
    async page(run, q = {}, signal) {
        return (await this.pageAndMore(run, q, signal)).events;
    }
    /** All events behind `after` that are stored by now, page by page. */
    async *events(run, q = {}, signal) {
        for (let after = q.after ?? 0, more = true; more;) {
            const page = await this.pageAndMore(run, { ...q, after }, signal);
            yield* page.events;
            ({ next: after, more } = page);
        }
    }
    /** A page, where the next one begins, and whether there is one: a page may be empty where `types` or `child` hide much. */
    async pageAndMore(run, q, signal) {
        const query = { ...q, types: q.types?.join(","), child: q.child?.join(",") };
        const { text } = await this.call({ method: "GET", path: path(run, "events"), query, signal });
        const fields = new Map();
        eachField(text, (name, raw) => fields.set(name, raw));
        const events = elements(fields.get("events") ?? "[]").map(parseEvent);
        return { events, next: Number(fields.get("next_after") ?? 0), more: fields.get("has_more") === "true" };
    }
    /** State, newest seq and times of a run. */
    run(run, signal) {
        return this.json({ method: "GET", path: path(run), signal });
    }
    /** One page of the tenant's runs, newest first, as they are persisted by now. */
    runsPage(q = {}, signal) {
        return this.json({ method: "GET", path: "/v1/agent/runs", query: { ...q, state: q.state?.join(",") }, signal });
    }
    /** All of the tenant's runs, page by page. */
    async *runs(q = {}, signal) {
        for (let cursor = ""; cursor !== null;) {
            const page = await this.runsPage({ ...q, cursor }, signal);
            yield* page.runs;
            cursor = page.next_cursor;
        }
    }
    /** One page of what a run's messages, or its children, have cost, as far as they are persisted by now. */
    costsPage(run, q = {}, signal) {
        return this.json({ method: "GET", path: path(run, "costs"), query: { ...q }, signal });
    }
    /** All costs of a run, page by page. */
    async *costs(run, q = {}, signal) {
        for (let cursor = ""; cursor !== null;) {
            const page = await this.costsPage(run, { ...q, cursor }, signal);
            yield* page.costs;
            cursor = page.next_cursor;
        }
    }
    /** What the tenant's runs have cost by UTC day and model, newest day first: by default of 30 days, at most of 366. */
    async dailyCosts(q = {}, signal) {
        return (await this.json({ method: "GET", path: "/v1/agent/costs", query: { ...q }, signal })).costs;
    }
    /** Everything up to the newest event, or up to `at`, summed up. To go on, watch with `after: snapshot.last_seq`. */
    async snapshot(run, signal, at) {
        return parseSnapshot((await this.call({ method: "GET", path: path(run, "snapshot"), query: { at }, signal })).text);
    }
    /**
     * Keeps content with a run, which must exist; resolves when it is durable. It may be repeated: the same content is kept
     * once. An output that is too large for its event need not be put: the server moves it by itself.
     */
    putBlob(run, content, contentType = "application/octet-stream", signal) {
        return this.json({ method: "PUT", path: path(run, "blobs"), body: content, type: contentType, signal });
    }
    /** Content that is kept with a run, as it was put. */
    async blob(run, ref, signal) {
        const { bytes, headers } = await this.call({ method: "GET", path: path(run, "blobs", encodeURIComponent(ref)), signal });
        return { content: bytes, contentType: headers.get("Content-Type") ?? "" };
    }
    /** Sends a command, with `child_id` in its payload to a child. 409 when the run's state forbids it. */
    command(run, name, payload = {}, w = {}) {
        return this.receipt(this.write(path(run, name), stringify(payload), "application/json", w));
    }
    approvePlan(run, planID, w) {
        return this.command(run, "approve_plan", planID === undefined ? {} : { plan_id: planID }, w);
    }
    rejectPlan(run, reason, w) {
        return this.command(run, "reject_plan", reason === undefined ? {} : { reason }, w);
    }
    pause(run, w) {
        return this.command(run, "pause", {}, w);
    }
    resume(run, w) {
        return this.command(run, "resume", {}, w);
    }
    redirect(run, instruction, w) {
        return this.command(run, "redirect", { instruction }, w);
    }
    /** Asks the agent to stop. Leaving a stream never does. */
    cancel(run, reason, w) {
        return this.command(run, "cancel", reason === undefined ? {} : { reason }, w);
    }
    answer(run, requestID, answer, w) {
        return this.command(run, "answer", { request_id: requestID, answer }, w);
    }
    /** Sends a message of the user, also to a run that is over: a follow-up. */
    send(run, content, w) {
        return this.command(run, "messages", { content }, w);
    }
    /** Changes what is said of a run: what is named; null takes it away, also a key of metadata. Also of a run that is over. */
    update(run, said, w) {
        return this.command(run, "update", said, w);
    }
    /** Makes a ticket: it opens one stream of this run, once, for about a minute. */
    createTicket(run, signal) {
        return this.json({ method: "POST", path: path(run, "tickets"), signal, timeout: quick });
    }
    /**
     * Answers the sessions that people open, together with any number of other workers: each message is answered once.
     * It rejects with the signal's reason, or when the server refuses for good. See docs/workers.md.
     */
    work(answer, o = {}) {
        return work({
            open: (places, signal) => this.openWork(places, signal),
            append: (run, events, lease) => this.append(run, events, { lease }),
        }, answer, o);
    }
    async openWork(places, signal) {
        for (let renewed = false;; renewed = true) {
            const used = await this.credentials.headers();
            const init = { headers: { Accept: "text/event-stream", ...used }, signal, cache: "no-store" };
            const res = await this.streams(`${this.base}/v1/agent/work?places=${places}`, init);
            if (res.status === 200 && res.body !== null)
                return res.body;
            const error = await refusal(res);
            if (!error.unauthorized || renewed)
                throw error;
            if (!(await this.credentials.refused((used.Authorization ?? "").slice(7))))
                throw error;
        }
    }
    async receipt(c) {
        const { text, headers } = await this.call(c);
        const { first_seq, last_seq } = JSON.parse(text);
        return { first_seq, last_seq, replayed: headers.get("Idempotency-Replayed") === "true" };
    }
    write(to, body, type, w) {
        return { method: "POST", path: to, body, type, key: w.idempotencyKey ?? randomKey(), headers: { ...describe(w.about), ...leased(w.lease) }, signal: w.signal, traceparent: w.traceparent };
    }
    async json(c) {
        const { text } = await this.call(c);
        return (text === "" ? {} : JSON.parse(text));
    }
    /** Sends a request until it is answered for good, and renews a refused token once. */
    async call(c) {
        const backoff = new Backoff({ first: 200, most: 5000, attempts: 5, ...this.o.backoff });
        const trace = traced(c.traceparent ?? this.traceparent()); // while the caller's span is active
        for (let renewed = false;;) {
            let error;
            const used = await this.credentials.headers();
            try {
                return await this.attempt(c, { ...trace, ...used });
            }
            catch (e) {
                c.signal?.throwIfAborted();
                error = e instanceof Error ? e : new ConnectionError(String(e));
            }
            if (error instanceof ServerError) {
                if (error.unauthorized && !renewed && (await this.credentials.refused((used.Authorization ?? "").slice(7)))) {
                    renewed = true;
                    continue;
                }
                if (!error.passing)
                    throw error;
            }
            const ms = backoff.next(error instanceof ServerError ? error.retryAfter : 0);
            if (ms === undefined)
                throw error;
            await sleep(ms, c.signal);
        }
    }
    async attempt(c, own) {
        const url = new URL(this.base + c.path);
        for (const [k, v] of Object.entries(c.query ?? {}))
            if (v !== undefined && v !== "")
                url.searchParams.set(k, String(v));
        const headers = { Accept: "application/json", ...c.headers, ...own };
        if (c.type !== undefined)
            headers["Content-Type"] = c.type;
        if (c.key !== undefined)
            headers["Idempotency-Key"] = c.key;
        const cut = new AbortController();
        const stop = () => cut.abort(c.signal?.reason);
        if (c.signal?.aborted)
            stop();
        c.signal?.addEventListener("abort", stop, { once: true });
        const timer = setTimeout(() => cut.abort(new ConnectionError("no answer in time")), Math.min(this.o.timeout ?? 30_000, c.timeout ?? Infinity));
        try {
            const init = { method: c.method, headers, signal: cut.signal, cache: "no-store" };
            if (c.body !== undefined)
                init.body = c.body;
            const res = await this.fetch(url.href, init);
            if (res.status < 200 || res.status > 299)
                throw await refusal(res);
            const bytes = new Uint8Array(await res.arrayBuffer());
            return { get text() { return new TextDecoder().decode(bytes); }, bytes, headers: res.headers };
        }
        finally {
            clearTimeout(timer);
            c.signal?.removeEventListener("abort", stop);
        }
    }
}
/** The path of a run's resource; the id cannot leave its place. */
function path(run, ...rest) {
    return ["/v1/agent/runs", encodeURIComponent(run), ...rest].join("/");
}
/** The header of what a worker writes. */
function leased(lease) {
    return lease === undefined ? {} : { "Agentstream-Lease": lease };
}
/** The header of a request in a trace; in small letters, so that an instrumentation of a browser's fetch puts its own in this place. */
function traced(traceparent) {
    return traceparent === "" ? {} : { traceparent };
}
/** The headers that describe a run where it begins. */
function describe({ title, tags, metadata } = {}) {
    const headers = {};
    if (title !== undefined)
        headers["Agentstream-Run-Title"] = encodeURIComponent(title);
    if (tags !== undefined)
        headers["Agentstream-Run-Tags"] = tags.map(encodeURIComponent).join(",");
    if (metadata !== undefined)
        headers["Agentstream-Run-Metadata"] = Object.entries(metadata).map(([k, v]) => `${encodeURIComponent(k)}=${encodeURIComponent(v)}`).join(",");
    return headers;
}
/** A key that nobody else uses. crypto is missing in Node 18, randomUUID on pages that are not secure. */
function randomKey() {
    const bytes = new Uint8Array(16);
    const source = globalThis.crypto;
    if (source !== undefined)
        source.getRandomValues(bytes);
    else
        bytes.forEach((_, i) => (bytes[i] = Math.floor(Math.random() * 256)));
    return "ts-" + Array.from(bytes, (b) => b.toString(16).padStart(2, "0")).join("");
}
