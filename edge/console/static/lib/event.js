// The envelope and the catalogue of the native protocol, and its form as one line of JSON.
import { RawJSON, eachField, elements, quote, stringify } from "./json.js";
const envelopeFields = new Set([
    "id", "ts", "type", "run_id", "child_id", "seq", "first_seq", "turn_id", "path", "cause", "actor", "payload",
]);
/**
 * Reads one line. Unknown types and fields pass: a log may be newer than its reader.
 * @throws SyntaxError when it is not JSON; TypeError when it is not an event.
 */
export function parseEvent(line) {
    const fields = {};
    let extra;
    eachField(line, (name, raw) => {
        if (!envelopeFields.has(name)) {
            extra ??= new Map();
            extra.set(name, new RawJSON(raw));
        }
        else if (name === "payload") {
            fields.payload = JSON.parse(raw);
            fields.json = new RawJSON(raw);
        }
        else {
            const value = JSON.parse(raw);
            if (value !== null)
                fields[name] = value;
        }
    });
    check(fields);
    fields.child_id ??= null;
    fields.payload ??= {};
    fields.json ??= new RawJSON("{}");
    if (extra !== undefined)
        fields.extra = extra;
    return fields;
}
function check(f) {
    for (const name of ["type", "run_id"]) {
        if (typeof f[name] !== "string" || f[name] === "")
            throw new TypeError(`event has no ${name}`);
    }
    for (const name of ["id", "ts", "child_id", "turn_id", "cause", "actor"]) {
        if (f[name] !== undefined && typeof f[name] !== "string")
            throw new TypeError(`event's ${name} is not a text`);
    }
    if (!position(f.seq))
        throw new TypeError("event has no seq");
    if (f.first_seq !== undefined && !(position(f.first_seq) && f.first_seq <= f.seq)) {
        throw new TypeError("event's first_seq is not a position up to its seq");
    }
    if (f.path !== undefined && !(Array.isArray(f.path) && f.path.every((p) => typeof p === "string"))) {
        throw new TypeError("event's path is not a list of run ids");
    }
    if (f.payload !== undefined && (typeof f.payload !== "object" || f.payload === null || Array.isArray(f.payload))) {
        throw new TypeError("event's payload is not an object");
    }
}
function position(v) {
    return Number.isSafeInteger(v) && v >= 0;
}
/**
 * Writes an event as one line, without the line feed, in the server's field order. Of an event that
 * was parsed, `json` and `extra` are written as they came, so that the line is the same, byte for
 * byte. To change a payload, change `json` too, or leave it out.
 */
export function formatEvent(e) {
    const f = e;
    const out = [];
    const put = (name, value) => {
        if (value !== undefined)
            out.push(quote(name) + ":" + value);
    };
    const text = (s) => (s === undefined || s === "" ? undefined : quote(s));
    put("id", text(f.id));
    put("ts", text(f.ts));
    put("type", quote(f.type));
    put("run_id", text(f.run_id));
    put("child_id", f.child_id === undefined ? undefined : f.child_id === null ? "null" : quote(f.child_id));
    put("seq", f.seq === undefined ? undefined : String(f.seq));
    if (f.first_seq !== undefined && f.first_seq !== f.seq)
        put("first_seq", String(f.first_seq));
    put("turn_id", text(f.turn_id));
    if (f.path !== undefined && f.path.length > 0)
        put("path", stringify(f.path));
    put("cause", text(f.cause));
    put("actor", text(f.actor));
    for (const [name, value] of f.extra ?? [])
        put(name, stringify(value));
    put("payload", f.json !== undefined ? f.json.text : stringify(f.payload ?? {}));
    return "{" + out.join(",") + "}";
}
/** The first event that this one stands for. */
export function firstSeq(e) {
    return e.first_seq ?? e.seq;
}
/** Whether the event ends its run: the lifecycle of the run itself, in a final state. */
export function isFinal(e) {
    return e.type === "run.lifecycle" && e.child_id === null && finalStates.has(e.payload.state);
}
/** The states that end a run. */
export const finalStates = new Set(["done", "aborted", "error"]);
/**
 * Takes a delta.bundle, which exists in views alone, apart into the deltas that it holds; any other
 * event comes back as it is. The parts share the bundle's id, ts, seq and first_seq.
 */
export function unbundle(e) {
    if (e.type !== "delta.bundle")
        return [e];
    const parts = [];
    let list = [];
    eachField(e.json.text, (name, raw) => {
        if (name === "deltas")
            list = elements(raw);
    });
    const own = new Set(["id", "ts", "run_id", "seq", "first_seq"]);
    for (const raw of list) {
        let line = `{"id":${quote(e.id)},"ts":${quote(e.ts)},"run_id":${quote(e.run_id)},"seq":${e.seq},"first_seq":${firstSeq(e)}`;
        eachField(raw, (name, value) => {
            if (!own.has(name))
                line += `,${quote(name)}:${value}`;
        });
        parts.push(parseEvent(line + "}"));
    }
    return parts;
}
