// A form from a JSON Schema: what an agent wants to know, with a field for each thing. What a form cannot show is asked for as JSON.

import { h, short, visible } from "../dom.js";
import { RawJSON } from "../lib/index.js";

const deepest = 3; // objects within each other
const most = 60; // fields

/**
 * Returns what the fields of a schema are: { kind, schema, name, title, required, fields }, where kind is "text", "long", "number",
 * "integer", "boolean", "choice", "choices", "object" or "json".
 */
export function plan(schema, name = "", required = true, depth = 0) {
  const s = typeof schema === "object" && schema !== null ? single(schema) : {};
  const type = Array.isArray(s.type) ? s.type.find((t) => t !== "null") : s.type ?? (s.properties ? "object" : undefined);
  const field = { kind: "json", schema: s, name, title: typeof s.title === "string" ? s.title : name, required, fields: [] };
  if (choicesOf(s).length > 0) return { ...field, kind: "choice" };
  if (type === "string") return { ...field, kind: s.maxLength > 200 || s.format === "multiline" ? "long" : "text" };
  if (type === "number" || type === "integer" || type === "boolean") return { ...field, kind: type };
  if (type === "array" && choicesOf(single(s.items ?? {})).length > 0) return { ...field, kind: "choices" };
  const names = Object.keys(s.properties ?? {});
  if (type !== "object" || names.length === 0 || names.length > most || depth >= deepest) return field;
  const needed = new Set(Array.isArray(s.required) ? s.required : []);
  return { ...field, kind: "object", fields: names.map((n) => plan(s.properties[n], n, needed.has(n), depth + 1)) };
}

/** Returns a schema that may also be null without that. */
function single(s) {
  const all = s.anyOf ?? s.oneOf;
  if (!Array.isArray(all) || choicesOf(s).length > 0) return s;
  const others = all.filter((o) => o?.type !== "null");
  return others.length === 1 ? { ...s, anyOf: undefined, oneOf: undefined, ...others[0] } : s;
}

/** Returns what may be chosen, as [label, value]; nothing for a schema without choices. */
export function choicesOf(s) {
  if (Object.hasOwn(s, "const")) return [[String(s.title ?? text(s.const)), s.const]];
  if (Array.isArray(s.enum)) return s.enum.map((v, i) => [String(s.enumNames?.[i] ?? text(v)), v]);
  const all = s.oneOf ?? s.anyOf;
  return Array.isArray(all) && all.length > 0 && all.every((o) => o !== null && typeof o === "object" && Object.hasOwn(o, "const")) ? all.map((o) => [String(o.title ?? text(o.const)), o.const]) : [];
}

const text = (v) => (typeof v === "string" ? v : v instanceof RawJSON ? v.text : JSON.stringify(v));

/** Returns { element, value } for a schema; value() throws an Error that says what is missing. */
export function schemaForm(schema) {
  const field = plan(schema);
  const at = { n: 0, id: `q${Math.random().toString(36).slice(2)}` };
  return control(field, at);
}

function control(f, at) {
  if (f.kind === "object") return group(f, at);
  const id = `${at.id}-${at.n++}`;
  const input = inputOf(f, id);
  const hint = typeof f.schema.description === "string" ? h("span", { class: "hint", dir: "auto" }, visible(short(f.schema.description, 300))) : null;
  const name = h("span", { class: "name", dir: "auto" }, visible(short(f.title || "Answer", 120)), f.required && f.kind !== "boolean" && h("span", { class: "hint" }, " *"));
  const element = f.kind === "choices" ? h("fieldset", { class: "field" }, h("legend", {}, name), hint, input.element)
    : h("label", { class: `field ${f.kind}`, for: id }, f.kind === "boolean" ? [input.element, " ", name] : [name, input.element], hint);
  return { element, value: input.value };
}

function group(f, at) {
  const parts = f.fields.map((part) => [part, control(part, at)]);
  const value = () => {
    const out = {};
    for (const [part, { value }] of parts) {
      const v = value();
      if (v !== undefined) out[part.name] = v;
    }
    return f.required || Object.keys(out).length > 0 ? out : undefined;
  };
  const all = parts.map(([, { element }]) => element);
  return { element: f.name === "" ? h("div", { class: "fields" }, all) : h("fieldset", { class: "fields" }, h("legend", {}, visible(short(f.title, 120))), all), value };
}

function inputOf(f, id) {
  const { schema: s, required, kind } = f;
  if (kind === "choice") return choiceOf(s, id, required);
  if (kind === "choices") return choicesInput(s);
  const given = s.default === undefined ? "" : text(s.default);
  if (kind === "boolean") {
    const box = h("input", { type: "checkbox", id, checked: s.default === true });
    return { element: box, value: () => box.checked };
  }
  const common = { id, required, value: given, ...bounds(s) };
  if (kind === "number" || kind === "integer") {
    const box = h("input", { type: "number", step: kind === "integer" ? "1" : "any", min: s.minimum, max: s.maximum, ...common });
    return { element: box, value: () => (box.value === "" ? missing(f) : exact(box.value)) };
  }
  if (kind === "json") {
    const box = h("textarea", { rows: "3", spellcheck: "false", placeholder: "JSON", ...common });
    return { element: box, value: () => (box.value.trim() === "" ? missing(f) : parsed(box.value, f)) };
  }
  const box = kind === "long" ? h("textarea", { rows: "3", ...common }) : h("input", { type: types[s.format] ?? "text", pattern: pattern(s), ...common });
  return { element: box, value: () => (box.value === "" ? missing(f) : box.value) };
}

const types = { email: "email", uri: "url", url: "url", date: "date", time: "time", password: "password" };
const bounds = (s) => (s.type === "string" ? { minlength: s.minLength, maxlength: s.maxLength } : {});

/** Returns a schema's pattern, which is of a part of the text, as one of an input, which is of all of it. */
function pattern(s) {
  if (typeof s.pattern !== "string") return undefined;
  try {
    new RegExp(s.pattern, "v");
  } catch {
    return undefined; // what a browser does not read, the agent checks
  }
  return `[\\s\\S]*(?:${s.pattern})[\\s\\S]*`;
}

function choiceOf(s, id, required) {
  const all = choicesOf(s);
  const given = all.findIndex(([, v]) => text(v) === text(s.default ?? null));
  const box = h("select", { id, required }, [!(given >= 0) && h("option", { value: "" }, "–"), all.map(([label], i) => h("option", { value: i, selected: i === given }, visible(short(label, 120))))]);
  return { element: box, value: () => (box.value === "" ? missing({ required, title: s.title }) : all[Number(box.value)][1]) };
}

function choicesInput(s) {
  const given = Array.isArray(s.default) ? s.default.map(text) : [];
  const all = choicesOf(single(s.items)).map(([label, v]) => [h("input", { type: "checkbox", checked: given.includes(text(v)) }), label, v]);
  const element = h("div", {}, all.map(([box, label]) => h("label", { class: "choice" }, box, " ", visible(short(label, 120)))));
  return { element, value: () => all.filter(([box]) => box.checked).map(([, , v]) => v) };
}

/** A number that JavaScript would change is sent as it was written. */
function exact(written) {
  const isJSON = /^-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][-+]?\d+)?$/.test(written);
  return String(Number(written)) === written || !isJSON ? Number(written) : new RawJSON(written);
}

function parsed(written, f) {
  try {
    return new RawJSON(written.trim()).exact();
  } catch {
    throw new Error(`${f.title || "The answer"} is no JSON`);
  }
}

function missing({ required, title }) {
  if (required) throw new Error(`${title || "The answer"} is missing`);
  return undefined;
}
