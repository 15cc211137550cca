// The shape of a run's sum (schema/contracts/snapshot.schema.json), and how it is read without loss.
import { RawJSON, eachField, elements } from "./json.js";
/** The snapshot of a run that has said nothing. */
export function emptySnapshot() {
    return {
        run_id: null, last_seq: null, last_id: null, last_ts: null, state: null, reason: null, state_seq: null, state_ts: null,
        planning_gate: null, plan: null, messages: [], tool_calls: [], children: [],
        usage: { total: counts(), by_model: Object.create(null) }, inputs: [], waits: [], commands: [],
    };
}
export function newChild(id, parent) {
    return { child_id: id, parent_id: parent, prompt: null, tools_allowed: null, spawn_seq: null, state: null, reason: null, state_seq: null };
}
export function newMessage(child, seq) {
    return {
        message_id: null, child_id: child, role: null, model: null, announced: true, blocks: [],
        start_seq: seq, end_seq: null, stop_reason: null, usage: null, error: null,
    };
}
export function newBlock(index, kind) {
    return { index, kind, text: "", open: true, complete: false };
}
/** A record whose names may be anything, __proto__ too. */
export function counts() {
    return Object.create(null);
}
const shape = {
    session: "raw",
    plan: { payload: "raw" },
    messages: [{ usage: "raw", error: "raw", blocks: [{ input: "raw", block: "raw" }] }],
    starts: [{ usage: "raw" }],
    tool_calls: [{ input: "raw", output: "raw", error: "raw", duration_ms: "raw" }],
    children: [{ tools_allowed: "raw" }],
    inputs: [{ options: "raw", schema: "raw", answer: "raw" }],
    commands: [{ payload: "raw" }],
    usage: { total: {}, by_model: {} },
};
/**
 * Reads a snapshot, as GET …/snapshot and run.snapshot give it.
 * @throws SyntaxError when it is none.
 */
export function parseSnapshot(text) {
    const s = Object.assign(emptySnapshot(), readShape(text, shape));
    if (!Array.isArray(s.messages) || !Array.isArray(s.tool_calls) || !Array.isArray(s.children))
        throw new SyntaxError("not a snapshot");
    return s;
}
function readShape(text, shape) {
    if (text[0] !== "{")
        return JSON.parse(text);
    const out = Object.create(null);
    eachField(text, (name, raw) => {
        const kind = shape[name];
        if (raw === "null")
            out[name] = null;
        else if (kind === undefined)
            out[name] = JSON.parse(raw);
        else if (kind === "raw")
            out[name] = new RawJSON(raw);
        else if (Array.isArray(kind))
            out[name] = elements(raw).map((e) => readShape(e, kind[0]));
        else
            out[name] = readShape(raw, kind);
    });
    return out;
}
