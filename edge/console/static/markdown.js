// Markdown as elements. It reads what models write: paragraphs, headings, lists, quotes, tables, code, emphasis, links.

import { code } from "./highlight.js";
import { h, visible } from "./dom.js";

/** Most characters that are read as Markdown; longer text is shown as it is. */
export const longest = 64 << 10;

/**
 * Shows a text in an element that shows its beginning, or nothing: only what is behind the last blank line between two blocks
 * is made anew. Links lead outside, and only by http, https and mailto.
 */
export function grow(e, text) {
  const { at, kept } = e.shown ?? { at: 0, kept: 0 };
  while (e.childNodes.length > kept) e.lastChild.remove();
  const lines = text.slice(at).split("\n");
  const done = { lines: 0, nodes: 0 };
  e.append(...blocks(lines, done));
  e.shown = { at: at + lines.slice(0, done.lines).reduce((n, l) => n + l.length + 1, 0), kept: kept + done.nodes };
}

function blocks(lines, done = {}) {
  const out = [];
  for (let i = 0; i < lines.length; ) {
    const line = lines[i];
    const fence = /^\s*(```+|~~~+)\s*([\w+#.-]*)/.exec(line);
    if (fence) {
      let end = i + 1;
      while (end < lines.length && !lines[end].trimStart().startsWith(fence[1])) end++;
      out.push(code(lines.slice(i + 1, end).join("\n"), fence[2]));
      i = end + 1;
    } else if (line.trim() === "") {
      if (++i < lines.length) Object.assign(done, { lines: i, nodes: out.length });
    } else i = block(lines, i, out);
  }
  return out;
}

/** Reads the block that begins at line i; it returns where the next one begins. */
function block(lines, i, out) {
  const line = lines[i];
  const heading = /^(#{1,6})\s+(.*)$/.exec(line);
  if (heading) {
    out.push(h("p", { class: `heading h${heading[1].length}`, role: "heading", "aria-level": Math.min(6, heading[1].length + 1) }, inline(heading[2])));
    return i + 1;
  }
  if (/^\s*([-*_])(\s*\1){2,}\s*$/.test(line)) {
    out.push(h("hr"));
    return i + 1;
  }
  if (/^\s*>/.test(line)) return run(lines, i, (l) => /^\s*>/.test(l), (part) => out.push(h("blockquote", {}, blocks(part.map((l) => l.replace(/^\s*> ?/, ""))))));
  if (item.test(line)) return run(lines, i, (l) => item.test(l) || /^\s+\S/.test(l), (part) => out.push(list(part)));
  if (/^\s*\|.*\|/.test(line) && /^[\s|:-]+$/.test(lines[i + 1] ?? "")) return run(lines, i, (l) => l.includes("|"), (part) => out.push(table(part)));
  return run(lines, i, (l, first) => l.trim() !== "" && (first || !/^\s*(#{1,6}\s|>|```|~~~)/.test(l) && !item.test(l)), (part) =>
    out.push(h("p", {}, part.flatMap((l, k) => (k === 0 ? inline(l) : [h("br"), ...inline(l)])))));
}

const item = /^\s*(?:[-*+]|\d{1,9}[.)])\s+/;

function run(lines, i, belongs, take) {
  let end = i;
  while (end < lines.length && belongs(lines[end], end === i)) end++;
  take(lines.slice(i, end));
  return end;
}

function list(lines) {
  const ordered = /^\s*\d/.test(lines[0]);
  const indent = (l) => /^\s*/.exec(l)[0].length;
  const base = indent(lines[0]);
  const items = [];
  for (const l of lines) {
    if (item.test(l) && indent(l) <= base) items.push([l.replace(item, "")]);
    else items.at(-1)?.push(l.slice(Math.min(indent(l), base + 2)));
  }
  return h(ordered ? "ol" : "ul", ordered ? { start: parseInt(lines[0], 10) } : {}, items.map(([first, ...rest]) => h("li", {}, inline(first), rest.length > 0 && blocks(rest))));
}

function table([head, , ...rows]) {
  const cells = (l) => l.trim().replace(/^\||\|$/g, "").split("|").map((c) => c.trim());
  return h("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "Table" }, h("table", {},
    h("thead", {}, h("tr", {}, cells(head).map((c) => h("th", {}, inline(c))))),
    h("tbody", {}, rows.map((r) => h("tr", {}, cells(r).map((c) => h("td", {}, inline(c))))))));
}

// A code span, a link, strong text, emphasis: whichever comes first. No part can match in two ways, so that time is linear.
const span = /`([^`\n]+)`|\[([^\][\n]{1,500})\]\(([^()\s]{1,2000})\)|\*\*([^*\n]+)\*\*|(?<![\w*])\*([^*\s][^*\n]*)\*(?!\w)|(?<!\w)_([^_\s][^_\n]*)_(?!\w)|(https?:\/\/[^\s<>"')\]]+)/g;

function inline(text) {
  const out = [];
  let at = 0;
  for (const m of text.matchAll(span)) {
    if (m.index > at) out.push(visible(text.slice(at, m.index)));
    at = m.index + m[0].length;
    if (m[1] !== undefined) out.push(h("code", {}, visible(m[1])));
    else if (m[2] !== undefined) out.push(link(m[3], m[2]));
    else if (m[4] !== undefined) out.push(h("strong", {}, inline(m[4])));
    else if (m[7] !== undefined) out.push(link(m[7], m[7]));
    else out.push(h("em", {}, inline(m[5] ?? m[6])));
  }
  if (at < text.length) out.push(visible(text.slice(at)));
  return out;
}

function link(to, text) {
  let url;
  try {
    url = new URL(to);
  } catch {
    return visible(text);
  }
  if (!["http:", "https:", "mailto:"].includes(url.protocol)) return visible(text);
  return h("a", { href: url.href, rel: "noopener noreferrer nofollow", target: "_blank", title: url.href }, visible(text));
}
