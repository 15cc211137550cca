// The events behind what is chosen, as they are stored, and how to fetch them.

import { h, fill } from "../dom.js";
import { bytes, moment, time } from "../format.js";
import { json } from "../highlight.js";
import { copier } from "../screen.js";
import { curl, explain } from "../server.js";

const most = 50; // events that are shown at once
const longest = 64 << 10; // characters of one event that are shown

/** Returns { element, show } for the events of a run. */
export function details(client, run, signal) {
  const body = h("div", { class: "raw" }, h("p", { class: "hint" }, "Choose something to see its events."));
  const element = h("section", { class: "details", "aria-label": "Events" }, h("h2", {}, "Events"), body);

  /** Shows the events from one seq to another. */
  async function show(first, last = first) {
    fill(body, h("p", { class: "hint" }, "Reading …"));
    const command = curl(run, first, last);
    const head = h("div", { class: "curl" }, h("code", {}, command), copier(command));
    try {
      const events = await client.page(run, { after: first - 1, limit: Math.min(most, Math.max(1, last - first + 1)) }, signal);
      fill(body, head, events.filter((e) => e.seq <= last).map((e) => eventView(e)), last - first >= most && h("p", { class: "hint" }, `the first ${most} of ${last - first + 1}`));
    } catch (e) {
      if (!signal.aborted) fill(body, head, h("p", { class: "error", role: "alert" }, `${explain(e).title}. ${explain(e).text ?? ""}`));
    }
  }

  return { element, show };
}

function eventView(e) {
  const text = e.json.text;
  const shown = text.length > longest ? h("p", {}, `${bytes(text.length)}; the beginning:`) : null;
  return h("article", { class: "event" }, h("div", { class: "who" }, h("b", {}, `#${e.seq} ${e.type}`), h("span", { class: "hint", title: moment(e.ts) }, ` ${time(e.ts)}${e.child_id === null ? "" : ` · ${e.child_id}`}${e.actor ? ` · ${e.actor}` : ""}`), copier(text, "Copy", { "aria-label": `Copy event ${e.seq}` })),
    shown, json(text.slice(0, longest)));
}
