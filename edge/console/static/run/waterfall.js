// The bars of a run over time. Only what is seen is drawn: lanes and bars outside the view have no elements.

import { framed, h, fill, patch, setText, short } from "../dom.js";
import { duration } from "../format.js";
import { button } from "../screen.js";

const rowHeight = 18;
const most = 600; // elements for bars at once
const every = 250; // milliseconds between two looks at what grows

/** Returns { element, update, select } for the bars of a model. */
export function waterfall(model, { choose, openLane, all, signal }) {
  let zoom = 1;
  let chosen; // a seq
  const labels = h("div", { class: "w-labels" });
  const bars = h("div", { class: "w-bars", role: "listbox", "aria-label": "Timeline", on: { keydown, click } });
  const now = h("div", { class: "w-now" });
  const inner = h("div", { class: "w-inner" }, bars, now);
  const view = h("div", { class: "w-view", tabindex: "-1" }, inner);
  const axis = h("div", { class: "w-axis" });
  const note = h("span", { class: "hint" });
  const whole = button("Show all", all, "link", { hidden: true });
  const frame = h("div", { class: "w-frame" }, h("div", { class: "w-side" }, labels), h("div", { class: "w-main" }, axis, view));
  const element = h("section", { class: "waterfall", "aria-label": "Waterfall" },
    h("div", { class: "bar small" }, h("h2", {}, "Timeline"), note, whole, h("span", { class: "grow" }), legend(),
      button("−", () => setZoom(zoom / 2), "quiet", { "aria-label": "Zoom out" }), button("+", () => setZoom(zoom * 2), "quiet", { "aria-label": "Zoom in" }), button("Fit", () => setZoom(1), "quiet")),
    frame);
  const known = new Map(); // bar or lane → its element
  let scale = 1; // milliseconds that are shown
  let stale = true;
  const redraw = framed(draw);
  view.addEventListener("scroll", () => {
    labels.parentElement.scrollTop = view.scrollTop;
    redraw();
  });
  const resized = new ResizeObserver(redraw);
  resized.observe(view);
  const tick = setInterval(() => (stale || (!model.ended && model.mode === "live")) && redraw(), every);
  signal.addEventListener("abort", () => (resized.disconnect(), clearInterval(tick)));

  function setZoom(z) {
    const middle = (view.scrollLeft + view.clientWidth / 2) / Math.max(1, inner.offsetWidth);
    zoom = Math.min(4096, Math.max(1, z));
    inner.style.width = `${zoom * 100}%`;
    view.scrollLeft = middle * inner.offsetWidth - view.clientWidth / 2;
    redraw();
  }

  function draw() {
    stale = false;
    const { spans } = model;
    const began = spans.begin;
    if (!Number.isFinite(began)) return;
    const until = Math.max(spans.end, model.mode === "live" && !model.ended ? Date.now() : spans.end, began + 1);
    // While the run goes on there is some room behind it: its bars stay where they are until that is used up.
    if (until - began > scale || until - began < scale * 0.9 || model.ended) scale = (until - began) * (model.ended ? 1 : 1.04);
    const width = inner.offsetWidth || 1;
    const at = (t) => ((t - began) / scale) * width;
    const { scrollTop, clientHeight } = view;
    let y = 0;
    const rows = [];
    for (const lane of spans.lanes.values()) {
      const height = Math.max(1, Math.min(8, lane.free.length)) * rowHeight + 6;
      if (y + height >= scrollTop && y <= scrollTop + clientHeight) rows.push({ lane, y, height });
      y += height;
    }
    const left = view.scrollLeft - 2, right = view.scrollLeft + view.clientWidth + 2;
    drawAxis(width);
    inner.style.height = `${Math.max(y, clientHeight - 2)}px`;
    labels.style.height = `${y}px`;
    frame.style.height = `${Math.min(240, Math.max(110, y + 40))}px`;
    patch(labels, rows.map(({ lane, y, height }) => laneLabel(lane, y, height)));
    patch(bars, rows.flatMap(({ lane, y }) => laneBars(lane, y, at, until, left, right)).slice(0, most));
    const seen = new Set([...labels.children, ...bars.children]);
    for (const [what, e] of known) if (!seen.has(e)) known.delete(what);
    now.style.left = `${at(timeOf(model))}px`;
    setText(note, spans.left);
    whole.hidden = !spans.left.includes("newest");
    const first = bars.querySelector('[aria-selected="true"]') ?? bars.firstChild;
    if (first) first.tabIndex = 0;
  }

  /** Returns the element of a bar or a lane: the one that is there, with another place if that has changed. */
  function kept(what, sign, place, make) {
    let e = known.get(what);
    if (e?.sign !== sign) {
      const fresh = make();
      fresh.sign = sign;
      if (e !== undefined && e === document.activeElement) requestAnimationFrame(() => fresh.focus());
      known.set(what, (e = fresh));
    }
    const at = JSON.stringify(place);
    if (e.place !== at) Object.assign(e.style, place);
    e.place = at;
    return e;
  }

  function laneLabel(lane, y, height) {
    const name = lane.id ?? "run";
    return kept(lane, lane.prompt, { top: `${y}px`, height: `${height}px`, paddingInlineStart: `${8 + Math.min(8, lane.depth) * 12}px` }, () =>
      h("button", { type: "button", class: "w-lane", title: lane.prompt ?? name, on: { click: () => openLane(lane.id) } }, short(name, 60)));
  }

  function laneBars(lane, y, at, until, left, right) {
    const out = [];
    const dense = []; // right edge of the last bar of each row
    for (const bar of lane.bars) {
      const a = at(bar.from), b = Math.max(a + 2, at(bar.to ?? until));
      if (b < left || a > right || (b - a < 3 && dense[bar.row] >= a)) continue;
      dense[bar.row] = b;
      out.push(barOf(bar, a, b, y + 3 + Math.min(7, bar.row) * rowHeight, until));
      if (out.length >= most) break;
    }
    return out;
  }

  function barOf(bar, a, b, top, until) {
    const took = duration((bar.to ?? until) - bar.from);
    const how = bar.to === undefined ? "under way" : bar.ok ? "" : "failed";
    const text = b - a > 24 ? short(bar.label, 40) : "";
    return kept(bar, `${took} ${how} ${text} ${bar.label} ${bar.seq === chosen}`, { left: `${a}px`, width: `${b - a}px`, top: `${top}px` }, () => {
      const e = h("div", {
        class: `w-bar k-${bar.kind} ${bar.ok ? "" : "bad"} ${bar.to === undefined ? "open" : ""}`, role: "option", tabindex: "-1", data: { seq: bar.seq },
        "aria-selected": bar.seq === chosen ? "true" : "false", "aria-label": `${bar.kind} ${bar.label}, ${took} ${how}`, title: `${bar.label} · ${took} ${how}`,
      }, text);
      e.bar = bar;
      return e;
    });
  }

  function drawAxis(width) {
    const shown = view.clientWidth || 1;
    const n = Math.max(2, Math.floor(shown / 120));
    fill(axis, Array.from({ length: n }, (_, i) => {
      const x = (shown * i) / n;
      const e = h("span", {}, duration(((view.scrollLeft + x) / width) * scale));
      e.style.left = `${x}px`;
      return e;
    }));
  }

  function click(e) {
    const { bar } = e.target.closest?.(".w-bar") ?? {};
    if (bar !== undefined) choose(bar);
  }

  function keydown(e) {
    const all = [...bars.children];
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[e.key];
    const here = all.indexOf(document.activeElement);
    if (step !== undefined) all[Math.min(all.length - 1, Math.max(0, here + step))]?.focus();
    else if ((e.key === "Enter" || e.key === " ") && here >= 0) choose(all[here].bar);
    else return;
    e.preventDefault();
  }

  return {
    element,
    /** Something may have changed: it is drawn at the next look. */
    update: () => (stale = true),
    select(seq) {
      chosen = seq;
      redraw();
    },
  };
}

/** Returns when the event at which a model stands happened, about. */
function timeOf(model) {
  if (model.mode === "live" && !model.ended) return Date.now();
  return Date.parse(model.fold.snapshot.last_ts ?? "") || model.spans.end;
}

function legend() {
  return h("span", { class: "legend" }, ["turn", "model", "message", "tool", "task", "wait"].map((k) => h("span", { class: `k-${k}` }, k)));
}
