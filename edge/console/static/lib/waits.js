// What waits for somebody: the rules of the snapshot's `waits` (schema/contracts/snapshot.schema.json).
import { finalStates } from "./event.js";
/** Reasons of a turn.end behind which answers are not waited for. */
const broken = new Set(["cancelled", "canceled", "aborted", "error", "failed", "retries_exhausted"]);
const states = new Set([...finalStates, "planning", "awaiting_approval", "running", "paused", "redirecting"]);
/** Most that is remembered of a run. When it is more, all is forgotten. */
const most = 1024;
function same(p, q) {
    return p.child_id === q.child_id && p.request_id === q.request_id && p.call_id === q.call_id;
}
function settledOf(w) {
    return { request_id: w.request_id, call_id: w.request_id === null ? w.call_id : null, child_id: w.child_id };
}
/** Remembers what has ended: that it is asked once more, without anything of the agent's between, is a repeat. */
function settle(s, p) {
    const list = (s.settled?.length ?? 0) < most ? (s.settled ?? []) : [];
    if (list.some((q) => same(p, q)))
        return;
    const key = (q) => [q.child_id ?? "", q.request_id ?? "", q.call_id ?? ""];
    const order = (a, b) => {
        const i = a.findIndex((part, i) => part !== b[i]);
        return i < 0 ? 0 : a[i] < b[i] ? -1 : 1;
    };
    s.settled = [...list, p].sort((a, b) => order(key(a), key(b)));
}
function forget(s, which) {
    const left = s.settled?.filter((p) => !which(p)) ?? [];
    if (left.length > 0)
        s.settled = left;
    else
        delete s.settled;
}
const nothing = { ended: [], asked: false, answered: false };
/** Whether a question says what one said that has ended. What nobody knows of one is what comes late. */
function repeats(s, t, p) {
    if (!s.settled?.some((q) => same(p, q)))
        return false;
    const text = (v) => v?.text ?? null;
    if (p.request_id !== null) {
        const q = s.inputs.filter((q) => q.child_id === p.child_id && q.request_id === p.request_id).at(-1);
        if (q === undefined)
            return true;
        const options = text(q.options) === text(t.p.array("options")), schema = text(q.schema) === text(t.p.object("schema"));
        return (q.prompt ?? "") === (t.p.str("prompt") ?? "") && options && schema;
    }
    const c = t.lane.calls.get(p.call_id);
    if (c === undefined || c.start_seq === c.end_seq || (c.tool === null && c.input === null))
        return true;
    return c.tool === t.p.str("tool") && text(c.input) === text(t.p.raw("input"));
}
/** Takes an event, in the order of the log. */
export function ask(s, t, type) {
    const child = t.lane.id;
    const end = (which, answered = false) => {
        const ended = s.waits.filter(which);
        if (ended.length === 0)
            return nothing;
        for (const w of ended)
            settle(s, settledOf(w));
        s.waits = s.waits.filter((w) => !which(w));
        return { ended, asked: false, answered };
    };
    switch (type) {
        case "input.requested":
            return begin(s, t, t.p.str("request_id"), t.p.str("call_id"));
        case "tool.start":
            return start(s, t);
        case "tool.end": {
            const call = t.p.str("call_id");
            if (call !== null)
                settle(s, { request_id: null, call_id: call, child_id: child });
            return call === null ? nothing : end((w) => w.child_id === child && w.call_id === call);
        }
        case "turn.end": {
            if (broken.has(t.p.str("stop_reason") ?? ""))
                return end((w) => w.child_id === child);
            for (const w of s.waits)
                if (w.child_id === child && !w.cancelling)
                    w.turn_ended = true;
            return end((w) => w.child_id === child && w.cancelling);
        }
        case "command.cancel": {
            const all = child === null && !t.p.yes("interrupt");
            const of = (w) => all || w.child_id === child;
            for (const w of s.waits)
                if (of(w) && !w.turn_ended)
                    w.cancelling = true;
            return end((w) => of(w) && w.turn_ended);
        }
        case "run.lifecycle": {
            const reason = t.p.raw("reason")?.text ?? "null", state = t.p.str("state") ?? "";
            if (!states.has(state) || (reason !== "null" && reason[0] !== '"'))
                return nothing;
            if (!finalStates.has(state)) {
                if (state !== (t.lane.child === null ? s.state : t.lane.child.state))
                    forget(s, (p) => p.child_id === child);
                return nothing;
            }
            const change = end((w) => child === null || w.child_id === child);
            if (child === null)
                forget(s, () => true);
            return change;
        }
        case "message.start":
            forget(s, (p) => p.child_id === child && p.call_id !== null);
            return nothing;
        case "command.message":
        case "turn.start":
            forget(s, (p) => p.child_id === child);
            return nothing;
        case "input.answered":
        case "command.answer": {
            const id = t.p.str("request_id");
            if (id === null)
                return nothing;
            const own = (w) => w.child_id === child && (w.request_id === id || w.call_id === id);
            const change = end(s.waits.some(own) ? own : (w) => w.request_id === id, true);
            if (change === nothing && type === "input.answered")
                settle(s, { request_id: id, call_id: null, child_id: child });
            return change;
        }
    }
    return nothing;
}
/** A call starts. One that has ended and said something else may be asked about again. */
function start(s, t) {
    const call = t.p.str("call_id"), p = { request_id: null, call_id: call, child_id: t.lane.id };
    if (call !== null && !repeats(s, t, p))
        forget(s, (q) => same(p, q));
    const asks = t.p.yes("custom") || (t.p.str("permission") ?? t.p.str("evaluated_permission")) === "ask";
    return asks ? begin(s, t, null, call) : nothing;
}
function begin(s, t, request, call) {
    const child = t.lane.id;
    const known = (w) => w.child_id === child && (request === null ? w.call_id === call : w.request_id === request);
    if ((request ?? call) === null || s.waits.some(known))
        return nothing;
    if (repeats(s, t, { request_id: request, call_id: request === null ? call : null, child_id: child }))
        return nothing;
    const replaced = (w) => w.child_id === child && w.request_id === null && call !== null && w.call_id === call;
    const ended = s.waits.filter(replaced);
    if (ended.length > 0)
        s.waits = s.waits.filter((w) => !replaced(w));
    for (const w of ended)
        settle(s, settledOf(w));
    s.waits.push({ request_id: request, call_id: call, child_id: child, seq: t.seq, cancelling: false, turn_ended: false });
    return { ended, asked: true, answered: false };
}
