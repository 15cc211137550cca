// Elements are made here and nowhere else. Text stays text: nothing in the console makes HTML from a string.

/**
 * Returns an element. Properties: `class`, `on` (listeners by their events), `data` (data attributes), `value`, and attributes;
 * true sets an attribute without a value, false, null and undefined set none. Children are nodes, texts, and lists of them.
 */
export function h(tag, props = {}, ...children) {
  const e = document.createElement(tag);
  for (const [name, v] of Object.entries(props)) {
    if (v === undefined || v === null || v === false) continue;
    if (name === "class") e.className = v;
    else if (name === "on") for (const [type, f] of Object.entries(v)) e.addEventListener(type, f);
    else if (name === "data") Object.assign(e.dataset, v);
    else if (name === "value") e.value = v;
    else e.setAttribute(name, v === true ? "" : v);
  }
  add(e, children);
  return e;
}

function add(e, children) {
  for (const c of children) {
    if (c === undefined || c === null || c === false) continue;
    if (Array.isArray(c)) add(e, c);
    else e.append(c);
  }
}

/** Replaces what an element holds. */
export function fill(e, ...children) {
  e.replaceChildren();
  add(e, children);
  return e;
}

/** Makes nodes the children of an element. Those that are there already stay where they are, with focus and selection. */
export function patch(e, nodes) {
  const wanted = new Set(nodes);
  for (const c of [...e.childNodes]) if (!wanted.has(c)) c.remove();
  nodes.forEach((n, i) => e.childNodes[i] === n || e.insertBefore(n, e.childNodes[i] ?? null));
}

/** Sets the text of an element if it is another one, so that a screen reader is not told of nothing. */
export function setText(e, text) {
  if (e.textContent !== text) e.textContent = text;
}

/** Returns f that runs once in the next animation frame, however often it is called. */
export function framed(f) {
  let asked = 0;
  const run = () => {
    asked = 0;
    f();
  };
  return () => {
    if (asked === 0) asked = requestAnimationFrame(run);
  };
}

/** Saves content as a file of the reader's. */
export function save(content, name) {
  const url = URL.createObjectURL(new Blob([content].flat(), { type: "application/octet-stream" }));
  h("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}

const off = "agentstream-keys-off";

/** Whether keys without Ctrl do something; given a value, sets it. */
export function keysOn(on) {
  if (on !== undefined) on ? localStorage.removeItem(off) : localStorage.setItem(off, "yes");
  return localStorage.getItem(off) === null;
}

/** Does what a pressed key stands for, unless somebody types, until the signal. */
export function keys(what, signal) {
  const pressed = (e) => {
    if (what[e.key] === undefined || e.ctrlKey || e.metaKey || e.altKey || e.target.closest?.("input, textarea, select, dialog") || !keysOn()) return;
    e.preventDefault();
    what[e.key]();
  };
  document.addEventListener("keydown", pressed, signal === undefined ? {} : { signal });
}

// Control characters, and the ones that turn the direction of a line, are shown as what they are.
const hidden = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069\ufeff]/g;

/** Returns text in which characters that would hide or reorder others are written out. */
export function visible(text) {
  return text.replace(hidden, (c) => {
    const n = c.charCodeAt(0);
    return n < 0x20 ? String.fromCharCode(0x2400 + n) : `⟨U+${n.toString(16).toUpperCase().padStart(4, "0")}⟩`;
  });
}

/** Returns text that is short enough for one line. */
export function short(text, most = 200) {
  const line = visible(text.slice(0, most + 1).replace(/\s+/g, " "));
  return line.length > most ? line.slice(0, most) + "…" : line;
}
