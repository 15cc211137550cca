// Events as bars over time: turns, model calls, tools, and waiting for people, in a lane for the run and for each child.

/** The events that begin or end a bar. */
export const spanTypes = [
  "run.lifecycle", "child.spawn", "turn.*", "model.*", "message.*", "tool.start", "tool.run", "tool.end", "input.*", "step.boundary",
  "plan.proposal", "command.*", "task.*", "progress", "loss", "session.*", "custom.*",
];

/** The event of an attempt at a call of a model that has failed, and may be made again (docs/proxy.md). */
export const attempt = "custom.proxy.attempt";

const noted = /^(?:progress$|loss$|custom\.)/; // what is shown as it is, between what was said and done
const mostNotes = 2000, mostOfNote = 200; // notes of a lane, and events of one of them, that are kept

const waits = { awaiting_approval: "approval", paused: "paused" };
const final = new Set(["done", "aborted", "error"]);

/** The bars of a run. Feed it events in their order; deltas are passed over. */
export class Spans {
  lanes = new Map();
  begin = Infinity;
  end = -Infinity;
  size = 0;
  left = ""; // what of the run is here, when it is not all
  version = 0;
  title = null; // of the run's session
  #open = new Map();
  #waiting = []; // events that came before the history was read
  #read = false;
  #last = 0;

  constructor() {
    this.#lane(null);
  }

  /** Takes an event that came live; it waits until the history before it was read. */
  later(event) {
    if (this.#read) this.add(event);
    else this.#waiting.push(event);
  }

  /** The history has been read. */
  ready() {
    this.#read = true;
    for (const e of this.#waiting.splice(0)) this.add(e);
  }

  /** Takes the next event. What was seen before is passed over. */
  add(e) {
    if (e.seq <= this.#last) return;
    this.#last = e.seq;
    const t = Date.parse(e.ts);
    if (Number.isNaN(t)) return;
    this.begin = Math.min(this.begin, t);
    this.end = Math.max(this.end, t);
    this.version++;
    const lane = this.#lane(e.child_id, e.path);
    if (e.type.endsWith(".delta") || e.type === "delta.bundle") return this.#speak(lane, e, t);
    this.size++;
    if (e.type === attempt) this.#retry(lane, e.payload ?? {});
    if (noted.test(e.type)) return note(lane, e);
    lane.note = undefined;
    this.#take(e, t, lane, e.payload ?? {});
  }

  /** Returns the notes of a lane up to an event: { seq, child_id, events, count }. Neighbours of one kind are one note. */
  notes(id, until) {
    return (this.lanes.get(id)?.notes ?? []).filter((n) => n.seq <= until);
  }

  /** Returns a number that is another one after each note of a lane. */
  noted(id) {
    return this.lanes.get(id)?.noted ?? 0;
  }

  /** A call that is tried again is one call, whose bar says how often. */
  #retry(lane, { call_id, attempt }) {
    const bar = this.#open.get(`model\n${lane.id ?? ""}\n${call_id}`);
    if (bar === undefined || !Number.isSafeInteger(attempt)) return;
    bar.model ??= bar.label;
    bar.label = `${bar.model} · attempt ${attempt + 1}`;
  }

  /** A delta without a message begins one. A message is a bar where no call of a model is. */
  #speak(lane, e, t) {
    if (lane.said !== undefined || lane.models > 0 || !/^(?:text|reasoning|data)\.|\.bundle$/.test(e.type)) return;
    this.#start(lane, "message", "", "message", e, t);
    lane.said = "";
  }

  #silence(lane, e, t, ok = true) {
    if (lane.said === undefined) return;
    this.#stop(lane, "message", lane.said, e, t, ok);
    lane.said = undefined;
  }

  #take(e, t, lane, p) {
    switch (e.type) {
      case "session.created":
      case "session.updated":
        if (lane.id === null && p.title !== undefined) this.title = typeof p.title === "string" && p.title !== "" ? p.title : null;
        return;
      case "turn.start":
        return this.#start(lane, "turn", p.turn_id, "turn", e, t);
      case "turn.end":
        return this.#stop(lane, "turn", p.turn_id, e, t, p.stop_reason !== "error");
      case "step.boundary":
        return lane.said === "" ? this.#silence(lane, e, t) : undefined;
      case "message.start":
        this.#silence(lane, e, t);
        if (lane.models > 0 || p.role === "user") return;
        lane.said = p.message_id ?? "-";
        return this.#start(lane, "message", lane.said, p.model ?? p.role ?? "message", e, t);
      case "message.end":
        return this.#silence(lane, e, t, (p.error ?? null) === null);
      case "model.start":
        lane.models++;
        return this.#start(lane, "model", p.call_id, p.model ?? "model", e, t);
      case "model.end":
        lane.models = Math.max(0, lane.models - 1);
        return this.#stop(lane, "model", p.call_id, e, t, p.ok !== false);
      case "tool.start":
        return this.#start(lane, "tool", p.call_id, p.tool ?? "tool", e, t);
      case "tool.end":
        return this.#stop(lane, "tool", p.call_id, e, t, p.ok !== false);
      case "task.start":
        return this.#start(lane, "task", p.task_id, p.name ?? "task", e, t);
      case "task.end":
        return this.#stop(lane, "task", p.task_id, e, t, p.ok !== false);
      case "input.requested":
        return this.#start(lane, "wait", p.request_id, "question", e, t);
      case "command.answer":
      case "input.answered":
        return this.#stop(lane, "wait", p.request_id, e, t, true);
      case "child.spawn": {
        const child = this.#lane(p.child_id, [...(e.path ?? [e.run_id]), p.child_id], lane.id);
        child.prompt ??= p.prompt ?? null;
        child.spawned ??= e.seq;
        return;
      }
      case "run.lifecycle":
        return this.#lifecycle(lane, p, e, t);
    }
  }

  #lifecycle(lane, p, e, t) {
    lane.state = p.state;
    this.#stop(lane, "wait", "state", e, t, true);
    if (waits[p.state]) this.#start(lane, "wait", "state", waits[p.state], e, t);
    if (!final.has(p.state)) return;
    for (const l of lane.id === null ? this.lanes.values() : [lane]) Object.assign(l, { said: undefined, models: 0 });
    for (const [key, bar] of this.#open) if (lane.id === null || bar.lane === lane) this.#close(key, bar, e, t, bar.kind === "wait" || p.state === "done");
  }

  #start(lane, kind, id, label, e, t) {
    const key = `${kind}\n${lane.id ?? ""}\n${id}`;
    const open = this.#open.get(key);
    if (open !== undefined) this.#close(key, open, e, t, true);
    const bar = { lane, kind, label: String(label), from: t, to: undefined, seq: e.seq, last: undefined, ok: true, id, row: 0 };
    this.#open.set(key, bar);
    lane.bars.push(bar);
    place(lane, bar);
  }

  #stop(lane, kind, id, e, t, ok) {
    const key = `${kind}\n${lane.id ?? ""}\n${id}`;
    const bar = this.#open.get(key);
    if (bar !== undefined) this.#close(key, bar, e, t, ok);
  }

  #close(key, bar, e, t, ok) {
    Object.assign(bar, { to: t, last: e.seq, ok });
    this.#open.delete(key);
    bar.lane.free[bar.row] = t;
  }

  #lane(id, path, parent) {
    let lane = this.lanes.get(id ?? null);
    if (lane !== undefined) return lane;
    const up = id === null ? undefined : this.lanes.get(parent ?? (path?.length > 2 ? path.at(-2) : null)) ?? this.lanes.get(null);
    lane = { id: id ?? null, depth: up === undefined ? 0 : up.depth + 1, bars: [], free: [], prompt: null, state: null, notes: [], noted: 0, note: undefined, said: undefined, models: 0 };
    this.lanes.set(lane.id, lane);
    return lane;
  }
}

/** Keeps an event that is shown as it is. */
function note(lane, e) {
  const kind = e.type.split(".", 2).join(".");
  lane.noted++;
  if (lane.note?.kind === kind) {
    lane.note.count++;
    lane.note.last = e.seq;
    lane.note.events.push(e);
    if (lane.note.events.length > mostOfNote) lane.note.events.shift();
    return;
  }
  lane.note = { kind, seq: e.seq, last: e.seq, child_id: lane.id, count: 1, events: [e] };
  lane.notes.push(lane.note);
  if (lane.notes.length > mostNotes) lane.notes.shift();
}

/** Gives a bar the first row of its lane in which nothing is open. */
function place(lane, bar) {
  let row = 0;
  while (lane.free[row] !== undefined && lane.free[row] > bar.from) row++;
  bar.row = row;
  lane.free[row] = Infinity;
}
