// The fields of a payload, as a fold reads them.
import { RawJSON, eachField, elements } from "./json.js";
import { newBlock } from "./snapshot.js";
/**
 * A payload. A field of an unexpected kind counts as absent: unknown fields are always allowed, so a
 * name may mean something else in another type. Of two fields with one name the last counts.
 */
export class Fields {
    values;
    json;
    texts;
    constructor(values, json) {
        this.values = values;
        this.json = json;
    }
    static of(text) {
        const json = new RawJSON(text);
        return new Fields(json.value(), json);
    }
    get(name) {
        return Object.hasOwn(this.values, name) ? this.values[name] : undefined;
    }
    has(name) {
        return Object.hasOwn(this.values, name);
    }
    /** A string; an empty one counts as none. */
    str(name) {
        return this.text(name) || null;
    }
    text(name) {
        const v = this.get(name);
        return typeof v === "string" ? v : "";
    }
    yes(name) {
        return this.get(name) === true;
    }
    /** A whole number from 0 to 2^53-1, however it is written. */
    integer(name) {
        const v = this.get(name);
        return Number.isSafeInteger(v) && v >= 0 ? v + 0 : undefined;
    }
    /** The value's text, whatever it is; null when there is none and when it is null. */
    raw(name) {
        if (!this.has(name))
            return null;
        if (this.texts === undefined) {
            const texts = new Map();
            eachField(this.json.text, (n, raw) => texts.set(n, raw));
            this.texts = texts;
        }
        const text = this.texts.get(name);
        return text === undefined || text === "null" ? null : new RawJSON(text);
    }
    object(name) {
        return this.begins(name, "{");
    }
    array(name) {
        return this.begins(name, "[");
    }
    number(name) {
        return typeof this.get(name) === "number" ? this.raw(name) : null;
    }
    begins(name, c) {
        const v = this.get(name);
        if (typeof v !== "object" || v === null)
            return null;
        const raw = this.raw(name);
        return raw !== null && raw.text[0] === c ? raw : null;
    }
}
/** Fills a message from what it says as a whole: a string or a list of blocks. */
export function content(m, raw) {
    const whole = { open: false, complete: true };
    if (raw === null)
        return;
    if (raw.text[0] === '"')
        return void m.blocks.push({ ...newBlock(0, "text"), ...whole, text: raw.value() });
    if (raw.text[0] !== "[")
        return;
    for (const part of elements(raw.text)) {
        if (part[0] !== "{")
            continue;
        const p = Fields.of(part);
        const b = { ...newBlock(m.blocks.length, p.str("type")), ...whole, text: p.text("text") };
        if (b.kind === "tool_use") {
            const call = p.str("id"), tool = p.str("name");
            if (call !== null || tool !== null)
                Object.assign(b, { call_id: call, tool });
            if (p.has("input"))
                b.input = p.raw("input");
        }
        else if (b.kind !== "text") {
            b.block = new RawJSON(part);
        }
        m.blocks.push(b);
    }
}
