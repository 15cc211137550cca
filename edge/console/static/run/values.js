// What tools are given and return, as a person reads it: text as text, objects as a tree that unfolds, and beside it what was
// sent. Of a long value only a part has elements; the rest comes when it is asked for.

import { h, short, visible } from "../dom.js";
import { count } from "../format.js";
import { json } from "../highlight.js";
import { RawJSON } from "../lib/index.js";
import { button } from "../screen.js";
import { Ansi, diff } from "./ansi.js";

const piece = 64 << 10; // characters that come at once
const coloured = 2000; // elements of one piece
const many = 100; // fields and elements of a list that come at once
const inline = 160; // characters of a text that stands behind its name
const readable = 16 << 20; // characters of JSON that are read
// As the source of an img element none of them runs a script or loads anything, image/svg+xml neither.
export const images = new Set(["image/png", "image/jpeg", "image/gif", "image/webp", "image/svg+xml"]);

/** Returns elements that show a RawJSON, with what was sent beside them. */
export function valueView(raw) {
  const v = read(raw);
  if (v === undefined) return [textView(raw.text)];
  return [anyView(v), rawView(raw.text)];
}

/** Returns the value of a RawJSON, with numbers that JavaScript would change as RawJSON; undefined for one that is not read. */
export function read(raw) {
  if (raw.text.length > readable) return undefined;
  try {
    return raw.exact();
  } catch {
    return undefined;
  }
}

function anyView(v) {
  if (typeof v === "string") return within(v) ?? textView(v);
  const parts = contentOf(v);
  if (parts !== undefined) return parts.map((p) => partView(p));
  return isTree(v) ? h("div", { class: "tree" }, fields(v)) : h("p", { dir: "auto" }, scalar(v));
}

/** Returns the tree of an object that was sent as a text; undefined for any other text. */
function within(text) {
  if (!/^\s*[[{]/.test(text) || text.length > piece) return undefined;
  let v;
  try {
    v = new RawJSON(text.trim()).exact();
  } catch {
    return undefined;
  }
  return isTree(v) ? h("div", { class: "tree" }, fields(v)) : undefined;
}

const isTree = (v) => typeof v === "object" && v !== null && !(v instanceof RawJSON);

/** Returns the parts of what is content, as MCP and the providers write it; undefined for anything else. */
export function contentOf(v) {
  const list = Array.isArray(v) ? v : isTree(v) && Array.isArray(v.content) && Object.keys(v).every((k) => ["content", "isError", "is_error"].includes(k)) ? v.content : undefined;
  const isPart = (p) => isTree(p) && (p.type === "text" ? typeof p.text === "string" : p.type === "image");
  return list !== undefined && list.length > 0 && list.length <= many && list.every(isPart) ? list : undefined;
}

function partView(p) {
  if (p.type === "text") return anyView(p.text);
  const source = p.source ?? { type: "base64", media_type: p.mimeType, data: p.data };
  if (source.type !== "base64" || !images.has(source.media_type) || typeof source.data !== "string") return h("div", { class: "tree" }, fields(p));
  return h("img", { class: "content", src: `data:${source.media_type};base64,${source.data}`, alt: "image of the result" });
}

/** Returns a text with its line breaks and its colours. What has no picture is written out. */
export function textView(text, most = piece) {
  const whole = text.replace(/\r\n/g, "\n").replace(/\r(?!\n|$)/g, "\r\n");
  const ansi = new Ansi();
  const pre = h("pre", { class: "plain", dir: "auto", tabindex: "0" });
  let at = 0;
  const more = button("", () => grow(piece * 4), "quiet");
  function grow(n) {
    const end = cut(whole, at + n);
    pre.append(...paint(ansi, whole.slice(at, end), at === 0));
    at = end;
    more.textContent = `Show more: ${count(at)} of ${count(whole.length)} characters are shown`;
    more.hidden = at >= whole.length;
  }
  grow(most);
  return more.hidden ? pre : [pre, more];
}

/** Returns a place at which a text may be parted: within no character, line end or escape. */
function cut(text, at) {
  if (at >= text.length) return text.length;
  const escape = text.lastIndexOf("\x1b", at - 1);
  if (escape > 0 && at - escape < 32 && !/^\x1b\[[\d;:]*[@-~]/.test(text.slice(escape, at))) return escape;
  return /[\ud800-\udbff\r]/.test(text[at - 1]) ? at - 1 : at;
}

function paint(ansi, text, first) {
  const changes = first && !text.includes("\x1b[") ? diff(text) : undefined;
  const all = changes ?? ansi.spans(text);
  const out = all.slice(0, coloured).map(({ text, style }) => (style === "" ? visible(text) : h("span", { class: style }, visible(text))));
  if (all.length > coloured) out.push(visible(all.slice(coloured).map((s) => s.text).join("")));
  return out;
}

/** Returns the fields of an object or the elements of a list, as many as come at once. */
function fields(v, at = 0) {
  const names = Array.isArray(v) ? undefined : Object.keys(v);
  const n = names?.length ?? v.length;
  const out = [];
  for (let i = at; i < Math.min(n, at + many); i++) out.push(field(names?.[i] ?? i, v[names?.[i] ?? i]));
  if (n === 0) out.push(h("span", { class: "hint" }, names === undefined ? "an empty list" : "no fields"));
  if (at + many < n) {
    const more = button(`${count(n - at - many)} more`, () => more.replaceWith(...fields(v, at + many)), "quiet");
    out.push(more);
  }
  return out;
}

function field(name, v) {
  const label = h("span", { class: "name", dir: "auto" }, short(String(name), 120));
  if (isTree(v) && Object.keys(v).length > 0) {
    const e = h("details", {}, h("summary", {}, label, " ", h("span", { class: "hint" }, summary(v))));
    e.addEventListener("toggle", () => e.open && e.children.length === 1 && e.append(h("div", { class: "tree" }, fields(v))));
    return e;
  }
  const long = typeof v === "string" && (v.length > inline || /[\n\x1b]/.test(v));
  return h("div", { class: "field" }, label, " ", long ? textView(v, piece / 4) : scalar(v));
}

function scalar(v) {
  if (typeof v === "string") return h("span", { class: "t-string", dir: "auto" }, v === "" ? '""' : visible(v));
  if (isTree(v)) return h("span", { class: "hint" }, Array.isArray(v) ? "an empty list" : "no fields");
  return h("span", { class: typeof v === "boolean" || v === null ? "t-keyword" : "t-number" }, v instanceof RawJSON ? v.text : String(v));
}

function summary(v) {
  const n = Array.isArray(v) ? v.length : Object.keys(v).length;
  return Array.isArray(v) ? `list of ${count(n)}` : short(Object.keys(v).slice(0, 8).join(", "), 80) + (n > 8 ? " …" : "");
}

function rawView(text) {
  const e = h("details", { class: "as-sent" }, h("summary", {}, "raw"));
  e.addEventListener("toggle", () => e.open && e.children.length === 1 && e.append(...[text.length <= piece / 2 ? json(text) : textView(text)].flat()));
  return e;
}

/** Returns an error as a sentence, with the rest of what was said of it. */
export function failure(raw) {
  const v = read(raw);
  const { text, rest } = sentence(v);
  return h("div", { class: "failure" }, textView(text), rest !== undefined && h("div", { class: "tree" }, fields(rest)), typeof v !== "string" && rawView(raw.text));
}

/** Returns what an error says as { text, rest }: rest is what the text does not say; undefined for nothing. */
export function sentence(v) {
  if (typeof v === "string") return { text: /^[A-Z0-9_-]+$/.test(v) ? `It failed: ${v}` : v };
  if (!isTree(v) || Array.isArray(v)) return { text: "It failed, and nothing says why.", rest: isTree(v) ? v : undefined };
  const nested = isTree(v.error) && !Array.isArray(v.error) ? v.error : v;
  const { message, type, code, error, detail, title, reason, ...others } = nested;
  const said = [message, typeof error === "string" ? error : undefined, detail, reason, title].filter((t) => typeof t === "string" && t !== "");
  const names = [code, type].filter((t) => typeof t === "string" && t !== "" && t !== "error" || typeof t === "number").map(String);
  const rest = Object.keys(others).length > 0 ? others : undefined;
  if (said.length === 0 && names.length === 0) return { text: "It failed, and nothing says why.", rest: v };
  if (said.length === 0) return { text: `It failed: ${names.join(", ")}`, rest };
  return { text: names.length > 0 ? `${said[0]} (${names.join(", ")})` : said[0], rest };
}
