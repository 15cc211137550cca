// Code and JSON with colours: strings, numbers, comments and the words that most languages share.

import { h, visible } from "./dom.js";
import { copier } from "./screen.js";

/** Most characters that are coloured; the rest is plain. */
const most = 40_000;

const words = "as async await break case catch class const continue def default defer del do elif else enum except export extends false finally fn for from func function go if impl import in interface is let match mut new nil none not null or and package pass pub raise range return self static struct super switch this throw true try type union use var void while with yield select where insert update delete create table".split(" ");
const keyword = new Set(words);
const token = /("(?:[^"\\\n]|\\.)*"?|'(?:[^'\\\n]|\\.)*'?|`[^`]*`?)|(\/\/[^\n]*|#[^\n]*|\/\*[^]*?(?:\*\/|$)|--\s[^\n]*)|(\b\d[\w.]*)|([A-Za-z_]\w*)/g;

/** Returns a block of code with a button that copies it. */
export function code(text, language = "") {
  return h("figure", { class: "code" }, h("figcaption", {}, language || "text", copier(text)), h("pre", { tabindex: "0" }, h("code", {}, colour(text))));
}

/** Returns a JSON text, indented if that is possible and not too long. */
export function json(text) {
  let out = text;
  if (text.length <= most) {
    try {
      out = indent(text);
    } catch {
      out = text;
    }
  }
  return h("pre", { class: "json", tabindex: "0" }, h("code", {}, colour(out)));
}

/** Indents a JSON text and leaves its numbers and strings as they are; JSON.parse would round numbers. */
function indent(text) {
  JSON.parse(text);
  let depth = 0;
  return text.replace(/"(?:[^"\\]|\\.)*"|[[\]{}:,]|\s+|[^\s"[\]{}:,]+/g, (t, at) => {
    const line = () => "\n" + "  ".repeat(Math.min(depth, 40));
    if (t === "{" || t === "[") {
      const empty = /^\s*[\]}]/.test(text.slice(at + 1, at + 40));
      depth++;
      return empty ? t : t + line();
    }
    if (t === "}" || t === "]") {
      depth--;
      return /[[{]\s*$/.test(text.slice(Math.max(0, at - 40), at)) ? t : line() + t;
    }
    if (t === ",") return t + line();
    if (t === ":") return ": ";
    return /^\s+$/.test(t) ? "" : t;
  });
}

function colour(text) {
  if (text.length > most) return [visible(text)];
  const out = [];
  let at = 0;
  for (const m of text.matchAll(token)) {
    const kind = m[1] !== undefined ? "string" : m[2] !== undefined ? "comment" : m[3] !== undefined ? "number" : keyword.has(m[4]) ? "keyword" : undefined;
    if (kind === undefined) continue;
    if (m.index > at) out.push(visible(text.slice(at, m.index)));
    out.push(h("span", { class: `t-${kind}` }, visible(m[0])));
    at = m.index + m[0].length;
  }
  if (at < text.length) out.push(visible(text.slice(at)));
  return out;
}
