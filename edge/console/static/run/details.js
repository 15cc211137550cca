// The events of a run as they are stored: those of what is chosen, or all of them, looked through; how to fetch them, and as a file.

import { h, fill, save, setText, short } from "../dom.js";
import { bytes, count, moment, time } from "../format.js";
import { json } from "../highlight.js";
import { formatEvent } from "../lib/index.js";
import { button, copier, toast } from "../screen.js";
import { explain, token, why } from "../server.js";
import { eventsOf } from "./recipes.js";

const most = 50; // events that are shown at once
const longest = 64 << 10; // characters of one event that are shown
const largest = 512 << 20; // characters of a file that a tab holds

/** Returns { element, show } for the events of a run. */
export function details(client, run, signal) {
  const body = h("div", { class: "raw" }, h("p", { class: "hint" }, "Choose something to see its events, or list all of them."));
  const types = h("input", { id: "event-types", placeholder: "Types: tool.*", "aria-label": "Types of events", size: "18" });
  const words = h("input", { type: "search", id: "event-words", placeholder: "Text in events", "aria-label": "Text in events", size: "14" });
  const file = button("Download (JSONL)", download, "quiet");
  const form = h("form", { class: "bar small", on: { submit: (e) => (e.preventDefault(), list(0)) } }, types, words, h("button", { type: "submit" }, "List events"), file);
  const element = h("section", { class: "details", "aria-label": "Events" }, h("h2", {}, "Events"), form, body);
  let work = new AbortController();

  /** Begins what ends what was begun before. */
  function begin() {
    work.abort();
    work = new AbortController();
    return AbortSignal.any([signal, work.signal]);
  }

  const trouble = (e, own, ...before) => own.aborted || fill(body, ...before, h("p", { class: "error", role: "alert" }, `${explain(e).title}. ${explain(e).text ?? ""}`));
  const query = () => ({ limit: 1000, ...(types.value.trim() === "" ? {} : { types: types.value.trim().split(/[\s,]+/) }) });

  /** Shows the events from one seq to another. */
  async function show(first, last = first) {
    const own = begin();
    fill(body, h("p", { class: "hint" }, "Reading …"));
    const command = eventsOf(location.origin, run, first, last, token() !== "");
    const head = h("div", { class: "curl" }, h("code", {}, command), copier(command));
    try {
      const events = await client.page(run, { after: first - 1, limit: Math.min(most, Math.max(1, last - first + 1)) }, own);
      fill(body, head, events.filter((e) => e.seq <= last).map((e) => eventView(e)), last - first >= most && h("p", { class: "hint" }, `the first ${most} of ${last - first + 1}`));
    } catch (e) {
      trouble(e, own, head);
    }
  }

  /** Lists the events behind a seq that are looked for, as many as are shown at once. */
  async function list(after) {
    const own = begin();
    const text = words.value.trim().toLowerCase();
    const status = h("p", { class: "hint", role: "status" }, "Reading …");
    fill(body, status);
    const found = [];
    let seen = 0;
    try {
      for await (const e of client.events(run, { ...query(), after, ...(text === "" ? { limit: most + 1 } : {}) }, own)) {
        if (++seen % 1000 === 0) setText(status, `Reading … ${count(seen)} events, ${count(found.length)} found`);
        if (text === "" || e.json.text.toLowerCase().includes(text) || e.type.includes(text)) found.push(e);
        if (found.length > most) break;
      }
    } catch (e) {
      return trouble(e, own);
    }
    const shown = found.slice(0, most);
    fill(body, shown.length === 0 ? h("p", { class: "hint", role: "status" }, "No event matches.") : h("p", { class: "hint", role: "status" }, `#${shown[0].seq} to #${shown.at(-1).seq}`),
      shown.map((e) => rowView(e)),
      h("div", { class: "actions" }, after > 0 && button("From the beginning", () => list(0), "quiet"), found.length > most && button("More", () => list(shown.at(-1).seq), "quiet")));
  }

  /** Saves the events as a file, one JSON object on each line, as they are stored. */
  async function download() {
    const lines = [];
    let size = 0, n = 0;
    file.disabled = true;
    try {
      for await (const e of client.events(run, query(), signal)) {
        const line = formatEvent(e) + "\n";
        size += line.length;
        if (size > largest) throw new Error(`more than ${bytes(largest)}; use the command "agentstream tail --json"`);
        lines.push(line);
        if (++n % 1000 === 0) setText(file, `${count(n)} events …`);
      }
      save(lines, `${run}.jsonl`);
    } catch (e) {
      if (!signal.aborted) toast(`The events could not be fetched: ${why(e)}.`, "bad");
    }
    file.disabled = false;
    setText(file, "Download (JSONL)");
  }

  return { element, show };
}

const nameOf = (e) => [h("b", {}, `#${e.seq} ${short(e.type, 120)}`), h("span", { class: "hint", title: moment(e.ts) }, ` ${time(e.ts)}${e.child_id === null ? "" : ` · ${e.child_id}`}${e.actor ? ` · ${e.actor}` : ""}`)];

/** Returns an event as one line that unfolds. */
function rowView(e) {
  const row = h("details", { class: "event" }, h("summary", {}, nameOf(e), " ", h("span", { class: "args hint" }, short(e.json.text, 100))));
  row.addEventListener("toggle", () => row.open && row.children.length === 1 && row.append(...content(e)));
  return row;
}

function eventView(e) {
  return h("article", { class: "event" }, h("div", { class: "who" }, nameOf(e), copier(e.json.text, "Copy", { "aria-label": `Copy event ${e.seq}` })), content(e));
}

function content(e) {
  const { text } = e.json;
  return [...(text.length > longest ? [h("p", {}, `${bytes(text.length)}; the beginning:`)] : []), json(text.slice(0, longest))];
}
