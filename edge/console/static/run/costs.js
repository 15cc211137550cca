// What the messages of a run and its children have cost. The server computes it by its prices, of what it has stored.

import { h } from "../dom.js";
import { cost } from "../format.js";
import { ServerError } from "../lib/index.js";
import { ask } from "../server.js";

const every = 5000; // ms between two questions
const pageSize = 1000;
const most = 20_000; // messages that are read of a run

/** Reads costs while the run is shown, and after each change calls `changed`. */
export class Costs {
  #messages = new Map(); // seq of a message.end → what it has cost
  #children = new Map(); // id of a child, "" of the run itself → what its messages have cost
  #labels = new Map(); // "seq 7", "child ID" → the element that shows it
  #after = 0; // the messages up to this seq are known
  #complete = true; // so far from the run's beginning

  constructor(run, signal, changed) {
    Object.assign(this, { path: `/v1/agent/runs/${encodeURIComponent(run)}/costs`, signal, changed });
  }

  /** Asks again while the run grows. A server without costs is asked once. */
  async follow(model) {
    for (let asked = -1, same = 0; !this.signal.aborted; await new Promise((r) => setTimeout(r, every))) {
      if (document.visibilityState === "hidden" || model.newest === 0) continue;
      same = model.newest === asked ? same + 1 : 0;
      if (same > 2) continue; // what is stored a moment later has been asked for, too
      asked = model.newest;
      try {
        await this.#read(model.partial ? model.start : 0);
      } catch (e) {
        if (e instanceof ServerError && (e.status < 500 || e.status === 501)) return; // it has none, or not for everybody
      }
    }
  }

  async #read(start) {
    if (start > this.#after) [this.#after, this.#complete] = [start, false];
    for (let more = true; more && this.#messages.size < most; ) {
      const { costs, next_cursor: next } = await ask(`${this.path}?limit=${pageSize}&cursor=${this.#after}`, { signal: this.signal });
      for (const c of costs) {
        this.#messages.set(c.seq, c);
        this.#after = c.seq;
        this.#show(`seq ${c.seq}`, c);
      }
      more = next !== null;
      if (more && this.#messages.size >= most) this.#complete = false;
    }
    const { costs } = await ask(`${this.path}?by=child&limit=${pageSize}`, { signal: this.signal });
    for (const c of costs) {
      this.#children.set(c.child_id ?? "", c);
      this.#show(`child ${c.child_id ?? ""}`, c);
    }
    this.changed();
  }

  #show(name, c) {
    const e = this.#labels.get(name);
    if (e !== undefined) fillLabel(e, c);
  }

  /** Returns an element that shows what a message has cost, once it is known. */
  ofMessage(seq) {
    return this.#label(`seq ${seq}`, this.#messages.get(seq));
  }

  /** Returns an element that shows what a child has cost, once it is known. */
  ofChild(id) {
    return this.#label(`child ${id}`, this.#children.get(id));
  }

  #label(name, c) {
    const e = this.#labels.get(name) ?? h("span", { class: "hint cost" });
    this.#labels.set(name, e);
    if (c !== undefined) fillLabel(e, c);
    return e;
  }

  /** Returns what all messages up to a seq have cost, and those of each model; undefined where not all of them are known. */
  sumUpTo(seq) {
    if (!this.#complete || this.#messages.size === 0) return undefined;
    const sum = { total: undefined, by_model: {} };
    for (const c of this.#messages.values()) {
      if (c.seq > seq || c.cost_usd === null) continue;
      const name = c.model ?? "";
      sum.total = (sum.total ?? 0) + c.cost_usd;
      sum.by_model[name] = (sum.by_model[name] ?? 0) + c.cost_usd;
    }
    return sum;
  }
}

/** Returns a cost of a page as text: with a + where the cost of some messages is not known, "" where none is. */
export function costText(c) {
  if (c.cost_usd === null) return "";
  return cost(c) + (c.unpriced_messages > 0 ? " +" : "");
}

function fillLabel(e, c) {
  const text = costText(c);
  e.textContent = text === "" ? "" : ` ${text}`;
  e.title = c.unpriced_messages > 0 ? "No price is known for some of it" : "";
}
