// Markdown as elements. It reads what models write: paragraphs, headings, lists, quotes, tables, code, emphasis, links.

import { code } from "./highlight.js";
import { h, visible } from "./dom.js";

/** Most characters that are read as Markdown; longer text is shown as it is. */
export const longest = 64 << 10;

// Bounds of what a text may ask of the page; what is beyond them is shown as it is written.
const deepest = 16; // quotes and lists in each other
const columns = 50, rows = 500; // of a table
const most = 20_000; // elements of a text, about

/**
 * Shows a text in an element that shows its beginning, or nothing: only what is behind the last blank line between two blocks
 * is made anew. Links lead outside, and only by http, https and mailto.
 */
export function grow(e, text) {
  const { at, kept, left } = e.shown ?? { at: 0, kept: 0, left: most };
  while (e.childNodes.length > kept) e.lastChild.remove();
  const lines = text.slice(at).split("\n");
  const done = { lines: 0, nodes: 0, left };
  for (const b of blocks(lines, { depth: 0, left }, done)) e.append(b);
  e.shown = { at: at + lines.slice(0, done.lines).reduce((n, l) => n + l.length + 1, 0), kept: kept + done.nodes, left: done.left };
}

/** Reads lines within the bounds that are left; done gets how far a growing text need not be read again. */
function blocks(lines, bounds, done = {}) {
  const out = [];
  if (bounds.depth > deepest) return [written(lines)];
  for (let i = 0; i < lines.length; ) {
    if (bounds.left <= 0) {
      out.push(written(lines.slice(i)));
      break;
    }
    const line = lines[i];
    const fence = /^\s*(```+|~~~+)\s*([\w+#.-]*)/.exec(line);
    if (fence) {
      let end = i + 1;
      while (end < lines.length && !lines[end].trimStart().startsWith(fence[1])) end++;
      bounds.left -= 8;
      out.push(code(lines.slice(i + 1, end).join("\n"), fence[2]));
      i = end + 1;
    } else if (line.trim() === "") {
      if (++i < lines.length) Object.assign(done, { lines: i, nodes: out.length, left: bounds.left });
    } else i = block(lines, i, out, bounds);
  }
  return out;
}

/** Returns lines as they are written. */
const written = (lines) => h("pre", { class: "plain", dir: "auto", tabindex: "0" }, visible(lines.join("\n")));

/** Reads the block that begins at line i; it returns where the next one begins. */
function block(lines, i, out, bounds) {
  const line = lines[i];
  bounds.left--;
  const heading = /^(#{1,6})\s+(.*)$/.exec(line);
  if (heading) {
    out.push(h("p", { class: `heading h${heading[1].length}`, role: "heading", "aria-level": Math.min(6, heading[1].length + 1) }, inline(heading[2], bounds)));
    return i + 1;
  }
  if (rule(line)) {
    out.push(h("hr"));
    return i + 1;
  }
  if (/^\s*>/.test(line)) return run(lines, i, (l) => /^\s*>/.test(l), (part) => out.push(h("blockquote", {}, within(part.map((l) => l.replace(/^\s*> ?/, "")), bounds))));
  if (item.test(line)) return run(lines, i, (l) => item.test(l) || /^\s+\S/.test(l), (part) => out.push(list(part, bounds)));
  if (/^\s*\|.*\|/.test(line) && /^[\s|:-]+$/.test(lines[i + 1] ?? "")) return run(lines, i, (l) => l.includes("|"), (part) => out.push(table(part, bounds)));
  return run(lines, i, (l, first) => l.trim() !== "" && (first || !/^\s*(#{1,6}\s|>|```|~~~)/.test(l) && !item.test(l)), (part) =>
    out.push(h("p", {}, part.flatMap((l, k) => (k === 0 ? inline(l, bounds) : [h("br"), ...inline(l, bounds)])))));
}

/** Reports whether a line is a rule: three or more of one sign, and blanks. */
function rule(line) {
  const signs = line.replace(/\s+/g, "");
  return signs.length > 2 && "-*_".includes(signs[0]) && signs === signs[0].repeat(signs.length);
}

/** Reads lines that stand in a quote or a list. */
function within(lines, bounds) {
  bounds.depth++;
  const out = blocks(lines, bounds);
  bounds.depth--;
  return out;
}

const item = /^\s*(?:[-*+]|\d{1,9}[.)])\s+/;

function run(lines, i, belongs, take) {
  let end = i;
  while (end < lines.length && belongs(lines[end], end === i)) end++;
  take(lines.slice(i, end));
  return end;
}

function list(lines, bounds) {
  const ordered = /^\s*\d/.test(lines[0]);
  const indent = (l) => /^\s*/.exec(l)[0].length;
  const base = indent(lines[0]);
  const items = [];
  for (const l of lines) {
    if (item.test(l) && indent(l) <= base) items.push([l.replace(item, "")]);
    else items.at(-1)?.push(l.slice(Math.min(indent(l), base + 2)));
  }
  bounds.left -= items.length;
  return h(ordered ? "ol" : "ul", ordered ? { start: parseInt(lines[0], 10) } : {}, items.map(([first, ...rest]) => h("li", {}, inline(first, bounds), rest.length > 0 && within(rest, bounds))));
}

function table(lines, bounds) {
  const cells = (l) => l.trim().replace(/^\||\|$/g, "").split("|").map((c) => c.trim());
  const [head, , ...body] = lines.slice(0, rows + 2).map(cells);
  const row = (tag, list) => {
    bounds.left -= Math.min(list.length, columns) + 1;
    return h("tr", {}, list.slice(0, columns).map((c) => h(tag, {}, inline(c, bounds))));
  };
  const shown = [];
  bounds.left -= 6;
  for (const r of body) if (bounds.left > 0) shown.push(row("td", r));
  const wide = Math.max(head.length, ...body.map((r) => r.length)) > columns;
  const all = (wide || shown.length < lines.length - 2) && h("details", {}, h("summary", {}, `The table is larger: ${head.length} columns, ${lines.length - 2} rows`), written(lines));
  return h("div", {}, h("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "Table" }, h("table", {}, h("thead", {}, row("th", head)), h("tbody", {}, shown))), all);
}

// A code span, a link, strong text, emphasis: whichever comes first. No part can match in two ways, so that time is linear.
const span = /`([^`\n]+)`|\[([^\][\n]{1,500})\]\(([^()\s]{1,2000})\)|\*\*([^*\n]+)\*\*|(?<![\w*])\*([^*\s][^*\n]*)\*(?!\w)|(?<!\w)_([^_\s][^_\n]*)_(?!\w)|(https?:\/\/[^\s<>"')\]]+)/g;

function inline(text, bounds) {
  const out = [];
  let at = 0;
  for (const m of text.matchAll(span)) {
    if (bounds.left-- <= 0) break;
    if (m.index > at) out.push(visible(text.slice(at, m.index)));
    at = m.index + m[0].length;
    if (m[1] !== undefined) out.push(h("code", {}, visible(m[1])));
    else if (m[2] !== undefined) out.push(link(m[3], m[2]));
    else if (m[4] !== undefined) out.push(h("strong", {}, inline(m[4], bounds)));
    else if (m[7] !== undefined) out.push(link(m[7], m[7]));
    else out.push(h("em", {}, inline(m[5] ?? m[6], bounds)));
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
