// What waits for somebody: the rules of the snapshot's `waits` (schema/contracts/snapshot.schema.json).
import { finalStates } from "./event.js";
/** Reasons of a turn.end behind which answers are not waited for. */
const broken = new Set(["cancelled", "canceled", "aborted", "error", "failed", "retries_exhausted"]);
const nothing = { ended: [], asked: false, answered: false };
/** Takes an event, in the order of the log. */
export function ask(s, t, type) {
    const child = t.lane.id;
    const end = (which, answered = false) => {
        const ended = s.waits.filter(which);
        if (ended.length === 0)
            return nothing;
        s.waits = s.waits.filter((w) => !which(w));
        return { ended, asked: false, answered };
    };
    switch (type) {
        case "input.requested":
            return begin(s, t, t.p.str("request_id"), t.p.str("call_id"));
        case "tool.start":
            return t.p.yes("custom") || (t.p.str("permission") ?? t.p.str("evaluated_permission")) === "ask" ? begin(s, t, null, t.p.str("call_id")) : nothing;
        case "tool.end": {
            const call = t.p.str("call_id");
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
            const reason = t.p.raw("reason")?.text ?? "null";
            if (!finalStates.has(t.p.str("state") ?? "") || (reason !== "null" && reason[0] !== '"'))
                return nothing;
            return end((w) => child === null || w.child_id === child);
        }
        case "input.answered":
        case "command.answer": {
            const id = t.p.str("request_id");
            if (id === null)
                return nothing;
            const own = (w) => w.child_id === child && (w.request_id === id || w.call_id === id);
            return end(s.waits.some(own) ? own : (w) => w.request_id === id, true);
        }
    }
    return nothing;
}
function begin(s, t, request, call) {
    const child = t.lane.id;
    const known = (w) => w.child_id === child && (request === null ? w.call_id === call : w.request_id === request);
    if ((request ?? call) === null || s.waits.some(known))
        return nothing;
    const replaced = (w) => w.child_id === child && w.request_id === null && call !== null && w.call_id === call;
    const ended = s.waits.filter(replaced);
    if (ended.length > 0)
        s.waits = s.waits.filter((w) => !replaced(w));
    s.waits.push({ request_id: request, call_id: call, child_id: child, seq: t.seq, cancelling: false, turn_ended: false });
    return { ended, asked: true, answered: false };
}
