// What is shown between what was said and done: progress, custom events, what was lost; and what is said of children and questions.

import { h, short, visible } from "../dom.js";
import { count, duration } from "../format.js";
import { RawJSON } from "../lib/index.js";
import { attempt } from "./spans.js";
import { read, sentence, valueView } from "./values.js";

const shown = 20; // events of a note that have elements

/** Returns the view of a note, of its events up to one: neighbours of one kind are folded into the newest. */
export function noteView(n, until) {
  const events = n.events.filter((e) => e.seq <= until);
  const newest = events.at(-1) ?? n.events[0];
  if (n.kind === "progress") return progressView(newest, n.count);
  const all = events.slice(-shown);
  if (events.length > 0 && events.every((e) => e.type === attempt)) return h("div", { class: "note" }, all.map((e) => h("div", { dir: "auto" }, visible(short(attemptText(read(e.json) ?? {}), 400)))));
  const e = h("details", { class: "note" }, h("summary", {}, h("b", {}, short(newest.type, 120)), n.count > 1 && h("span", { class: "hint" }, ` and ${count(n.count - 1)} before`), " ", h("span", { class: "args hint" }, short(newest.json.text, 120))));
  e.addEventListener("toggle", () => e.open && e.children.length === 1 && e.append(...all.map((x) => h("div", {}, h("p", { class: "hint" }, `#${x.seq} ${short(x.type, 120)}`), valueView(x.json)))));
  return e;
}

/** Returns an attempt at a call of a model, as a sentence. */
export function attemptText({ attempt, status, error, wait_ms }) {
  const why = error === undefined || error === null ? undefined : sentence(error).text;
  const waits = Number.isFinite(wait_ms) && wait_ms > 0 ? `; another one is waited for, ${duration(wait_ms)} at most` : "";
  return `Attempt ${attempt ?? ""} at the call failed${Number.isFinite(status) && status > 0 ? ` with ${status}` : ""}${why === undefined ? "" : `: ${why}`}${waits}`.replace("  ", " ");
}

/** Returns what a progress event says, with a bar where it says of how much. */
function progressView(e, n) {
  const p = read(e.json) ?? {};
  const [done, total] = [p.done, p.total].map((v) => (v instanceof RawJSON ? Number(v.text) : v));
  const text = typeof p.message === "string" && p.message !== "" ? p.message : "progress";
  const measured = Number.isFinite(done) && Number.isFinite(total) && total > 0;
  return h("div", { class: "note" }, h("span", { dir: "auto" }, visible(short(text, 300))), " ",
    measured && h("progress", { max: String(total), value: String(Math.min(done, total)), "aria-label": short(text, 100) }),
    measured && h("span", { class: "hint" }, ` ${count(done)} of ${count(total)}`), n > 1 && h("span", { class: "hint" }, ` · ${count(n)} events`));
}

const counted = new WeakMap(); // fold → what its children have done, at a version

/** Returns what a child has done so far, as text. All children are counted at once, again when the sum has grown. */
export function countsOf(fold, id) {
  let known = counted.get(fold);
  if (known?.version !== fold.version) counted.set(fold, (known = { version: fold.version, of: countAll(fold.snapshot) }));
  const own = known.of.get(id) ?? {};
  const text = (n, one, more) => n > 0 && `${count(n)} ${n === 1 ? one : more}`;
  return [text(own.messages, "message", "messages"), text(own.calls, "call", "calls"), text(own.children, "child", "children"), text(own.questions, "question", "questions")].filter(Boolean).join(" · ");
}

function countAll({ messages, tool_calls, children, inputs }) {
  const all = new Map();
  const add = (list, name, key = "child_id") => {
    for (const it of list) {
      if (it[key] === null) continue;
      if (!all.has(it[key])) all.set(it[key], {});
      const own = all.get(it[key]);
      own[name] = (own[name] ?? 0) + 1;
    }
  };
  add(messages, "messages");
  add(tool_calls, "calls");
  add(children, "children", "parent_id");
  add(inputs, "questions");
  return all;
}

/** Returns what has become of a question. An agent may end one without an answer of anybody. */
export function outcomeOf(q) {
  if (q.state === "open") return "waits for an answer";
  if (q.state === "ended") return "not waited for any more";
  return q.answer === null ? "ended without an answer" : "answered";
}
