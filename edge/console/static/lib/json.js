// JSON that must not change: numbers beyond 2^53, 1.10 and -0.0 lose their form in JSON.parse. The
// scanner here finds where a value begins and ends and leaves its text alone.
/** The whole text of a JSON value, as it came, with its value when asked for. */
export class RawJSON {
    /** The text, unchanged: number forms, key order and escapes included. */
    text;
    constructor(text) {
        this.text = text;
    }
    /** What JSON.parse makes of it: numbers beyond 2^53 are rounded. Parsed anew at each call. */
    value() {
        return JSON.parse(this.text);
    }
    /**
     * What JSON.parse makes of it, but each number that JavaScript would change is a RawJSON: `String(v)` shows it as it is stored, and
     * stringify of this package writes it so.
     * @throws SyntaxError when it is not JSON.
     */
    exact() {
        const mark = `\u0000${Math.random()}:`; // nobody can have written it
        const text = mapNumbers(this.text, (n) => (isExact(n) ? n : JSON.stringify(mark + n)));
        if (text === this.text)
            return this.value();
        const back = (_, v) => (typeof v === "string" && v.startsWith(mark) ? new RawJSON(v.slice(mark.length)) : v);
        return JSON.parse(text, back);
    }
    toString() {
        return this.text;
    }
    /** For JSON.stringify, which cannot keep number text; stringify of this package can. */
    toJSON() {
        return this.value();
    }
}
/** A JSON text in which each number is what fn makes of it. */
function mapNumbers(text, fn) {
    let out = "", from = 0;
    for (let i = 0; i < text.length;) {
        const c = text[i];
        if (c === '"') {
            i = skipString(text, i);
        }
        else if (c === "-" || (c >= "0" && c <= "9")) {
            const end = skipValue(text, i);
            out += text.slice(from, i) + fn(text.slice(i, end));
            i = from = end;
        }
        else {
            i++;
        }
    }
    return out + text.slice(from);
}
/** Whether JavaScript has the number that a text is. Up to 15 digits it has. */
function isExact(number) {
    if (number.length < 16 && !/[eE]/.test(number))
        return number !== "-0";
    return plain(number) === plain(String(Number(number)));
}
/** A number as its sign, its digits without zeros at their ends, and the power of ten in front of which they stand. */
function plain(number) {
    const [, sign = "", whole = "", part = "", power = "0"] = /^(-?)(\d+)\.?(\d*)(?:[eE](.+))?$/.exec(number) ?? [];
    const digits = (whole + part).replace(/^0+/, "");
    return `${sign}${digits.replace(/0+$/, "")}e${digits === "" ? 0 : digits.length - part.length + Number(power)}`;
}
/**
 * Calls fn with the name and the untouched text of each field of a JSON object, in order, doubled
 * names included. White space around tokens is skipped.
 * @throws SyntaxError when text is not one object. Values are only scanned: JSON.parse checks them.
 */
export function eachField(text, fn) {
    let i = skipSpace(text, 0);
    if (text[i] !== "{")
        throw new SyntaxError("not a JSON object");
    i = skipSpace(text, i + 1);
    if (text[i] === "}")
        return atEnd(text, i + 1);
    for (;;) {
        if (text[i] !== '"')
            throw new SyntaxError(`no field name at ${i}`);
        const nameEnd = skipString(text, i);
        const name = JSON.parse(text.slice(i, nameEnd));
        i = skipSpace(text, nameEnd);
        if (text[i] !== ":")
            throw new SyntaxError(`field ${JSON.stringify(name)} has no value`);
        i = skipSpace(text, i + 1);
        const end = skipValue(text, i);
        fn(name, text.slice(i, end));
        i = skipSpace(text, end);
        if (text[i] === "}")
            return atEnd(text, i + 1);
        if (text[i] !== ",")
            throw new SyntaxError(`no comma at ${i}`);
        i = skipSpace(text, i + 1);
    }
}
/** The untouched texts of the elements of a JSON array. */
export function elements(text) {
    const out = [];
    let i = skipSpace(text, 0);
    if (text[i] !== "[")
        throw new SyntaxError("not a JSON array");
    i = skipSpace(text, i + 1);
    while (text[i] !== "]") {
        const end = skipValue(text, i);
        out.push(text.slice(i, end));
        i = skipSpace(text, end);
        if (text[i] === ",")
            i = skipSpace(text, i + 1);
        else if (text[i] !== "]")
            throw new SyntaxError(`no comma at ${i}`);
    }
    atEnd(text, i + 1);
    return out;
}
/** JSON.stringify that writes every RawJSON as the text it holds, and leaves undefined fields out. */
export function stringify(value) {
    if (value instanceof RawJSON)
        return value.text;
    if (Array.isArray(value))
        return "[" + value.map((v) => stringify(v === undefined ? null : v)).join(",") + "]";
    if (value !== null && typeof value === "object") {
        const fields = [];
        for (const [k, v] of Object.entries(value)) {
            if (v !== undefined)
                fields.push(quote(k) + ":" + stringify(v));
        }
        return "{" + fields.join(",") + "}";
    }
    return typeof value === "string" ? quote(value) : JSON.stringify(value ?? null);
}
/** A JSON string as the server writes it: the two line separators that JavaScript once broke on are escaped. */
export function quote(s) {
    return JSON.stringify(s).replace(/[\u2028\u2029]/g, (c) => (c === "\u2028" ? "\\u2028" : "\\u2029"));
}
function atEnd(text, i) {
    if (skipSpace(text, i) !== text.length)
        throw new SyntaxError(`more than one JSON value at ${i}`);
}
function skipSpace(s, i) {
    for (;;) {
        const c = s.charCodeAt(i);
        if (c !== 0x20 && c !== 0x0a && c !== 0x0d && c !== 0x09)
            return i;
        i++;
    }
}
function skipString(s, i) {
    for (let at = i + 1;;) {
        const end = s.indexOf('"', at);
        if (end < 0)
            throw new SyntaxError(`string at ${i} does not end`);
        let slashes = 0;
        while (s.charCodeAt(end - 1 - slashes) === 0x5c)
            slashes++;
        if (slashes % 2 === 0)
            return end + 1;
        at = end + 1;
    }
}
function skipValue(s, i) {
    const c = s[i];
    if (c === '"')
        return skipString(s, i);
    if (c === "{" || c === "[")
        return skipNested(s, i);
    let end = i;
    while (end < s.length && !",}] \n\r\t".includes(s[end]))
        end++;
    if (end === i)
        throw new SyntaxError(`no JSON value at ${i}`);
    return end;
}
function skipNested(s, start) {
    let depth = 0;
    for (let i = start; i < s.length; i++) {
        const c = s[i];
        if (c === '"')
            i = skipString(s, i) - 1;
        else if (c === "{" || c === "[")
            depth++;
        else if ((c === "}" || c === "]") && --depth === 0)
            return i + 1;
    }
    throw new SyntaxError(`value at ${start} does not end`);
}
