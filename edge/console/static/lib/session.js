// What is said of a run: title, tags, metadata and more, by the rule of `session` in schema/contracts/snapshot.schema.json.
import { eachField, quote, RawJSON } from "./json.js";
const most = 65536; // bytes
const marks = new Set(["archived_at", "deleted_at"]);
/** The description after one more event of the root's session.*; the old one where the event changes nothing. */
export function mergeSession(old, type, ts, payload) {
    const fields = read(old?.text ?? "{}");
    if (type === "session.archived" || type === "session.deleted") {
        fields.set(type === "session.archived" ? "archived_at" : "deleted_at", quote(ts ?? ""));
        return write(fields);
    }
    for (const [name, value] of read(payload.text)) {
        if (marks.has(name) || name === "by")
            continue;
        if (name !== "metadata" || value === "null")
            put(fields, name, value);
        else if (value.startsWith("{"))
            put(fields, name, merge(fields.get(name), value));
    }
    let size = 2;
    for (const [name, value] of fields)
        if (!marks.has(name))
            size += bytes(quote(name)) + bytes(value) + 2;
    return size <= most ? write(fields) : old;
}
function read(object) {
    const fields = new Map();
    eachField(object, (name, raw) => fields.set(name, raw));
    return fields;
}
function put(fields, name, value) {
    if (value === "null")
        fields.delete(name);
    else
        fields.set(name, value);
}
function merge(old, by) {
    const fields = read(old ?? "{}");
    for (const [name, value] of read(by))
        put(fields, name, value);
    return write(fields).text;
}
function write(fields) {
    return new RawJSON("{" + Array.from(fields, ([name, value]) => quote(name) + ":" + value).join(",") + "}");
}
function bytes(text) {
    return new TextEncoder().encode(text).length;
}
