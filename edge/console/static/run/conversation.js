// What was said and done, as a person reads it. Of a long conversation only a part has elements: the part that is looked at.

import { framed, h, fill, short, visible } from "../dom.js";
import { bytes, duration } from "../format.js";
import { json } from "../highlight.js";
import { longest, markdown } from "../markdown.js";
import { badge, button } from "../screen.js";

const page = 100; // entries that come and go together
const most = 300; // entries that have elements at once
const images = new Set(["image/png", "image/jpeg", "image/gif", "image/webp"]);

/** Returns { element, update, reset, select } for one lane of a model. */
export function conversation(model, { choose, openLane, blob }) {
  let lane = null;
  let entries = []; // { seq, kind, it }
  let taken = {}; // how much of each list of the snapshot is in entries
  let from = 0, to = 0; // the entries that have elements
  let chosen;
  const list = h("ol", { class: "entries" });
  const earlier = button("Earlier", () => move(-page), "quiet wide"), later = button("Later", () => move(page), "quiet wide");
  const scroll = h("div", { class: "conversation", tabindex: "0", role: "log", "aria-live": "off", "aria-label": "Conversation", on: { scroll: scrolled } }, earlier, list, later);
  const update = framed(draw);

  function reset(to = lane) {
    lane = to;
    entries = [];
    taken = { messages: 0, tool_calls: 0, children: 0, inputs: 0, plan: null };
    list.replaceChildren();
    from = -1;
    update();
  }

  /** Takes what is new in the sum; the lists only grow. */
  function grow() {
    const s = model.fold.snapshot;
    const fresh = [];
    const of = (name, kind, seq) => {
      for (const it of s[name].slice(taken[name])) if ((kind === "child" ? it.parent_id : it.child_id) === lane) fresh.push({ seq: seq(it) ?? 0, kind, it });
      taken[name] = s[name].length;
    };
    of("messages", "message", (m) => m.start_seq);
    of("tool_calls", "tool", (c) => c.start_seq);
    of("children", "child", (c) => c.spawn_seq);
    of("inputs", "input", (q) => q.seq);
    if (s.plan !== null && s.plan !== taken.plan && s.plan.child_id === lane) fresh.push({ seq: s.plan.seq, kind: "plan", it: s.plan });
    taken.plan = s.plan;
    fresh.sort((a, b) => a.seq - b.seq);
    entries.push(...fresh);
  }

  function draw() {
    const stick = from < 0 || (to === entries.length && scroll.scrollHeight - scroll.scrollTop - scroll.clientHeight < 80);
    const before = entries.length;
    grow();
    if (from < 0) [from, to] = [Math.max(0, entries.length - page), entries.length];
    else if (to === before) to = stick ? entries.length : Math.min(entries.length, Math.max(to, from + most));
    if (to - from > most && stick) from = to - most;
    render();
    if (stick) scroll.scrollTop = scroll.scrollHeight;
  }

  function render() {
    const kept = new Map([...list.children].map((e) => [e.entry, e]));
    const wanted = entries.slice(from, to);
    wanted.forEach((entry, i) => {
      let e = kept.get(entry);
      if (e === undefined) {
        e = h("li", { class: `entry ${entry.kind}`, data: { seq: entry.seq } });
        e.entry = entry;
      }
      const sign = signature(entry);
      if (e.sign !== sign) {
        e.sign = sign;
        show(e, entry);
      }
      e.classList.toggle("chosen", entry.seq === chosen);
      if (list.children[i] !== e) list.insertBefore(e, list.children[i] ?? null);
    });
    while (list.children.length > wanted.length) list.lastChild.remove();
    earlier.hidden = from === 0;
    later.hidden = to >= entries.length;
    earlier.textContent = `${from.toLocaleString("en-US")} earlier`;
    later.textContent = `${(entries.length - to).toLocaleString("en-US")} later`;
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
    if (scroll.scrollTop < 200 && from > 0) move(-page);
    else if (scroll.scrollHeight - scroll.scrollTop - scroll.clientHeight < 200 && to < entries.length) move(page);
  }

  function show(e, entry) {
    const raw = h("button", { type: "button", class: "seq", "aria-label": `Event ${entry.seq}`, on: { click: () => choose(entry) } }, `#${entry.seq}`);
    fill(e, raw, views[entry.kind](entry.it, e));
  }

  const views = {
    message: (m) => [h("div", { class: `who r-${m.role}` }, m.role ?? "message", m.model && h("span", { class: "hint" }, ` ${short(m.model, 60)}`), m.end_seq === null && h("span", { class: "live", role: "img", "aria-label": "under way" })),
      m.blocks.map((b) => blockView(b, m)), m.error !== null && failure(m.error), m.stop_reason === "max_tokens" && h("p", { class: "hint" }, "cut at the most tokens that were allowed")],
    tool: (c) => toolView(c),
    child: (c) => h("div", { class: "card" }, h("div", { class: "who" }, "child ", badge(c.state), " ", button(short(c.child_id, 60), () => openLane(c.child_id), "link")), c.prompt && h("p", { dir: "auto" }, short(c.prompt, 600)), c.reason && h("p", { class: "hint" }, short(c.reason, 300))),
    input: (q) => h("div", { class: "card ask" }, h("div", { class: "who" }, q.state === "open" ? "waits for an answer" : "answered"), h("p", { dir: "auto" }, visible(q.prompt ?? "A question")), q.options !== null && json(q.options.text), q.answer !== null && json(q.answer.text)),
    plan: (p) => planView(p),
  };

  function blockView(b, m) {
    if (b.kind === "reasoning") return h("details", { class: "thought", open: b.open && m.end_seq === null }, h("summary", {}, b.open ? "Thinking …" : `Thought, ${b.text.length.toLocaleString("en-US")} characters`), text(b));
    if (b.kind === "text") return text(b);
    if (b.kind === "data") return dataView(b);
    if (b.kind === "tool_use" || b.call_id !== undefined) return b.open ? h("p", { class: "hint" }, `prepares ${short(b.tool ?? "a call", 60)} … ${bytes(b.text.length)}`) : null;
    return h("details", {}, h("summary", {}, short(b.kind ?? "content", 60)), b.block !== undefined ? imageOf(b.block) ?? json(b.block.text) : text(b));
  }

  function text(b) {
    if (b.text.length <= longest) return h("div", { class: "text", dir: "auto" }, markdown(b.text));
    const rest = h("pre", { class: "plain", dir: "auto", tabindex: "0" }, visible(b.text.slice(0, longest)));
    const all = button(`Show all ${b.text.length.toLocaleString("en-US")} characters`, () => (fill(rest, visible(b.text)), all.remove()), "quiet");
    return [rest, all];
  }

  function toolView(c) {
    const took = c.duration_ms === null ? "" : ` · ${duration(Number(c.duration_ms.text))}`;
    const output = c.output !== null ? json(c.output.text) : c.streamed !== "" ? h("pre", { class: "plain", dir: "auto", tabindex: "0" }, visible(c.streamed.slice(-longest))) : null;
    return h("details", { class: `call ${c.state}`, open: c.state === "running" || c.state === "failed" },
      h("summary", {}, h("span", { class: `dot ${c.state}` }), h("b", {}, short(c.tool ?? "tool", 80)), h("span", { class: "hint" }, ` ${c.state}${took} `, c.input !== null && short(c.input.text, 120))),
      c.input !== null && [h("p", { class: "hint" }, "input"), json(c.input.text)], output && [h("p", { class: "hint" }, c.state === "running" ? "output so far" : "result"), output],
      c.blob_ref !== null && button("Fetch the whole result", () => blob(c.blob_ref), "quiet"), c.error !== null && failure(c.error));
  }

  function planView(p) {
    let plan = {};
    try {
      plan = p.payload.value().plan ?? {};
    } catch {
      // Shown without steps.
    }
    const steps = Array.isArray(plan.steps) ? plan.steps : [];
    return h("div", { class: "card plan" }, h("div", { class: "who" }, "plan ", h("span", { class: "hint" }, p.decision ?? (p.gate === "required" ? "waits for approval" : "open"))),
      h("ol", {}, steps.slice(0, 500).map((s) => h("li", { dir: "auto" }, short(String(s?.title ?? ""), 300), s?.intent && h("span", { class: "hint" }, ` ${short(String(s.intent), 30)}`)))));
  }

  return {
    element: scroll, update, reset,
    /** Marks the entry that begins at a seq, or the last one before it, and brings it into view. */
    select(seq) {
      let at = entries.findLastIndex((e) => e.seq <= seq);
      if (at < 0) at = 0;
      chosen = entries[at]?.seq;
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

/** Returns what an entry's view depends on. */
function signature({ kind, it }) {
  if (kind === "message") return `${it.end_seq}|${it.blocks.length}|${it.blocks.reduce((n, b) => n + b.text.length + (b.open ? 1 : 0) + (b.data?.length ?? 0), 0)}`;
  if (kind === "tool") return `${it.state}|${it.streamed.length}|${it.input?.text.length}`;
  if (kind === "child") return `${it.state}|${it.reason}`;
  return `${it.state ?? it.decision}`;
}

function failure(error) {
  return h("div", { class: "failure" }, json(error.text));
}

function dataView(b) {
  const data = b.data?.join("") ?? "";
  if (images.has(b.media_type)) return h("img", { class: "content", src: `data:${b.media_type};base64,${data}`, alt: b.name ?? "image of the run" });
  return h("p", { class: "hint" }, `${short(b.name ?? "data", 80)} · ${short(b.media_type ?? "", 60)} · ${bytes(Math.floor(data.length * 0.75))}`);
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
