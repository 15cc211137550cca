// What was said and done, as a person reads it. Of a long conversation only a part has elements: the part that is looked at.

import { framed, h, fill, patch, save, setText, short, visible } from "../dom.js";
import { bytes, count, duration } from "../format.js";
import { json } from "../highlight.js";
import { grow, longest } from "../markdown.js";
import { badge, button, toast } from "../screen.js";
import { Entries, outline } from "./entries.js";
import { countsOf, noteView, outcomeOf } from "./notes.js";
import { failure, images, textView, valueView } from "./values.js";

const page = 100; // entries that come and go together
const most = 300; // entries that have elements at once
const share = 20; // of the time, one part at most goes into showing one entry anew

/** Returns { element, update, reset, select } for one lane of a model. */
export function conversation(model, { choose, openLane, blob, costs, signal }) {
  let lane = null;
  const known = new Entries();
  let all = []; // the lane's entries
  let entries = []; // those that are looked for
  let outlined = ""; // of the sum from which they were read
  let from = 0, to = 0; // the entries that have elements
  let chosen, timer;
  let stick = true; // the end is followed
  const texts = new WeakMap(); // block → the element that shows its text
  const inputs = new WeakMap(); // input of a call → its elements
  const list = h("ol", { class: "entries", on: { click: touched } });
  const earlier = button("Earlier", () => move(-page), "quiet wide"), later = button("Later", () => move(page), "quiet wide");
  const scroll = h("div", { class: "conversation", tabindex: "0", role: "log", "aria-live": "off", "aria-label": "Conversation", on: { scroll: scrolled } }, earlier, list, later);
  const query = h("input", { type: "search", id: "find", placeholder: "Find in this run", "aria-label": "Find in this run", on: { input: look } });
  const kind = h("select", { "aria-label": "What is shown", on: { change: look } }, Object.entries(kinds).map(([value, [name]]) => h("option", { value }, name)));
  const found = h("span", { class: "hint", role: "status" });
  const unfold = button("Unfold all", () => {
    const all = [...list.querySelectorAll("details:not(.as-sent, .tree details)")];
    const open = all.some((d) => !d.open);
    for (const d of all) (d.open = open), (d.closest(".entry").touched = true);
  }, "quiet unfold");
  const element = h("section", { class: "talk", "aria-label": "What was said and done" }, h("div", { class: "bar small find" }, query, kind, found, h("span", { class: "grow" }), unfold), scroll);
  const update = framed(draw);
  // Entries get their sizes when they come into view. Who is at the end stays there.
  const sized = new ResizeObserver(() => stick && (scroll.scrollTop = scroll.scrollHeight));
  sized.observe(list);
  signal.addEventListener("abort", () => sized.disconnect());

  /** What a person opens or closes stays so, and stays where it is. */
  function touched(e) {
    if (e.target.closest("summary") === null) return;
    e.target.closest(".entry").touched = true;
    stick = false;
  }

  const narrowed = () => query.value.trim() !== "" || kind.value !== "all";

  function fits(entry) {
    const text = query.value.trim().toLowerCase();
    try {
      return kinds[kind.value][1](entry) && (text === "" || textOf(entry).toLowerCase().includes(text));
    } catch {
      return false; // one that cannot be read
    }
  }

  function look() {
    entries = narrowed() ? all.filter(fits) : [...all];
    from = -1;
    update();
  }

  function reset(to = lane) {
    lane = to;
    all = [];
    entries = [];
    outlined = "";
    list.replaceChildren();
    from = -1;
    update();
  }

  /** Reads what is shown, if the sum has more of it, or what failed may be more. */
  function readNew() {
    const s = model.fold.snapshot;
    const now = `${outline(s)},${model.spans.noted(lane)}`;
    if (now !== outlined) all = known.read(s, lane, model.spans.notes(lane, model.position));
    if (now !== outlined || kind.value === "failed") entries = narrowed() ? all.filter(fits) : [...all];
    outlined = now;
    setText(found, narrowed() ? `${count(entries.length)} of ${count(all.length)}${model.partial ? " of its newest events" : ""}` : "");
  }

  function draw() {
    if (from < 0) stick = true;
    const before = entries.length;
    readNew();
    if (from < 0) [from, to] = [Math.max(0, entries.length - page), entries.length];
    else if (to === before) to = stick ? entries.length : Math.min(entries.length, Math.max(to, from + most));
    if (to - from > most && stick) from = to - most;
    render();
  }

  function render() {
    const kept = new Map([...list.children].map((e) => [e.entry, e]));
    let next = Infinity;
    patch(list, entries.slice(from, to).map((entry) => {
      let e = kept.get(entry);
      if (e === undefined) {
        e = h("li", { class: `entry ${entry.kind}`, data: { seq: entry.seq } });
        e.entry = entry;
      }
      if (!e.sealed || e.holds !== entry.blocks?.length) next = Math.min(next, refresh(e, entry));
      e.classList.toggle("chosen", entry.seq === chosen);
      return e;
    }));
    earlier.hidden = from === 0;
    later.hidden = to >= entries.length;
    earlier.textContent = `${count(from)} earlier`;
    later.textContent = `${count(entries.length - to)} later`;
    clearTimeout(timer);
    if (next < Infinity) timer = setTimeout(update, next - performance.now());
  }

  /**
   * Shows an entry anew if it has changed, and returns when that is due if it is too early: a long message that grows must not
   * take all of the page's time.
   */
  function refresh(e, entry) {
    const { kind, it } = entry;
    const now = performance.now();
    try {
      const sign = signature(entry, model.fold);
      if (e.sign === sign) return Infinity;
      if (e.due > now) return e.due;
      e.sign = sign;
      e.holds = entry.blocks?.length;
      show(e, entry);
      e.sealed = kind === "message" ? it.end_seq !== null : kind === "tool" && it.state !== "running";
    } catch (error) {
      showPlain(e, entry, error);
    }
    const end = performance.now();
    e.due = end + (end - now) * share;
    return Infinity;
  }

  function move(n) {
    const at = n < 0 ? list.firstChild : list.lastChild;
    const was = at?.getBoundingClientRect().top ?? 0;
    if (n < 0) {
      from = Math.max(0, from + n);
      to = Math.min(to, from + most);
    } else {
      to = Math.min(entries.length, to + n);
      from = Math.max(from, to - most);
    }
    render();
    if (at?.isConnected) scroll.scrollTop += at.getBoundingClientRect().top - was;
  }

  function scrolled() {
    stick = to === entries.length && scroll.scrollHeight - scroll.scrollTop - scroll.clientHeight < 80;
    if (scroll.scrollTop < 200 && from > 0) move(-page);
    else if (scroll.scrollHeight - scroll.scrollTop - scroll.clientHeight < 200 && to < entries.length) move(page);
  }

  /** Shows an entry. What a person has opened or closed in it stays so. */
  function show(e, entry) {
    const were = e.touched ? [...e.querySelectorAll("details")].map((d) => d.open) : [];
    const raw = e.firstChild ?? seqButton(entry);
    patch(e, [raw, views[entry.kind](entry.it, e, entry)].flat(Infinity).filter(Boolean));
    e.querySelectorAll("details").forEach((d, i) => (d.open = were[i] ?? d.open));
  }

  /** Shows an entry that cannot be shown as what it is: its text, as it was sent. The others are none the worse for it. */
  function showPlain(e, entry, error) {
    fill(e, seqButton(entry),
      h("p", { class: "hint" }, `This ${entry.kind} is shown as plain text: ${short(String(error?.message), 200)}`),
      h("pre", { class: "plain", dir: "auto", tabindex: "0" }, visible(textOf(entry).slice(0, longest))));
    e.parts = undefined;
  }

  const seqButton = (entry) => h("button", { type: "button", class: "seq", "aria-label": `Event ${entry.seq}`, on: { click: () => choose(entry) } }, `#${entry.seq}`);

  const views = {
    message: messageView,
    tool: (c) => toolView(c),
    note: (n) => noteView(n, model.position),
    child: (c) => h("div", { class: "card" }, h("div", { class: "who" }, "child ", c.state && badge(c.state), " ", button(short(c.child_id, 60), () => openLane(c.child_id), "link"), h("span", { class: "hint" }, ` ${countsOf(model.fold, c.child_id)}`), costs.ofChild(c.child_id)), c.prompt && h("p", { dir: "auto" }, short(c.prompt, 600)), c.reason && h("p", { class: "hint" }, short(c.reason, 300))),
    input: (q) => h("div", { class: "card ask" }, h("div", { class: "who" }, outcomeOf(q)), h("p", { dir: "auto" }, visible(q.prompt ?? "A question")), q.options !== null && spoken(q.options), q.answer !== null && [h("p", { class: "hint" }, "answer"), spoken(q.answer)]),
    plan: (p) => planView(p),
  };

  /** Returns the view of a part of a message: the first has its role, the last how it ended. */
  function messageView(m, e, { from, to, blocks }) {
    const last = to === Infinity;
    const who = m.role ?? "message";
    return [h("div", { class: `who r-${m.role}` }, from === 0 ? who : h("span", { class: "hint" }, `${who}, going on`), from === 0 && m.model && h("span", { class: "hint" }, ` ${short(m.model, 60)}`),
      last && (m.end_seq === null ? h("span", { class: "live", role: "img", "aria-label": "under way" }) : costs.ofMessage(m.end_seq))),
    blocks.map((b, i) => part(e, i, b, m)), last && m.error !== null && failure(m.error),
    last && m.stop_reason === "max_tokens" && h("p", { class: "hint" }, "cut at the most tokens that were allowed")];
  }

  /** Returns the view of a message's block: the one that is there, if the block is as it was. */
  function part(e, i, b, m) {
    const parts = (e.parts ??= []);
    const sign = `${b.index}|${b.text.length}|${b.open}|${b.data?.length}|${m.end_seq !== null}`;
    if (parts[i]?.sign !== sign) parts[i] = { sign, view: blockView(b, m) };
    return parts[i].view;
  }

  function blockView(b, m) {
    if (b.kind === "reasoning") return h("details", { class: "thought", open: b.open && m.end_seq === null }, h("summary", {}, b.open ? "Thinking …" : `Thought, ${count(b.text.length)} characters`), text(b));
    if (b.kind === "text") return text(b);
    if (b.data !== undefined) return dataView(b);
    if (b.kind === "tool_use" || b.call_id !== undefined) return b.open ? h("p", { class: "hint" }, `prepares ${short(b.tool ?? "a call", 60)} … ${bytes(b.text.length)}`) : null;
    const image = b.block !== undefined && imageOf(b.block);
    return image || h("details", {}, h("summary", {}, short(b.kind ?? "content", 60)), b.block !== undefined ? json(b.block.text) : text(b));
  }

  /** Returns a text of a block. While it grows, one element shows it. */
  function text(b) {
    if (b.text.length <= longest) {
      const e = (texts.get(b) ?? texts.set(b, h("div", { class: "text", dir: "auto" })).get(b));
      grow(e, b.text);
      return e;
    }
    const rest = h("pre", { class: "plain", dir: "auto", tabindex: "0" }, visible(b.text.slice(0, longest)));
    const all = button(`Show all ${count(b.text.length)} characters`, () => (fill(rest, visible(b.text)), all.remove()), "quiet");
    return [rest, all];
  }

  /** Returns the view of a call's input, which stays as it is while output comes. */
  const inputOf = (c) => inputs.get(c.input) ?? inputs.set(c.input, valueView(c.input)).get(c.input);

  function toolView(c) {
    const took = c.duration_ms === null ? "" : ` · ${duration(Number(c.duration_ms.text))}`;
    const body = () => [
      c.input !== null && [h("p", { class: "hint" }, "input"), inputOf(c)],
      c.output !== null ? [h("p", { class: "hint" }, "result"), valueView(c.output)]
        : c.streamed !== "" && [h("p", { class: "hint" }, c.state === "running" ? "output so far" : "output"), textView(c.streamed.slice(-longest))],
      c.blob_ref !== null && button("Fetch the whole result", () => blob(c.blob_ref), "quiet"), c.error !== null && failure(c.error)];
    const e = h("details", { class: `call ${c.state}`, open: c.state === "running" || c.state === "failed" },
      h("summary", {}, h("span", { class: `dot ${c.state}` }), h("b", {}, short(c.tool ?? "tool", 80)), h("span", { class: "hint" }, ` ${c.state}${took} `, c.input !== null && h("span", { class: "args" }, short(c.input.text, 120)))));
    // What is folded has no elements yet.
    const unfold = () => e.open && e.children.length === 1 && e.append(...[body()].flat(Infinity).filter(Boolean));
    e.addEventListener("toggle", unfold);
    unfold();
    return e;
  }

  function planView(p) {
    let plan = {};
    try {
      plan = p.payload.exact().plan ?? {};
    } catch {
      // Shown without steps.
    }
    const steps = Array.isArray(plan.steps) ? plan.steps : [];
    return h("div", { class: "card plan" }, h("div", { class: "who" }, "plan ", h("span", { class: "hint" }, p.decision ?? (p.gate === "required" ? "waits for approval" : "proposed"))),
      h("ol", {}, steps.slice(0, 500).map((s) => h("li", { dir: "auto" }, short(String(s?.title ?? ""), 300), s?.intent && h("span", { class: "hint" }, ` ${short(String(s.intent), 30)}`)))));
  }

  return {
    element, update, reset,
    /** Chooses the entry that is n further on. */
    step(n) {
      const at = entries.findIndex((e) => e.seq === chosen);
      const next = entries[at < 0 ? entries.length - 1 : Math.min(entries.length - 1, Math.max(0, at + n))];
      if (next !== undefined) choose(next);
    },
    /** Marks the entry that begins at a seq, or the last one before it, and brings it into view. */
    select(seq) {
      let at = entries.findLastIndex((e) => e.seq <= seq);
      if (at < 0) at = 0;
      chosen = entries[at]?.seq;
      stick = false;
      if (at < from || at >= to) [from, to] = [Math.max(0, at - page), Math.min(entries.length, at + page)];
      render();
      list.querySelector(".chosen > details")?.setAttribute("open", "");
      list.querySelector(".chosen")?.scrollIntoView({ block: "center" });
    },
    get lane() {
      return lane;
    },
  };
}

// What may be looked for: its name, and whether an entry is that.
const kinds = {
  all: ["Everything", () => true], said: ["Messages", (e) => e.kind === "message"], tools: ["Tools", (e) => e.kind === "tool"], children: ["Children", (e) => e.kind === "child"],
  notes: ["Progress and custom", (e) => e.kind === "note"],
  asked: ["Questions and plans", (e) => e.kind === "input" || e.kind === "plan"],
  failed: ["What failed", ({ kind, it }) => (kind === "tool" && it.state === "failed") || (kind === "message" && it.error !== null) || (kind === "child" && it.state === "error")],
};

/** Returns the text of an entry that is looked through; "" where it has none that can be read. */
function textOf(entry) {
  try {
    return String(textIn(entry));
  } catch {
    return "";
  }
}

function textIn({ kind, it, blocks }) {
  if (kind === "message") return blocks.map((b) => b.text || b.block?.text || "").join("\n");
  if (kind === "tool") return [it.tool, it.call_id, it.input?.text, it.streamed, it.output?.text, it.error?.text].join("\n");
  if (kind === "child") return `${it.child_id}\n${it.prompt}\n${it.reason}`;
  if (kind === "note") return it.events.map((e) => `${e.type} ${e.json.text}`).join("\n");
  return kind === "input" ? `${it.prompt}\n${it.answer?.text}` : it.payload.text;
}

/** Returns JSON as a person says it: a text as it is, texts side by side, anything else as JSON. */
function spoken(raw) {
  let v;
  try {
    v = raw.value();
  } catch {
    return json(raw.text);
  }
  const texts = Array.isArray(v) ? v : [v];
  return texts.every((t) => typeof t === "string") ? h("p", { dir: "auto" }, visible(texts.join(" · "))) : json(raw.text);
}

/** Returns what an entry's view depends on. */
function signature({ kind, it, blocks }, fold) {
  if (kind === "message") return `${it.end_seq}|${blocks.length}|${blocks.reduce((n, b) => n + b.text.length + (b.open ? 1 : 0) + (b.data?.length ?? 0), 0)}`;
  if (kind === "tool") return `${it.state}|${it.streamed.length}|${it.input?.text.length}`;
  if (kind === "child") return `${it.state}|${it.reason}|${countsOf(fold, it.child_id)}`;
  if (kind === "note") return `${it.count}`;
  return `${it.state ?? it.decision}`;
}

function dataView(b) {
  const data = b.data?.join("") ?? "";
  if (images.has(b.media_type)) return h("img", { class: "content", src: `data:${b.media_type};base64,${data}`, alt: b.name ?? "image of the run" });
  const file = button("Save", () => {
    try {
      save(Uint8Array.from(atob(data), (c) => c.charCodeAt(0)), b.name ?? "data");
    } catch {
      toast("It is not base64.", "bad");
    }
  }, "quiet");
  return h("p", { class: "hint" }, `${short(b.name ?? "data", 80)} · ${short(b.media_type ?? "", 60)} · ${bytes(Math.floor(data.length * 0.75))} `, file);
}

/** Returns an image that a block of a person's message holds; undefined when it holds none. */
function imageOf(raw) {
  let source;
  try {
    source = raw.value()?.source;
  } catch {
    return undefined;
  }
  if (source?.type !== "base64" || !images.has(source.media_type) || typeof source.data !== "string") return undefined;
  return h("img", { class: "content", src: `data:${source.media_type};base64,${source.data}`, alt: "image of the message" });
}
